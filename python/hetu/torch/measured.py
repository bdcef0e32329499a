"""Chooses where to cut a model, by memory and by the times of its pieces, measured on this machine with one micro-batch."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from hetu import _hetu
from hetu.process import leave
from hetu.torch.cuts import Pieces
from hetu.torch.device import StageDevice, choose, wait_for
from hetu.torch.undisturbed import undisturbed
from hetu.torch.values import flatten, unflatten

STATES = 4  # copies per parameter: the parameter, its gradient, and the two states of Adam
TURNS = 3  # measured runs, after one warm-up run


class PieceCost(NamedTuple):
    """The measured cost of one piece for one micro-batch."""

    forward_s: float
    backward_s: float
    weight_bytes: int  # size of the parameters
    kept_bytes: int  # memory that forward keeps for backward, without parameters
    out_bytes: int  # size of the outputs for the next piece
    copy_s: float  # time to copy these outputs


def cut_by_time(model: Any, loss: Callable[[Any, Any], torch.Tensor], inputs: Any, target: Any, stages: int,
                most_bytes: float = 0, device: Any = None) -> list[int]:
    """Returns the first_pieces of a Pipeline such that the slowest of `stages` stages is as fast as possible.

    Worker 0 measures the pieces of the whole model with a micro-batch (inputs, target) and sends the result to the other
    workers.
    most_bytes: the memory limit of a stage; 0 for none. It covers parameters with gradients and two optimizer states, and
    the micro-batches that 1F1B keeps.
    device: the device to measure on, as for a Pipeline. Pieces are moved there one after the other.
    Throws ValueError if no cut fits, or if there is no such device.
    """
    links = leave.transport(_hetu.env()["worker"])
    told = b""
    if links.worker == 0:
        try:
            Pieces(model).check_count(stages)
            told = json.dumps(_cut(piece_costs(model, loss, inputs, target, device=device), stages, most_bytes)).encode()
        except ValueError as error:
            told = b"!" + str(error).encode()
    told = _hetu.exchange_bytes(links, list(range(links.workers)), told, 0, "the call of cut_by_time()")[0]
    if told.startswith(b"!"):
        raise ValueError(told[1:].decode())
    first: list[int] = json.loads(told)
    return first


def _cut(costs: Sequence[PieceCost], stages: int, most_bytes: float) -> list[int]:
    return list(_hetu.balanced_cut([c.forward_s + c.backward_s for c in costs],
                                   [float(STATES * c.weight_bytes) for c in costs], [float(c.kept_bytes) for c in costs],
                                   stages, most_bytes))


def piece_costs(model: Any, loss: Callable[[Any, Any], torch.Tensor], inputs: Any, target: Any,
                turns: int = TURNS, device: Any = None) -> list[PieceCost]:
    """Returns the cost of each piece of a model, measured over `turns` runs. The last piece includes the loss. Throws
    ValueError for a model without memory."""
    pieces = Pieces(model)
    if any(parameter.is_meta for piece in pieces.pieces for parameter in piece.parameters()):
        raise ValueError("a model that was made in empty() has no memory to measure with; give first_pieces")
    there = StageDevice(choose(device, pieces.whole.named_parameters(), 0))
    target = there.moved(target)
    buffers = [(buffer, buffer.clone()) for buffer in pieces.whole.buffers()]
    drawn = torch.get_rng_state()
    costs, value = [], there.moved(inputs)
    with undisturbed(pieces.pieces, compiled=True):
        for number, piece in enumerate(pieces.pieces):
            last = number == len(pieces.pieces) - 1
            ends = (lambda out: loss(out, target)) if last else None
            with there.step(), there.borrowing(piece, loss):
                cost, value = _measured(piece, value, ends, turns, there.device)
            costs.append(cost)
    for buffer, before in buffers:
        buffer.copy_(before)
    torch.set_rng_state(drawn)
    return costs


def _measured(piece: nn.Module, value: Any, loss: Callable[[Any], torch.Tensor] | None, turns: int,
              device: torch.device) -> tuple[PieceCost, Any]:
    def now() -> float:
        wait_for(device)
        return time.perf_counter()

    leaves, tree = flatten(value)
    seconds = []
    for _ in range(1 + turns):
        given = [leaf.detach().requires_grad_() if _learns(leaf) else leaf for leaf in leaves]
        kept = _Kept(piece)
        start = now()
        with torch.autograd.graph.saved_tensors_hooks(kept.keep, lambda tensor: tensor):
            out = piece(unflatten(given, tree))
            roots = [loss(out)] if loss else [leaf for leaf in flatten(out)[0] if _learns(leaf) and leaf.requires_grad]
        middle = now()
        if any(root.requires_grad for root in roots):
            torch.autograd.grad(roots, [*(p for p in piece.parameters() if p.requires_grad), *filter(_learns, given)],
                                [torch.ones_like(root) for root in roots], allow_unused=True)
        seconds.append((middle - start, now() - middle))
    made = [leaf for leaf in flatten(out)[0] if isinstance(leaf, torch.Tensor)]
    weights = sum(p.numel() * p.element_size() for p in piece.parameters())
    forward, backward = (_typical(times) for times in zip(*seconds[1:], strict=True))
    copies = []
    for _ in range(turns):
        start = now()
        for tensor in made:
            tensor.detach().clone()
        copies.append(now() - start)
    size = sum(tensor.numel() * tensor.element_size() for tensor in made)
    return PieceCost(forward, backward, weights, kept.bytes, size, _typical(copies)), out


def _typical(seconds: Sequence[float]) -> float:
    """Returns the mean of the values within 15 % of the median. Source: Varuna's profiler (Athlur et al. 2022)."""
    middle = statistics.median(seconds)
    near = [s for s in seconds if abs(s - middle) <= 0.15 * middle]
    return statistics.mean(near) if near else middle


class _Kept:
    """Counts the bytes that forward keeps for backward, each memory block once."""

    def __init__(self, piece: nn.Module) -> None:
        # Storages are told apart by their own address, because those of fake tensors have no memory.
        self.seen = {p.untyped_storage()._cdata for p in piece.parameters()}
        self.bytes = 0

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Counts the memory of `tensor` and returns the tensor."""
        memory = tensor.untyped_storage()
        if memory._cdata not in self.seen:
            self.seen.add(memory._cdata)
            self.bytes += memory.nbytes()
        return tensor


def _learns(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
