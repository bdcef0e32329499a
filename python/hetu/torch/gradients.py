"""Where gradients lie that copies of a stage sum: dense memory that .grad shows, in the parts that the plan sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

BUCKET_BYTES = 8 << 20


class Summed:
    """The gradients of a placement that are summed with others: part 0 over copies of its stage, 1 + t over tied pair t."""

    def __init__(self, parts: Sequence[tuple[int, Sequence[tuple[str, torch.nn.Parameter]]]]) -> None:
        self.arrays: list[torch.Tensor] = []
        self.parts: list[int] = []
        self.views: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        for part, parameters in parts:
            for bucket in _buckets(parameters):
                self._add(part, bucket)

    def _add(self, part: int, parameters: Sequence[torch.nn.Parameter]) -> None:
        memory = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
        at = 0
        for parameter in parameters:
            self.views.append((parameter, memory[at:at + parameter.numel()].view(parameter.shape)))
            at += parameter.numel()
        self.arrays.append(memory)
        self.parts.append(part)

    def begin(self) -> None:
        """A step begins: nothing is in the sums."""
        for memory in self.arrays:
            memory.zero_()
        for parameter, view in self.views:
            parameter.grad = view


def _buckets(parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> list[list[torch.nn.Parameter]]:
    """Of one type each, from the last parameter to the first, as backward makes them."""
    buckets: list[list[torch.nn.Parameter]] = []
    full: dict[torch.dtype, tuple[list[torch.nn.Parameter], int]] = {}
    for name, parameter in reversed(list(parameters)):
        if parameter.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"'{name}' is {str(parameter.dtype).removeprefix('torch.')}, and its gradient is a sum "
                             f"over copies: "
                             f"those are float32 or float64; use one pipeline, or parameters of one of these types")
        bucket, size = full.get(parameter.dtype, ([], BUCKET_BYTES))
        if size >= BUCKET_BYTES:
            bucket, size = [], 0
            buckets.append(bucket)
        bucket.append(parameter)
        full[parameter.dtype] = bucket, size + parameter.numel() * parameter.element_size()
    return buckets
