"""Measures the pieces of a model one by one: times and bytes of a micro-batch, in the form of a cost file of `hetu plan`.

Each piece is measured as a stage would run it: with the gradients that reach it, with gradients that are added to existing
ones, and in its current mode. The model is left as it was.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from hetu.torch.device import StageDevice, wait_for
from hetu.torch.live_bytes import LiveBytes, storages_of
from hetu.torch.modes import autocast_devices, without_autocast
from hetu.torch.split_backward import DeferredGradients
from hetu.torch.values import flatten, unflatten

MakeOptimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
PARTS = ("forward", "backward", "recompute", "input_grad", "weight_grad", "update")
FAR = 0.15  # share of the median; a measured time farther from it doesn't count
STEADY = 0.1  # a spread below which no more turns are needed
MORE = 8  # the most turns, as a multiple of those asked for
MORE_S = 2.0  # the most time per piece until there are no further rounds than those asked for


class Span(NamedTuple):
    """A measured time."""

    seconds: float
    is_disturbed: bool  # the system has run something else in between


class Measuring(NamedTuple):
    """The parameters of a measurement."""

    make_optimizer: MakeOptimizer
    turns: int  # rounds after a warm-up; pieces whose times vary have more
    there: StageDevice


class Block(NamedTuple):
    """A piece's costs, and how much its times vary."""

    costs: dict[str, float]  # an entry of "blocks" in a cost file; times in ms
    spread: dict[str, float]  # by part: half of the distance between the quartiles, as a share of the median
    variation: float  # the same of a forward and a backward together, over all rounds


def block_costs(pieces: Sequence[nn.Module], loss: Callable[[Any, Any], torch.Tensor], inputs: Any, target: Any,
                how: Measuring) -> list[Block]:
    """Returns the costs of each piece for the micro-batch (inputs, target). The last piece includes the loss.

    Times are measured in rounds over all pieces. A busy phase of the machine then slows all pieces alike, and the plan
    depends on their ratios. Pieces whose times vary have further rounds.
    """
    there = how.there
    value, target = there.moved(inputs), there.moved(target)
    fields, targets = storages_of(flatten(value)[0]), storages_of(flatten(target)[0])
    batch = fields | targets
    kept = batch.copy()  # storages that need no memory of their own: those of the batch, and those counted before
    found: list[_Rounds] = []
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        end = (lambda out: loss(out, target)) if last else None
        with there.step(), there.borrowing(piece, loss), _own_gradients(piece):
            one = _Piece(piece, value, end, batch, there.device)
            costs, value = one.bytes(kept)
            one.turn()  # a warm-up
        feed = (fields if number == 0 else {}) | (targets if last else {})
        found.append(_Rounds(one, {**costs, "feed_bytes": float(sum(feed.values()))}))
    start, turn = time.perf_counter(), 0
    while todo := found if turn < how.turns else [each for each in found if each.varies(how.turns)]:
        if turn >= how.turns and (turn >= MORE * how.turns or time.perf_counter() - start > MORE_S * len(found)):
            break
        for rounds in todo:
            with there.step(), there.borrowing(rounds.measured.piece, loss), _own_gradients(rounds.measured.piece):
                rounds.measure(how)
        turn += 1
    return [rounds.block(how.turns) for rounds in found]


class _Rounds:
    """The measurements of a piece, one per round."""

    def __init__(self, measured: _Piece, costs: dict[str, float]) -> None:
        self.measured, self.costs = measured, costs
        self.rows: list[tuple[Span, ...]] = []  # by round, in the order of PARTS
        self.state_bytes = 0

    def measure(self, how: Measuring) -> None:
        """Measures one round."""
        # The copies that are updated don't stay in memory between the rounds.
        update, self.state_bytes = _update_of(self.measured.piece, how.make_optimizer, self.measured.device)
        self.rows.append((*self.measured.turn(), *update()))

    def varies(self, turns: int) -> bool:
        """Returns true if the times of a part are far apart."""
        return any(_spread(part) > STEADY for part in _parts(self.rows, turns))

    def block(self, turns: int) -> Block:
        """Returns the costs by all rounds."""
        by_part = dict(zip(PARTS, _parts(self.rows, turns), strict=True))
        self.costs.update(_milliseconds(by_part))
        self.costs["weight_bytes"] += self.state_bytes
        whole = [row[0].seconds + row[1].seconds for row in self.rows]
        return Block(self.costs, {part: _spread(seconds) for part, seconds in by_part.items()}, _spread(whole))


