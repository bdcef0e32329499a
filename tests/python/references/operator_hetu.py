"""Hetu's results for the cases of operator_cases.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import hetu as ht
import operator_cases as cases
from hetu import _hetu


class Functions:
    """The functions of a case, by the names that both sides use."""

    concat, stack, where, rms_norm = map(staticmethod, (ht.concat, ht.stack, ht.where, ht.rms_norm))
    group_norm, instance_norm, one_hot = map(staticmethod, (ht.group_norm, ht.instance_norm, ht.one_hot))

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

    def bce(self, x: ht.Value, target: ht.Value, weight: list[float] | None = None) -> ht.Value:
        return ht.models.mean_binary_cross_entropy(x, target, pos_weight=weight)

    def kl(self, log_p: ht.Value, target: ht.Value, logarithms: bool = False) -> ht.Value:
        return ht.models.mean_kl_divergence(log_p, target, log_target=logarithms)

    def cross_entropy(self, x: ht.Value, labels: ht.Value, smoothing: float, weight: list[float] | None) -> ht.Value:
        return ht.models.mean_cross_entropy(x, labels, smoothing=smoothing, weight=weight, ignore=-1)

    def conv2d(self, x: ht.Value, w: ht.Value, b: ht.Value, *more: int) -> ht.Value:
        return ht.ops.conv2d(x, w, b, **dict(zip(("stride", "padding", "dilation", "groups"), more, strict=True)))

    def conv_transpose2d(self, x: ht.Value, w: ht.Value, b: ht.Value, *more: int) -> ht.Value:
        names = ("stride", "padding", "output_padding", "groups", "dilation")
        return ht.ops.conv_transpose2d(x, w, b, **dict(zip(names, more, strict=True)))

    def avg_pool2d(self, x: ht.Value, kernel: int, stride: int, padding: int, count: int) -> ht.Value:
        return ht.ops.avg_pool2d(x, kernel=kernel, stride=stride, padding=padding, count_padding=count)

    def layer_norm(self, x: ht.Value, w: ht.Value, b: ht.Value) -> ht.Value:
        return ht.ops.layer_norm(x, w, b, eps=1e-5)[0]

    def max_pool2d(self, x: ht.Value, kernel: int, stride: int, padding: int) -> ht.Value:
        return ht.ops.max_pool2d(x, kernel=kernel, stride=stride, padding=padding)[0]

    def resize(self, x: ht.Value, height: int, width: int, linear: int, align: int) -> ht.Value:
        return ht.ops.resize2d(x, height=height, width=width, linear=linear, align_corners=align)

    def lstm(self, x: ht.Value, w: ht.Value, u: ht.Value, *more: ht.Value) -> ht.Value:
        y, (h, c) = ht.lstm(x, w, u, *more[:2], state=(more[2], more[3]) if more else None)
        return ht.concat([y, h[:, None], c[:, None]], 1)

    def gru(self, x: ht.Value, w: ht.Value, u: ht.Value, *more: ht.Value) -> ht.Value:
        y, h = ht.gru(x, w, u, *more)
        return ht.concat([y, h[:, None]], 1)

    def gather(self, x: ht.Value, ids: ht.Value, axis: int) -> ht.Value:
        return ht.ops.gather(x, ids, axis=axis)

    def scatter_add(self, ids: ht.Value, x: ht.Value, axis: int, size: int) -> ht.Value:
        return ht.ops.scatter_add(ids, x, axis=axis, size=size)

    def attention(self, q: ht.Value, k: ht.Value, v: ht.Value, mask: ht.Value | None, **attrs: int) -> ht.Value:
        return ht.ops.attention(q, k, v, *([] if mask is None else [mask]), **attrs)[0]

    def rotary(self, x: ht.Value, positions: ht.Value | None, heads: int, base: float, rotated: int,
               interleaved: int) -> ht.Value:
        given = [] if positions is None else [positions]
        return ht.ops.rotary(x, *given, heads=heads, base=base, rotated=rotated, interleaved=interleaved)

    def argmax(self, x: ht.Value, axis: int) -> ht.Value:
        return x.argmax(axis)

    def top_k(self, x: ht.Value, k: int) -> ht.Value:
        values, places = ht.ops.top_k(x, k=k)
        return ht.concat([values, places.cast("float32")], -1)


def run(case: cases.Case, kernels: str = "best") -> dict[str, Any]:
    """Returns the value and the gradients of the float32 inputs, all in float32."""
    graph = ht.new_graph()
    inputs, given = [], {}
    for i, array in enumerate(case.inputs):
        name, shape = f"x{i}", [ht.BATCH, *array.shape[1:]] if i < case.fed else list(array.shape)
        given[name] = array.astype(np.float64).ravel()
        parameter = case.slopes and array.dtype == np.float32 and i >= case.fed
        inputs.append(ht.parameter(name, shape, ht.graph.constant(0.0)) if parameter
                      else ht.placeholder(name, str(array.dtype), shape))
    y = case.function(Functions(), *inputs).cast("float32")
    # The result is the gradient of a factor that multiplies it.
    given["r"] = cases.weights(tuple(y.shape)).astype(np.float64).ravel()
    graph.builder.differentiate((y * ht.parameter("r", y.shape, ht.graph.constant(0.0))).sum().number)
    batch = len(case.inputs[0]) if case.fed else 1
    found = _hetu.evaluate(graph.builder.finish(), batch, given, "float32", kernels)["gradients"]
    slopes = [found[f"x{i}"].reshape(array.shape) for i, array in enumerate(case.inputs) if f"x{i}" in found]
    return {"value": found["r"].reshape(y.shape), "slopes": slopes}


def worst(name: str, theirs: dict[str, Any], kernels: str) -> float:
    """Returns the largest difference from another library's result in a case, except for intended differences."""
    ours = run(cases.cases()[name], kernels)
    found = 0.0
    pairs = [(ours["value"], theirs["value"]), *zip(ours["slopes"], theirs["slopes"], strict=True)]
    for part, (a, b) in enumerate(pairs):
        kept = [i for i in range(a.size) if (name, part, i) not in cases.OTHERWISE]
        found = max(found, cases.apart(np.ravel(a)[kept], np.asarray(b, np.float64).ravel()[kept]))
    return found
