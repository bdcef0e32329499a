"""Jobs whose workers are threads of this process, for notebooks and tests: devices="threads:2x2", pipelines x stages.

Worker 0 works in the script's thread, and each other worker in its own thread. All take part in every collective call. The
script sees only the steps of worker 0, and only worker 0 calls hooks. Messages stay in the process (net/transport/inproc.h).
A job of threads trains to the same weights as a job of processes, bit for bit.
"""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from hetu import _hetu
from hetu.devices import DeviceError, Layout, lay_out
from hetu.job.job_spec import JobSpec
from hetu.job.member import Member
from hetu.job.step import Step
from hetu.place import placed
from hetu.process.turn import Turn

Result = TypeVar("Result")
NAME = re.compile(r"threads:([1-9][0-9]{0,2})x([1-9][0-9]{0,2})")
_END = object()


def layout_of_threads(name: str) -> Layout:
    """Returns the grid of "threads:<pipelines>x<stages>". Throws DeviceError for other text, and in a job of several
    processes."""
    found = NAME.fullmatch(name)
    if not found:
        raise DeviceError(f"devices {name}: expected threads:<pipelines>x<stages>, such as threads:1x2")
    if _hetu.env()["workers"] > 1:
        raise DeviceError(f"devices {name}: all workers are threads of one process, but heturun has started "
                          f"{_hetu.env()['workers']} processes; start the script without heturun, or choose "
                          f"pipe_{found[1]}_{found[2]}")
    pipelines, stages = int(found[1]), int(found[2])
    return dataclasses.replace(lay_out(pipelines, stages, [("localhost", pipelines * stages)]), name=name)


class ThreadMembers:
    """All workers of a job whose workers are threads: worker 0 is `first` and works in the script's thread."""

    def __init__(self, spec: JobSpec, links: Sequence[Any]) -> None:
        # Imported late: it imports logging, which would slow down each start.
        from concurrent.futures import ThreadPoolExecutor

        self.links = links
        self.pools = [ThreadPoolExecutor(1, f"hetu-worker-{number}") for number in range(1, len(links))]
        self.in_call = False  # all workers already make the script's current call
        self.lock = threading.RLock()  # for collective calls: several threads of the script may make them
        made: dict[int, Member] = {}

        def join(number: int) -> None:
            made[number] = Member(spec, links[number])

        self._work([partial(join, number) for number in range(len(links))])
        self.members = [made[number] for number in range(len(links))]
        self.first = self.members[0]

    def _work(self, works: Sequence[Callable[[], Result]]) -> Result:
        """Runs one function per worker, each in its thread, and returns the first one's result."""
        return cast("Result", Turn(self.links, self.pools, works[1:]).end(works[0]))

    def call(self, function: Callable[[Member], Result]) -> Result:
        """Makes a collective call, and returns worker 0's result."""
        with self.lock:
            if self.in_call:
                return function(self.first)
            self.in_call = True
            try:
                return self._work([partial(function, member) for member in self.members])
            finally:
                self.in_call = False

    def steps(self, run: Callable[[Member], Generator[Step, None, None]]) -> Generator[Step, None, None]:
        """Yields worker 0's steps of a run while all workers run."""
        return run(self.first) if self.in_call else self._steps([run(member) for member in self.members])

    def _steps(self, runs: Sequence[Generator[Step, None, None]]) -> Generator[Step, None, None]:
        """With a flush at each step, all workers do one step at a time. Without a flush, worker 0 learns of a step when
        other workers are already beyond it, so the others continue until the pipeline is drained."""
        free = self.first.worker.job.asynchronous
        turn = None
        try:
            while True:
                with self.lock, placed():  # errors of other threads don't name the script's line yet
                    turn = turn or Turn(self.links, self.pools, [partial(_to_drain, run, free) for run in runs[1:]])
                    step: Any = turn.take(lambda: next(runs[0], _END))
                    if step is _END or not free or step.last:
                        turn.end()
                        turn = None
                if step is _END:
                    return
                yield step
        finally:  # also runs if the loop is left early
            if turn:
                self.links[0].give_up("the loop over a run was left before its pipeline was drained")
            self._work([run.close for run in runs])


def _to_drain(run: Iterator[Step], free: bool) -> None:
    for step in run:
        if not free or step.last:
            return
