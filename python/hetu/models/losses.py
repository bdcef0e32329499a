"""Losses: sums over this micro-batch, divided by the counts of the whole step, so that uneven batches stay exact."""

from __future__ import annotations

import math
from typing import Any

from hetu import ops
from hetu.functions import constant, mean_of_step
from hetu.graph import Value, check_values, shape_text


def mean_cross_entropy(logits: Value, labels: Value, name: str = "", smoothing: float = 0.0, weight: Any = None,
                       ignore: int | None = None) -> Value:
    """Returns the softmax cross-entropy of logits [N, ..., C] and int32 labels [N, ...], divided by the number of labels in
    the whole step (PyTorch's CrossEntropyLoss). Labels are 0 to C - 1: a step with another label fails, and the error names
    its value and row.

    ignore: a label that counts neither in the sum nor in the number. None: every label counts.
    smoothing: the share of the target that is spread over all classes (Szegedy et al. 2016).
    weight: an array or a constant [C] with the weight of a label of each class, in the sum and in the number.
    """
    check_values("mean_cross_entropy", logits=logits, labels=labels)
    if labels.dtype == "bool":
        labels = labels.cast("int32")
    if labels.dtype != "int32":
        right = ("for rows with a 1 at the class, use labels.argmax()" if labels.shape == logits.shape else
                 'give the data object whole numbers, as in y.astype("int32"), or use labels.cast("int32")')
        labels.graph.refuse(f"mean_cross_entropy: labels must be int32, got {labels!r}; {right}")
    if logits.ndim < 2 or labels.shape != logits.shape[:-1]:
        logits.graph.refuse(f"mean_cross_entropy: logits must be [N, ..., classes] and labels [N, ...], got {logits!r} and "
                            f"{labels!r}")
    if not 0 <= smoothing <= 1:
        logits.graph.refuse(f"mean_cross_entropy: smoothing must be in [0, 1], got {smoothing}")
    if logits.ndim != 2:
        logits = logits.reshape(math.prod(logits.shape[:-1]), logits.shape[-1])
        labels = labels.reshape(math.prod(labels.shape))
    called = (lambda part: f"{name}.{part}") if name else (lambda part: "")
    by_class = [] if weight is None else [_class_weights(weight, logits)]
    left_out = {} if ignore is None else {"ignore": ignore}
    total = ops.softmax_cross_entropy(logits, labels, *by_class, smoothing=float(smoothing), **left_out,
                                      name=called("cross_entropy"))[0]
    count = ops.count_labels(labels, *by_class, **left_out, name=called("count"))
    of_step = ops.step_sum(count, name=called("step_count"))
    return logits.graph.apply_called("mean_cross_entropy", "div_scalar", [total, of_step], name)


def _class_weights(weight: Any, logits: Value) -> Value:
    """Returns class weights as float32 [C]."""
    by_class = weight if isinstance(weight, Value) else constant(weight).cast("float32")
    if by_class.dtype != "float32" or by_class.shape != [logits.shape[-1]]:
        logits.graph.refuse(f"mean_cross_entropy: weight must be float32[{logits.shape[-1]}], one per class, got "
                            f"{by_class!r}")
    return by_class


# Means over all elements of the step. `x` and `target` broadcast, and one of them has the batch on its first
# axis. If both have it, they have the same number of axes. Integer and bool targets are treated as numbers.


def _number(loss: str, x: Value, target: Value | float) -> Value | float:
    """Returns the target as float32 or a number. Throws ValueError for predictions [B] with targets [B, 1] and the like,
    because broadcasting would compare each sample with every other one."""
    if not isinstance(target, Value):
        return target
    check_values(loss, x=x)
    per_sample = all(value.shape and value.shape[0] < 0 for value in (x, target))
    if per_sample and x.ndim != target.ndim:
        more, what = (target, "y") if target.ndim > x.ndim else (x, "p")
        hint = f", as in {what}[:, 0]" if more.shape[1:] == [1] else ""
        x.graph.refuse(f"{loss}: predictions {x.dtype}{shape_text(x.shape)}, targets {target.dtype}"
                       f"{shape_text(target.shape)}; give them one shape{hint}")
    return target.cast("float32")


def mean_squared_error(x: Value, target: Value | float, name: str = "") -> Value:
    """Returns the mean of (x - target)^2 (PyTorch's MSELoss)."""
    return mean_of_step((x - _number("mean_squared_error", x, target)) ** 2, name, "mean_squared_error")


def mean_absolute_error(x: Value, target: Value | float, name: str = "") -> Value:
    """Returns the mean of |x - target| (PyTorch's L1Loss)."""
    return mean_of_step((x - _number("mean_absolute_error", x, target)).abs(), name, "mean_absolute_error")


def mean_huber(x: Value, target: Value | float, delta: float = 1.0, name: str = "") -> Value:
    """Returns the mean of d^2 / 2 where d = |x - target| is below `delta`, else of delta * (d - delta / 2) (PyTorch's
    HuberLoss). Source: Huber 1964."""
    check_values("mean_huber", x=x)
    if not delta > 0:
        x.graph.refuse(f"mean_huber: delta must be above 0, got {delta}")
    apart = (x - _number("mean_huber", x, target)).abs()
    near = apart.clip(0.0, delta)  # d or delta: a single expression, so that no square overflows in an unused branch
    return mean_of_step(near * (apart - 0.5 * near), name, "mean_huber")


def mean_binary_cross_entropy(logits: Value, target: Value | float, name: str = "", pos_weight: Any = None) -> Value:
    """Returns the mean of -target log(p) - (1 - target) log(1 - p) with p = sigmoid(logits), for targets in [0, 1]
    (PyTorch's BCEWithLogitsLoss), without overflow.

    pos_weight: a number, an array or a value that broadcasts, which multiplies the first term.
    For labels of 0 and 1 with some to ignore, use ops.sigmoid_cross_entropy(ignore=...).
    """
    default = "mean_binary_cross_entropy"
    target = _number(default, logits, target)
    if pos_weight is None:
        return mean_of_step(ops.softplus(logits) - logits * target, name, default)
    times = pos_weight if isinstance(pos_weight, (Value, int, float)) else constant(pos_weight)
    return mean_of_step((1 - target) * logits + (1 + (times - 1) * target) * ops.softplus(-logits), name, default)


def mean_kl_divergence(log_p: Value, target: Value, name: str = "", log_target: bool = False) -> Value:
    """Returns the sum of target (log(target) - log_p) over all axes but the first, averaged over the first (PyTorch's
    KLDivLoss with reduction="batchmean").

    log_p: logarithms of probabilities.
    target: probabilities, or logarithms if `log_target`.
    Source: Kullback and Leibler 1951.
    """
    check_values("mean_kl_divergence", log_p=log_p, target=target)
    if log_p.ndim < 2 or target.shape != log_p.shape:
        log_p.graph.refuse(f"mean_kl_divergence: expected values [batch, ...] of one shape, got {log_p!r} and {target!r}")
    if log_target:
        apart = target.exp() * (target - log_p)
    else:
        positive = ops.where(target == 0.0, ops.fill(shape=[], value=1.0), target)  # 0 log(0) is 0
        apart = target * positive.log() - target * log_p
    return mean_of_step(apart.sum(list(range(1, apart.ndim))), name, "mean_kl_divergence")
