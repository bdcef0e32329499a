"""Writes tests/pipeline/torch/*.csv with the package's own code: the plans of every schedule class of
torch.distributed.pipelining. The plans are compute-only, and for classes with several stages per worker also lowered.
Needs PyTorch. `version.txt` in the same folder names the version that wrote the files."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.distributed.pipelining import schedules

HERE = Path(__file__).resolve().parent / "torch"
# Class, stages per worker, workers, micro-batches.
CASES = [
    ("ScheduleGPipe", 1, 4, 6),
    ("Schedule1F1B", 1, 4, 6),
    ("ScheduleInterleaved1F1B", 2, 4, 8),
    ("ScheduleInterleaved1F1B", 3, 2, 4),
    ("ScheduleLoopedBFS", 2, 4, 6),
    ("ScheduleInterleavedZeroBubble", 2, 4, 8),
    ("ScheduleZBVZeroBubble", 2, 4, 8),
    ("ScheduleDualPipeV", 2, 4, 10),
]


def stand_in(index: int, workers: int, stages: int) -> SimpleNamespace:
    """Returns the attributes of a stage that a schedule's constructor reads. The orders depend on nothing else."""
    return SimpleNamespace(
        stage_index=index,
        num_stages=stages,
        group_size=workers,
        group_rank=0,
        group=None,
        is_first=index == 0,
        is_last=index == stages - 1,
        has_backward=True,
        submod=torch.nn.Identity(),
    )


def make(name: str, chunks: int, workers: int, micros: int) -> object:
    """Returns a schedule as torch constructs it on worker 0."""
    kind = getattr(schedules, name)
    stages = chunks * workers
    loss = torch.nn.functional.mse_loss
    if issubclass(kind, schedules.PipelineScheduleSingle):
        return kind(stand_in(0, workers, stages), micros, loss)
    v_shaped = name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
    mine = [0, stages - 1] if v_shaped else [c * workers for c in range(chunks)]
    return kind([stand_in(i, workers, stages) for i in mine], micros, loss)


def write(path: Path, order: dict[int, list[object]]) -> None:
    """Writes an order in the format of the package's `_dump_csv`."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for worker in sorted(order):
            writer.writerow(order[worker])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=HERE)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, chunks, workers, micros in CASES:
        schedule = make(name, chunks, workers, micros)
        stem = f"{name}_{workers}x{chunks}_{micros}"
        order = schedule.pipeline_order if hasattr(schedule, "pipeline_order") else schedule._get_pipeline_order()
        write(folder / f"{stem}.csv", order)
        if hasattr(schedule, "pipeline_order_with_comms"):
            write(folder / f"{stem}_lowered.csv", schedule.pipeline_order_with_comms)
    (folder / "version.txt").write_text(f"torch {torch.__version__.split('+')[0]}\n")


if __name__ == "__main__":
    main()
