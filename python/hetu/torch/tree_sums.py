"""Adds the gradients of a stage in the order of a tree over the micro-batches of all pipelines, so that the sums have the
same bits under every layout (docs/equality.md).

Autograd adds to .grad as long as a parameter has one. So each backward begins without .grad, and what it leaves there is the
gradient of its micro-batch. A plan knows the order of micro-batches, and with it the slots of memory for partial sums:

    slot 0, micro-batch 0       slot 0 += micro-batch 1
    slot 1, micro-batch 2       slot 1 += micro-batch 3, then slot 0 += slot 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from hetu.torch.gradients import Summed

NOTHING = -0.0  # the number that changes no other number to which it is added
Steps = Mapping[int, tuple[int, bool, Sequence[tuple[int, int]]]]  # by micro-batch; see ModuleJob.sums()


class TreeSums:
    """The gradient sums of a placement.

    slots, steps: as ModuleJob.sums() returns them.
    parameters: those that require a gradient, with their names.
    summed: the memory of the gradients that other copies of the stage add to.
    """

    def __init__(self, slots: int, steps: Steps, parameters: Sequence[tuple[str, nn.Parameter]],
                 summed: Summed) -> None:
        self.steps = steps
        self.names = [name for name, _ in parameters]
        self.parameters = [parameter for _, parameter in parameters]
        # By slot and parameter: a partial sum, or None.
        self.sums: list[list[torch.Tensor | None]] = [[None] * len(parameters) for _ in range(slots)]
        self.came: dict[int, list[torch.Tensor | None]] = {}  # by micro-batch: gradients whose backward has not ended
        self.done: set[int] = set()  # micro-batches of this step
        views = {id(view.parameter): view for view in summed.views}
        self.views = [views.get(id(parameter)) for parameter in self.parameters]

    def begin(self) -> None:
        """Begins a step. Throws ValueError for a parameter with a hook that would see the gradient of one micro-batch as if
        it were the sum."""
        self.came.clear()
        self.done.clear()
        for sums in self.sums:
            sums[:] = [None] * len(sums)
        for name, parameter in zip(self.names, self.parameters, strict=True):
            if parameter._post_accumulate_grad_hooks:
                raise ValueError(f"'{name}' has a hook of register_post_accumulate_grad_hook(), which would see the "
                                 f"gradient of one micro-batch, because sums='tree' adds them later: change .grad after "
                                 f"step() instead, or use sums='running'")
            parameter.grad = None

    def take(self, micro: int) -> None:
        """Takes the gradients that an instruction of a micro-batch has left in .grad."""
        came = self.came.setdefault(micro, [None] * len(self.parameters))
        for n, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                continue
            before = came[n]
            came[n] = parameter.grad if before is None else before + parameter.grad
            parameter.grad = None

    def end(self, micro: int) -> None:
        """Adds the gradients of a micro-batch, whose last backward has ended."""
        came = self.came.pop(micro, [None] * len(self.parameters))
        slot, _, merges = self.steps[micro]
        with torch.no_grad():
            for n, gradient in enumerate(came):
                self._add(slot, n, gradient)
                for to, more in merges:
                    self._add(to, n, self.sums[more][n])
                    self.sums[more][n] = None
            self.done.add(micro)
            if len(self.done) == len(self.steps):
                self._finish()

    def _add(self, slot: int, n: int, more: torch.Tensor | None) -> None:
        if more is None:
            return
        sum_, view = self.sums[slot][n], self.views[n]
        if sum_ is not None:
            sum_.add_(more)
        elif view is None:
            self.sums[slot][n] = more
        else:
            self.sums[slot][n] = view.slots[slot].copy_(more)

    def _finish(self) -> None:
        """Makes the sums of this worker complete. A copy adds nothing for parameters that none of its micro-batches used.
        """
        for n, (parameter, view) in enumerate(zip(self.parameters, self.views, strict=True)):
            if view is None:
                parameter.grad = self.sums[0][n]
                continue
            for slot, memory in enumerate(view.slots):
                if self.sums[slot][n] is None:
                    memory.fill_(NOTHING)
            parameter.grad = view.memory
            view.is_used = any(sums[n] is not None for sums in self.sums)
