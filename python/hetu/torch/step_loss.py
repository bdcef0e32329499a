"""The loss of a step on the worker that has the last stage, and the numbers that all workers receive from it.

Workers sum one list of numbers per step. Each worker adds the numbers that only it knows: the weighted loss of each
micro-batch of all pipelines; each weight, if weights depend on outputs; and a flag if the loss check found a problem.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hetu.process import leave
from hetu.torch.loss_check import LossCheck
from hetu.torch.losses import OUTPUTS, ROWS, LossRule, without_gradient

MOST_REPORTS = 10  # most steps whose non-finite losses are reported


class StepLoss:
    """Combines the losses of micro-batches by a rule."""

    def __init__(self, loss: Callable[[Any, Any], torch.Tensor], rule: LossRule, check_every: int, worker: int,
                 pipeline: int, pipelines: int) -> None:
        self.loss, self.rule, self.worker = loss, rule, worker
        self.pipeline, self.pipelines = pipeline, pipelines
        self.check = LossCheck(loss, rule, check_every)
        self.sizes: Sequence[int] = []
        self.weights: Sequence[float] = []
        self.first = 0  # the number of this pipeline's first micro-batch
        self.count = 0  # micro-batches of all pipelines
        self.problem_at = 0  # index of the number that reports a problem of the loss check
        self.total = 1.0  # the divisor of the weights
        self.is_prediction = False  # true if there is no target and no loss
        self.when = ""
        # Micro-batches of this worker in the step with non-finite losses, and these losses.
        self.not_finite: list[tuple[int, float]] = []
        self.reports = 0

    def begin(self, training: bool, step: int, sizes: Sequence[int], weights: Sequence[float], total: float
              ) -> list[float]:
        """Begins a step and returns its numbers, all 0. `total` is the divisor of the weights."""
        self.when = f"of pipeline {self.pipeline} in step {step}" if training else (
            f"of pipeline {self.pipeline} in an evaluation after {step} steps")
        self.not_finite = []
        self.sizes, self.weights, self.total = sizes, weights, total
        self.first, self.count = self.pipeline * len(sizes), self.pipelines * len(sizes)
        self.problem_at = self.count * (2 if self.rule.kind == OUTPUTS else 1)
        self.check.begin(training, 0 if self.is_prediction else self.count)
        return [0.0] * (self.problem_at + 1)

    def compute(self, micro: int, output: Any, target: Any, put: Callable[[int, float], None] | None) -> torch.Tensor:
        """Returns the weighted loss of a micro-batch. `put` sets one of this worker's numbers. It is None if the numbers
        are already set and the loss is computed again, for a backward with recomputation."""
        weight = self.weights[micro]
        if self.is_prediction:
            return torch.zeros(())
        loss = self.check.evaluate(output, target) if put else self.loss(output, target)
        if not isinstance(loss, torch.Tensor) or loss.dim() > 0:
            found = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ValueError(f"the loss of a micro-batch must be a scalar; got {found}")
        if self.rule.kind == OUTPUTS:
            weight = self.rule.of_output(output, target)
            if put:
                put(self.count + self.first + micro, weight)
        if put and self.check.on and self.weights[micro]:
            self.check.add(micro, output, target, self.sizes[micro], loss.item(), weight)
            if self.check.problem:
                put(self.problem_at, 1.0)
        if weight == 0:
            return without_gradient(output, loss)
        weighted = loss * (weight / self.total)
        if put:
            value = weighted.item()
            put(self.first + micro, value)
            if not math.isfinite(value):
                self.not_finite.append((micro, loss.item()))
        return weighted

    def finish(self, sums: Sequence[float]) -> tuple[float, float]:
        """Returns the loss of the step, and the factor that its gradients must still be multiplied by. Warns about
        non-finite losses of this worker. Throws ValueError if no micro-batch has a weight above 0."""
        self._report()
        loss = float(sum(sums[:self.count]))
        if self.rule.kind != OUTPUTS:
            return loss, 1.0
        weight = sum(sums[self.count:2 * self.count])
        if weight == 0:
            raise ValueError(NOTHING)
        return loss * (self.total / weight), self.total / weight


    def _report(self) -> None:
        if not self.not_finite or self.reports == MOST_REPORTS:
            return
        self.reports += 1
        found = ", ".join(f"{value} (micro-batch {micro})" for micro, value in sorted(self.not_finite))
        hint = "" if self.rule.kind != ROWS else (
            ". If the loss is a mean over labels, and a micro-batch has none, give loss_weight=hetu.torch.token_count()")
        last = "" if self.reports < MOST_REPORTS else ". Further steps aren't reported"
        note = f" ({leave.numbering})" if leave.numbering else ""
        warnings.warn(f"worker {self.worker}{note}: losses {self.when} aren't finite: {found}{hint}{last}", RuntimeWarning,
                      stacklevel=2)


NOTHING = ("loss_weight is 0 for every micro-batch of the step, so there is no mean. Leave out batches in which no sample "
           "has a label.")
