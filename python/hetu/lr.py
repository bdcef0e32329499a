"""Learning rates, as functions of the number of the update (counted from 1).

Each may start with a linear warm-up, `rate * update / warmup` up to update `warmup`. The shape after it counts updates from
the end of the warm-up. Without a warm-up, the rates are those of torch.optim.lr_scheduler, stepped once per update. With a
warm-up, they are those of SequentialLR.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hetu import _hetu, keywords, options
from hetu.names import missing_from
from hetu.place import check_takes, placed, refuse


def _of(name: str) -> Any:
    """Returns the default of a setting."""
    return options.table("rate")[name].default


@dataclass(frozen=True)
class Rate:
    """A learning rate as data. Create it with the functions below. `kind` is constant, linear, step, multi_step,
    polynomial, cosine, bert_linear or nvlamb."""

    base: float
    kind: str = _of("kind")
    warmup: int = _of("warmup")
    total: int = _of("total")
    every: int = _of("every")
    gamma: float = _of("gamma")
    power: float = _of("power")
    floor: float = _of("floor")
    share: float = _of("share")
    milestones: tuple[int, ...] = ()

    def __init_subclass__(cls) -> None:
        refuse(f"{cls.__name__}: a subclass of hetu.lr.Rate is not used by trainings; for a rate of your own, give the "
               "optimizer hetu.lr.Custom(function), with a function of the number of the update")

    def settings(self) -> dict[str, Any]:
        """Returns the settings for the C++ side."""
        return {**asdict(self), "milestones": list(self.milestones)}

    def at(self, update: int) -> float:
        """Returns the learning rate of an update, counted from 1."""
        return float(_hetu.rate_at(self.settings(), update))


def _shape(rate: Rate, unit: str) -> str:
    """Describes the rate after its warm-up."""
    ends = f"to {rate.floor:g} at {unit} {rate.total}"
    return {
        "constant": "constant",
        "linear": f"linear {ends}",
        "step": f"x {rate.gamma:g} every {rate.every}",
        "multi_step": f"x {rate.gamma:g} after {', '.join(map(str, rate.milestones))}",
        "polynomial": f"polynomial of power {rate.power:g} {ends}",
        "cosine": f"half a cosine wave {ends}",
        "bert_linear": f"warm-up of {100 * rate.share:g} %, linear {ends}",
        "nvlamb": f"warm-up of {100 * rate.share:g} %, polynomial of power {rate.power:g} {ends}",
    }[rate.kind]


def describe(rate: float | Rate | ReduceOnPlateau | Custom, updates: int, unit: str = "update") -> str:
    """Describes in one line the course of a rate over `updates` updates. `unit` is the reader's word for an update."""
    made = as_rate(rate)
    of = rate if isinstance(rate, Custom) else made
    first, last = of.at(1), of.at(updates)
    reaches = f"{first:.4g}" + (f" to {last:.4g}" if updates > 1 else "") + f" over {updates} {unit}s"
    if isinstance(rate, Custom):
        return f"learning rate: {reaches} ({getattr(rate.function, '__name__', 'a function')} of the {unit})"
    warms = f"warm-up of {made.warmup} to {made.base:g}, then " if made.warmup else ""
    text = f"learning rate: {reaches} ({warms}{_shape(made, unit)}"
    if isinstance(rate, ReduceOnPlateau):
        text += f"; x {rate.factor:g} when the measure has not improved for {rate.patience} reports"
    return text + ")"


def cut_short(rate: float | Rate | ReduceOnPlateau | Custom, updates: int, option: str = "") -> str:
    """Returns a warning if `updates` updates end inside the warm-up, else "". `option` is the option that sets the
    warm-up's length."""
    made = as_rate(rate)
    if updates >= made.warmup or not made.base:
        return ""
    last = made.at(updates)
    return (f"warning: this run ends during the warm-up: {updates} of {made.warmup} updates reach a rate of {last:.4g}, "
            f"{100 * last / made.base:.2g} % of {made.base:g}; the model may learn little, use a shorter warm-up"
            + (f" ({option})" if option else ""))


def constant(rate: float) -> Rate:
    """Returns the same rate for every update."""
    return Rate(rate)


def warmup(rate: float, steps: int) -> Rate:
    """Returns rate * update / steps up to update `steps`, then `rate`."""
    return Rate(rate, warmup=steps)


def warmup_linear(rate: float, steps: int, total: int) -> Rate:
    """Warms up linearly over `steps` updates, then decays linearly to 0 at update `total`."""
    return Rate(rate, "linear", steps, total)


def step(rate: float, every: int, gamma: float = 0.1, warmup: int = 0) -> Rate:
    """Multiplies the rate by `gamma` after every `every` updates."""
    return Rate(rate, "step", warmup, every=every, gamma=gamma)


def multi_step(rate: float, milestones: Sequence[int], gamma: float = 0.1, warmup: int = 0) -> Rate:
    """Multiplies the rate by `gamma` after each of these numbers of updates."""
    return Rate(rate, "multi_step", warmup, gamma=gamma, milestones=tuple(milestones))


def exponential(rate: float, gamma: float, warmup: int = 0) -> Rate:
    """Multiplies the rate by `gamma` after every update."""
    return Rate(rate, "step", warmup, gamma=gamma)


