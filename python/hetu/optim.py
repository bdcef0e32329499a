"""Optimizers. `minimize(loss)` adds the gradient graph and gives the handle that `Executor` takes beside the loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from hetu import keywords, options
from hetu.arithmetic import kind_of
from hetu.graph import GraphBuilder, Value
from hetu.lr import Rate, ReduceOnPlateau, as_rate
from hetu.names import missing_from, missing_of
from hetu.place import placed, refuse


def _of(kind: str, name: str) -> Any:
    """The default of a setting."""
    return options.table(kind)[name].default


def _betas(kind: str) -> tuple[float, float]:
    return _of(kind, "beta1"), _of(kind, "beta2")


@dataclass
class Train:
    """What `minimize` returns: the loss that is brought down, and how."""

    loss: Value
    optimizer: Optimizer

    @property
    def graph(self) -> GraphBuilder:
        """The graph that is trained."""
        return self.loss.graph


@dataclass
class Optimizer:
    """Settings of all optimizers; use a class below. `clip_norm` brings the global gradient norm down to it (0 = off).

    `lazy_rows`: rows of an embedding table whose gradient is zero in a step keep their weights and states. Plain SGD and
    AdaGrad do so anyway; of the others it is another rule, whose steps cost by the rows looked up: their momenta, moments
    and decay stand still meanwhile. Not of LAMB.
    """

    learning_rate: float | Rate | ReduceOnPlateau = options.table("rate")["base"].default
    clip_norm: float = _of("sgd", "clip_norm")
    lazy_rows: bool = field(default=_of("sgd", "lazy_rows"), kw_only=True)
    kind: str = field(default="sgd", init=False)
    kfac_damping: float = field(default=_of("sgd", "kfac_damping"), init=False)  # KFAC sets them
    curvature_every: int = field(default=_of("sgd", "curvature_every"), init=False)
    fill: str = field(default=_of("sgd", "fill"), init=False)
    inverses: str = field(default=_of("sgd", "inverses"), init=False)
    fill_costs: str = field(default=_of("sgd", "fill_costs"), init=False)
    replan: float = field(default=_of("sgd", "replan"), init=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            missing_of("Optimizer", name, dir(type(self)), type(self).__name__)

    def settings(self) -> dict[str, Any]:
        """As the C++ side reads them."""
        given = {**self.__dict__, "kind": self.kind, "kfac_damping": self.kfac_damping,
                 "curvature_every": self.curvature_every, "fill": self.fill, "inverses": self.inverses,
                 "fill_costs": self.fill_costs, "replan": self.replan}
        if "betas" in given:
            if not isinstance(given["betas"], (tuple, list)) or len(given["betas"]) != 2:
                raise ValueError(f"betas: two numbers are wanted, such as (0.9, 0.999), got {given['betas']!r}")
            given["beta1"], given["beta2"] = given["betas"]
        settings = {name: given[name] for name in options.table(self.kind)}
        return {**settings, "rate": as_rate(self.learning_rate).settings()}

    def minimize(self, loss: Value) -> Train:
        """Adds the gradients of `loss`, a scalar. Once per graph, at its end."""
        if not isinstance(loss, Value):
            refuse(f"minimize: the Value of a loss is wanted, got {kind_of(loss)}")
        with placed():
            loss.graph.builder.differentiate(loss.number)
            self.add_to(loss.graph.builder)
        loss.graph.minimized = True
        return Train(loss, self)

    def add_to(self, builder: Any) -> None:
        """What the optimizer needs of the graph beside gradients: nothing."""


@dataclass
class SGD(Optimizer):
    """w -= rate * (g + l2 * w)."""

    l2: float = _of("sgd", "l2")


@dataclass
class Momentum(Optimizer):
    """SGD with momentum, Nesterov's form on request. As torch.optim.SGD."""

    momentum: float = _of("momentum", "momentum")
    l2: float = _of("momentum", "l2")
    nesterov: bool = False

    def __post_init__(self) -> None:
        self.kind = "nesterov" if self.nesterov else "momentum"


@dataclass
class AdaGrad(Optimizer):
    """Gradients over the root of the sum of their squares, with L2. As torch.optim.Adagrad."""

    epsilon: float = _of("adagrad", "epsilon")
    l2: float = _of("adagrad", "l2")

    def __post_init__(self) -> None:
        self.kind = "adagrad"


@dataclass
class Adam(Optimizer):
    """Adam with L2 in the gradient; `amsgrad` divides by the largest second moment so far. As torch.optim.Adam."""

    betas: tuple[float, float] = _betas("adam")
    epsilon: float = _of("adam", "epsilon")
    l2: float = _of("adam", "l2")
    amsgrad: bool = False

    def __post_init__(self) -> None:
        self.kind = "amsgrad" if self.amsgrad else "adam"


@dataclass
class AdamW(Optimizer):
    """Adam with decoupled weight decay. As torch.optim.AdamW."""

    betas: tuple[float, float] = _betas("adamw")
    epsilon: float = _of("adamw", "epsilon")
    weight_decay: float = _of("adamw", "weight_decay")

    def __post_init__(self) -> None:
        self.kind = "adamw"


