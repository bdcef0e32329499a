"""Losses: sums over this micro-batch, divided by the counts of the whole step, so that uneven batches stay exact."""

from __future__ import annotations

import math
from typing import Any

from hetu import ops
from hetu.functions import constant, step_mean
from hetu.graph import Value


def mean_cross_entropy(logits: Value, labels: Value, name: str = "", smoothing: float = 0.0, weight: Any = None,
                       ignore: int = -1) -> Value:
    """Softmax cross-entropy of logits [N, ..., C] against int32 labels [N, ...], but for those that are `ignore`, divided by
    their count in the whole step (PyTorch's CrossEntropyLoss). `smoothing` gives each class its share of the target (Szegedy
    et al. 2016); `weight`, an array or a constant [C], counts a label so many times, in the sum and in the count."""
    if labels.dtype != "int32":
        labels.graph.refuse(f"mean_cross_entropy: int32 labels are wanted, got {labels!r}")
    if not 0 <= smoothing <= 1:
        logits.graph.refuse(f"mean_cross_entropy: smoothing must be in [0, 1], got {smoothing}")
    if logits.ndim != 2:
        logits = logits.reshape(math.prod(logits.shape[:-1]), logits.shape[-1])
        labels = labels.reshape(math.prod(labels.shape))
    called = (lambda part: f"{name}.{part}") if name else (lambda part: "")
    if smoothing == 0 and weight is None:
        total = ops.softmax_cross_entropy(logits, labels, ignore=ignore, name=called("cross_entropy"))[0]
        count = ops.count_labels(labels, ignore=ignore, name=called("count"))
    else:
        total, count = _weighted_cross_entropy(logits, labels, smoothing, weight, ignore)
    return ops.div_scalar(total, ops.step_sum(count, name=called("step_count")), name=called("loss"))


def _weighted_cross_entropy(logits: Value, labels: Value, smoothing: float, weight: Any, ignore: int) -> tuple[Value, Value]:
    """The sum over rows, and what it is to be divided by."""
    classes = logits.shape[-1]
    kept = (labels != ignore).cast("float32")
    place = (labels.cast("float32") * kept).cast("int32")  # that of an ignored label is looked up, and counts 0
    counted = kept
    by_class = None
    if weight is not None:
        by_class = weight if isinstance(weight, Value) else constant(weight)
        if by_class.dtype != "float32" or by_class.shape != [classes]:
            logits.graph.refuse(f"mean_cross_entropy: weight must be float32[{classes}], for each class, got {by_class!r}")
        counted = kept * ops.gather(by_class, place)
    lse = logits.logsumexp(-1)
    total = counted * (lse - ops.gather(logits, place, axis=1))
    if smoothing > 0:
        share = smoothing / classes
        if by_class is None:
            rest = lse * classes - logits.sum(-1)
        else:
            rest = lse * by_class.sum() - (logits * by_class).sum(-1)
        total = (1 - smoothing) * total + share * (kept * rest)
    return total.sum(), counted.sum()


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


def mean_binary_cross_entropy(logits: Value, target: Value | float, name: str = "", pos_weight: Any = None) -> Value:
    """The mean of -target log(p) - (1 - target) log(1 - p) with p = sigmoid(logits), for float32 targets in [0, 1]
    (PyTorch's BCEWithLogitsLoss), without overflow. `pos_weight`, a number, an array or a value that broadcasts, multiplies
    the first term. Labels of 0 and 1 with ignored ones: ops.sigmoid_cross_entropy."""
    if pos_weight is None:
        return step_mean(ops.softplus(logits) - logits * target, name)
    times = pos_weight if isinstance(pos_weight, (Value, int, float)) else constant(pos_weight)
    return step_mean((1 - target) * logits + (1 + (times - 1) * target) * ops.softplus(-logits), name)


def mean_kl_divergence(log_p: Value, target: Value, name: str = "", log_target: bool = False) -> Value:
    """The sum of target (log(target) - log_p) over all axes but the first, and its mean over that (PyTorch's KLDivLoss with
    reduction="batchmean"): `log_p` are logarithms of probabilities, `target` probabilities, or logarithms if `log_target`.
    Source: Kullback and Leibler 1951."""
    if log_p.ndim < 2 or target.shape != log_p.shape:
        log_p.graph.refuse(f"mean_kl_divergence: values [batch, ...] of one shape are wanted, got {log_p!r} and {target!r}")
    if log_target:
        apart = target.exp() * (target - log_p)
    else:
        positive = ops.where(target == 0.0, ops.fill(shape=[], value=1.0), target)  # 0 log(0) is 0
        apart = target * positive.log() - target * log_p
    return step_mean(apart.sum(list(range(1, apart.ndim))), name)
