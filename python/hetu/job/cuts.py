"""The cut of a job's pipelines into stages: its options, and its description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hetu import _hetu


class Cuts:
    """Cuts by partition and speed, or by the first blocks of the stages, which may be defined by the model."""

    def __init__(self, partition: str | None, speed: Any, costs: str | None, first_blocks: Any) -> None:
        self.partition, self.speed, self.first_blocks = partition, speed, first_blocks
        self.by_times = partition == "times"
        self.block_times: list[float] = _hetu.block_times(costs) if self.by_times and costs else []
        self.rule = ""  # describes how the cut was found

    def apply_to(self, options: Any) -> None:
        """Sets the cut in a _hetu.TrainingOptions. The model's own first blocks apply only if no other cut is given."""
        starts = self.first_blocks
        if callable(starts):
            starts = None if self.partition or self.speed else starts(options.model_stages)
        options.first_block, options.block_times = starts or [], self.block_times
        by = self.partition or "operations"
        is_given = bool(starts) or by not in ("operations", "times")
        self.rule = "as given" if is_given else f"by {by} and speed" if self.speed else f"by {by}"

    def describe(self, job: Any, blocks: int) -> str:
        """Returns the blocks per stage as text, separately for pipelines with different cuts. "" for one stage."""
        cuts = job.cuts or [job.first_block]
        if len(cuts[0]) < 2:
            return ""
        return f", blocks {', '.join(_sizes(cut, blocks) for cut in cuts)} {self.rule}"


def _sizes(starts: Sequence[int], blocks: int) -> str:
    return " + ".join(str(end - start) for start, end in zip(starts, [*starts[1:], blocks], strict=True))
