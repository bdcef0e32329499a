"""The loss of a step on the worker that has the last stage, and what all workers learn of it.

Workers sum one list of numbers per step, to which each adds what it alone knows: the weighted loss of each micro-batch of
all pipelines, with weights that depend on outputs each weight, and whether the check of the loss found a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hetu.torch.loss_check import LossCheck
from hetu.torch.losses import OUTPUTS, LossRule, without_gradient


class StepLoss:
    """Combines the losses of micro-batches by a rule."""

    def __init__(self, loss: Callable[[Any, Any], torch.Tensor], rule: LossRule, check_every: int) -> None:
        self.loss, self.rule = loss, rule
        self.check = LossCheck(loss, rule, check_every)
        self.sizes: Sequence[int] = []
        self.weights: Sequence[float] = []
        self.first = 0  # the number of this pipeline's first micro-batch
        self.count = 0  # micro-batches of all pipelines
        self.problem_at = 0  # the number that says that the check has found a problem
        self.total = 1.0  # what weights are divided by

    def begin(self, training: bool, sizes: Sequence[int], weights: Sequence[float], total: float, pipeline: int,
              pipelines: int) -> list[float]:
        """Begins a step and returns its numbers, all 0. `total`: what the weights are divided by."""
        self.sizes, self.weights, self.total = sizes, weights, total
        self.first, self.count = pipeline * len(sizes), pipelines * len(sizes)
        self.problem_at = self.count * (2 if self.rule.kind == OUTPUTS else 1)
        self.check.begin(training, self.count)
        return [0.0] * (self.problem_at + 1)

    def compute(self, micro: int, output: Any, target: Any, put: Callable[[int, float], None] | None) -> torch.Tensor:
        """Returns the weighted loss of a micro-batch. `put` sets one of this worker's numbers; None: they are set
        already, and the loss is computed a second time, for a backward with recompute."""
        weight = self.weights[micro]
        if weight == 0:
            return without_gradient(output)
        loss = self.check.evaluate(output, target) if put else self.loss(output, target)
        if not isinstance(loss, torch.Tensor) or loss.dim() > 0:
            found = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ValueError(f"the loss of a micro-batch must be a scalar; got {found}")
        if self.rule.kind == OUTPUTS:
            weight = self.rule.of_output(output, target)
            if put:
                put(self.count + self.first + micro, weight)
        if put and self.check.on:
            self.check.add(micro, output, target, self.sizes[micro], loss.item(), weight)
            if self.check.problem:
                put(self.problem_at, 1.0)
        if weight == 0:
            return without_gradient(output)
        weighted = loss * (weight / self.total)
        if put:
            put(self.first + micro, weighted.item())
        return weighted

    def finish(self, sums: Sequence[float]) -> tuple[float, float]:
        """Returns the loss of the step, and what its gradients are yet to be multiplied by. Throws ValueError if no
        micro-batch counts."""
        loss = float(sum(sums[:self.count]))
        if self.rule.kind != OUTPUTS:
            return loss, 1.0
        weight = sum(sums[self.count:2 * self.count])
        if weight == 0:
            raise ValueError(NOTHING)
        return loss * (self.total / weight), self.total / weight


NOTHING = ("loss_weight is 0 for every micro-batch of the step: a mean over nothing. Leave out batches in which no sample "
           "has a label")
