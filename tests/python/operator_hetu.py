"""Hetu on the cases of operator_cases.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import hetu as ht
import operator_cases as cases
from hetu import _hetu


class Functions:
    """The functions of a case, by the names that both sides have."""

    concat, stack, where, rms_norm = map(staticmethod, (ht.concat, ht.stack, ht.where, ht.rms_norm))

    def __getattr__(self, op: str) -> Any:
        return getattr(ht.ops, op)

    def clip(self, x: ht.Value, low: float, high: float) -> ht.Value:
        return x.clip(low, high)

    def split(self, x: ht.Value, sizes: Any, axis: int) -> list[ht.Value]:
        return x.split(sizes, axis)

    def pad(self, x: ht.Value, widths: Any, value: float) -> ht.Value:
        return x.pad(widths, value)

    def cumsum(self, x: ht.Value, axis: int) -> ht.Value:
        return x.cumsum(axis)

    def sum(self, x: ht.Value, axes: Sequence[int], keep: bool) -> ht.Value:
        return x.sum(axes, keep)

    def mean(self, x: ht.Value, axes: Sequence[int], keep: bool) -> ht.Value:
        return x.mean(axes, keep)

    def amax(self, x: ht.Value, axes: Sequence[int], keep: bool) -> ht.Value:
        return x.max(axes, keep)

    def amin(self, x: ht.Value, axes: Sequence[int], keep: bool) -> ht.Value:
        return x.min(axes, keep)

    def logsumexp(self, x: ht.Value, axes: Sequence[int], keep: bool) -> ht.Value:
        return x.logsumexp(axes, keep)

    def var(self, x: ht.Value, axes: Sequence[int], keep: bool) -> ht.Value:
        return x.var(axes, keep)

    def var1(self, x: ht.Value, axes: Sequence[int], keep: bool) -> ht.Value:
        return x.var(axes, keep, correction=1)

    def mse(self, x: ht.Value, target: ht.Value) -> ht.Value:
        return ht.models.mean_squared_error(x, target)

    def l1(self, x: ht.Value, target: ht.Value) -> ht.Value:
        return ht.models.mean_absolute_error(x, target)

    def huber(self, x: ht.Value, target: ht.Value, delta: float) -> ht.Value:
        return ht.models.mean_huber(x, target, delta)

    def bce(self, x: ht.Value, target: ht.Value) -> ht.Value:
        return ht.models.mean_binary_cross_entropy(x, target)

    def attention(self, q: ht.Value, k: ht.Value, v: ht.Value, mask: ht.Value, heads: int) -> ht.Value:
        return ht.ops.attention(q, k, v, mask, heads=heads)[0]

    def argmax(self, x: ht.Value, axis: int) -> ht.Value:
        return x.argmax(axis)

    def top_k(self, x: ht.Value, k: int) -> ht.Value:
        values, places = ht.ops.top_k(x, k=k)
        return ht.concat([values, places.cast("float32")], -1)


def run(case: cases.Case, kernels: str = "best") -> dict[str, Any]:
    """The value, and the slopes of the inputs that are float32; all in float32."""
    graph = ht.new_graph()
    inputs, given = [], {}
    for i, array in enumerate(case.inputs):
        name, shape = f"x{i}", [ht.BATCH, *array.shape[1:]] if i < case.fed else list(array.shape)
        given[name] = array.astype(np.float64).ravel()
        parameter = case.slopes and array.dtype == np.float32 and i >= case.fed
        inputs.append(ht.parameter(name, shape, ht.graph.constant(0.0)) if parameter
                      else ht.placeholder(name, str(array.dtype), shape))
    y = case.function(Functions(), *inputs).cast("float32")
    # The gradient of what the result is multiplied by is the result.
    given["r"] = cases.weights(tuple(y.shape)).astype(np.float64).ravel()
    graph.builder.differentiate((y * ht.parameter("r", y.shape, ht.graph.constant(0.0))).sum().number)
    batch = len(case.inputs[0]) if case.fed else 1
    found = _hetu.evaluate(graph.builder.finish(), batch, given, "float32", kernels)["gradients"]
    slopes = [found[f"x{i}"].reshape(array.shape) for i, array in enumerate(case.inputs) if f"x{i}" in found]
    return {"value": found["r"].reshape(y.shape), "slopes": slopes}


def worst(name: str, theirs: dict[str, Any], kernels: str) -> float:
    """The largest difference from what another library found in a case, but for what is otherwise on purpose."""
    ours = run(cases.cases()[name], kernels)
    found = 0.0
    pairs = [(ours["value"], theirs["value"]), *zip(ours["slopes"], theirs["slopes"], strict=True)]
    for part, (a, b) in enumerate(pairs):
        kept = [i for i in range(a.size) if (name, part, i) not in cases.OTHERWISE]
        found = max(found, cases.apart(np.ravel(a)[kept], np.asarray(b, np.float64).ravel()[kept]))
    return found
