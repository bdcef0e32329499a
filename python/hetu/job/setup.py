"""Makes a job of the Executor's arguments: checks them, finds this worker's links, and plans."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from hetu import _hetu
from hetu import options as tables
from hetu.averaging import Averaging, Stragglers
from hetu.data import Data
from hetu.devices import Layout, fit, layout, resolve_device, say, started_hosts
from hetu.graph import GraphBuilder
from hetu.job.cuts import Cuts
from hetu.job.fetches import Fetches
from hetu.job.job_spec import JobSpec
from hetu.job.planning import Planner, text_of
from hetu.job.thread_workers import layout_of_threads
from hetu.job.worker import is_first_worker
from hetu.process import leave, rounds

# Keywords that correspond to flags of the scripts, in addition to the Executor's own keywords.
KEYWORDS = [field for name, field in tables.table("training").items() if name not in ("batch_size", "micro_batches")]
# The keywords that determine a plan.
PLANNING = [field.name for field in KEYWORDS if field.name in tables.table("sizes")]


@dataclass(frozen=True)
class Arguments:
    """The arguments of an Executor; see its documentation. `options` are its KEYWORDS that were given."""

    devices: Any
    pipeline: str | os.PathLike[str] | Callable[..., Any]
    micro_batches: int | None
    replicas: int | None
    costs: str | os.PathLike[str] | None
    first_blocks: list[int] | Callable[[int], list[int] | None] | None
    averaging: Averaging | None
    stragglers: Stragglers | None
    compare_single: bool
    options: dict[str, Any]


OWN_KEYWORDS = [field.name for field in fields(Arguments) if field.name != "options"]  # of the Executor


class JobSetup:
    """The job that the arguments describe, and this process's links to it. heturun's check before the start ends here, by
    SystemExit.

    links: of all workers, if they are threads of this process.
    transport: of this worker otherwise.
    """

    def __init__(self, fetches: Fetches, arguments: Arguments) -> None:
        self.given, self.fetches = arguments, fetches
        self.options = {name: text_of(value) for name, value in arguments.options.items()}
        graph: GraphBuilder = fetches.train.graph
        self.data = _only_source(graph)
        self.graph, graph.taken = graph.builder.finish(), True
        fetches.add_common_values(self.graph)
        fetches.train.optimizer.mark_read()
        self.data.mark_read()
        self.env = _hetu.env()
        rounds.refuse_graphs()
        self.layout = self._layout()
        is_check = self.env["check"]
        asked = "auto" if self.options.get("device") is None else self.options["device"]
        self.device = resolve_device(asked, say=_print_nothing if is_check else say)
        number = self._worker_number()
        self.links = _hetu.thread_links(self.layout.pipelines * self.layout.stages) if self.layout.of_threads else []
        self.transport: Any = self.links[0] if self.links else None if is_check else leave.transport(number)
        if self.layout.note and is_first_worker(self.transport):
            print(self.layout.note, flush=True)
        self.spec = self._spec()

    def _layout(self) -> Layout:
        devices, averaging = self.given.devices, self.given.averaging
        if isinstance(devices, str) and devices.startswith("threads:"):
            found = layout_of_threads(devices)
        elif devices is None or isinstance(devices, str):
            found = layout(devices)
        else:
            found = fit("devices", devices, started_hosts())
        if averaging and found.replicas:
            raise ValueError(
                f"{averaging.method} averages whole pipelines, one per column, but the rows of devices differ in length: "
                f"{', '.join(map(str, found.replicas))}; give every row the same number of devices"
            )
        return found

    def _worker_number(self) -> int:
        """Returns this worker's number in its job. In a job that continues without a pipeline that dies (heturun
        --on-failure shrink), each pipeline is a job of its own. Throws ValueError if the job can't do so."""
        number, pipelines = int(self.layout.number_of(self.env["worker"])), self.env["pipelines"]
        if pipelines <= 1:
            return number
        if self.given.averaging is None:
            raise ValueError("heturun --on-failure shrink: only a job whose pipelines average weights (--preduce) can lose "
                             "one. Leave the flag out; after a failure, --resume continues the job.")
        if pipelines != self.layout.pipelines:
            raise ValueError(f"heturun --pipelines {pipelines}: the device list {self.layout.name} has "
                             f"{self.layout.pipelines} pipelines")
        return number % int(self.layout.stages)

    def _spec(self) -> JobSpec:
        given, optimizer = self.given, self.fetches.train.optimizer
        costs = text_of(given.costs)
        common = self._common_options()
        cuts = Cuts(self.options.get("partition"), self.options.get("speed"), costs, given.first_blocks)
        own = {name: common.pop(name, None) for name in PLANNING} | {"replicas": given.replicas}
        planner = Planner(self.graph, optimizer, self.layout, cuts, common, is_first_worker(self.transport))
        options = planner.options(text_of(given.pipeline), given.micro_batches, costs, own)
        if self.env["check"]:  # heturun checks the script before it starts workers: nothing of the job may happen yet
            _hetu.check_training(self.graph, optimizer.settings(), options)
            raise SystemExit(0)
        payload = self.options.get("payload") or "whole"
        meaningless = "" if payload == "whole" else f"payload {payload}"
        if meaningless and given.compare_single:
            raise ValueError(f"payload {payload} gives meaningless results, which can't be compared; remove compare_single")
        spec = JobSpec(self.graph, self.fetches, self.data, self.layout, cuts, options, self.options.get("seed") or 0,
                       meaningless, given.compare_single)
        return replace(spec, data=self.data._divided(spec.shares))

    def _common_options(self) -> dict[str, Any]:
        """Returns the options that the job has with any plan, and those for the plan."""
        averaging, stragglers, threads = self.given.averaging, self.given.stragglers, self.options.get("threads")
        return {
            "pipelines": self.layout.pipelines, "stages": self.layout.stages,
            "stage_replicas": list(self.layout.replicas) or None, "batch_size": self.data.batch_size,
            "averaging": averaging.settings() if averaging else None,
            "stragglers": stragglers.settings() if stragglers else None,
            **self.options, "device": self.device,
            "threads": threads or self.env["threads"] or _thread_count(len(self.links)),
        }


def _print_nothing(text: str) -> None:
    """Takes the place of print during heturun's check before the start: the workers will print the message later."""


def _thread_count(workers: int) -> int:
    """Returns the threads per worker if `workers` run in this process (0: one worker per process)."""
    return max(1, _hetu.machine_cores() // (workers or int(_hetu.started()[1])))


def _only_source(graph: GraphBuilder) -> Data:
    """Returns the data object that the graph reads. Throws ValueError unless there is exactly one."""
    sources = list({id(s): s for s in graph.sources.values()}.values())
    if len(sources) != 1:
        hint = "" if sources else "; use a field of a data object of hetu.data as input, such as data.x"
        raise ValueError(f"the graph must read from one data object, but it reads from {len(sources)}{hint}")
    return sources[0]
