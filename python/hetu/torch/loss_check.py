"""Checks that the weighted losses of micro-batches add up to the loss of the batch.

The last stage compares each micro-batch with the one before it. The weighted losses of the two must give the loss of their
concatenated outputs and targets. The first micro-batch is compared with its own two halves, because a worker may have only
one micro-batch. The check holds the outputs of two micro-batches, not of the whole batch. It evaluates the loss about three
times as often in a checked step. It uses existing outputs; no stage computes anything twice.
"""

from __future__ import annotations

import contextlib
import math
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from hetu.torch.buffers import with_buffers
from hetu.torch.losses import OUTPUTS, ROWS, SUM, LossRule
from hetu.torch.undisturbed import undisturbed
from hetu.torch.values import flatten, unflatten

FIRST = 2  # steps of each kind that are always checked; afterwards check_loss_every decides
# Tolerance relative to the distance of the two losses: a smaller deviation means a negligible error of the
# weights.
SPREAD = 1e-3
ROUNDING = 1e-5  # tolerance relative to the losses, for float32 rounding


class Part(NamedTuple):
    """A micro-batch on the last stage, or half of one."""

    name: str
    output: Any
    target: Any
    rows: int
    loss: float
    weight: float


class LossCheck:
    """The loss check of one worker. `every` is the number of steps between two checks; 0 disables it."""

    def __init__(self, loss: Callable[[Any, Any], torch.Tensor], rule: LossRule, every: int) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 0:
            raise ValueError(f"check_loss_every={every!r}: expected a number of steps, or 0 for no check")
        self.loss, self.rule, self.every = loss, rule, every
        self.counts = {True: 0, False: 0}  # training steps and evaluations
        self.on = False
        self.before: Part | None = None
        self.problem = ""
        self.device_state: Callable[[], torch.Tensor | None] = lambda: None  # state of the stages' random generator
        self.drawing = False  # true if the loss uses random numbers, so that losses can't be compared

    def begin(self, training: bool, micro_batches: int) -> None:
        """Begins a step or an evaluation. `micro_batches` is the number in all pipelines. A single micro-batch needs no
        check, and 0 means a call without a loss."""
        count = self.counts[training]
        self.counts[training] += micro_batches > 0
        self.on = micro_batches > 1 and self.every > 0 and (count < FIRST or count % self.every == 0) and not self.drawing
        self.before, self.problem = None, ""

    def evaluate(self, output: Any, target: Any) -> torch.Tensor:
        """Returns the loss of a micro-batch, and notes if the loss uses random numbers."""
        if not self.on:
            return self.loss(output, target)
        drawn = self._random_state()
        loss = self.loss(output, target)
        if not _same_state(drawn, self._random_state()):
            self._note_drawing()
        return loss

    def _random_state(self) -> tuple[Any, ...]:
        numpy = sys.modules.get("numpy")
        return torch.get_rng_state(), self.device_state(), random.getstate(), numpy.random.get_state() if numpy else None

    def add(self, micro: int, output: Any, target: Any, rows: int, loss: float, weight: float) -> None:
        """Compares one more micro-batch, whose loss is `loss`. Stores an error text in `problem` if the comparison fails."""
        if not self.on or self.problem:
            return
        part = Part(f"micro-batch {micro}", _detached(output), target, rows, loss, weight)
        with torch.no_grad(), _undone(self.loss):
            if self.before is None:
                halves = self._halves(part)
                if halves is not None:
                    self._compare(*halves, part, f"the two halves of {part.name}")
            else:
                joined = self._joined(self.before, part)
                if joined is not None:
                    self._compare(self.before, part, joined, f"{self.before.name} and {part.name}")
        self.before = part

    def _halves(self, part: Part) -> tuple[Part, Part] | None:
        if part.rows < 2:
            return None
        first = part.rows // 2
        halves = []
        for begin, end in ((0, first), (first, part.rows)):
            output = _cut(part.output, part.rows, begin, end)
            target = _cut(part.target, part.rows, begin, end) or (part.target,)
            if output is None:
                return None
            halves.append(self._part("half", output[0], target[0], end - begin))
        return halves[0], halves[1]

    def _joined(self, one: Part, two: Part) -> Part | None:
        output = _joined(one.output, two.output, one.rows, two.rows)
        target = _joined(one.target, two.target, one.rows, two.rows)
        if output is None or target is None:
            return None
        return self._part("both", output[0], target[0], one.rows + two.rows)

    def _part(self, name: str, output: Any, target: Any, rows: int) -> Part:
        if self.rule.kind == OUTPUTS:
            weight = self.rule.of_output(output, target)
        else:
            weight, = self.rule.before([target], [rows])
        loss = float(self.loss(output, target)) if weight else 0.0
        return Part(name, output, target, rows, loss, weight)

    def _compare(self, one: Part, two: Part, whole: Part, what: str) -> None:
        if _agree(self.rule.kind, one, two, whole):
            return
        if any(part.weight and _low(part) for part in (one, two, whole)):  # bfloat16 rounds too much for a verdict
            try:
                one, two, whole = (self._part(p.name, _in_float32(p.output), p.target, p.rows) for p in (one, two, whole))
            except RuntimeError:  # the loss has tensors of its own in the outputs' dtype
                return
            if _agree(self.rule.kind, one, two, whole):
                return
        again = [self._part(part.name, part.output, part.target, part.rows).loss for part in (one, two, whole)]
        if repr(again) != repr([part.loss for part in (one, two, whole)]):  # compared as text, because NaN must equal NaN
            self._note_drawing()
            return
        combined = _combined(self.rule.kind, one, two)
        rule = {ROWS: "weighted by their samples", SUM: "added because of loss_reduction=\"sum\""}.get(
            self.rule.kind, "weighted by loss_weight")
        self.problem = (
            f"the losses of {what}, {one.loss:.7g} and {two.loss:.7g}, {rule} ({one.weight:g} and {two.weight:g}), give "
            f"{combined:.7g}, but the loss of both together is {whole.loss:.7g}, so the gradients would be wrong. Give "
            f"loss_weight=, a function of the target that returns the weight of a micro-batch, such as "
            f"hetu.torch.token_count(ignore_index=-100) for a mean over tokens, or loss_reduction=\"sum\" for a sum. A loss "
            f"that compares samples with each other needs micro_batches=1. check_loss_every=0 turns this check off")

    def _note_drawing(self) -> None:
        self.on, self.drawing = False, True
        print("hetu.torch: the loss uses random numbers or changes between calls, so Hetu can't check that the losses of "
              "micro-batches make up the loss of the batch (check_loss_every=0 turns off this check and this line)",
              file=sys.stderr)


