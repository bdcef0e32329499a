"""The gradients of a worker over a step: which are summed over copies, which are added later, and which are dropped."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from hetu.torch.device import StageDevice
from hetu.torch.functions import StageFunctions
from hetu.torch.gradients import Summed
from hetu.torch.holding import Holding
from hetu.torch.shards import Shards
from hetu.torch.tree_sums import TreeSums


class GradientSums:
    """The gradients of this worker's parameters.

    pipelines: the number of pipelines whose gradients are summed.
    by_tree: gradients are added in the order of a tree.
    """

    def __init__(self, held: Holding, functions: StageFunctions, device: StageDevice, shards: Shards | None,
                 pipelines: int, by_tree: bool) -> None:
        self.held, self.functions, self.device, self.shards = held, functions, device, shards
        self.pipelines, self.by_tree = pipelines, by_tree
        self.first_use = 0  # index of the first number that reports which parameters have a gradient
        self.summed: list[Summed] = []
        # Requires_grad of the parameters when the memory of gradients was last laid out.
        self.trained: tuple[bool, ...] | None = None
        self.to_add: list[tuple[nn.Parameter, torch.Tensor]] = []  # after the step

    def copies(self, stage: int) -> int:
        """Returns the number of copies of a model stage whose gradients are summed."""
        return self.pipelines * self.held.copies(stage)

    def begin(self, first_use: int, accumulate: bool, multiplies: bool) -> int:
        """Drops the gradients of the step before, unless they accumulate. Returns the number of values that report which
        parameters have received a gradient. They follow the `first_use` other numbers of the step.

        multiplies: the gradients are multiplied by a factor after the step.
        """
        self.first_use = first_use
        parameters = list(self.held.parameters())
        trained = tuple(parameter.requires_grad for parameter in parameters)
        if trained != self.trained:
            self._lay_out()
            self.trained = trained
        self.to_add = self._detach(parameters, multiplies or self.by_tree) if accumulate else []
        for parameter in [] if accumulate else parameters:
            parameter.grad = None
        for summed in self.summed:
            summed.begin()
        for tree in self.functions.trees.values():
            tree.begin()
        stages = {placement["model_stage"] for placement in self.held.placements}
        is_summed = bool(self.held.ties) or any(self.copies(stage) > 1 for stage in stages)
        return len(self.held.numbers) if is_summed else 0

    def end_sums(self, numbers: Sequence[float]) -> None:
        """Drops the sums that no copy has contributed to. `numbers` are those of the step, summed over the workers."""
        for summed in self.summed:
            summed.end(numbers[self.first_use:])

    def end(self, factor: float) -> None:
        """Multiplies the gradients of this step, and then adds those of the steps before."""
        if factor != 1:
            gradients = {p.grad.data_ptr(): p.grad for p in self.held.parameters() if p.grad is not None}
            with torch.no_grad():
                for gradient in gradients.values():
                    gradient.mul_(factor)
        with torch.no_grad():
            for parameter, gradient in self.to_add:
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        self.to_add = []

    def _detach(self, parameters: Sequence[nn.Parameter], multiplies: bool) -> list[tuple[nn.Parameter, torch.Tensor]]:
        """Detaches the gradients that a step can't add to micro-batch by micro-batch: sums over copies, and gradients that
        are multiplied after the step. All other gradients stay, and receive the same additions as in plain PyTorch."""
        summed = {id(view.parameter) for summed in self.summed for view in summed.views}
        found = []
        for parameter in parameters:
            if parameter.grad is not None and (id(parameter) in summed or multiplies):
                found.append((parameter, parameter.grad.clone()))
                parameter.grad = None
        return found

    def _lay_out(self) -> None:
        """Lays out the memory of gradients that copies sum, for the parameters that require a gradient."""
        held, job = self.held, self.functions.job
        pairs = sorted({tie.stages for tie in held.ties})
        shared = {id(copy): pairs.index(tie.stages) for tie in held.ties for copy in tie.copies}
        numbers = {id(tie.copies[1]): held.numbers[tie.names[0]] for tie in held.ties}
        for placement, stage in held.own.items():
            slots, steps = job.sums(placement) if self.by_tree else (0, {})
            number = held.placements[placement]["model_stage"]
            mine = [(name, p) for name, p in held.named(stage) if p.requires_grad]
            number_of = {id(p): numbers.get(id(p), held.numbers[name]) for name, p in mine}
            # Two stages may hold their shared parameters in different orders, but sums are over equal offsets.
            mine.sort(key=lambda one: number_of[id(one[1])])
            parts = [(1 + t, [(n, p) for n, p in mine if shared.get(id(p)) == t]) for t in range(len(pairs))]
            if self.copies(number) > 1:
                parts.insert(0, (0, [(n, p) for n, p in mine if id(p) not in shared]))
            summed = Summed(parts, number_of, self._note_use, self.shards, slots)
            memories = iter(self.device.host_sums(placement, [memory for array in summed.arrays for memory in array]))
            arrays = [[next(memories).numpy() for _ in array] for array in summed.arrays]
            job.set_gradients(placement, number, arrays, summed.parts, summed.owners)
            self.functions.summed[placement] = summed
            if self.by_tree:
                self.functions.trees[placement] = TreeSums(slots, steps, mine, summed)
        self.summed = list(self.functions.summed.values())

    def _note_use(self, number: int) -> None:
        """Reports to all workers that a parameter has received a gradient on this one."""
        self.functions.job.set_scalar(self.first_use + number, 1.0)
