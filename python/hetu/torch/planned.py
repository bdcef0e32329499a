"""Reads a plan that `hetu plan -o plan.json` has found, for Pipeline(plan=)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hetu import _hetu, files
from hetu import schedule as plans
from hetu.counted import counted
from hetu.process import leave

_SIZES = ("stages", "pipelines", "micro_batches", "micro_batch_size", "blocks", "first_block", "workers")
_OPTIONS = ("chunks", "pairs", "concat")


class FoundPlan:
    """The result of `hetu plan`: the arguments of a Pipeline, and the prediction.

    A plan names the workers of the machines that it was made for, and may leave some out. The workers of the job are the
    others, in the order of their numbers. Each place of the plan, pipeline by pipeline, has one of them.
    """

    def __init__(self, plan: Any) -> None:
        """plan: a JSON file of `hetu plan`, or the dict that hetu.schedule.plan() returns."""
        self.name = os.fspath(plan) if isinstance(plan, (str, os.PathLike)) else "plan="
        answer = plan if isinstance(plan, Mapping) else files.read_json(plan)
        if not isinstance(answer, Mapping) or "plan" not in answer or "global_batch" not in answer:
            raise ValueError(f"{self.name}: not a result of `hetu plan`; make one with `hetu plan … -o plan.json`")
        if answer["plan"] is None:
            raise ValueError(f"{self.name}: `hetu plan` has found no plan; see its reasons, and give it more memory, more "
                             f"workers or a larger --budget")
        found: Mapping[str, Any] = answer["plan"]
        missing = [key for key in ("method", "recompute", "step_time", "peak_bytes", *_SIZES) if key not in found]
        if missing:
            raise ValueError(f"{self.name}: the plan has no '{missing[0]}'; make the file with this version's `hetu plan`")
        self.method: str = found["method"]
        self.width: int = found["stages"]
        self.pipelines: int = found["pipelines"]
        self.micro_batches: int = found["micro_batches"]
        self.micro_batch_size: int = found["micro_batch_size"]
        self.pieces: int = found["blocks"]
        self.first_pieces: list[int] = found["first_block"]
        self.workers: list[int] = found["workers"]
        self.step_time: float = found["step_time"]
        self.peak_bytes: list[float] = found["peak_bytes"]
        self.recompute: bool = found["recompute"]
        self.options = {key: found[key] for key in _OPTIONS if key in found}

    def place_of(self, rank: int, workers: int) -> int:
        """Returns the place of the worker of this rank. Throws ValueError unless the job has as many workers as the plan."""
        if workers != len(self.workers):
            raise ValueError(f"{self.name}: the plan is for {counted(len(self.workers), 'worker')}, "
                             f"and this job has {workers}; start it with "
                             f"`heturun -w {len(self.workers)}`, or plan again with --workers {workers}")
        return self.workers.index(sorted(self.workers)[rank])

    def processes(self) -> list[int]:
        """Returns the process of the job at each place. heturun tags the output of a process with its number."""
        ranks = {worker: rank for rank, worker in enumerate(sorted(self.workers))}
        return [ranks[worker] for worker in self.workers]

    def numbering(self, hosts: Sequence[tuple[str, int]]) -> str:
        """Returns a text that says which process each worker is, or "" if their numbers are the same. hosts: name and number
        of processes, in the order of processes."""
        processes = self.processes()
        names = [name for name, count in hosts for _ in range(count)]
        others = [f"worker {place} is process {process}{f' on {names[process]}' if process < len(names) else ''}"
                  for place, process in enumerate(processes) if place != process]
        return f"by {self.name}, {', '.join(others)}" if others else ""

    def arguments(self, **given: Any) -> tuple[Any, int, int, list[int], dict[str, Any]]:
        """Returns schedule, micro_batches, pipelines, first_pieces and further options of a Pipeline. Throws ValueError if
        `given`, the arguments beside plan=, has one of them."""
        if given.get("pipelines") == 1:
            del given["pipelines"]  # the default
        others = [f"{name}=" for name, value in given.items() if value is not None]
        if others:
            raise ValueError(f"plan= sets the schedule, its sizes and the cut; leave {', '.join(others)} out")
        return self.schedule(), self.micro_batches, self.pipelines, self.first_pieces, {}

    def schedule(self) -> _hetu.Schedule:
        """Returns the plan of a pipeline's instructions. Throws ValueError for a method that modules can't run."""
        if self.options.get("concat") == "halving":
            raise ValueError(f"{self.name}: {self.method} with halving takes backwards of half micro-batches, which "
                             f"hetu.torch can't run; plan again without --halving")
        known = {method["name"]: method["options"] for method in plans.methods()}
        options = {key: value for key, value in self.options.items() if key in known.get(self.method, ())}
        if self.recompute:
            options["with_recompute"] = True
        return plans.named(self.method, stages=self.width, micro_batches=self.micro_batches, **options)

    def check_pieces(self, pieces: int) -> None:
        """Throws ValueError if the model has another number of pieces than the profile."""
        if pieces != self.pieces:
            raise ValueError(f"{self.name}: the plan is for a model of {counted(self.pieces, 'piece')}, "
                             f"and this one has {pieces}; profile this model, and plan again")

    def check_batch(self, rows: int, is_first: bool) -> None:
        """Throws ValueError for a batch that the plan wasn't made for. Only batches after the first may be smaller, such as
        the last one of an epoch."""
        planned = self.micro_batches * self.micro_batch_size
        if rows == planned or (rows < planned and not is_first):
            return
        raise ValueError(f"{self.name}: the plan is for {planned} samples per pipeline and step ({self.micro_batches} "
                         f"micro-batches of {self.micro_batch_size}), and step() received {rows}; pass {planned}, or plan "
                         f"again with --global-batch {rows * self.pipelines}")


def transport_of(plan: FoundPlan | None, devices: Any) -> Any:
    """Returns the links of a Pipeline's worker, which has its place of the plan as its number.

    devices: the links of a worker that is a thread; None: those of this process. Throws ValueError if the job has another
    number of workers, and if links were opened before the plan gave this worker its place.
    """
    if devices is not None:
        if plan:
            plan.place_of(devices.worker, devices.workers)
        return devices
    env = _hetu.env()
    if plan is None:
        return leave.transport(env["worker"])
    place = plan.place_of(env["worker"], env["workers"])
    leave.numbering = plan.numbering(_hetu.started()[0])
    links = leave.transport(place)
    if links.worker != place:
        raise ValueError(f"{plan.name}: this worker has place {place} in the plan, but its links were opened before, as "
                         f"those of worker {links.worker}; make the Pipeline of a plan before anything else that "
                         f"communicates, such as hetu.torch.profile()")
    if leave.numbering and env["worker"] == 0:
        print(f"hetu.torch: {leave.numbering}; messages and traces number workers, and heturun tags processes",
              file=sys.stderr, flush=True)
    return links