def _combined(kind: str, one: Part, two: Part) -> float:
    parts = [part for part in (one, two) if part.weight]
    total = sum(part.loss * part.weight for part in parts)
    return total if kind == SUM else total / sum(part.weight for part in parts)


def _agree(kind: str, one: Part, two: Part, whole: Part) -> bool:
    if not one.weight and not two.weight:
        return True
    combined = _combined(kind, one, two)
    if not math.isfinite(whole.loss):
        return True  # the caller reports it
    if not math.isfinite(combined):
        return False
    # Weights that are wrong by w move the combined mean by w times the difference of the two losses. So the tolerance
    # grows with that difference: losses that are nearly equal would agree under any weights.
    spread = 0.0 if kind == SUM or not (one.weight and two.weight) else abs(one.loss - two.loss)
    largest = max(abs(part.loss) for part in (one, two, whole) if part.weight)
    return abs(combined - whole.loss) <= SPREAD * spread + ROUNDING * largest


def _low(part: Part) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float16, torch.bfloat16)
               for leaf in flatten(part.output)[0])


def _in_float32(value: Any) -> Any:
    leaves, tree = flatten(value)
    return unflatten([leaf.float() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf
                      for leaf in leaves], tree)


def _detached(value: Any) -> Any:
    leaves, tree = flatten(value)
    return unflatten([leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], tree)


def _has_rows(leaf: Any, rows: int) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.shape[0] == rows


def _cut(value: Any, rows: int, begin: int, end: int) -> tuple[Any] | None:
    """Returns rows `begin` to `end` of a micro-batch, in a tuple, or None if it has no tensor with rows."""
    leaves, tree = flatten(value)
    if not any(_has_rows(leaf, rows) for leaf in leaves):
        return None
    return (unflatten([leaf[begin:end] if _has_rows(leaf, rows) else leaf for leaf in leaves], tree),)


def _joined(one: Any, two: Any, rows: int, more: int) -> tuple[Any] | None:
    """Returns two micro-batches as one, in a tuple, or None if a tensor neither has rows nor is equal in both."""
    leaves, tree = flatten(one)
    others = flatten(two)[0]
    out = []
    for leaf, other in zip(leaves, others, strict=True):
        if _has_rows(leaf, rows) and _has_rows(other, more) and leaf.shape[1:] == other.shape[1:] and leaf is not other:
            out.append(torch.cat([leaf, other]))
        elif not isinstance(leaf, torch.Tensor) or leaf is other or torch.equal(leaf, other):
            out.append(leaf)
        else:
            return None
    return (unflatten(out, tree),)


# ---- state that a check restores ----


def _same_state(one: tuple[Any, ...], two: tuple[Any, ...]) -> bool:
    same_device = one[1] is None or torch.equal(one[1], two[1])
    return torch.equal(one[0], two[0]) and same_device and one[2] == two[2] and repr(one[3]) == repr(two[3])


@contextlib.contextmanager
def _undone(loss: Any) -> Iterator[None]:
    """Undoes the changes that calls of the loss make inside the `with` block: random states, buffers of a module, and what
    undisturbed() covers. So a loss that counts or collects is affected only by the calls of training."""
    module = loss if isinstance(loss, nn.Module) else nn.Module()
    with undisturbed([], loss, compiled=True), with_buffers(module, [buffer.clone() for buffer in module.buffers()]):
        yield