def polynomial(rate: float, total: int, power: float = 1.0, warmup: int = 0) -> Rate:
    """Returns rate * (1 - k / n)^power over the n = total - warmup updates after the warm-up, then 0."""
    return Rate(rate, "polynomial", warmup, total, power=power)


def bert_linear(rate: float, total: int, share: float = 0.1) -> Rate:
    """Returns BertAdam's rate: with x = (update - 1) / total, rate * x / share up to x = `share`, then rate * (1 - x) / (1
    - share)."""
    return Rate(rate, "bert_linear", total=total, share=share)


def nvlamb(rate: float, total: int, share: float = 0.2843, power: float = 0.5) -> Rate:
    """Returns NVIDIA's rate for LAMB: with x = update / total, rate * x / share below `share`, then rate * (1 - x)^power.
    The second part begins lower than the warm-up ends."""
    return Rate(rate, "nvlamb", total=total, share=share, power=power)


def cosine(rate: float, total: int, floor: float = 0.0, warmup: int = 0) -> Rate:
    """Follows half a cosine wave from `rate` to `floor` over the total - warmup updates after the warm-up, then stays at
    `floor`."""
    return Rate(rate, "cosine", warmup, total, floor=floor)


@dataclass(frozen=True)
class Custom:
    """A rate of your own: `function(update)` returns the learning rate of an update, counted from 1.

    Every worker calls it before each step, so it must return the same numbers in all of them, and depend on nothing but
    `update` if the training is to be resumed. The pipeline method must have a flush.
    """

    function: Callable[[int], float]

    @placed()
    def __post_init__(self) -> None:
        if not callable(self.function):
            refuse(f"Custom: expected a function of the number of the update, got {self.function!r}")
        check_takes("Custom: the function", self.function, "update")

    def at(self, update: int) -> float:
        """Returns the learning rate of an update, counted from 1. Throws ValueError unless it is a finite number >= 0."""
        found = self.function(update)
        try:
            rate = math.nan if isinstance(found, (str, bool)) else float(found)
        except (TypeError, ValueError):
            rate = math.nan
        if not 0 <= rate < math.inf:
            refuse(f"Custom: the learning rate of update {update} must be a finite number >= 0, got {found!r}")
        return rate


@dataclass
class ReduceOnPlateau:
    """A rate that is multiplied by `factor` when a reported measure has not improved for more than `patience` reports. It
    follows torch.optim.lr_scheduler.ReduceLROnPlateau.

    Pass it to an optimizer and call `report(measure)` in every worker with a value that is the same on all of them, such as
    `step.loss`. The next update uses the new rate. Checkpoints contain its state.
    """

    rate: float | Rate
    mode: str = "min"
    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    threshold_mode: str = "rel"
    cooldown: int = 0
    min_rate: float = 0.0
    epsilon: float = 1e-8
    state: dict[str, float] = field(init=False)

    @placed()
    def __post_init__(self) -> None:
        if self.mode not in ("min", "max") or self.threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"plateau: mode must be min or max and threshold_mode rel or abs, got {self.mode} and {self.threshold_mode}"
            )
        if not 0 < self.factor < 1:
            raise ValueError(f"plateau: factor must be between 0 and 1, got {self.factor}")
        self.rate = as_rate(self.rate)
        # JSON has no infinity, so there is no "best" until the first report.
        self.state = {"multiplier": 1.0, "bad": 0, "cooling": 0}

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "rate" and "state" in self.__dict__:
            refuse("ReduceOnPlateau: its rate can't be changed, because only report() changes the rate of a training; for a "
                   "rate of your own, give the optimizer hetu.lr.Custom(function)")
        super().__setattr__(name, value)

    def _better(self, measure: float) -> bool:
        if "best" not in self.state:
            return not math.isnan(measure)
        best, sign = self.state["best"], 1.0 if self.mode == "max" else -1.0
        bound = best * (1 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        return measure > bound if self.mode == "max" else measure < bound

    def report(self, measure: float) -> None:
        """Reports a new value of the measure, for example once per epoch."""
        s = self.state
        if self._better(measure):
            s["best"], s["bad"] = measure, 0
        else:
            s["bad"] += 1
        if s["cooling"] > 0:
            s["cooling"], s["bad"] = s["cooling"] - 1, 0
        if s["bad"] > self.patience:
            base = as_rate(self.rate).base
            old = base * s["multiplier"]
            new = max(old * self.factor, self.min_rate)
            if old - new > self.epsilon:
                s["multiplier"] = new / base
            s["cooling"], s["bad"] = self.cooldown, 0


def as_rate(rate: float | Rate | ReduceOnPlateau | Custom) -> Rate:
    """Returns a Rate. A number becomes a constant rate, and a ReduceOnPlateau gives its initial rate. A Custom becomes the
    constant rate 1, which the run multiplies by the function's result."""
    if isinstance(rate, Custom):
        return constant(1.0)
    if isinstance(rate, ReduceOnPlateau):
        return as_rate(rate.rate)
    if isinstance(rate, Rate):
        return rate
    try:
        if isinstance(rate, (str, bool)):
            raise TypeError
        return constant(float(rate))
    except (TypeError, ValueError):
        hint = "; give a function as hetu.lr.Custom(function)" if callable(rate) else ""
        raise ValueError(f"learning_rate must be a number or one of hetu.lr, got {rate!r}{hint}") from None


keywords.check_module(__name__)
globals()["__getattr__"] = missing_from(__name__)  # assigned, not defined: otherwise mypy would accept any name
