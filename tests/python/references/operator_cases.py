"""Cases that compare operators with PyTorch: values, gradients, infinities and NaNs.

Both sides use the same expression. Differences between the libraries are in the small namespaces of operator_hetu.py and
operator_torch.py. A case has inputs and a function of a namespace and the inputs. Gradients of float32 inputs are compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SEED = 20241124
INF, NAN = float("inf"), float("nan")


@dataclass
class Case:
    inputs: list[np.ndarray]
    function: Callable[..., Any]
    slopes: bool = True  # False: compare values only, because there is no gradient
    fed: int = 0  # number of leading inputs that are samples along the batch and have no gradients

    def __post_init__(self) -> None:
        self.inputs = [np.asarray(x) for x in self.inputs]  # NumPy turns scalar arrays into numbers


def draw(*shape: int, low: float | None = None) -> np.ndarray:
    """Returns normal numbers, the same for every case of one shape. With `low`, they are at least `low`."""
    x = np.asarray(np.random.default_rng([SEED, *shape]).standard_normal(shape), np.float32)
    return x if low is None else np.asarray(np.abs(x) + np.float32(low))


# Signed zeros, subnormal and largest numbers, arguments where exp overflows or underflows and where tanh is 1, infinities,
# NaN.
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-40, -1e-40, 1e-20, 20.5, -20.5, 88.8, -88.8, -110.0, 1e30, -1e30,
                  INF, -INF, NAN], dtype=np.float32)
FEW = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, INF, -INF, NAN], dtype=np.float32)  # for all pairs
BROADCASTS = {
    "same": ((2, 3), (2, 3)), "rows": ((2, 3), (3,)), "rows swapped": ((3,), (2, 3)), "columns": ((2, 1), (2, 3)),
    "both": ((2, 1, 4), (3, 1)), "middle": ((2, 3, 4), (1, 3, 1)), "scalar": ((), (2, 3)), "scalars": ((), ()),
    "leading": ((1, 1, 3), (2, 2, 3)), "empty": ((0, 3), (3,)), "empty by one": ((2, 0), (1,)),
}
BINARY: dict[str, Callable[..., Any]] = {
    "add": lambda _, a, b: a + b, "sub": lambda _, a, b: a - b, "mul": lambda _, a, b: a * b, "div": lambda _, a, b: a / b,
    "maximum": lambda f, a, b: f.maximum(a, b), "minimum": lambda f, a, b: f.minimum(a, b),
    "where": lambda f, a, b: f.where(a < b, a, b * 2),
}
COMPARED: dict[str, Callable[..., Any]] = {
    "<": lambda _, a, b: a < b, "<=": lambda _, a, b: a <= b, ">": lambda _, a, b: a > b, ">=": lambda _, a, b: a >= b,
    "==": lambda _, a, b: a == b, "!=": lambda _, a, b: a != b, "and or not": lambda _, a, b: (a > 0) & ~(b > 0) | (a > b),
}
UNARY = ("exp", "log", "sqrt", "rsqrt", "abs", "sin", "cos", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh", "softplus",
         "relu", "leaky_relu")
NUMBERS: dict[str, Callable[..., Any]] = {
    "x + 1": lambda _, x: x + 1, "1 + x": lambda _, x: 1 + x, "x - 2.5": lambda _, x: x - 2.5, "2 - x": lambda _, x: 2 - x,
    "3 * x": lambda _, x: 3 * x, "x / 3": lambda _, x: x / 3, "2 / x": lambda _, x: 2 / x, "-x": lambda _, x: -x,
    "x + inf": lambda _, x: x + INF, "x ** 2": lambda _, x: x**2, "x ** 3": lambda _, x: x**3, "x ** 0": lambda _, x: x**0,
    "x ** 0.5": lambda _, x: x**0.5, "x ** -1": lambda _, x: x**-1, "x ** -0.5": lambda _, x: x**-0.5,
    "2 ** x": lambda _, x: 2**x, "clip": lambda f, x: f.clip(x, -0.5, 1.0),
}
# The same expression on both sides. f.* is used where the libraries' names differ.
SHAPES: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "permute": ((2, 3, 4), lambda _, x: x.permute(2, 0, 1)), "swapaxes": ((2, 3, 4), lambda _, x: x.swapaxes(-1, 1)),
    "unsqueeze": ((2, 3), lambda _, x: x.unsqueeze(-1)), "squeeze": ((2, 1, 3), lambda _, x: x.squeeze(1)),
    "flatten": ((2, 3, 4), lambda _, x: x.flatten(1)), "expand": ((2, 1, 3), lambda _, x: x.expand(4, 2, 5, 3)),
    "x[:, 1:3]": ((2, 5), lambda _, x: x[:, 1:3]), "x[..., 0]": ((2, 3, 4), lambda _, x: x[..., 0]),
    "x[:, -1]": ((2, 3, 4), lambda _, x: x[:, -1]), "x[:, ::2]": ((2, 5, 3), lambda _, x: x[:, ::2]),
    "x[:, None, 1:]": ((2, 3), lambda _, x: x[:, None, 1:]),
    "x[1, 2:, None, 0]": ((2, 4, 3), lambda _, x: x[1, 2:, None, 0]),
    "x[:, 3:1]": ((2, 5), lambda _, x: x[:, 3:1]), "x[-1]": ((4, 3), lambda _, x: x[-1]),
    "concat": ((2, 3, 4), lambda f, x: f.concat([x, x[:, 1:] * 2, x], 1)),
    "stack": ((2, 3), lambda f, x: f.stack([x, x * x], 1)),
    "concat last": ((2, 3), lambda f, x: f.concat([x, x[:, :0], x[:, 1:]], -1)),
    "split": ((2, 6), lambda f, x: f.split(x, [1, 3, 2], 1)[1] * f.split(x, [3, 3], -1)[0]),
    "pad": ((2, 3), lambda f, x: f.pad(x, [(1, 0), (2, 1)], -1.5)), "cumsum": ((2, 5, 3), lambda f, x: f.cumsum(x, 1)),
    "flip": ((2, 5, 3), lambda _, x: x.flip((1,)) * x.flip((-1, 1))),
    "matmul": ((2, 3, 4), lambda _, x: x @ x.permute(0, 2, 1)),
}
# Shape, axes, whether reduced axes are kept.
REDUCED = [((2, 3, 4), (1,), False), ((2, 3, 4), (0, 2), True), ((2, 3, 4), (-1,), True), ((5,), (0,), False),
           ((2, 3, 4), (0, 1, 2), False), ((0, 3), (1,), False)]
REDUCE = ("sum", "mean", "amax", "amin", "logsumexp", "var", "var1")


def _edge(op: str, x: np.ndarray) -> Case:
    return Case([x], lambda f, v: getattr(f, op)(v))


def _losses() -> dict[str, Case]:
    """Returns cases of losses that are computed from a batch and a parameter [3]."""
    x, target, w, odd = draw(6, 3), draw(6, 1, 3)[:, 0], draw(3, low=0.2), EDGES[:18].reshape(6, 3)
    chance = 1 / (1 + np.exp(-target))
    made: dict[str, Case] = {}
    for name, function, other in (
        ("mse", lambda f, x, t, w: f.mse(x * w, t), target), ("l1", lambda f, x, t, w: f.l1(x * w, t), target),
        ("huber", lambda f, x, t, w: f.huber(x * w, t, 0.7), target), ("bce", lambda f, x, t, w: f.bce(x * w, t), chance),
        ("bce weighted", lambda f, x, t, w: f.bce(x * w, t, [0.5, 2.0, 7.0]), chance),
        ("kl", lambda f, x, t, w: f.kl(x * w - f.logsumexp(x * w, (1,), True), t), np.where(chance < 0.4, 0, chance)),
        ("kl of logarithms", lambda f, x, t, w: f.kl(x * w, t, True), np.log(chance)),
    ):
        other = other.astype(np.float32)
        made[name] = Case([x, other, w], function, fed=2)
        made[f"{name} edges"] = Case([odd, other, w], function, fed=2)
    labels = np.array([2, 0, -1, 1, 1, 2], np.int32)
    for smoothing in (0.0, 0.1):
        for weight in (None, [0.5, 2.0, 0.0]):
            name = f"cross-entropy {smoothing}{', weights' if weight else ''}"
            made[name] = Case([x, labels, w], lambda f, x, t, w, s=smoothing, of=weight: f.cross_entropy(x * w, t, s, of),
                              fed=2)
            made[f"{name} edges"] = Case([np.clip(odd, -300, 300), labels, w],
                                         lambda f, x, t, w, s=smoothing, of=weight: f.cross_entropy(x * w, t, s, of), fed=2)
    made["rms_norm"] = Case([draw(2, 3, 16), draw(16)], lambda f, x, w: f.rms_norm(x, w))
    return made


def _attention() -> dict[str, Case]:
    """Returns cases with all kinds of masks, fewer key heads, more or fewer keys than queries, and rotary positions."""
    visible = np.tril(np.ones((5, 5), np.int32))
    padded = np.stack([visible, visible * (np.arange(5) < 3).astype(np.int32)])
    blind = visible * (np.arange(5) != 2).astype(np.int32)[:, None]
    q, k, v = draw(2, 5, 8), draw(1, 2, 5, 8)[0], draw(2, 5, 1, 8)[:, :, 0]
    made = {}
    for name, mask in {"causal": visible, "causal and padded": padded, "with a query that sees nothing": blind}.items():
        made[f"attention {name}"] = Case([mask, q, k, v], lambda f, m, q, k, v: f.attention(q, k, v, m != 0, heads=2))
    for name, (keys, attrs) in {
        "without mask": (5, {}), "causal by attribute": (5, {"causal": 1}), "window": (5, {"causal": 1, "window": 2}),
        "window to both sides": (5, {"window": 2}), "of one query": (5, {"queries": 1, "causal": 1}),
        "of few queries": (5, {"queries": 2, "causal": 1, "window": 3}), "of few keys": (3, {"causal": 1}),
    }.items():
        queries = q[:, :attrs.pop("queries", 5)]
        for kv_heads in (2, 1):
            made[f"attention {name}, {kv_heads} heads of keys"] = Case(
                [queries, k[:, :keys, :4 * kv_heads], v[:, :keys, :4 * kv_heads]],
                lambda f, q, k, v, attrs=attrs, n=kv_heads: f.attention(q, k, v, None, heads=2, kv_heads=n, **attrs))
    hidden = np.where(padded[0] != 0, draw(5, 5), np.float32(-INF))
    hidden[3] = -INF
    for name, mask in {"one": draw(5, 5), "each": draw(2, 5, 5), "heads": draw(1, 2, 5, 5), "all": draw(2, 2, 5, 5),
                       "hiding": hidden}.items():
        made[f"attention added {name}"] = Case(
            [mask, q, k, v], lambda f, m, q, k, v: f.attention(q, k, v, m, heads=2, window=4))
    places = np.array([[0, 1, 5, 6, 900], [7, 6, 5, 4, 3]], np.int32)
    for interleaved in (0, 1):
        kind = "interleaved" if interleaved else "halves"
        made[f"rotary {kind}"] = Case([q], lambda f, x, i=interleaved: f.rotary(x, None, 2, 10000.0, 0, i))
        made[f"rotary {kind} at"] = Case([places, q], lambda f, p, x, i=interleaved: f.rotary(x, p, 1, 500.0, 6, i))
    return made


def _images() -> dict[str, Case]:
    """Returns cases of convolutions with groups and dilation, transposed convolutions, pooling, resizing, and norms of
    channels."""
    made = {}
    for name, (x, w, stride, padding, dilation, groups) in {
        "": ((2, 2, 3, 4), (3, 2, 3, 3), 1, 1, 1, 1), " in steps": ((2, 1, 7, 6), (3, 1, 3, 2), 2, 1, 1, 1),
        " with holes": ((1, 2, 6, 5), (3, 2, 3, 3), 1, 2, 2, 1), " in groups": ((1, 4, 4, 3), (6, 2, 3, 3), 1, 1, 1, 2),
        " of each channel": ((2, 4, 6, 6), (4, 1, 3, 3), 2, 2, 2, 4),
    }.items():
        made[f"conv2d{name}"] = Case(
            [draw(*x), draw(*w), draw(w[0])],
            lambda f, x, w, b, more=(stride, padding, dilation, groups): f.conv2d(x, w, b, *more))
    for name, (x, w, stride, padding, more, dilation, groups) in {
        "": ((2, 3, 3, 4), (3, 2, 2, 2), 2, 0, 0, 1, 1), " padded": ((2, 2, 4, 3), (2, 3, 3, 3), 3, 1, 2, 1, 1),
        " in groups with holes": ((2, 4, 3, 3), (4, 3, 3, 2), 1, 1, 0, 2, 2),
    }.items():
        made[f"conv_transpose2d{name}"] = Case(
            [draw(*x), draw(*w), draw(w[1] * groups)],
            lambda f, x, w, b, more=(stride, padding, more, groups, dilation): f.conv_transpose2d(x, w, b, *more))
    x = draw(1, 2, 3, 4)
    odd = np.where(np.arange(24).reshape(x.shape) % 11 == 5, np.float32(INF), x)
    for name, image in {"": x, " of infinities": odd}.items():
        for count in (1, 0):
            made[f"avg_pool2d {count}{name}"] = Case([image], lambda f, x, count=count: f.avg_pool2d(x, 3, 2, 1, count))
        for height, width in ((6, 8), (2, 7), (1, 2)):
            made[f"nearest {height} {width}{name}"] = Case([image], lambda f, x, h=height, w=width: f.resize(x, h, w, 0, 0))
    for height, width in ((6, 8), (2, 7), (1, 2)):
        for align in (0, 1):
            made[f"bilinear {height} {width} {align}"] = Case(
                [x], lambda f, x, h=height, w=width, align=align: f.resize(x, h, w, 1, align))
    made["group_norm"] = Case([draw(2, 4, 3, 2), draw(4), draw(1, 4)[0]], lambda f, x, w, b: f.group_norm(x, 2, w, b))
    made["instance_norm"] = Case([draw(2, 4, 3, 2), draw(4), draw(1, 4)[0]], lambda f, x, w, b: f.instance_norm(x, w, b))
    made["group_norm of sequences"] = Case([draw(2, 6, 5)], lambda f, x: f.group_norm(x, 3, None, None))
    return made


def _gathers() -> dict[str, Case]:
    """Returns cases of rows that are selected along an axis by index."""
    some = np.array([[1, 0, 1], [2, 2, 0]], np.int32)
    made = {"gather 0": Case([some, draw(4, 5)], lambda f, i, x: f.gather(x, i, 0)),
            "gather 1": Case([some, draw(2, 3, 4)], lambda f, i, x: f.gather(x, i, 1)),
            "gather last": Case([some, draw(2, 3)], lambda f, i, x: f.gather(x, i, 1)),
            "gather nothing": Case([some[:, :0], draw(2, 3, 4)], lambda f, i, x: f.gather(x, i, 1)),
            "scatter_add 0": Case([some, draw(2, 3, 4)], lambda f, i, x: f.scatter_add(i, x, 0, 4)),
            "scatter_add 1": Case([some, draw(2, 3, 4)], lambda f, i, x: f.scatter_add(i, x, 1, 5)),
            "one_hot": Case([some], lambda f, i: f.one_hot(i, 4), slopes=False)}
    return made


def _recurrent() -> dict[str, Case]:
    """Returns cases of LSTM and GRU. Their last states are compared, too."""
    made = {}
    for kind, gates in (("lstm", 4), ("gru", 3)):
        x, w, u = draw(2, 4, 3), draw(gates * 2, 3), draw(gates * 2, 2)
        biases, states = [draw(gates * 2), draw(1, gates * 2)[0]], [draw(2, 2), draw(1, 2, 2)[0]][:gates - 2]
        made[kind] = Case([x, w, u, *biases, *states], lambda f, *given, kind=kind: getattr(f, kind)(*given))
        made[f"{kind} without bias and state"] = Case([x, w, u], lambda f, *given, kind=kind: getattr(f, kind)(*given))
        wide = [draw(3, 2, 3), draw(gates * 16, 3), draw(gates * 16, 16) * np.float32(0.3)]
        made[f"{kind} of 16"] = Case(wide, lambda f, *given, kind=kind: getattr(f, kind)(*given)[:, :, ::5])
        made[f"{kind} of far numbers"] = Case([x * np.float32(100), w, u],
                                              lambda f, *given, kind=kind: getattr(f, kind)(*given))
    return made


def _reductions() -> dict[str, Case]:
    cases = {}
    for op in REDUCE:
        for shape, axes, keep in REDUCED:
            cases[f"{op} {list(shape)} {list(axes)}{' keep' if keep else ''}"] = Case(
                [draw(*shape)], lambda f, x, op=op, axes=axes, keep=keep: getattr(f, op)(x, axes, keep))
    odd = np.array([[1, INF, 2], [-INF, -INF, -INF], [1, NAN, INF], [3, 3, 1], [INF, -INF, 0], [-INF, 2, 2]], np.float32)
    for op in REDUCE[:-1]:
        cases[f"{op} odd"] = Case([odd], lambda f, x, op=op: getattr(f, op)(x, (1,), False))
    for op in ("sum", "mean", "logsumexp"):
        cases[f"{op} of nothing"] = Case([draw(2, 0)], lambda f, x, op=op: getattr(f, op)(x, (1,), False))
    for name, x in {"drawn": draw(4, 5), "odd": odd}.items():
        cases[f"argmax {name}"] = Case([x], lambda f, x: f.argmax(x, 1), slopes=False)
        cases[f"top_k {name}"] = Case([x], lambda f, x: f.top_k(x, 2))
    return cases


@functools.cache
def cases() -> dict[str, Case]:
    """Returns all cases by name."""
    import operator_edges  # a late import, because operator_edges uses this module

    out: dict[str, Case] = {}
    pairs = np.array([(a, b) for a in FEW for b in FEW], dtype=np.float32).T
    for name, binary in BINARY.items():
        for kind, (first, second) in BROADCASTS.items():
            b = draw(*second, low=0.5) if name == "div" else draw(*second) + np.float32(0.25)
            out[f"{name} {kind}"] = Case([draw(*first), b], binary)
        out[f"{name} edges"] = Case([pairs[0], pairs[1]], binary)
    for name, compared in COMPARED.items():
        out[f"{name} edges"] = Case([pairs[0], pairs[1]], compared, slopes=False)
        out[f"{name} broadcast"] = Case([draw(2, 1, 4), draw(3, 1)], compared, slopes=False)
        if name != "and or not":
            whole = [np.arange(6, dtype=np.int32), np.array([[3], [4]], np.int32)]
            out[f"{name} int32"] = Case(whole, compared, slopes=False)
    out["pow"] = Case([draw(3, 4, low=0.3), draw(4)], lambda _, a, b: a**b)
    out["pow edges"] = Case([pairs[0], pairs[1]], lambda _, a, b: a**b)
    for op in UNARY:
        out[f"{op}"] = _edge(op, draw(3, 7, low=0.1) if op in ("log", "sqrt", "rsqrt") else draw(3, 7) * np.float32(3))
        out[f"{op} edges"] = _edge(op, EDGES)
        out[f"{op} empty"] = _edge(op, draw(0, 3))
    for name, function in NUMBERS.items():
        out[name] = Case([draw(2, 5, low=0.1)], function)
        out[f"{name} edges"] = Case([EDGES], function)
    for name, (shape, function) in SHAPES.items():
        out[name] = Case([draw(*shape)], function)
    out.update(_reductions())
    out.update(_losses())
    out.update(_attention())
    out.update(_images())
    out.update(_gathers())
    out.update(_recurrent())
    out.update(operator_edges.cases())
    return out


# Elements where Hetu's number is right: (case, 0 for the value or 1, ... for gradients, element). PyTorch has a NaN where
# the limit is a number (2.15 at infinity and where a cube overflows), or passes the gradient of a NaN on. In other places
# its versions differ: at the bounds of clip, 2.6 passes the gradient on, and 2.15 doesn't.
OTHERWISE = {("gelu edges", 0, 16), ("relu edges", 1, 18), *(("gelu_tanh edges", 1, i) for i in (14, 15, 16, 17)),
             *(("clip edges", 1, i) for i in (2, 5))}


def weights(shape: tuple[int, ...]) -> np.ndarray:
    """Returns the factors of the result in the sum that is differentiated. They are the gradient that reaches the result."""
    return draw(*shape, low=0.5)


def apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Returns the largest difference, relative to the larger of the result and 1. Infinite where infinities or NaNs differ.
    """
    both = np.isfinite(ours) & np.isfinite(theirs)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    if not np.all(both | same):
        return INF
    return float((np.abs(ours[both] - theirs[both]) / np.maximum(np.abs(theirs[both]), 1)).max(initial=0))
