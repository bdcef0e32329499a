"""Nestings of tensors that contain dataclasses. PyTorch's pytree treats these as leaves unless they are registered."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree

SIMPLE = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


class RecordTree:
    """The structure of a nesting that contains dataclasses. Its text differs for any two different structures."""

    def __init__(self, outer: Any, inner: Sequence[tuple[type, list[str], Any, int] | None]) -> None:
        self.outer = outer  # pytree's structure, in which each dataclass is a leaf
        # By leaf of `outer`: class, field names, structure of the fields, number of leaves; None for a plain leaf.
        self.inner = list(inner)

    def __repr__(self) -> str:
        inner = [part and (f"{part[0].__module__}.{part[0].__qualname__}", part[1], str(part[2])) for part in self.inner]
        return f"RecordTree({self.outer}, {inner})"


def flatten_records(value: Any) -> tuple[list[Any], Any]:
    """Returns the leaves of a nesting and its structure. A dataclass that contains a tensor is taken apart into its fields.
    """
    leaves, tree = _pytree.tree_flatten(value)
    if not any(_is_record(leaf) and hides_tensors(leaf) for leaf in leaves):
        return leaves, tree
    out: list[Any] = []
    inner: list[tuple[type, list[str], Any, int] | None] = []
    for leaf in leaves:
        if not (_is_record(leaf) and hides_tensors(leaf)):
            out.append(leaf)
            inner.append(None)
            continue
        names = [field.name for field in dataclasses.fields(leaf) if hasattr(leaf, field.name)]
        found, fields = flatten_records([getattr(leaf, name) for name in names])
        out += found
        inner.append((type(leaf), names, fields, len(found)))
    return out, RecordTree(tree, inner)


def unflatten_records(leaves: Sequence[Any], tree: Any) -> Any:
    """Inverts flatten_records(). A dataclass is created from its fields, without its __init__ and __post_init__."""
    if not isinstance(tree, RecordTree):
        return _pytree.tree_unflatten(list(leaves), tree)
    rest, out = list(leaves), []
    for part in tree.inner:
        if part is None:
            out.append(rest.pop(0))
            continue
        kind, names, fields, count = part
        values = unflatten_records(rest[:count], fields)
        del rest[:count]
        made: Any = object.__new__(kind)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)  # works for frozen dataclasses too
        out.append(made)
    return _pytree.tree_unflatten(out, tree.outer)


def hides_tensors(leaf: Any, depth: int = 3) -> bool:
    """Returns true if an object that pytree treats as a leaf holds tensors among its attributes."""
    if isinstance(leaf, (torch.nn.Module, type)) or callable(leaf):
        return False
    if dataclasses.is_dataclass(leaf):
        held = [getattr(leaf, field.name, None) for field in dataclasses.fields(leaf)]
    elif hasattr(leaf, "__dict__"):
        held = list(vars(leaf).values())
    else:
        return False
    return any(isinstance(one, torch.Tensor) or (depth > 0 and hides_tensors(one, depth - 1))
               for value in held for one in _pytree.tree_flatten(value)[0])


def _is_record(leaf: Any) -> bool:
    return dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)
