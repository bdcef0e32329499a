"""Information about a job that a script can use before it builds data and model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hetu import _hetu
from hetu.devices import fit, layout, started_hosts
from hetu.options import as_keywords
from hetu.place import placed, refuse


@dataclass(frozen=True)
class JobInfo:
    """The grid of a job, and this worker's position in it.

    stage: the worker's stage in its pipeline. With several stages per worker, the first of them.
    replicas: workers per stage, if the rows of the device list differ in length; else empty.
    """

    workers: int
    pipelines: int
    stages: int
    replicas: tuple[int, ...]
    hosts: tuple[tuple[str, int], ...]  # (host, number of workers)
    worker: int
    pipeline: int
    stage: int

    @property
    def is_chief(self) -> bool:
        """True on worker 0, which prints. In a job that continues after the death of a pipeline, use Executor.is_chief."""
        return self.worker == 0

    def batch_size(self, together: int) -> int:
        """Returns the rows per pipeline and step if all pipelines together take `together` rows. Throws ValueError if the
        number is not divisible."""
        if together < 1 or together % self.pipelines:
            refuse(f"a global batch of {together} rows can't be divided equally among {self.pipelines} pipelines; choose a "
                   f"multiple of {self.pipelines}")
        return together // self.pipelines


def job_info(devices: Any = None) -> JobInfo:
    """Returns the job that this script is a worker of, laid out as an Executor with these `devices` would do it."""
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
