"""Records traces of torch.distributed.pipelining's own runs, for `hetu timeline`, `hetu compare` and `hetu simulate
--costs`."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist

from hetu import _hetu
from hetu import schedule as plans


@contextlib.contextmanager
def record(schedule: Any, path: str | os.PathLike[str]) -> Iterator[None]:
    """Records the steps of a schedule of torch.distributed.pipelining inside the `with` block: the computations of each
    stage, and their times. Messages between stages are not recorded.

    Every rank of the pipeline enters it, after a first step, which warms up and sets up the stages. The first rank writes
    the trace, with the plan that was followed. Throws ValueError, which names the rank, if nothing was computed inside, or
    if steps computed different micro-batches.
    """
    stages = list(getattr(schedule, "_stages", None) or [schedule._stage])
    notes = _Notes(stages[0].group_rank)
    with contextlib.ExitStack() as undo:
        for stage in stages:
            for name, kind_of in _KINDS.items():
                undo.enter_context(_replaced(stage, name, notes.noting(stage.stage_index, kind_of)))
        undo.enter_context(_replaced(schedule, "step", notes.counting))
        notes.begin(stages[0])
        yield
    told: list[Any] = [None] * stages[0].group_size
    dist.all_gather_object(told, notes.events, stages[0].group)
    rows = [_row(events, rank) for rank, events in enumerate(told)]
    if notes.rank == 0:
        plan = plans.lower(plans.rows_named(rows, type(schedule).__name__))
        _hetu.write_trace(os.fspath(path), [json.dumps({"traceEvents": events}) for events in told], plan)
    dist.barrier(stages[0].group)


_KINDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "forward_one_chunk": lambda _: "F",
    "backward_one_chunk": lambda how: "B" if how.get("full_backward", True) else "I",
    "backward_weight_one_chunk": lambda _: "W",
}


def _boot() -> str:
    """Returns a text that is equal for processes whose monotonic clocks are the same."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read()


class _Notes:
    """The recorded events of one rank."""

    def __init__(self, rank: int) -> None:
        self.rank, self.step, self.origin = rank, -1, 0
        self.events: list[dict[str, Any]] = []

    def begin(self, stage: Any) -> None:
        """Sets the origin of times: the same moment for all ranks on the host of the group's first rank. Ranks on other
        hosts have other clocks, and take the moment at which they have received it. Collective."""
        told: list[Any] = [None] * stage.group_size
        dist.all_gather_object(told, (_boot(), time.monotonic_ns()), stage.group)
        boot, origin = told[0]
        self.origin = origin if boot == _boot() else time.monotonic_ns()

    def counting(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a schedule's step() with a counter of its calls."""

        def counted(*args: Any, **named: Any) -> Any:
            self.step += 1
            return step(*args, **named)

        return counted

    def noting(self, stage: int, kind_of: Callable[[dict[str, Any]], str]) -> Callable[[Callable[..., Any]], Any]:
        """Returns a decorator for a stage's function that records its calls. The function's first argument is the
        micro-batch."""

        def of(function: Callable[..., Any]) -> Callable[..., Any]:
            def noted(micro: int, *args: Any, **named: Any) -> Any:
                start = time.monotonic_ns()
                result = function(micro, *args, **named)
                self._note(kind_of(named), stage, micro, start)
                return result

            return noted

        return of

    def _note(self, kind: str, stage: int, micro: int, start: int) -> None:
        end = time.monotonic_ns()
        self.events.append({"ph": "X", "name": f"{stage}{kind}{micro}", "cat": kind, "pid": 1, "tid": self.rank,
                            "ts": (start - self.origin) / 1e3, "dur": (end - start) / 1e3,
                            "args": {"kind": kind, "stage": stage, "micro": micro, "part": 0, "step": self.step}})


@contextlib.contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Callable[..., Any]], Any]) -> Iterator[None]:
    """Replaces the method `name` of one object by make(method) inside the `with` block."""
    function, own = getattr(owner, name), name in vars(owner)
    setattr(owner, name, make(function))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, function)
        else:
            delattr(owner, name)


def _row(events: list[dict[str, Any]], rank: int) -> list[str]:
    """Returns a rank's actions in each step, in their order."""
    steps: dict[int, list[str]] = {}
    for event in events:
        steps.setdefault(event["args"]["step"], []).append(event["name"])
    rows = list(steps.values())
    if not rows:
        raise ValueError(f"rank {rank} computed nothing during the recording: put steps of the schedule inside")
    if any(row != rows[0] for row in rows):
        raise ValueError(f"rank {rank} did not compute the same in each recorded step: record steps of one kind")
    return rows[0]
