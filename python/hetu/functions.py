"""Constants, and functions of several values: joining them, choosing between them, norms, the mean over a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hetu import keywords
from hetu.arrays import converted, meant
from hetu.graph import BATCH, Value, check_values, current

_MOST = 16 * 2**20


def constant(array: Any, name: str = "") -> Value:
    """Returns a value that holds the array: float32 for floats, int32 for integers, bool for bools. The array is written
    into the graph, so it may have at most 16 MiB. Use data, a parameter or a buffer for larger arrays."""
    import numpy as np  # NumPy takes half of a worker's start, and most graphs contain no arrays

    graph = current()
    if isinstance(array, Value):
        graph.refuse(f"constant: {array!r} is already a Value")
    try:
        given = np.asarray(array)
    except ValueError as error:  # for example rows of different lengths
        graph.refuse(f"constant: {str(error).split('. ')[0]}")
    dtype = meant(given)
    if not dtype:
        graph.refuse(f"constant: expected floats, integers or bools, got {given.dtype}")
    try:
        data = converted(given, dtype)
    except ValueError as error:
        graph.refuse(f"constant: {error}")
    if data.nbytes > _MOST:
        graph.refuse(f"constant: the array has {data.nbytes} bytes; a graph can hold at most {_MOST}")
    return graph.apply("constant", [], name, shape=list(given.shape), dtype=dtype, data=data.tobytes().hex())


def concat(values: Sequence[Value], axis: int = -1, name: str = "") -> Value:
    """Concatenates values along an axis. A single value is returned unchanged."""
    if isinstance(values, Value) or not values:
        current().refuse(f"concat: expected a list of values, got {values!r}")
    return values[0] if len(values) == 1 else current().apply("concat", values, name, axis=axis)


def stack(values: Sequence[Value], axis: int = 0, name: str = "") -> Value:
    """Stacks values of one shape along a new axis. `axis` is its position in the result."""
    if isinstance(values, Value) or not values:
        current().refuse(f"stack: expected a list of values, got {values!r}")
    check_values("stack", **{f"values[{i}]": value for i, value in enumerate(values)})
    return concat([value.unsqueeze(axis) for value in values], axis, name)


def where(condition: Value, a: Value | float, b: Value | float, name: str = "") -> Value:
    """Returns `a` where the bool value `condition` is true, else `b`. Shapes broadcast."""
    check_values("where", condition=condition)
    graph = current()
    sides = []
    for side in (a, b):
        if not isinstance(side, Value):
            side = graph.number(side, "where")
        sides.append(side)
    return graph.apply("where", [condition, *sides], name)


def rms_norm(x: Value, weight: Value, eps: float = 1e-6) -> Value:
    """Returns x divided by the root of the mean square over its last axis, times `weight` [width]. Source: Zhang and
    Sennrich 2019."""
    check_values("rms_norm", x=x, weight=weight)
    return x * ((x**2).mean(-1, keepdims=True) + eps) ** -0.5 * weight


def group_norm(x: Value, groups: int, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5) -> Value:
    """Normalizes x [N, C, ...] per sample and group of channels: subtracts the mean and divides by the root of (variance +
    eps). Then multiplies by `weight` and adds `bias`, both [C]. The variance is the biased one, as in PyTorch's group_norm.
    Source: Wu and He 2018."""
    check_values("group_norm", x=x)
    graph = x.graph
    if x.ndim < 2 or x.shape[1] < 1 or groups < 1 or x.shape[1] % groups:
        graph.refuse(f"group_norm: groups must divide the channels, axis 1, of {x!r}, got {groups}")
    each = math.prod(x.shape[1:]) // groups
    ones, zeros = (graph.apply("fill", [], shape=[each], value=value) for value in (1.0, 0.0))
    rows = graph.apply("layer_norm", [x.reshape(x.shape[0] * groups, each), ones, zeros], eps=eps)
    y: Any = rows.reshape(x.shape)
    for given, op in ((weight, "mul"), (bias, "add")):
        if given is not None:
            check_values("group_norm", **{"weight" if op == "mul" else "bias": given})
            if given.shape != [x.shape[1]]:
                graph.refuse(f"group_norm: weight and bias of {x!r} must be [{x.shape[1]}], got {given!r}")
            y = graph.apply(op, [y, given.reshape(x.shape[1], *[1] * (x.ndim - 2))])
    return y  # type: ignore[no-any-return]


def instance_norm(x: Value, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5) -> Value:
    """Normalizes like group_norm with one channel per group (PyTorch's instance_norm without running statistics). Source:
    Ulyanov et al. 2016."""
    check_values("instance_norm", x=x)
    if x.ndim < 3:
        x.graph.refuse(f"instance_norm: x must be [N, C, ...] with axes after the channels, got {x!r}")
    return group_norm(x, x.shape[1], weight, bias, eps)


def one_hot(ids: Value, classes: int) -> Value:
    """Returns float32 [..., classes] with 1 at the index given by each int32 id, and 0 elsewhere. An id out of range gives
    only zeros."""
    import numpy as np

    check_values("one_hot", ids=ids)
    if ids.dtype != "int32":
        ids.graph.refuse(f"one_hot: ids must be int32, got {ids!r}")
    return (ids.unsqueeze(-1) == constant(np.arange(classes, dtype=np.int32))).cast("float32")


def step_mean(x: Value, name: str = "") -> Value:
    """Returns the mean of all elements over the samples of the whole step, as a scalar. `x` has the batch on its first
    axis.

    Each micro-batch contributes its sum divided by the number of elements in all micro-batches and pipelines. So the sum of
    these contributions is the mean, even if the last batch is short.
    """
    check_values("step_mean", x=x)
    return mean_of_step(x, name, "step_mean")


def mean_of_step(x: Value, name: str, default: str) -> Value:
    """Implements step_mean. The result is called `name`, or `default` without a name."""
    graph = current()
    if not x.shape or x.shape[0] >= 0:
        graph.refuse(f"step_mean: {x!r} has no batch on its first axis; use .mean()")
    fed = [value for value in graph.placeholders.values() if value.shape and value.shape[0] == BATCH]
    if not fed:
        graph.refuse("step_mean: no placeholder of this graph has the batch on its first axis, so the number of "
                     "samples per step is unknown")
    # This stage must be fed the field, so the smallest one is chosen.
    smallest = min(fed, key=lambda value: math.prod(value.shape[1:]))
    samples = graph.apply("count_samples", [smallest], name and f"{name}.count")
    count = graph.apply("step_sum", [samples], name and f"{name}.step_count")
    each = -x.shape[0] * math.prod(x.shape[1:])
    total: Any = x.sum()
    return graph.apply_called(default, "div_scalar", [total * (1 / each) if each != 1 else total, count], name)


__all__ = ["concat", "constant", "group_norm", "instance_norm", "one_hot", "rms_norm", "stack", "step_mean", "where"]


keywords.check_module(__name__, "hetu")
