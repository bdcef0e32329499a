"""What a script can know of its job before it builds data and model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hetu import _hetu
from hetu.devices import fit, layout, started_hosts
from hetu.options import as_keywords
from hetu.place import placed, refuse


@dataclass(frozen=True)
class JobInfo:
    """The grid of a job and this worker's seat in it; `stage` is its place in its pipeline, where a method with several
    stages per worker has the first of them. replicas: of each stage, where rows of the device list differ in length."""

    workers: int
    pipelines: int
    stages: int
    replicas: tuple[int, ...]
    hosts: tuple[tuple[str, int], ...]  # and their workers
    worker: int
    pipeline: int
    stage: int

    @property
    def is_chief(self) -> bool:
        """Of a job whose pipelines stay: the worker that prints."""
        return self.worker == 0

    def batch_size(self, together: int) -> int:
        """Rows per pipeline and step, if all pipelines together take so many. Throws ValueError if they do not divide."""
        if together < 1 or together % self.pipelines:
            refuse(f"a global batch of {together} rows is not so many for each of {self.pipelines} pipelines; choose a "
                   f"multiple of {self.pipelines}")
        return together // self.pipelines


def job_info(devices: Any = None) -> JobInfo:
    """The job that this script is a worker of, as an Executor with these `devices` would lay it out."""
    with placed(as_keywords):
        grid = layout(devices) if devices is None or isinstance(devices, str) else fit("devices", devices, started_hosts())
        worker = int(_hetu.env()["worker"])
        pipeline, stage = grid.place_of(worker)
    for number, count in enumerate(grid.replicas):
        if stage < count:
            stage = number
            break
        stage -= count
    return JobInfo(sum(map(len, grid.worker_of)), grid.pipelines, grid.stages, grid.replicas,
                   tuple((host, workers) for host, workers in started_hosts()), worker, pipeline, stage)