def _parts(rows: Sequence[tuple[Span, ...]], turns: int) -> list[list[float]]:
    """Returns the seconds of each part. Times that are disturbed don't count if enough others are there: on a busy machine,
    pauses come at the same place of every turn, so that a median doesn't leave them out."""
    found = []
    for part in zip(*rows, strict=True):
        calm = [span.seconds for span in part if not span.is_disturbed]
        found.append(calm if len(calm) >= min(turns, 3) else [span.seconds for span in part])
    return found


class _Clock:
    """Measures spans of time. On a device, each span ends when the device has done its work."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.spans: list[Span] = []
        self.start()

    def start(self) -> None:
        """Begins a span."""
        wait_for(self.device)
        self.pauses = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        self.begin = time.perf_counter()

    def stop(self) -> None:
        """Ends the span, and begins the next one."""
        wait_for(self.device)
        seconds = time.perf_counter() - self.begin
        self.spans.append(Span(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw > self.pauses))
        self.start()


def _milliseconds(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns the times of a cost file. A backward in two parts takes longer than a whole one; a cost file has one time for
    both, so the parts are scaled to the whole backward."""
    typical = {part: 1e3 * _typical(times) for part, times in seconds.items()}
    whole, parts = typical.pop("backward"), typical["input_grad"] + typical["weight_grad"]
    factor = whole / parts if parts else 0.0
    return typical | {"input_grad": typical["input_grad"] * factor, "weight_grad": typical["weight_grad"] * factor,
                      "weight": typical["forward"] + whole}


def _typical(seconds: Sequence[float]) -> float:
    """Returns the mean of the values that are near the median."""
    middle = statistics.median(seconds)
    near = [s for s in seconds if abs(s - middle) <= FAR * middle]
    return statistics.mean(near) if near else middle


def _spread(seconds: Sequence[float]) -> float:
    middle = statistics.median(seconds)
    if len(seconds) < 2 or middle <= 0:
        return 0.0
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return (high - low) / 2 / middle


