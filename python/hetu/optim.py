"""Optimizers. `minimize(loss)` adds the gradient graph and gives the handle that `Executor` takes beside the loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hetu.graph import GraphBuilder, Value
from hetu.lr import Rate, ReduceOnPlateau, as_rate


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
    """Settings of all optimizers; use a class below. `clip_norm` brings the global gradient norm down to it (0 = off)."""

    learning_rate: float | Rate | ReduceOnPlateau = 0.1
    clip_norm: float = 0.0
    kind: str = field(default="sgd", init=False)

    def settings(self) -> dict[str, Any]:
        """As the C++ side reads them."""
        values: dict[str, Any] = {
            "kind": self.kind, "rate": as_rate(self.learning_rate).settings(), "momentum": 0.9, "beta1": 0.9, "beta2": 0.999,
            "epsilon": 1e-8, "l2": 0.0, "weight_decay": 0.0, "clip_norm": self.clip_norm,
        }
        for name in ("momentum", "epsilon", "l2", "weight_decay"):
            if hasattr(self, name):
                values[name] = getattr(self, name)
        if hasattr(self, "betas"):
            values["beta1"], values["beta2"] = self.betas
        return values

    def minimize(self, loss: Value) -> Train:
        """Adds the gradients of `loss`, a scalar. Once per graph, at its end."""
        loss.graph.builder.differentiate(loss.number)
        return Train(loss, self)


@dataclass
class SGD(Optimizer):
    """w -= rate * (g + l2 * w)."""

    l2: float = 0.0


@dataclass
class Momentum(Optimizer):
    """SGD with momentum, Nesterov's form on request. As torch.optim.SGD."""

    momentum: float = 0.9
    l2: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        self.kind = "nesterov" if self.nesterov else "momentum"


@dataclass
class AdaGrad(Optimizer):
    """Gradients over the root of the sum of their squares, with L2. As torch.optim.Adagrad."""

    epsilon: float = 1e-10
    l2: float = 0.0

    def __post_init__(self) -> None:
        self.kind = "adagrad"


@dataclass
class Adam(Optimizer):
    """Adam with L2 in the gradient; `amsgrad` divides by the largest second moment so far. As torch.optim.Adam."""

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    l2: float = 0.0
    amsgrad: bool = False

    def __post_init__(self) -> None:
        self.kind = "amsgrad" if self.amsgrad else "adam"


@dataclass
class AdamW(Optimizer):
    """Adam with decoupled weight decay. As torch.optim.AdamW."""

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        self.kind = "adamw"


@dataclass
class LAMB(Optimizer):
    """Adam's step with decay, brought per tensor to the length of its weights (You et al. 2020, as in NVIDIA's NVLAMB).

    w -= rate * |w| / |u| * u with u = m / (sqrt(v) + epsilon) + weight_decay * w; the ratio is 1 where a norm is 0 and for
    parameters that do not decay. Norms are of the whole parameter; a tied one is one tensor.
    """

    clip_norm: float = 1.0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-6
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        self.kind = "lamb"
