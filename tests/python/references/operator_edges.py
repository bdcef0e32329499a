"""Edge cases for operator_cases.py: empty axes; every kind of broadcasting of operators that aren't among the simple ones;
infinities, NaNs and overflows in norms, products, windows, attention and losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import operator_cases as of

INF, NAN = of.INF, of.NAN
# Rows with ordinary numbers, an infinity, negative infinities, a NaN, large differences, equal numbers, only negative
# infinities, very small exponentials, tiny numbers, and mixed infinities.
ROWS = np.array([[1.0, -2.0, 0.5, 3.0], [1.0, INF, 0.5, 3.0], [-INF, 2.0, -INF, 0.0], [1.0, 2.0, NAN, 3.0],
                 [1e30, -1e30, 0.0, 1e30], [7.0, 7.0, 7.0, 7.0], [-INF, -INF, -INF, -INF], [-88.0, -200.0, -104.0, 0.0],
                 [1e-30, -1e-30, 1e-38, 0.0], [INF, -INF, INF, 1.0]], np.float32)

FAR = 4


def _image() -> np.ndarray:
    """Returns [2, 2, 4, 5] with an infinity, a negative infinity and a NaN, far enough apart that some windows contain none
    of them."""
    x = of.draw(2, 2, 4, 5)
    x[0, 0, 0, 0], x[0, 1, 3, 4], x[1, 0, 2, 1] = INF, -INF, NAN
    return x


def _broadcasts() -> dict[str, of.Case]:
    """Returns cases of all kinds of broadcasting for operators that aren't among the simple ones, also for integers."""
    made = {}
    for kind, (first, second) in of.BROADCASTS.items():
        made[f"pow {kind}"] = of.Case([of.draw(*first, low=0.3), of.draw(*second)], lambda _, a, b: a**b)
        for name in ("<", "=="):
            made[f"{name} {kind}"] = of.Case([of.draw(*first), of.draw(*second)], of.COMPARED[name], slopes=False)
    made["where of three"] = of.Case([np.array([[[1]], [[0]]], np.int32), of.draw(3, 1), of.draw(4)],
                                     lambda f, c, a, b: f.where(c > 0, a, b))
    made["where of numbers"] = of.Case([of.FEW], lambda f, x: f.where(x > 0.7, x, -1.0))
    for name, (first, second) in {"": ((2, 3, 4), (2, 4, 5)), " leading": ((2, 1, 3, 4), (5, 4, 2)),
                                  " of a matrix": ((2, 2, 3, 4), (4, 5)), " of nothing": ((2, 0), (0, 3)),
                                  " without rows": ((0, 4), (4, 3)), " without columns": ((2, 4), (4, 0)),
                                  " without a batch": ((0, 2, 3), (0, 3, 2))}.items():
        made[f"product{name}"] = of.Case([of.draw(*first), of.draw(*second)], lambda _, a, b: a @ b)
    made["product edges"] = of.Case([ROWS, of.draw(4, 3)], lambda _, a, b: a @ b)
    made["product edges of rows"] = of.Case([np.stack([ROWS, ROWS]), of.draw(2, 4, 3)], lambda _, a, b: a @ b)
    made["linear edges"] = of.Case([ROWS, of.draw(3, 4), of.draw(3)], lambda f, x, w, b: f.linear(x, w, b))
    made["linear without rows"] = of.Case([of.draw(0, 4), of.draw(3, 4), of.draw(3)], lambda f, x, w, b: f.linear(x, w, b))
    return made


def _norms() -> dict[str, of.Case]:
    made = {}
    rows: dict[str, Callable[..., Any]] = {
        "softmax": lambda f, x, w, b: f.softmax(x) * w + b, "layer_norm": lambda f, x, w, b: f.layer_norm(x, w, b),
        "rms_norm": lambda f, x, w, b: f.rms_norm(x, w) + b,
    }
    for name, function in rows.items():
        # Squares of 1e30 are infinite in PyTorch's float32. Hetu adds in float64.
        given = np.delete(ROWS, FAR, 0) if name == "layer_norm" else ROWS
        made[f"{name} edges"] = of.Case([given, of.draw(4), of.draw(1, 4)[0]], function)
        made[f"{name} without rows"] = of.Case([of.draw(0, 4), of.draw(4), of.draw(1, 4)[0]], function)
        if name != "layer_norm":  # all its gradients are 0, and PyTorch's are rounding errors
            made[f"{name} of one"] = of.Case([ROWS[:, :1], of.draw(1), of.draw(1, 1)[0]], function)
    image = _image()
    made["group_norm edges"] = of.Case([image, of.draw(2), of.draw(1, 2)[0]], lambda f, x, w, b: f.group_norm(x, 2, w, b))
    made["instance_norm edges"] = of.Case([image, of.draw(2), of.draw(1, 2)[0]], lambda f, x, w, b: f.instance_norm(x, w, b))
    return made


