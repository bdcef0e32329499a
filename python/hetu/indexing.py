"""Indexing of values by operators: `x[:, 1:3]`, `x[..., 0]`, `x[:, None]`."""

from __future__ import annotations

import numbers
from typing import Any, Protocol


class Value(Protocol):
    """The members of hetu.graph.Value that indexing uses."""

    graph: Any
    shape: list[int]

    @property
    def ndim(self) -> int: ...

    def reshape(self, *shape: Any) -> Any: ...


def _whole(key: tuple[Any, ...], x: Value) -> list[Any]:
    """Returns the key with one entry per axis, and None for each new axis."""
    wanted = sum(entry is not None and entry is not Ellipsis for entry in key)
    if sum(entry is Ellipsis for entry in key) > 1 or wanted > x.ndim:
        x.graph.refuse(f"{x!r} has {x.ndim} axes; the key names {wanted}")
    rest = [slice(None)] * (x.ndim - wanted)
    at = next((i for i, entry in enumerate(key) if entry is Ellipsis), None)
    if at is None:
        return [*key, *rest]
    return [*key[:at], *rest, *key[at + 1:]]


def _place(x: Value, axis: int, place: int) -> int:
    length = x.shape[axis]
    if not -length <= place < length:
        x.graph.refuse(f"index {place} is out of range for axis {axis} of {x!r}")
    return place % length


def _cut(x: Value, axis: int, part: slice) -> Any:
    for bound in (part.start, part.stop, part.step):
        if bound is not None and not isinstance(bound, numbers.Integral):
            x.graph.refuse(f"the bounds of slices of {x!r} must be whole numbers, got {bound!r}")
    if part.step is not None and part.step < 1:
        x.graph.refuse(f"the step of slices of {x!r} must be >= 1, got {part.step}; "
                       f".flip({axis}) reverses the axis")
    first, end, step = part.indices(x.shape[axis])
    size = len(range(first, end, step))
    if size == x.shape[axis]:
        return x
    return x.graph.apply("slice", [x], axis=axis, first=min(first, x.shape[axis]), size=size, step=step)


def _check(x: Value, axis: int, entry: Any) -> None:
    if not isinstance(entry, (slice, numbers.Integral)) or isinstance(entry, bool):
        x.graph.refuse(f"{x!r} is indexed by numbers, slices, ... and None, not by a {type(entry).__name__} (use "
                       "hetu.ops.gather for a list of rows)")
    if x.shape[axis] < 0 and entry != slice(None):
        x.graph.refuse(f"axis {axis} of {x!r} is the batch, which can't be divided: use x[:, ...]")


def index(x: Value, key: Any) -> Any:
    """Indexes a value. A number selects one index and removes the axis. A slice takes a part of an axis, ... stands for all
    axes between, and None inserts an axis of length 1. The batch axis stays whole."""
    entries = _whole(key if isinstance(key, tuple) else (key,), x)
    of_axes = [entry for entry in entries if entry is not None]
    # First all slices, which keep the number of axes. Then the selections, from the last axis to the first, because each
    # removes an axis and so renumbers the axes behind it.
    for axis, entry in enumerate(of_axes):
        _check(x, axis, entry)
        if isinstance(entry, slice) and entry != slice(None):
            x = _cut(x, axis, entry)
    for axis in reversed(range(len(of_axes))):
        if not isinstance(of_axes[axis], slice):
            x = x.graph.apply("select", [x], axis=axis, index=_place(x, axis, int(of_axes[axis])))
    if all(entry is not None for entry in entries):
        return x
    lengths = iter(x.shape)
    return x.reshape([1 if entry is None else next(lengths) for entry in entries
                      if entry is None or isinstance(entry, slice)])
