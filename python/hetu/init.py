"""Initial values of parameters. They depend only on seed, parameter name and element, so they are the same under every
placement of a model.

Names and formulas are those of torch.nn.init. Fan-in and fan-out are the second and the first dimension of [out, in], both
multiplied by the window of [out, in, height, width]. A single dimension counts for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hetu import keywords
from hetu.names import missing_from


@dataclass(frozen=True)
class Init:
    """An initializer: a kind of ops/initialize.h with its two numbers."""

    kind: str = "constant"
    a: float = 0.0
    b: float = 0.0


def constant(value: float) -> Init:
    """Sets every element to `value`."""
    return Init("constant", value)


def zeros() -> Init:
    """Sets every element to 0."""
    return constant(0.0)


def ones() -> Init:
    """Sets every element to 1."""
    return constant(1.0)


def normal(std: float, mean: float = 0.0) -> Init:
    """Samples from a normal distribution."""
    return Init("normal", mean, std)


def truncated_normal(std: float, mean: float = 0.0) -> Init:
    """Samples from a normal distribution, and samples again outside two standard deviations."""
    return Init("truncated_normal", mean, std)


def uniform(low: float, high: float) -> Init:
    """Samples uniformly from [low, high)."""
    return Init("uniform", low, high)


def xavier_normal() -> Init:
    """Samples from a normal distribution with variance 2 / (fan_in + fan_out) (Glorot and Bengio 2010)."""
    return Init("xavier_normal")


def xavier_uniform() -> Init:
    """Samples uniformly within ± sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return Init("xavier_uniform")


def kaiming_normal(a: float = 0.0, mode: str = "fan_in") -> Init:
    """Samples from a normal distribution with variance 2 / (1 + a^2) / fan, for a layer before a leaky ReLU of slope `a`
    (He et al. 2015). `mode` is fan_in or fan_out."""
    return Init("kaiming_normal", _gain(a), _fan(mode))


def kaiming_uniform(a: float = 0.0, mode: str = "fan_in") -> Init:
    """Samples uniformly with the variance of kaiming_normal. PyTorch's layers use a = sqrt(5), which gives ± 1 /
    sqrt(fan_in)."""
    return Init("kaiming_uniform", _gain(a), _fan(mode))


def _gain(slope: float) -> float:
    return math.sqrt(2.0 / (1.0 + slope * slope))


def _fan(mode: str) -> float:
    """Returns the encoding of the mode in ops/initialize.h."""
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"kaiming: mode '{mode}' is not known; known: fan_in, fan_out")
    return float(mode == "fan_out")


__all__ = ["Init", "constant", "kaiming_normal", "kaiming_uniform", "normal", "ones", "truncated_normal", "uniform",
           "xavier_normal", "xavier_uniform", "zeros"]

keywords.check_module(__name__)
globals()["__getattr__"] = missing_from(__name__)  # assigned, not defined: otherwise mypy would accept any name
