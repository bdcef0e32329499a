"""The stages that a worker holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from hetu.torch.cuts import Pieces, Stage
from hetu.torch.ties import Tie


@dataclass
class Holding:
    """The stages of one worker, and the workers that hold copies of them.

    own: this worker's stages by placement.
    numbers: a number for each parameter name of the whole model, the same on all workers.
    width: workers per pipeline.
    """

    own: dict[int, Stage]
    pieces: Pieces
    ties: list[Tie]
    placements: Sequence[Mapping[str, Any]]
    numbers: dict[str, int]
    pipeline: int
    pipelines: int
    width: int

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yields the parameters of this worker's stages."""
        for stage in self.own.values():
            yield from stage.parameters()

    def named(self, stage: Stage) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the parameters of one stage with their names in the whole model."""
        for parameter in stage.parameters():
            yield self.pieces.names[id(parameter)], parameter

    def copies(self, stage: int) -> int:
        """Returns the number of copies of a model stage in one pipeline."""
        return sum(placement["model_stage"] == stage for placement in self.placements)
