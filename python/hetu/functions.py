"""Constants, and functions of several values: joining them, choosing between them, the mean over a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hetu.graph import BATCH, Value, current

_MOST = 16 * 2**20


def constant(array: Any, name: str = "") -> Value:
    """A value that holds the array: float32 of floats, int32 of integers, bool of bools. It is written into the graph, so up
    to 16 MiB; what is larger is data, a parameter or a buffer.
    """
    import numpy as np  # half of a worker's start, and most graphs have no arrays in them

    graph = current()
    if isinstance(array, Value):
        graph.refuse(f"constant: {array!r} is a Value already")
    given = np.asarray(array)
    dtype = {"f": "float32", "i": "int32", "u": "int32", "b": "bool"}.get(given.dtype.kind)
    if dtype is None:
        graph.refuse(f"constant: floats, integers or bools are wanted, got {given.dtype}")
    if dtype == "int32" and given.size and (given.min() < -(2**31) or given.max() >= 2**31):
        graph.refuse(f"constant: integers from {given.min()} to {given.max()} are not all int32")
    data = np.ascontiguousarray(given, np.dtype(dtype).newbyteorder("<"))
    if data.nbytes > _MOST:
        graph.refuse(f"constant: an array of {data.nbytes} bytes; up to {_MOST} are written into a graph")
    return graph.apply("constant", [], name, shape=list(given.shape), dtype=dtype, data=data.tobytes().hex())


def concat(values: Sequence[Value], axis: int = -1, name: str = "") -> Value:
    """The values one after the other along an axis; one value alone is itself."""
    if isinstance(values, Value) or not values:
        current().refuse(f"concat: a list of values is wanted, got {values!r}")
    return values[0] if len(values) == 1 else current().apply("concat", values, name, axis=axis)


def stack(values: Sequence[Value], axis: int = 0, name: str = "") -> Value:
    """The values, of one shape, beside each other along a new axis, which has this place in the result."""
    if isinstance(values, Value) or not values:
        current().refuse(f"stack: a list of values is wanted, got {values!r}")
    return concat([value.unsqueeze(axis) for value in values], axis, name)


def where(condition: Value, a: Value | float, b: Value | float, name: str = "") -> Value:
    """`a` where `condition`, a bool value, is true, else `b`; shapes broadcast."""
    graph = current()
    sides = []
    for side in (a, b):
        if not isinstance(side, Value):
            side = graph.number(side, "where")
        sides.append(side)
    return graph.apply("where", [condition, *sides], name)


def rms_norm(x: Value, weight: Value, eps: float = 1e-6) -> Value:
    """x over the root of the mean square of its last axis, times `weight` [width]. Source: Zhang and Sennrich 2019."""
    return x * ((x**2).mean(-1, keepdims=True) + eps) ** -0.5 * weight


def step_mean(x: Value, name: str = "") -> Value:
    """The mean of all elements over the samples of the whole step, a scalar: the sum over this micro-batch, divided by the
    number of elements of all micro-batches and pipelines. So the sum of what micro-batches give is the mean, also where the
    last batch is short. `x` has the batch on its first axis.
    """
    graph = current()
    if not x.shape or x.shape[0] >= 0:
        graph.refuse(f"step_mean: {x!r} has no batch on its first axis; use .mean()")
    fed = [value for value in graph.placeholders.values() if value.shape and value.shape[0] == BATCH]
    if not fed:
        graph.refuse("step_mean: no placeholder of this graph has the batch on its first axis, so nothing says how many "
                     "samples a step has")
    smallest = min(fed, key=lambda value: math.prod(value.shape[1:]))  # what stands on this stage has to be fed
    samples = graph.apply("count_samples", [smallest], name and f"{name}.count")
    count = graph.apply("step_sum", [samples], name and f"{name}.step_count")
    each = -x.shape[0] * math.prod(x.shape[1:])
    total: Any = x.sum()
    return graph.apply("div_scalar", [total * (1 / each) if each != 1 else total, count], name)


__all__ = ["concat", "constant", "rms_norm", "stack", "step_mean", "where"]
