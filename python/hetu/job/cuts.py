"""Where a job's pipelines are cut into stages: what is told of it, and how it is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hetu import _hetu


class Cuts:
    """Told by partition and speed, or by the blocks that stages begin with, which may be the model's own."""

    def __init__(self, partition: str | None, speed: Any, costs: str | None, first_blocks: Any) -> None:
        self.partition, self.speed, self.first_blocks = partition, speed, first_blocks
        self.by_times = partition == "times"
        self.block_times: list[float] = _hetu.block_times(costs) if self.by_times and costs else []
        self.words = ""

    def tell(self, options: Any) -> None:
        """Fills in a _hetu.TrainingOptions. The model's own blocks are for jobs that are told no other cut."""
        starts = self.first_blocks
        if callable(starts):
            starts = None if self.partition or self.speed else starts(options.model_stages)
        options.first_block, options.block_times = starts or [], self.block_times
        by = self.partition or "operations"
        told = bool(starts) or by not in ("operations", "times")
        self.words = "as told" if told else f"by {by} and speed" if self.speed else f"by {by}"

    def describe(self, job: Any, blocks: int) -> str:
        """Blocks per stage; of each pipeline where they are not cut alike. "" of one stage."""
        cuts = job.cuts or [job.first_block]
        if len(cuts[0]) < 2:
            return ""
        return f", blocks {', '.join(_sizes(cut, blocks) for cut in cuts)} {self.words}"


def _sizes(starts: Sequence[int], blocks: int) -> str:
    return " + ".join(str(end - start) for start, end in zip(starts, [*starts[1:], blocks], strict=True))
