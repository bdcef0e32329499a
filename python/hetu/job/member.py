"""A worker of a job with the objects that run it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from hetu.job.job_spec import JobSpec
from hetu.job.predict import Prediction
from hetu.job.row_comparison import RowComparison
from hetu.job.step import Step
from hetu.job.weights_access import WeightsAccess
from hetu.job.worker import Worker

Result = TypeVar("Result")


class Member:
    """A worker, its predictions, and access to its weights. Creating it is collective."""

    def __init__(self, spec: JobSpec, transport: Any) -> None:
        self.worker = Worker(spec, transport)
        self.comparison = RowComparison(self.worker)
        self.prediction = Prediction(self.worker, self.comparison)
        self.access = WeightsAccess(self.worker)


class OneMember:
    """The only worker of a job in this process. ThreadMembers is the same for workers that are threads."""

    def __init__(self, spec: JobSpec, transport: Any) -> None:
        self.first = Member(spec, transport)

    def call(self, function: Callable[[Member], Result]) -> Result:
        """Makes a collective call."""
        return function(self.first)

    def steps(self, run: Callable[[Member], Generator[Step, None, None]]) -> Generator[Step, None, None]:
        """Yields the steps of a run."""
        return run(self.first)
