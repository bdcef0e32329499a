"""Learning rates, as functions of the number of the update (counted from 1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """kind: constant, warmup (then constant) or warmup_linear (then linearly to 0 at update `total`)."""

    base: float
    kind: str = "constant"
    warmup: int = 0
    total: int = 0


def constant(rate: float) -> Rate:
    """The same rate for every update."""
    return Rate(rate)


def warmup(rate: float, steps: int) -> Rate:
    """rate * update / steps up to update `steps`, then `rate`."""
    return Rate(rate, "warmup" if steps > 0 else "constant", steps)


def warmup_linear(rate: float, steps: int, total: int) -> Rate:
    """Linear warm-up over `steps` updates, then linear decay to 0 at update `total`."""
    return Rate(rate, "warmup_linear", steps, total)


def as_rate(rate: float | Rate) -> Rate:
    """A number is a constant rate."""
    return rate if isinstance(rate, Rate) else constant(float(rate))
