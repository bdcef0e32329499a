"""Losses that models share."""

from __future__ import annotations

from hetu import ops
from hetu.graph import Value


def mean_cross_entropy(logits: Value, labels: Value, name: str) -> Value:
    """Softmax cross-entropy of [N, C] against int32 [N], ignoring -1, divided by the count of the whole step."""
    total = ops.softmax_cross_entropy(logits, labels, name=f"{name}.cross_entropy")[0]
    count = ops.step_sum(ops.count_labels(labels, name=f"{name}.count"), name=f"{name}.step_count")
    return ops.div_scalar(total, count, name=f"{name}.loss")