def _images() -> dict[str, of.Case]:
    image, made = _image(), {}
    for kind, x in {"edges": image, "without images": of.draw(0, 2, 4, 5)}.items():
        made[f"conv2d {kind}"] = of.Case([x, of.draw(3, 2, 2, 2), of.draw(3)],
                                         lambda f, x, w, b: f.conv2d(x, w, b, 2, 0, 1, 1))
        made[f"conv_transpose2d {kind}"] = of.Case([x, of.draw(2, 3, 2, 2), of.draw(3)],
                                                   lambda f, x, w, b: f.conv_transpose2d(x, w, b, 2, 0, 0, 1, 1))
        made[f"max_pool2d {kind}"] = of.Case([x], lambda f, x: f.max_pool2d(x, 2, 2, 1))
        made[f"avg_pool2d {kind}"] = of.Case([x], lambda f, x: f.avg_pool2d(x, 2, 2, 1, 1))
        made[f"global_avg_pool {kind}"] = of.Case([x], lambda f, x: f.global_avg_pool(x))
        made[f"nearest {kind}"] = of.Case([x], lambda f, x: f.resize(x, 3, 10, 0, 0))
    made["bilinear without images"] = of.Case([of.draw(0, 2, 4, 5)], lambda f, x: f.resize(x, 8, 3, 1, 0))
    made["max_pool2d of equal ones"] = of.Case([np.ones((1, 1, 3, 3), np.float32)], lambda f, x: f.max_pool2d(x, 2, 1, 0))
    made["max_pool2d of infinities below"] = of.Case([np.full((1, 1, 3, 3), -INF, np.float32)],
                                                     lambda f, x: f.max_pool2d(x, 2, 1, 1))
    return made


def _sequences() -> dict[str, of.Case]:
    made = {}
    q, k, v = (np.array(of.draw(*([1] * i), 2, 5, 8)).reshape(2, 5, 8) for i in range(3))
    for name, at, value, parts in (("an infinity", 0, INF, 3), ("a NaN", 1, NAN, 3), ("far numbers", 0, 1e30, 2)):
        for part in range(parts):
            given = [x.copy() for x in (q, k, v)]
            given[part][at, 2, 3] = value
            made[f"attention with {name} in {'qkv'[part]}"] = of.Case(
                given, lambda f, q, k, v: f.attention(q, k, v, None, heads=2))
    made["attention without rows"] = of.Case([of.draw(0, 3, 4)] * 3, lambda f, q, k, v: f.attention(q, k, v, None, heads=2))
    for kind, gates in (("lstm", 4), ("gru", 3)):
        for name, x in (("edges", np.stack([ROWS[:5], ROWS[5:]])), ("without rows", of.draw(0, 5, 4))):
            made[f"{kind} {name}"] = of.Case([x, of.draw(gates * 2, 4), of.draw(gates * 2, 2)],
                                             lambda f, *given, kind=kind: getattr(f, kind)(*given))
    for axis in (0, 1):
        made[f"cumsum edges {axis}"] = of.Case([ROWS], lambda f, x, axis=axis: f.cumsum(x, axis))
    made["cumsum of nothing"] = of.Case([of.draw(2, 0, 3)], lambda f, x: f.cumsum(x, 1))
    some = np.array([3, 3, 0, 6], np.int32)
    made["embedding edges"] = of.Case([some, ROWS], lambda f, i, x: f.embedding(x, i))
    made["embedding of no ids"] = of.Case([some[:0], ROWS], lambda f, i, x: f.embedding(x, i))
    made["gather edges"] = of.Case([some[None].repeat(10, 0) % 4, ROWS], lambda f, i, x: f.gather(x, i, 1))
    made["scatter_add edges"] = of.Case([some % 2, ROWS[:4]], lambda f, i, x: f.scatter_add(i[None], x[None], 1, 3))
    made["scatter_add of nothing"] = of.Case([some[None, :0], of.draw(1, 0, 3)], lambda f, i, x: f.scatter_add(i, x, 1, 2))
    moves: dict[str, Callable[..., Any]] = {
        "concat": lambda f, x: f.concat([x, x[:, :1]], 1), "pad": lambda f, x: f.pad(x, [(1, 0), (0, 1)], INF),
        "flip": lambda f, x: x.flip((0,)), "slice": lambda f, x: x[:, 1::2] * 2,
    }
    for name, function in moves.items():
        made[f"{name} edges"] = of.Case([ROWS], function)
    return made


def _reductions() -> dict[str, of.Case]:
    made, deep = {}, np.stack([ROWS, ROWS[::-1]])
    for op in of.REDUCE:
        for axes in ((0,), (-1,), (0, 1), (0, 1, 2)):
            if op in ("var", "var1") and 1 not in axes:
                continue  # the libraries' sums of squares round differently for two rows that are far apart
            made[f"{op} edges {list(axes)}"] = of.Case([deep], lambda f, x, op=op, axes=axes: getattr(f, op)(x, axes, True))
        made[f"{op} beside nothing"] = of.Case([of.draw(2, 0, 3)], lambda f, x, op=op: getattr(f, op)(x, (2,), False))
    for op in ("var", "var1"):
        made[f"{op} of one"] = of.Case([ROWS[:, :1]], lambda f, x, op=op: getattr(f, op)(x, (1,), False))
    made["argmax edges"] = of.Case([ROWS], lambda f, x: f.argmax(x, 1), slopes=False)
    made["argmax edges 0"] = of.Case([ROWS], lambda f, x: f.argmax(x, 0), slopes=False)
    made["top_k edges"] = of.Case([ROWS[[0, 1, 3, 7, 8]]], lambda f, x: f.top_k(x, 4))  # no ties
    return made


def _losses() -> dict[str, of.Case]:
    """Returns cases of one row each, because a NaN in one row makes the mean NaN."""
    made = {}
    for row, label in enumerate((0, 1, 2, 3, 0, 1, 2, 3, 0, 3)):
        if row == FAR:
            continue  # the logarithm of a sum with 1e30 has no digits left for the other numbers
        for smoothing in (0.0, 0.1):
            made[f"cross-entropy {smoothing} of row {row}"] = of.Case(
                [ROWS[row:row + 1], np.array([label], np.int32), np.ones(4, np.float32)],
                lambda f, x, t, w, s=smoothing: f.cross_entropy(x * w, t, s, None), fed=2)
    return made


def cases() -> dict[str, of.Case]:
    """Returns all cases by name."""
    return _broadcasts() | _norms() | _images() | _sequences() | _reductions() | _losses()
