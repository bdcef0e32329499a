"""Optimizers. `minimize(loss)` adds the gradient graph and returns the handle that `Executor` takes in addition to the
loss."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from hetu import keywords, options
from hetu.arithmetic import kind_of
from hetu.graph import GraphBuilder, Value
from hetu.lr import Custom, Rate, ReduceOnPlateau, as_rate
from hetu.names import missing_from, missing_of
from hetu.place import placed, refuse


def _of(kind: str, name: str) -> Any:
    """Returns the default of a setting."""
    return options.table(kind)[name].default


def _betas(kind: str) -> tuple[float, float]:
    return _of(kind, "beta1"), _of(kind, "beta2")


@dataclass(frozen=True)
class Train:
    """The result of `minimize`: the loss to minimize, and the optimizer."""

    loss: Value
    optimizer: Optimizer

    @property
    def graph(self) -> GraphBuilder:
        """The graph that is trained."""
        return self.loss.graph


@dataclass
class Optimizer:
    """Settings of all optimizers. Use one of the classes below.

    clip_norm: scales gradients so that their global norm is at most this value (0 = off).
    lazy_rows: rows of an embedding table whose gradient is zero in a step keep their weights and states. Plain SGD and
    AdaGrad always do this. For other optimizers it is a different update rule: momenta, moments and decay of these rows
    pause, and a step costs time only for the rows looked up. Not available for LAMB.
    """

    learning_rate: float | Rate | ReduceOnPlateau | Custom = options.table("rate")["base"].default
    clip_norm: float = _of("sgd", "clip_norm")
    lazy_rows: bool = field(default=_of("sgd", "lazy_rows"), kw_only=True)
    kind: str = field(default="sgd", init=False)
    kfac_damping: float = field(default=_of("sgd", "kfac_damping"), init=False)  # KFAC sets this and the fields below
    curvature_every: int = field(default=_of("sgd", "curvature_every"), init=False)
    fill: str = field(default=_of("sgd", "fill"), init=False)
    inverses: str = field(default=_of("sgd", "inverses"), init=False)
    fill_costs: str = field(default=_of("sgd", "fill_costs"), init=False)
    replan: float = field(default=_of("sgd", "replan"), init=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            missing_of("Optimizer", name, dir(type(self)), type(self).__name__)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_is_read"):
            hint = ("for a rate that changes, give the optimizer one of hetu.lr, such as hetu.lr.Custom(function)"
                    if name in ("learning_rate", "lr") else "make another optimizer, with a new graph and Executor")
            refuse(f"{type(self).__name__}.{name} can't be changed, because an Executor has read it; {hint}")
        if not hasattr(type(self), name) and type(self).__module__ == __name__:
            missing_of("Optimizer", name, dir(type(self)), type(self).__name__)
        super().__setattr__(name, value)

    def mark_read(self) -> None:
        """Refuses later changes, which would have no effect: an Executor has read the settings."""
        self.__dict__["_is_read"] = True

    def settings(self) -> dict[str, Any]:
        """Returns the settings for the C++ side."""
        given = {**self.__dict__, "kind": self.kind, "kfac_damping": self.kfac_damping,
                 "curvature_every": self.curvature_every, "fill": self.fill, "inverses": self.inverses,
                 "fill_costs": self.fill_costs, "replan": self.replan}
        if "betas" in given:
            if not isinstance(given["betas"], (tuple, list)) or len(given["betas"]) != 2:
                raise ValueError(f"betas must be two numbers, such as (0.9, 0.999), got {given['betas']!r}")
            given["beta1"], given["beta2"] = given["betas"]
        settings = {name: given[name] for name in options.table(self.kind)}
        return {**settings, "rate": as_rate(self.learning_rate).settings()}

    def check(self) -> None:
        """Throws ValueError, with the line of the user's script, if a setting is invalid."""
        with placed(options.as_keywords):
            settings = self.settings()
            options.check("rate", settings.pop("rate"))
            options.check(self.kind, settings)

    def minimize(self, loss: Value) -> Train:
        """Adds the gradients of `loss`, a scalar. Call it once per graph, at its end."""
        if not isinstance(loss, Value):
            refuse(f"minimize: the loss must be a Value, got {kind_of(loss)}")
        with placed():
            loss.graph.builder.differentiate(loss.number)
            self.add_to(loss.graph.builder)
        loss.graph.minimized = True
        return Train(loss, self)

    def add_to(self, builder: Any) -> None:
        """Adds the optimizer's requirements other than gradients to the graph. The default adds nothing."""


