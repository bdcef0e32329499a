"""How parameters start: a function of seed, parameter name and element alone, so that every placement of a model agrees.

Names and formulas as in torch.nn.init. Fan-in and fan-out are the second and the first dimension of [out, in], both times
the window of [out, in, height, width]; one dimension counts for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hetu import keywords
from hetu.names import missing_from


@dataclass(frozen=True)
class Init:
    """A kind of ops/initialize.h with its two numbers."""

    kind: str = "constant"
    a: float = 0.0
    b: float = 0.0


def constant(value: float) -> Init:
    """Every element is `value`."""
    return Init("constant", value)


def zeros() -> Init:
    """Every element is 0."""
    return constant(0.0)


def ones() -> Init:
    """Every element is 1."""
    return constant(1.0)


def normal(std: float, mean: float = 0.0) -> Init:
    """Normally distributed."""
    return Init("normal", mean, std)


def truncated_normal(std: float, mean: float = 0.0) -> Init:
    """Normally distributed, drawn again outside two standard deviations."""
    return Init("truncated_normal", mean, std)


def uniform(low: float, high: float) -> Init:
    """Uniformly distributed in [low, high)."""
    return Init("uniform", low, high)


def xavier_normal() -> Init:
    """Normal with variance 2 / (fan_in + fan_out) (Glorot and Bengio 2010)."""
    return Init("xavier_normal")


def xavier_uniform() -> Init:
    """Uniform within sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return Init("xavier_uniform")


def kaiming_normal(a: float = 0.0, mode: str = "fan_in") -> Init:
    """Normal with variance 2 / (1 + a^2) / fan, before a leaky ReLU of slope `a` (He et al. 2015). mode: fan_in, fan_out."""
    return Init("kaiming_normal", _gain(a), _fan(mode))


def kaiming_uniform(a: float = 0.0, mode: str = "fan_in") -> Init:
    """Uniform with the variance of kaiming_normal. PyTorch's layers start with a = sqrt(5): within 1 / sqrt(fan_in)."""
    return Init("kaiming_uniform", _gain(a), _fan(mode))


def _gain(slope: float) -> float:
    return math.sqrt(2.0 / (1.0 + slope * slope))


def _fan(mode: str) -> float:
    """As ops/initialize.h counts them."""
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"kaiming: mode '{mode}' is not known; known: fan_in, fan_out")
    return float(mode == "fan_out")


__all__ = ["Init", "constant", "kaiming_normal", "kaiming_uniform", "normal", "ones", "truncated_normal", "uniform",
           "xavier_normal", "xavier_uniform", "zeros"]

keywords.check_module(__name__)
globals()["__getattr__"] = missing_from(__name__)  # not a def: mypy knows what there is
