"""Reader of the timelines that "Understanding Stragglers in Large Model Training Using What-if Analysis" (Lin et al., OSDI
2025) publishes, and their conversion to Hetu's trace events.

A timeline is a list of Chrome trace events. `pid` is the pipeline (data-parallel rank), and the name of the thread has the
stage ("PP rank 3, TP rank 0, compute"). `args` has the step and, within a step and worker, the number of the operation among
those of its kind. A message or collective begins when its last member has arrived.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KINDS = ("forward-compute", "backward-compute", "forward-send", "forward-recv", "backward-send", "backward-recv",
         "params-all-gather", "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "grads-reduce-scatter",
         "optimizer-clip-main-grad", "optimizer", "gc")
# Hetu's kinds of instructions. The other kinds of a timeline have no counterpart in a plan.
IN_HETU = {"forward-compute": "F", "backward-compute": "B", "forward-send": "SEND_F", "forward-recv": "RECV_F",
           "backward-send": "SEND_B", "backward-recv": "RECV_B", "grads-reduce-scatter": "REDUCE_GRAD",
           "optimizer-clip-main-grad": "REDUCE_SCALARS", "optimizer": "UPDATE"}
OF_MICRO_BATCH = KINDS[:6]
REQUIRED = ("forward-compute", "backward-compute", "grads-reduce-scatter", "params-all-gather", "optimizer-clip-main-grad",
            "optimizer")


@dataclass(frozen=True)
class Operation:
    """One operation of a worker. `index` counts the operations of the same kind, worker and step. Times in milliseconds."""

    index: int
    start: float
    time: float

    @property
    def end(self) -> float:
        return self.start + self.time


@dataclass
class Job:
    """The operations of a job by step, pipeline, stage and kind, in order of their start."""

    operations: dict[tuple[int, int, int, str], list[Operation]] = field(default_factory=dict)
    stages: int = 0
    pipelines: int = 0
    micro_batches: int = 0
    steps: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    def on(self, step: int, pipeline: int, stage: int, kind: str) -> list[Operation]:
        """Returns the operations of a kind on one worker in one step; [] if it has none."""
        return self.operations.get((step, pipeline, stage, kind), [])

    def of(self, kind: str) -> Iterator[Operation]:
        """Yields all operations of a kind."""
        for (_, _, _, one), operations in self.operations.items():
            if one == kind:
                yield from operations

    def has(self, kind: str, stage: int, pipeline: int) -> bool:
        """Returns true if a worker runs this kind."""
        return (self.steps[0], pipeline, stage, kind) in self.operations

    def span(self, step: int) -> tuple[float, float]:
        """Returns the start of a step's first operation and the end of its last one."""
        ranges = [(operations[0].start, max(o.end for o in operations))
                  for (one, _, _, _), operations in self.operations.items() if one == step]
        return min(start for start, _ in ranges), max(end for _, end in ranges)


