"""Counts the memory of tensors while they exist, on any device, by watching PyTorch's operations."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hetu.torch.values import flatten


def storages_of(leaves: Iterable[Any]) -> dict[int, int]:
    """Returns the sizes of the memory blocks of these tensors, in bytes. A block's key is valid while a tensor uses it."""
    blocks = [leaf.untyped_storage() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return {block._cdata: block.nbytes() for block in blocks}


class LiveBytes(TorchDispatchMode):
    """Inside its `with` block, counts the bytes of tensors that operations of this thread make.

    now: the bytes that exist. peak: the most that existed at once.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation, and counts the memory blocks of its results that it didn't receive."""
        given = storages_of(flatten((args, kwargs or {}))[0])
        out = function(*args, **(kwargs or {}))
        for leaf in flatten(out)[0]:
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in given:
                self._add(leaf.untyped_storage())
        self.peak = max(self.peak, self.now)
        return out

    def _add(self, block: torch.UntypedStorage) -> None:
        key = block._cdata
        if key in self._sizes:
            return
        self._sizes[key] = block.nbytes()
        self.now += block.nbytes()
        weakref.finalize(block, self._remove, key)

    def _remove(self, key: int) -> None:
        self.now -= self._sizes.pop(key, 0)
