"""Buffers of a module, replaced for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch


@contextlib.contextmanager
def with_buffers(module: torch.nn.Module, values: Sequence[torch.Tensor]) -> Iterator[None]:
    """Puts other tensors in place of a module's buffers. The buffers keep their values, also for graphs that saved them."""
    own = dict(zip([id(buffer) for buffer in module.buffers()], values, strict=True))
    swapped = [(inner, name, buffer) for inner in module.modules() for name, buffer in inner._buffers.items()
               if buffer is not None]
    try:
        for inner, name, buffer in swapped:
            inner._buffers[name] = own[id(buffer)]
        yield
    finally:
        for inner, name, buffer in swapped:
            inner._buffers[name] = buffer
