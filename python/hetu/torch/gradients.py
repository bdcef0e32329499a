"""Memory of the gradients that copies of a stage sum: dense memory that .grad refers to, in the parts that the plan sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from hetu.torch.rows import user_hooks
from hetu.torch.shards import Shards

BUCKET_BYTES = 8 << 20


@dataclasses.dataclass
class _View:
    """A parameter, and its part of the summed memory."""

    name: str
    parameter: torch.nn.Parameter
    memory: torch.Tensor
    number: int
    is_tied: bool
    slots: list[torch.Tensor]  # the same part of the memory of each slot; the first is `memory`
    version: int = 0
    is_used: bool = False  # with a tree: a micro-batch of this worker has added to the gradient


class Summed:
    """The gradients of a placement that are summed with other placements: part 0 over copies of its stage, part 1 + t over
    tied pair t.

    numbers: a number for each parameter, by identity. It is the same on all workers and for both parameters of a tied pair.
    note_use: called with that number once per step if a backward on this worker has added to the gradient.
    shards: defines which worker receives the sum of which parameter. None: all workers receive all sums.
    slots: the number of partial sums that are kept at once, if gradients are added in the order of a tree; else 0.
    """

    def __init__(self, parts: Sequence[tuple[int, Sequence[tuple[str, torch.nn.Parameter]]]], numbers: Mapping[int, int],
                 note_use: Callable[[int], None], shards: Shards | None = None, slots: int = 0) -> None:
        self.arrays: list[list[torch.Tensor]] = []  # the memory of each slot
        self.slots = slots
        self.parts: list[int] = []
        self.owners: list[list[tuple[int, int]]] = []  # by array: (worker, number of elements that it owns)
        self.shards = shards
        self.views: list[_View] = []
        self.unused: list[_View] = []  # not yet used in the current step
        self.note_use = note_use
        for part, parameters in parts:
            for bucket in _buckets(parameters):
                self._add(part, bucket, numbers)

    def _add(self, part: int, parameters: Sequence[tuple[str, torch.nn.Parameter]], numbers: Mapping[int, int]) -> None:
        first = parameters[0][1]
        owned: dict[int, int] = {}
        if self.shards:
            parameters = sorted(parameters, key=lambda one: (self._owner(one[1]), numbers[id(one[1])]))
            for _, parameter in parameters:
                owned[self._owner(parameter)] = owned.get(self._owner(parameter), 0) + parameter.numel()
        self.owners.append(list(owned.items()))
        memories = [torch.zeros(sum(p.numel() for _, p in parameters), dtype=first.dtype, device=first.device)
                    for _ in range(max(1, self.slots))]
        at = 0
        for name, parameter in parameters:
            # .data gives each view its own version counter, which counts autograd's additions to the view.
            views = [memory[at:at + parameter.numel()].view(parameter.shape).data for memory in memories]
            self.views.append(_View(name, parameter, views[0], numbers[id(parameter)], part > 0, views))
            at += parameter.numel()
        self.arrays.append(memories)
        self.parts.append(part)

    def _owner(self, parameter: torch.nn.Parameter) -> int:
        owner = self.shards.owner_of(parameter) if self.shards else None
        assert owner is not None, "a sum over copies of a parameter that has one copy"
        return owner

    def begin(self) -> None:
        """Begins a step with empty sums. Throws ValueError if a parameter has a hook that would receive an incomplete sum.
        """
        for one in self.views:
            _check_hooks(one)
        self.unused = [] if self.slots else list(self.views)
        if self.slots:  # TreeSums sets .grad and the memory
            return
        for memories in self.arrays:
            memories[0].zero_()
        for one in self.views:
            one.parameter.grad = one.memory
            one.version = one.memory._version

    def note_uses(self) -> None:
        """Notes which gradients a backward has added to."""
        for one in self.views if self.slots else ():
            if one.is_used:
                self.note_use(one.number)
                one.is_used = False
        for one in self.unused:
            if one.memory._version != one.version:
                self.note_use(one.number)
        self.unused = [one for one in self.unused if one.memory._version == one.version]

    def end(self, uses: Sequence[float]) -> None:
        """Ends a step: sets .grad to None for parameters that no copy has used, as plain PyTorch does, and for those that
        another worker owns.

        uses: by parameter number, the number of workers that have added to the gradient.
        """
        for one in self.views:
            if not uses[one.number] or (self.shards and not self.shards.keeps(one.parameter)):
                one.parameter.grad = None


def _check_hooks(one: _View) -> None:
    if one.parameter._post_accumulate_grad_hooks:
        raise ValueError(f"'{one.name}' has a hook of register_post_accumulate_grad_hook(), which would see its gradient "
                         f"before it is summed over the copies of its stage: change .grad after step() instead, or use one "
                         f"pipeline and a schedule with one copy of each stage")
    if one.is_tied and user_hooks(one.parameter):
        raise ValueError(f"'{one.name}' has a hook of register_hook() and is shared by two stages, so that the hook would "
                         f"see the gradient of one of its uses: change .grad after step() instead")


_Bucket = list[tuple[str, torch.nn.Parameter]]


def _buckets(parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> list[_Bucket]:
    """Groups parameters of one dtype from the last to the first, the order in which backward computes them."""
    buckets: list[_Bucket] = []
    full: dict[torch.dtype, tuple[_Bucket, int]] = {}
    for name, parameter in reversed(list(parameters)):
        if parameter.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"'{name}' is {str(parameter.dtype).removeprefix('torch.')}, but its gradient is summed over "
                             f"copies, which needs float32 or float64; use one pipeline, or parameters of one of these "
                             f"types")
        bucket, size = full.get(parameter.dtype, ([], BUCKET_BYTES))
        if size >= BUCKET_BYTES:
            bucket, size = [], 0
            buckets.append(bucket)
        bucket.append((name, parameter))
        full[parameter.dtype] = bucket, size + parameter.numel() * parameter.element_size()
    return buckets
