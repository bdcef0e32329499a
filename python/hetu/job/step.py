"""What a run gives for each of its steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

from hetu.place import place

V = TypeVar("V")


def _refuse(name: str, known: Iterable[str]) -> NoReturn:
    raise KeyError(f"{place()}this step reports no '{name}'; its list has: {', '.join(known) or 'nothing of this kind'}")


class Reported(dict[str, V], Generic[V]):
    """By name of a fetch; of a name that the step does not report a KeyError says what it does."""

    def __missing__(self, name: str) -> V:
        _refuse(name, self)


@dataclass
class Step:
    """What one step reports. `index` counts from 0; `scalars` holds the fetched values, summed over the whole step;
    `samples_of` those per sample, of the global batch in its order, and `sums` other tensors, summed. step["name"] is any of
    these."""

    index: int
    scalars: dict[str, float]
    gradient_norm: float
    learning_rate: float
    seconds: float
    samples: int
    extra: dict[str, float] = field(default_factory=dict)
    last: bool = False  # of its run: every update is applied
    meaningless: str = ""  # what of its messages was left out (payload=), so that no figure says anything
    own_samples: int = 0  # those that the scalars are of: all, or this pipeline's where pipelines average weights
    samples_of: dict[str, Any] = field(default_factory=dict)  # by fetch, of a run that does not train: arrays [samples, ...]
    sums: dict[str, Any] = field(default_factory=dict)  # the same: arrays without the batch axis
    loss_scale: float | None = None  # of float16 alone: that of the next step
    skipped: bool = False  # of float16: a gradient left its range, and no worker has updated

    def __getitem__(self, name: str) -> Any:
        for values in (self.scalars, self.samples_of, self.sums):
            if name in values:
                return values[name]
        _refuse(name, self._known())

    def _known(self) -> list[str]:
        return [*self.scalars, *self.samples_of, *self.sums]

    @property
    def loss(self) -> float:
        if "loss" not in self.scalars:
            _refuse("loss", self._known())
        return self.scalars["loss"]

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds > 0 else 0.0
