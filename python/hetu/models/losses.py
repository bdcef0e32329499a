"""Losses that models share."""

from __future__ import annotations

from hetu import ops
from hetu.functions import step_mean
from hetu.graph import Value


def mean_cross_entropy(logits: Value, labels: Value, name: str) -> Value:
    """Softmax cross-entropy of [N, C] against int32 [N], ignoring -1, divided by the count of the whole step."""
    total = ops.softmax_cross_entropy(logits, labels, name=f"{name}.cross_entropy")[0]
    count = ops.step_sum(ops.count_labels(labels, name=f"{name}.count"), name=f"{name}.step_count")
    return ops.div_scalar(total, count, name=f"{name}.loss")


# Means over all elements of the step; `x` and `target` broadcast, and one of them has the batch on its first axis.


def mean_squared_error(x: Value, target: Value | float, name: str = "") -> Value:
    """The mean of (x - target)^2 (PyTorch's MSELoss)."""
    return step_mean((x - target) ** 2, name)


def mean_absolute_error(x: Value, target: Value | float, name: str = "") -> Value:
    """The mean of |x - target| (PyTorch's L1Loss)."""
    return step_mean((x - target).abs(), name)


def mean_huber(x: Value, target: Value | float, delta: float = 1.0, name: str = "") -> Value:
    """The mean of d^2 / 2 where d = |x - target| is below `delta`, else delta * (d - delta / 2) (PyTorch's HuberLoss).
    Source: Huber 1964."""
    if not delta > 0:
        x.graph.refuse(f"mean_huber: delta must be above 0, got {delta}")
    apart = (x - target).abs()
    near = apart.clip(0.0, delta)  # d or delta: one expression, with no square that overflows in a branch not taken
    return step_mean(near * (apart - 0.5 * near), name)


def mean_binary_cross_entropy(logits: Value, target: Value | float, name: str = "") -> Value:
    """The mean of -target log(p) - (1 - target) log(1 - p) with p = sigmoid(logits), for float32 targets in [0, 1]
    (PyTorch's BCEWithLogitsLoss), without overflow. Labels of 0 and 1 with ignored ones: ops.sigmoid_cross_entropy."""
    return step_mean(ops.softplus(logits) - logits * target, name)
