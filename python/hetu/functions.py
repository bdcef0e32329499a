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
    """A value that holds the array: float32 of floats, int32 of integers, bool of bools. It is written into the graph, so up
    to 16 MiB; what is larger is data, a parameter or a buffer.
    """
    import numpy as np  # half of a worker's start, and most graphs have no arrays in them

    graph = current()
    if isinstance(array, Value):
        graph.refuse(f"constant: {array!r} is a Value already")
    try:
        given = np.asarray(array)
    except ValueError as error:  # rows of different lengths, say
        graph.refuse(f"constant: {str(error).split('. ')[0]}")
    dtype = meant(given)
    if not dtype:
        graph.refuse(f"constant: floats, integers or bools are wanted, got {given.dtype}")
    try:
        data = converted(given, dtype)
    except ValueError as error:
        graph.refuse(f"constant: {error}")
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
    check_values("stack", **{f"values[{i}]": value for i, value in enumerate(values)})
    return concat([value.unsqueeze(axis) for value in values], axis, name)


def where(condition: Value, a: Value | float, b: Value | float, name: str = "") -> Value:
    """`a` where `condition`, a bool value, is true, else `b`; shapes broadcast."""
    check_values("where", condition=condition)
    graph = current()
    sides = []
    for side in (a, b):
        if not isinstance(side, Value):
            side = graph.number(side, "where")
        sides.append(side)
    return graph.apply("where", [condition, *sides], name)


def rms_norm(x: Value, weight: Value, eps: float = 1e-6) -> Value:
    """x over the root of the mean square of its last axis, times `weight` [width]. Source: Zhang and Sennrich 2019."""
    check_values("rms_norm", x=x, weight=weight)
    return x * ((x**2).mean(-1, keepdims=True) + eps) ** -0.5 * weight


def group_norm(x: Value, groups: int, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5) -> Value:
    """x [N, C, ...] less its mean, over the root of its variance and eps, per sample and group of channels; times `weight`
    and plus `bias`, [C]. The variance is the biased one (PyTorch's group_norm). Source: Wu and He 2018."""
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
    """As group_norm with each channel its own group (PyTorch's instance_norm without running statistics).
    Source: Ulyanov et al. 2016."""
    check_values("instance_norm", x=x)
    if x.ndim < 3:
        x.graph.refuse(f"instance_norm: a value [N, C, ...] with axes after the channels is wanted, got {x!r}")
    return group_norm(x, x.shape[1], weight, bias, eps)


def one_hot(ids: Value, classes: int) -> Value:
    """float32 [..., classes]: 1 at the place that each of int32 `ids` names, 0 elsewhere; an id out of range has no 1."""
    import numpy as np

    check_values("one_hot", ids=ids)
    if ids.dtype != "int32":
        ids.graph.refuse(f"one_hot: int32 ids are wanted, got {ids!r}")
    return (ids.unsqueeze(-1) == constant(np.arange(classes, dtype=np.int32))).cast("float32")


def step_mean(x: Value, name: str = "") -> Value:
    """The mean of all elements over the samples of the whole step, a scalar: the sum over this micro-batch, divided by the
    number of elements of all micro-batches and pipelines. So the sum of what micro-batches give is the mean, also where the
    last batch is short. `x` has the batch on its first axis.
    """
    check_values("step_mean", x=x)
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


__all__ = ["concat", "constant", "group_norm", "instance_norm", "one_hot", "rms_norm", "stack", "step_mean", "where"]


keywords.check_module(__name__, "hetu")