@dataclass
class LAMB(Optimizer):
    """Adam's step with decay, brought per tensor to the length of its weights (You et al. 2020, as in NVIDIA's NVLAMB).

    w -= rate * |w| / |u| * u with u = m / (sqrt(v) + epsilon) + weight_decay * w; the ratio is 1 where a norm is 0 and for
    parameters that do not decay. Norms are of the whole parameter; a tied one is one tensor.
    """

    clip_norm: float = _of("lamb", "clip_norm")
    betas: tuple[float, float] = _betas("lamb")
    epsilon: float = _of("lamb", "epsilon")
    weight_decay: float = _of("lamb", "weight_decay")

    def __post_init__(self) -> None:
        self.kind = "lamb"
        if self.lazy_rows:
            raise ValueError("LAMB: lazy_rows does not go with a step whose length is that of the whole table; use AdamW")


@dataclass
class BertAdam(Optimizer):
    """AdamW without bias correction: what BERT was published with (Devlin et al. 2018)."""

    clip_norm: float = _of("bertadam", "clip_norm")
    betas: tuple[float, float] = _betas("bertadam")
    epsilon: float = _of("bertadam", "epsilon")
    weight_decay: float = _of("bertadam", "weight_decay")

    def __post_init__(self) -> None:
        self.kind = "bertadam"


class KFAC(Optimizer):
    """K-FAC (Martens, Grosse 2015; as PipeFisher has it) before another optimizer: gradients of linear layers and of
    convolutions (Grosse, Martens 2016) are multiplied by the damped inverses of their Kronecker factors, and `inner`, SGD or
    LAMB say, takes them as gradients, to be clipped and applied.

    `damping`: lambda, whose root is added to each factor. `every`: steps between two refreshes of the inverses, at
    least, each of the batch of one step alone. `fill`: where that work stands: "after" the compute of its step, "best",
    in the bubbles of as many steps as it needs, by `costs` (a file, or the trace of a run; default: by FLOPs), or
    "wrap", inversions also in bubbles of the refresh after. `replan`: the share of the workers' time, 0.2 say, that may
    lie elsewhere than `costs` have it before that work is placed anew by what was measured; 0 = off. `inverses`: where
    a stage has several copies, each layer is inverted by one of them ("owners") or by all ("all"). Weights with a side
    above `largest`, and those with one of `but` in their names, go without.
    """

    def __init__(self, inner: Optimizer, damping: float = _of("sgd", "kfac_damping"),
                 every: int = _of("sgd", "curvature_every"), largest: int = 4096, but: tuple[str, ...] = (), *,
                 fill: str = _of("sgd", "fill"), inverses: str = _of("sgd", "inverses"),
                 costs: str = _of("sgd", "fill_costs"), replan: float = _of("sgd", "replan")) -> None:
        if not isinstance(inner, Optimizer) or isinstance(inner, KFAC):
            refuse(f"KFAC: inner is an optimizer before which K-FAC is put, got {kind_of(inner)}")
        super().__init__(inner.learning_rate, inner.clip_norm)
        self.inner, self.largest, self.but, self.kind = inner, largest, tuple(but), inner.kind
        inner.kfac_damping, inner.curvature_every = float(damping), every
        inner.fill, inner.inverses, inner.fill_costs, inner.replan = fill, inverses, costs, float(replan)

    def settings(self) -> dict[str, Any]:
        return self.inner.settings()

    def add_to(self, builder: Any) -> None:
        if builder.add_factors(self.largest, list(self.but)) == 0:
            named = f" and none of {', '.join(self.but)} in its name" if self.but else ""
            refuse("KFAC: no layer for it: a weight that one ops.linear or a convolution of one group alone reads, "
                   f"with sides of at most {self.largest}{named}")


KINDS: dict[str, tuple[type[Optimizer], dict[str, Any]]] = {
    "sgd": (SGD, {}), "momentum": (Momentum, {}), "nesterov": (Momentum, {"nesterov": True}), "adagrad": (AdaGrad, {}),
    "adam": (Adam, {}), "amsgrad": (Adam, {"amsgrad": True}), "adamw": (AdamW, {}), "lamb": (LAMB, {}),
    "bertadam": (BertAdam, {}),
}


def named(kind: str, rate: float | Rate | ReduceOnPlateau, **settings: Any) -> Optimizer:
    """The optimizer of a kind, as --optimizer names it. None leaves a setting out; `weight_decay` is L2 where the kind has
    no other."""
    made, own = KINDS[kind]
    decay = settings.pop("weight_decay", None)
    settings["weight_decay" if "weight_decay" in options.table(kind) else "l2"] = decay
    return made(rate, **own, **{name: value for name, value in settings.items() if value is not None})


keywords.check_module(__name__)
globals()["__getattr__"] = missing_from(__name__)  # not a def: mypy knows what there is
