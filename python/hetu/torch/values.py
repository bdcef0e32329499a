"""Values that go between stages: any nesting of tensors and other values, as leaves; and messages of tensors as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree

from hetu.torch.records import flatten_records, unflatten_records

ALIGNMENT = 64


class TensorSpec(NamedTuple):
    """The properties of a tensor that are known before it is computed."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    needs_gradient: bool
    order: tuple[int, ...] | None = None  # order of dimensions in memory, if it is not the usual one; kernels depend on it

    @property
    def bytes(self) -> int:
        """The size of the elements in bytes."""
        elements = 1
        for length in self.shape:
            elements *= length
        return elements * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Returns a tensor's shape, dtype, requires_grad and order of dimensions."""
    order = None
    if not tensor.is_contiguous():
        strides = tensor.stride()
        order = tuple(sorted(range(tensor.dim()), key=lambda d: -strides[d]))
        order = order if tensor.permute(order).is_contiguous() else None
    return TensorSpec(tuple(tensor.shape), tensor.dtype, tensor.requires_grad, order)


def _dense(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Returns the tensor's elements in the order of memory."""
    return (tensor.detach() if spec.order is None else tensor.detach().permute(spec.order)).contiguous()


def _as_it_lay(memory: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Returns a tensor with the original order of dimensions from memory that _dense() has laid out."""
    if spec.order is None:
        return memory.view(spec.dtype).view(spec.shape)
    back = sorted(range(len(spec.order)), key=spec.order.__getitem__)
    return memory.view(spec.dtype).view([spec.shape[d] for d in spec.order]).permute(back)


_ONE = _pytree.tree_flatten(None)[1]  # the tree of a single leaf


def flatten(value: Any) -> tuple[list[Any], Any]:
    """Returns the leaves of a nesting (tuples, lists, dicts, dataclasses, outputs of transformers), and the tree that
    unflatten() needs."""
    return ([value], _ONE) if isinstance(value, torch.Tensor) else flatten_records(value)


def unflatten(leaves: Sequence[Any], tree: Any) -> Any:
    """Inverts flatten()."""
    return leaves[0] if tree is _ONE else unflatten_records(leaves, tree)


class MessageForm:
    """The layout of tensors in one message: the specs, the offsets in bytes, and the total size. The size is never 0,
    because even an empty message is sent."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self.specs = list(specs)
        self.begins: list[int] = []
        at = 0
        for spec in specs:
            self.begins.append(at)
            at += -(-spec.bytes // ALIGNMENT) * ALIGNMENT
        self.alone = len(specs) == 1 and specs[0].bytes > 0  # the tensor's memory is the message
        self.bytes = specs[0].bytes if self.alone else max(1, at)

    def pack(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns a dense tensor whose memory is the message. A single dense tensor is its own message."""
        if self.alone:
            return _dense(tensors[0], self.specs[0])
        message = torch.empty(self.bytes, dtype=torch.uint8, device=tensors[0].device if tensors else "cpu")
        for tensor, spec, begin in zip(tensors, self.specs, self.begins, strict=True):
            if spec.bytes:
                _as_it_lay(message[begin:begin + spec.bytes], spec).copy_(tensor.detach())
        return message

    def unpack(self, message: torch.Tensor) -> list[torch.Tensor]:
        """Returns the tensors of a message, as views of its memory."""
        if self.alone:
            return [_as_it_lay(message, self.specs[0])]
        return [_as_it_lay(message[begin:begin + spec.bytes], spec)
                for spec, begin in zip(self.specs, self.begins, strict=True)]


def rows_of(batch: Any) -> int:
    """Returns the number of samples in a batch: the length of the first dimension of its first tensor."""
    for leaf in flatten(batch)[0]:
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0:
            return int(leaf.shape[0])
    raise ValueError("a batch needs a tensor whose first dimension is the number of samples, but this one has none")


def cut_rows(rows: int, micro_batches: int) -> list[int]:
    """Returns the number of rows of each micro-batch. All have the same size except a smaller last one. If the last one
    would be empty, sizes are as even as possible instead. With fewer rows than micro-batches, some are empty."""
    if rows < 1:
        raise ValueError("a batch of 0 samples; give at least 1")
    each = -(-rows // micro_batches)
    if each * (micro_batches - 1) < rows:
        return [min(each, rows - each * m) for m in range(micro_batches)]
    least, more = divmod(rows, micro_batches)
    return [least + (m < more) for m in range(micro_batches)]


def cut_batch(batch: Any, rows: int, sizes: Sequence[int], what: str) -> list[list[Any]]:
    """Returns the leaves of each micro-batch. Tensors of `rows` rows are cut. Tensors of one row, and all other values, are
    repeated."""
    leaves, _ = flatten(batch)
    out: list[list[Any]] = [[] for _ in sizes]
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.shape[0] == rows:
            for micro, part in zip(out, leaf.split(list(sizes)), strict=True):
                micro.append(part)
            continue
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.shape[0] != 1:
            raise ValueError(f"{what}: a tensor of shape {list(leaf.shape)} in a batch of {rows} samples; its first "
                             f"dimension must be the number of samples, or 1")
        for micro in out:
            micro.append(leaf)
    return out