def read(path: Path) -> Job:
    """Reads a timeline (.json or .json.gz). Throws ValueError, with the file and the fault, if it isn't one, or if its steps
    and workers don't all have the same operations."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        events = json.loads(data)
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: expected a timeline in JSON: {error}") from None
    if not isinstance(events, list):
        raise ValueError(f"{path}: expected a list of Chrome trace events, got {type(events).__name__}")
    job = Job()
    stage_of = _stages(events)
    for number, event in enumerate(events):
        if isinstance(event, dict) and event.get("ph") == "X":
            key, operation = _operation(event, stage_of, f"{path}: event {number}")
            job.operations.setdefault(key, []).append(operation)
    if not job.operations:
        raise ValueError(f"{path}: the timeline has no operations; expected Chrome trace events with ph X")
    for operations in job.operations.values():
        operations.sort(key=lambda o: o.index)
    _check(job, path)
    return job


def _stages(events: list[Any]) -> dict[tuple[Any, Any], int]:
    """Returns the stage of each thread, from the names of the threads."""
    stages = {}
    for event in events:
        if isinstance(event, dict) and event.get("ph") == "M" and event.get("name") == "thread_name":
            found = re.match(r"PP rank (\d+)\b", str(event.get("args", {}).get("name")))
            if found:
                stages[event.get("pid"), event.get("tid")] = int(found[1])
    return stages


def _operation(event: dict[str, Any], stage_of: dict[tuple[Any, Any], int],
               at: str) -> tuple[tuple[int, int, int, str], Operation]:
    kind: Any = event.get("name")
    pipeline: Any = event.get("pid")
    args = event.get("args")
    if kind not in KINDS:
        raise ValueError(f"{at}: unknown operation {kind!r}; known operations: {', '.join(KINDS)}")
    if (pipeline, event.get("tid")) not in stage_of:
        raise ValueError(f"{at}: thread {event.get('tid')!r} of process {pipeline!r} has no name 'PP rank N, …', so its "
                         "stage is unknown")
    numbers: dict[str, Any] = {name: event.get(name) for name in ("ts", "dur")}
    whole: dict[str, Any] = {name: args.get(name) if isinstance(args, dict) else None for name in ("step", "seq_id")}
    for name, value in (numbers | whole | {"pid": pipeline}).items():
        wrong = not isinstance(value, (int, float) if name in numbers else int) or isinstance(value, bool)
        if wrong or not math.isfinite(value) or value < 0:
            expected = "a number of microseconds" if name in numbers else "an integer"
            raise ValueError(f"{at}: {name} of {kind} is {value!r}; expected {expected} of at least 0")
    stage = stage_of[pipeline, event.get("tid")]
    return ((whole["step"], pipeline, stage, kind),
            Operation(whole["seq_id"], numbers["ts"] / 1e3, numbers["dur"] / 1e3))


def _check(job: Job, path: Path) -> None:
    """Sets the sizes of the job, and checks that all workers run all steps alike."""
    job.steps = sorted({step for step, _, _, _ in job.operations})
    job.kinds = [kind for kind in KINDS if any(one == kind for _, _, _, one in job.operations)]
    job.pipelines = 1 + max(pipeline for _, pipeline, _, _ in job.operations)
    job.stages = 1 + max(stage for _, _, stage, _ in job.operations)
    first = job.operations.get((job.steps[0], 0, 0, "forward-compute"), [])
    job.micro_batches = len(first)
    for step in job.steps:
        for d in range(job.pipelines):
            for s in range(job.stages):
                for kind in REQUIRED:
                    expected = job.micro_batches if kind in OF_MICRO_BATCH else 1
                    found = len(job.on(step, d, s, kind))
                    if found != expected or found == 0:
                        raise ValueError(f"{path}: step {step} has {found} operations {kind} on stage {s} of pipeline {d}; "
                                         f"expected {max(1, expected)}, as on all workers")


def trace_events(job: Job, step: int) -> list[dict[str, Any]]:
    """Returns the operations of a step as events of a run, as `hetu.schedule.simulate` returns them, from the beginning of
    the step. A worker is pipeline * stages + stage. Operations that a plan doesn't have are left out."""
    begin, _ = job.span(step)
    events = []
    for (one, d, s, kind), operations in sorted(job.operations.items()):
        if one != step or kind not in IN_HETU:
            continue
        for operation in operations:
            events.append({"worker": d * job.stages + s, "kind": IN_HETU[kind],
                           "stage": -1 if kind == "optimizer-clip-main-grad" else s,
                           "micro": operation.index if kind in OF_MICRO_BATCH else -1, "part": 0, "step": 0,
                           "start_us": (operation.start - begin) * 1e3, "duration_us": operation.time * 1e3})
    return events


def chrome_events(events: list[dict[str, Any]], measured: bool) -> list[dict[str, Any]]:
    """Returns events of a run as a trace file holds them."""
    out = []
    for event in events:
        stage, micro = event["stage"], event["micro"]
        out.append({"name": f"{'' if stage < 0 else stage}{event['kind']}{'' if micro < 0 else micro}", "ph": "X",
                    "pid": int(measured), "tid": event["worker"], "ts": event["start_us"], "dur": event["duration_us"],
                    "args": {key: event[key] for key in ("kind", "stage", "micro", "part", "step")}})
    return out
