"""What a run gives for each of its steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Step:
    """What one step reports. `index` counts from 0; `scalars` holds the fetched values, summed over the whole step;
    `samples_of` those per sample, of the global batch in its order."""

    index: int
    scalars: dict[str, float]
    gradient_norm: float
    learning_rate: float
    seconds: float
    samples: int
    extra: dict[str, float] = field(default_factory=dict)
    last: bool = False  # of its run: every update is applied
    own_samples: int = 0  # those that the scalars are of: all, or this pipeline's where pipelines average weights
    samples_of: dict[str, Any] = field(default_factory=dict)  # of a validation: by fetch, a float32 array

    @property
    def loss(self) -> float:
        return self.scalars["loss"]

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds > 0 else 0.0