@dataclass
class SGD(Optimizer):
    """Stochastic gradient descent: w -= rate * (g + l2 * w)."""

    l2: float = _of("sgd", "l2")


@dataclass
class Momentum(Optimizer):
    """SGD with momentum, optionally in Nesterov's form. It follows torch.optim.SGD."""

    momentum: float = _of("momentum", "momentum")
    l2: float = _of("momentum", "l2")
    nesterov: bool = False

    def __post_init__(self) -> None:
        self.kind = "nesterov" if self.nesterov else "momentum"


@dataclass
class AdaGrad(Optimizer):
    """Gradients divided by the root of the sum of their squares, with L2. It follows torch.optim.Adagrad."""

    epsilon: float = _of("adagrad", "epsilon")
    l2: float = _of("adagrad", "l2")

    def __post_init__(self) -> None:
        self.kind = "adagrad"


@dataclass
class Adam(Optimizer):
    """Adam with L2 in the gradient. `amsgrad` divides by the largest second moment so far. It follows torch.optim.Adam."""

    betas: tuple[float, float] = _betas("adam")
    epsilon: float = _of("adam", "epsilon")
    l2: float = _of("adam", "l2")
    amsgrad: bool = False

    def __post_init__(self) -> None:
        self.kind = "amsgrad" if self.amsgrad else "adam"


@dataclass
class AdamW(Optimizer):
    """Adam with decoupled weight decay. It follows torch.optim.AdamW."""

    betas: tuple[float, float] = _betas("adamw")
    epsilon: float = _of("adamw", "epsilon")
    weight_decay: float = _of("adamw", "weight_decay")

    def __post_init__(self) -> None:
        self.kind = "adamw"


@dataclass
class LAMB(Optimizer):
    """Adam's step with decay, scaled per tensor to the norm of its weights (You et al. 2020, in the form of NVIDIA's
    NVLAMB).

    w -= rate * |w| / |u| * u with u = m / (sqrt(v) + epsilon) + weight_decay * w. The ratio is 1 if a norm is 0, and for
    parameters without decay. Norms cover the whole parameter; a tied parameter is one tensor.
    """

    clip_norm: float = _of("lamb", "clip_norm")
    betas: tuple[float, float] = _betas("lamb")
    epsilon: float = _of("lamb", "epsilon")
    weight_decay: float = _of("lamb", "weight_decay")

    def __post_init__(self) -> None:
        self.kind = "lamb"
        if self.lazy_rows:
            raise ValueError("LAMB: lazy_rows is not supported, as a step depends on the whole table; use AdamW")


@dataclass
class BertAdam(Optimizer):
    """AdamW without bias correction, as published with BERT (Devlin et al. 2018)."""

    clip_norm: float = _of("bertadam", "clip_norm")
    betas: tuple[float, float] = _betas("bertadam")
    epsilon: float = _of("bertadam", "epsilon")
    weight_decay: float = _of("bertadam", "weight_decay")

    def __post_init__(self) -> None:
        self.kind = "bertadam"