class _Piece:
    """A piece, with the values that it reads."""

    def __init__(self, piece: nn.Module, value: Any, loss: Callable[[Any], torch.Tensor] | None, batch: dict[int, int],
                 device: torch.device) -> None:
        self.piece, self.loss, self.batch, self.device = piece, loss, batch, device
        self.given, self.tree = flatten(value)
        self.autocast = autocast_devices()
        self.changed = self._changed()

    def _changed(self) -> set[int]:
        """Returns the leaves of the input that the piece writes to. A stage gives it copies of these."""
        with torch.no_grad():
            tried = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in self.given]
            self.piece(unflatten(tried, self.tree))
        return {n for n, leaf in enumerate(tried) if isinstance(leaf, torch.Tensor) and leaf._version > 0}

    def _leaves(self) -> tuple[list[Any], list[torch.Tensor]]:
        """Returns new leaves of the input, and those of them whose gradient is computed."""
        leaves = [leaf.detach().requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf
                  for leaf in self.given]
        return leaves, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]

    def _forward(self, leaves: list[Any]) -> tuple[Any, list[torch.Tensor]]:
        """Returns the output, and the tensors from which gradients flow back."""
        given = [leaf.clone() if n in self.changed else leaf for n, leaf in enumerate(leaves)]
        out = self.piece(unflatten(given, self.tree))
        roots = [self.loss(out)] if self.loss else self._made(out)
        if self.autocast:
            torch.clear_autocast_cache()
        return out, [root for root in roots if root.requires_grad]

    def _made(self, out: Any) -> list[torch.Tensor]:
        """Returns the tensors of an output that don't come from the batch."""
        return [leaf for leaf in flatten(out)[0]
                if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in self.batch]

    def turn(self) -> tuple[Span, ...]:
        """Returns the times of a forward, a backward, another forward, and the two parts of its backward."""
        leaves, _ = self._leaves()
        clock = _Clock(self.device)
        _, roots = self._forward(leaves)
        clock.stop()
        with without_autocast(self.autocast):
            if roots:
                torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
            clock.stop()
        leaves, learning = self._leaves()
        clock.start()
        _, roots = self._forward(leaves)
        clock.stop()
        with without_autocast(self.autocast):
            deferred = DeferredGradients(roots, [None] * len(roots), learning) if roots else None
            clock.stop()
            if deferred:
                deferred.run()
            clock.stop()
        return tuple(clock.spans)

    def bytes(self, kept: dict[int, int]) -> tuple[dict[str, float], Any]:
        """Returns the bytes of the cost file, and the output without its graph. A tensor that several pieces keep counts
        for the first one.

        kept: the storages that are counted already. Storages of the output that this piece keeps are added.
        """
        weights = {id(p): p for p in self.piece.parameters()}.values()
        own = storages_of([*weights, *self.piece.buffers()])
        live, counted = LiveBytes(), {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            counted.update(storages_of([tensor]))
            return tensor

        with live:
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                out, roots = self._forward(self._leaves()[0])
            saved = {key: size for key, size in counted.items() if key not in own and key not in kept}
            with without_autocast(self.autocast):
                if roots:
                    torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
        made = storages_of(self._made(out))
        gradients = sum(p.numel() * p.element_size() for p in weights if p.requires_grad)
        values = sum(t.numel() * t.element_size() for t in [*weights, *self.piece.buffers()])
        activation = sum(saved.values())
        costs = {"activation_bytes": float(activation), "weight_bytes": float(values + gradients),
                 "gradient_bytes": float(gradients), "bytes_out": 0.0 if self.loss else float(sum(made.values())),
                 "working_bytes": float(max(0, live.peak - activation))}
        leaves, tree = flatten(out)
        after = [leaf.detach().requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf
                 for leaf in leaves]
        counted_out = {key: size for key, size in made.items() if key in counted}
        kept.clear()
        kept.update(self.batch | counted_out)
        return costs, unflatten(after, tree)


@contextmanager
def _own_gradients(piece: nn.Module) -> Iterator[None]:
    """Gives each parameter a gradient of zeros inside the `with` block, so that backwards add to it as in a step of several
    micro-batches. Afterwards each parameter has its former gradient."""
    before = [(p, p.grad) for p in piece.parameters()]
    for p, _ in before:
        p.grad = torch.zeros_like(p) if p.requires_grad else None
    try:
        yield
    finally:
        for p, gradient in before:
            p.grad = gradient


def _update_of(piece: nn.Module, make: MakeOptimizer, device: torch.device) -> tuple[Callable[[], tuple[Span, ...]], int]:
    """Returns a function that measures an update of a copy of the parameters, and the bytes of the optimizer's states."""
    copies = [p.detach().clone().requires_grad_() for p in piece.parameters() if p.requires_grad]
    for copy in copies:
        copy.grad = torch.full_like(copy, 1e-3)
    optimizer = make(copies) if copies else None

    def update() -> tuple[Span, ...]:
        clock = _Clock(device)
        if optimizer:
            optimizer.step()
        clock.stop()
        return tuple(clock.spans)

    update()
    return update, sum(_state_bytes(optimizer.state.values())) if optimizer else 0


def _state_bytes(states: Iterable[Any]) -> Iterator[int]:
    for state in states:
        for value in state.values():
            if isinstance(value, torch.Tensor) and value.dim() > 0:
                yield value.numel() * value.element_size()
