"""Layers without weights that work element by element, or along the last axis."""

from __future__ import annotations

import sys
from typing import Any

from hetu import ops
from hetu.graph import Value, current
from hetu.nn.module import Module
from hetu.place import is_whole


class ReLU(Module):
    """max(x, 0). `inplace` is accepted and has no effect."""

    def __init__(self, inplace: bool = False) -> None: ...

    def forward(self, x: Value) -> Value:
        return ops.relu(x)


class LeakyReLU(Module):
    """x where x > 0, else x * negative_slope."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Value) -> Value:
        return ops.leaky_relu(x, slope=self.negative_slope)


class GELU(Module):
    """x times the normal distribution function of x. approximate="tanh" is GPT-2's version."""

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            current().refuse(f"nn.GELU: approximate '{approximate}' is not known; known: none, tanh")
        self.approximate = approximate

    def forward(self, x: Value) -> Value:
        return ops.gelu(x) if self.approximate == "none" else ops.gelu_tanh(x)

    def describe(self) -> str:
        return f"approximate='{self.approximate}'"


class SiLU(Module):
    """x sigmoid(x)."""

    def forward(self, x: Value) -> Value:
        return ops.silu(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Value) -> Value:
        return ops.sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Value) -> Value:
        return ops.tanh(x)


class Softplus(Module):
    """log(1 + exp(x))."""

    def forward(self, x: Value) -> Value:
        return ops.softplus(x)


class Softmax(Module):
    """Softmax along the axis `dim`, which can't be the batch."""

    def __init__(self, dim: int = -1) -> None:
        if not is_whole(dim, -sys.maxsize):
            current().refuse(f"nn.Softmax: dim must be the number of an axis, got {dim!r}")
        self.dim = int(dim)

    def forward(self, x: Value) -> Value:
        if isinstance(x, Value) and not -x.ndim <= self.dim < x.ndim:
            current().refuse(f"nn.Softmax: {x!r} has {x.ndim} axes, there is no axis {self.dim}")
        if not isinstance(x, Value) or self.dim in (-1, x.ndim - 1):
            return ops.softmax(x)
        return ops.softmax(x.swapaxes(self.dim, -1)).swapaxes(self.dim, -1)

    def describe(self) -> str:
        return f"dim={self.dim}"


_KNOWN = {"relu": ReLU, "gelu": GELU, "silu": SiLU, "tanh": Tanh}


def activation(layer: str, given: Any) -> Any:
    """Returns a function of a value, given by name, or as a module or function."""
    if isinstance(given, str) and given in _KNOWN:
        return _KNOWN[given]()
    if not callable(given) or isinstance(given, str):
        current().refuse(f"nn.{layer}: activation {given!r} is not known; known: {', '.join(_KNOWN)}, or a function of "
                         "values")
    return given