class KFAC(Optimizer):
    """K-FAC (Martens, Grosse 2015; in the form of PipeFisher) in front of another optimizer.

    Gradients of linear layers and of convolutions (Grosse, Martens 2016) are multiplied by the damped inverses of their
    Kronecker factors. `inner`, for example SGD or LAMB, clips and applies the result as gradients.
    damping: lambda, whose root is added to each factor.
    every: least number of steps between two refreshes of the inverses. Each refresh uses only the batch of one step.
    fill: the time of that work. "after": behind the compute of its step. "best": in the bubbles of as many steps as it
    needs. "wrap": like "best", with inversions also in bubbles of the next refresh.
    costs: a file of costs, or the trace of a run, that determines the placement for "best" and "wrap". The default uses the
    model's FLOPs.
    replan: the share of the workers' time, for example 0.2, that may deviate from `costs` before the work is placed again
    by measured times; 0 = off.
    inverses: for a stage with several copies, "owners" inverts each layer on one of them, and "all" on all of them.
    largest, but: weights with a side above `largest`, and weights with one of `but` in their names, are trained without
    K-FAC.
    """

    def __init__(self, inner: Optimizer, damping: float = _of("sgd", "kfac_damping"),
                 every: int = _of("sgd", "curvature_every"), largest: int = 4096, but: tuple[str, ...] = (), *,
                 fill: str = _of("sgd", "fill"), inverses: str = _of("sgd", "inverses"),
                 costs: str = _of("sgd", "fill_costs"), replan: float = _of("sgd", "replan")) -> None:
        if not isinstance(inner, Optimizer) or isinstance(inner, KFAC):
            refuse(f"KFAC: inner must be an optimizer other than KFAC, got {kind_of(inner)}")
        super().__init__(inner.learning_rate, inner.clip_norm)
        self.kind, self.inner, self.largest, self.but = inner.kind, inner, largest, tuple(but)
        inner.kfac_damping, inner.curvature_every = float(damping), every
        inner.fill, inner.inverses, inner.fill_costs, inner.replan = fill, inverses, costs, float(replan)

    def __setattr__(self, name: str, value: Any) -> None:
        if "but" in self.__dict__ and name not in ("largest", "but"):
            refuse(f"KFAC.{name} can't be changed, because it is read only once; make another KFAC")
        object.__setattr__(self, name, value)

    def mark_read(self) -> None:
        super().mark_read()
        self.inner.mark_read()

    def settings(self) -> dict[str, Any]:
        return self.inner.settings()

    def add_to(self, builder: Any) -> None:
        if builder.add_factors(self.largest, list(self.but)) == 0:
            named = f" and without {', '.join(self.but)} in its name" if self.but else ""
            refuse("KFAC: the model has no suitable layer: a weight that only one ops.linear or convolution of one "
                   f"group reads, with dimensions of at most {self.largest}{named}")


KINDS: dict[str, tuple[type[Optimizer], dict[str, Any]]] = {
    "sgd": (SGD, {}), "momentum": (Momentum, {}), "nesterov": (Momentum, {"nesterov": True}), "adagrad": (AdaGrad, {}),
    "adam": (Adam, {}), "amsgrad": (Adam, {"amsgrad": True}), "adamw": (AdamW, {}), "lamb": (LAMB, {}),
    "bertadam": (BertAdam, {}),
}


def named(kind: str, rate: float | Rate | ReduceOnPlateau, **settings: Any) -> Optimizer:
    """Returns the optimizer of a kind, named as in --optimizer. Settings that are None are left out. `weight_decay` means
    L2 for kinds that have no other decay."""
    made, own = KINDS[kind]
    decay = settings.pop("weight_decay", None)
    settings["weight_decay" if "weight_decay" in options.table(kind) else "l2"] = decay
    return made(rate, **own, **{name: value for name, value in settings.items() if value is not None})


def _check_made(kind: type[Optimizer]) -> None:
    """Makes the constructor of a class check the settings, so that the error has the line that gives them."""
    made = kind.__init__

    @functools.wraps(made)
    def init(self: Optimizer, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        self.check()

    kind.__init__ = init  # type: ignore[method-assign]


for _kind in (SGD, Momentum, AdaGrad, Adam, AdamW, LAMB, BertAdam, KFAC):
    _check_made(_kind)
keywords.check_module(__name__)
globals()["__getattr__"] = missing_from(__name__)  # assigned, not defined: otherwise mypy would accept any name
