"""Layers without weights that work element by element, or along the last axis."""

from __future__ import annotations

from typing import Any

from hetu import ops
from hetu.graph import Value, current
from hetu.nn.module import Module


class ReLU(Module):
    """max(x, 0). `inplace` is taken, and changes nothing."""

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
    """x times the normal distribution function of x; approximate="tanh" is GPT-2's."""

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
    """Along the last axis, dim=-1."""

    def __init__(self, dim: int = -1) -> None:
        if dim != -1:
            current().refuse(f"nn.Softmax: dim is -1, the last axis; got {dim!r}")

    def forward(self, x: Value) -> Value:
        return ops.softmax(x)


_KNOWN = {"relu": ReLU, "gelu": GELU, "silu": SiLU, "tanh": Tanh}


def activation(layer: str, given: Any) -> Any:
    """A function of a value: by name, or a module or function itself."""
    if isinstance(given, str) and given in _KNOWN:
        return _KNOWN[given]()
    if not callable(given) or isinstance(given, str):
        current().refuse(f"nn.{layer}: activation {given!r} is not known; known: {', '.join(_KNOWN)}, or a function of "
                         "values")
    return given
