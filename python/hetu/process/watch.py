"""Reports this worker's position and work to heturun once a second, for `heturun --hang-limit` (hetu/launch/hangs.py) and
the search for slow workers (hetu/launch/slow.py).

A thread of its own sends the reports, so they go on while the worker waits for others or is blocked in a function of the
script. A worker whose process is stopped, or whose interpreter is blocked, sends none, which heturun notices, too.

A report names the step, and one of these phases:

    starts      before the end of the first step of a training
    step        in a step
    between     between two steps, in code of the script
    saves       in a save or load of a checkpoint
    evaluates   in an evaluation or prediction
    over        outside of a training
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from hetu import _hetu, progress

EVERY_S = 1.0
JOIN_S = 2.0  # for the thread to end; it may be sending a report
LAPS = 100  # last steps whose times are remembered


class Watch:
    """The position of a worker.

    position: returns the instruction that the worker runs, as text.
    work: returns the seconds that it has computed.
    send: sends a record to heturun. clock: returns seconds.
    """

    def __init__(self, position: Callable[[], str], work: Callable[[], float],
                 send: Callable[[dict[str, Any]], Any] = progress.tell, clock: Callable[[], float] = time.monotonic) -> None:
        self.position, self.work, self.send, self.clock = position, work, send, clock
        self.row = 0  # the worker's number in its pipeline
        self.number = 0  # steps done, which is the number of the current step or of the next one
        self.base = "over"
        self.inside: collections.Counter[str] = collections.Counter()  # saves and evaluations that have begun
        self.laps: collections.deque[float] = collections.deque(maxlen=LAPS)
        self.lap_began = 0.0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, name="hetu-watch", daemon=True)

    def report(self) -> dict[str, Any]:
        """Returns the record for heturun."""
        phase = next(iter(+self.inside), self.base)
        return {"beat": {"step": self.number, "phase": phase, "at": self.position() if phase == "step" else "",
                         "slowest_s": max(self.laps, default=0.0), "work_s": round(self.work(), 6), "row": self.row}}

    def run(self) -> None:
        """Sends a report per second, until end()."""
        while not self.ended.wait(EVERY_S):
            self.send(self.report())

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Marks a training. heturun doesn't judge what is outside."""
        self.base = "starts"
        try:
            yield
        finally:
            self.base = "over"

    @contextlib.contextmanager
    def step(self, number: Callable[[], int], row: int) -> Iterator[None]:
        """Marks a step of a training, or a call that makes none. The time of a step counts from the end of the one before,
        without saves and evaluations. `number` returns the number of steps done; `row` is the worker's number in its
        pipeline."""
        self.row = row
        self.number = before = number()
        is_first = self.base in ("starts", "over")
        if self.base == "between":
            self.base = "step"
        yield
        self.number = number()
        if self.base != "over":
            self.base = "between"
        if self.number > before:
            now = self.clock()
            if not is_first:
                self.laps.append(now - self.lap_began)
            self.lap_began = now

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Marks a save ("saves") or an evaluation ("evaluates")."""
        began = self.clock()
        self.inside[phase] += 1
        try:
            yield
        finally:
            self.inside[phase] -= 1
            self.lap_began += self.clock() - began


_watch: Watch | None = None


def begin(links: Any) -> None:
    """Starts the reports, if heturun has started this process."""
    global _watch
    if _watch is None and os.environ.get("HETU_PROGRESS_FD"):
        _watch = Watch(links.position, _hetu.work_s)
        _watch.thread.start()


def end() -> None:
    """Ends the reports, before this worker leaves the job."""
    global _watch
    if _watch is not None:
        _watch.ended.set()
        _watch.thread.join(JOIN_S)  # it holds the links, which must be gone before MPI is finalized
        _watch = None


def training() -> contextlib.AbstractContextManager[None]:
    """See Watch.training()."""
    return _watch.training() if _watch else contextlib.nullcontext()


def step(number: Callable[[], int], row: int) -> contextlib.AbstractContextManager[None]:
    """See Watch.step()."""
    return _watch.step(number, row) if _watch else contextlib.nullcontext()


def during(phase: str) -> contextlib.AbstractContextManager[None]:
    """See Watch.during()."""
    return _watch.during(phase) if _watch else contextlib.nullcontext()
