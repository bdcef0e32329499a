"""Running a graph: in a single process, or by the same script in every worker under `heturun`."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from hetu import _hetu, keywords, schedule
from hetu import options as tables
from hetu.averaging import Averaging, Stragglers
from hetu.data import Data
from hetu.devices import Layout, fit, layout, resolve_device, say, started_hosts
from hetu.graph import GraphBuilder, Value
from hetu.job.checkpoint import Checkpoints
from hetu.job.crew import Crew, layout_of_threads
from hetu.job.cuts import Cuts
from hetu.job.draws import Draws
from hetu.job.fetches import check_length, read
from hetu.job.hooks import Hooks
from hetu.job.planning import Planning, text_of
from hetu.job.predict import Predicting
from hetu.job.reach import Reach
from hetu.job.step import Pace, Reported, Step, Steps
from hetu.job.table_counters import TableCounters
from hetu.lr import ReduceOnPlateau
from hetu.optim import Train
from hetu.place import placed
from hetu.process import leave, stop


def _unsaid(text: str) -> None:
    """Prints nothing: during heturun's check before the start, the workers will print the message later."""


def _lay_out(devices: Any) -> Layout:
    if isinstance(devices, str) and devices.startswith("threads:"):
        return layout_of_threads(devices)
    if devices is None or isinstance(devices, str):
        return layout(devices)
    return fit("devices", devices, started_hosts())


def _threads(workers: int) -> int:
    """Returns the threads per worker if `workers` run in this process (0: one worker per process)."""
    return max(1, _hetu.machine_cores() // (workers or int(_hetu.started()[1])))


# Keywords that correspond to flags of the scripts, in addition to the Executor's own keywords.
KEYWORDS = [field for name, field in tables.table("training").items() if name not in ("batch_size", "micro_batches")]
# The keywords that determine a plan.
PLANNING = [field.name for field in KEYWORDS if field.name in tables.table("sizes")]


class Executor(Predicting, Reach, Planning):
    """Compiles a graph for this worker and runs it.

    fetches: name -> values. A list that contains a `minimize` handle trains, other lists don't. A run reports the values of
    its list, each under the name of its operator. A scalar is summed over the micro-batches and pipelines of the step (a
    step_sum already is that sum), so a mean is a sum divided by a count. A run that trains accepts float32 scalars. Any
    other run also accepts tensors, and every worker has the results. With the batch axis, Step.samples_of holds the value
    of every sample of the global batch, in the order of the data. Without it, Step.sums holds the sum. A run that trains
    also reports "loss" and the values of GraphBuilder.fetch. Other runs report these if they read the necessary fields
    anyway.
    devices: rows of a device list (rows = workers of a pipeline, columns = pipelines; rows of different lengths: replicas
    of each stage in one pipeline), a list's name, or None (see hetu.devices).
    pipeline: a method's name (`hetu schedule --help` lists them), a plan's CSV or JSON file, "module:function", or a
    function of stages and micro_batches that returns rows of action strings. "choose" takes the first method that `hetu
    choose` ranks by `costs` and that keeps to the memory limit.
    micro_batches: per pipeline and step. None: the number in the file, 1 if the method updates after each, else 4.
    costs: a file or a trace for "choose", for partition "times", and for methods that depend on costs (zb-1p, zb-2p, auto).
    Without it, these methods use the operations of the model's blocks.
    replicas: of the model, in a plan from a file or function.
    averaging: pipelines average weights, each at its own pace, instead of summing gradients (hetu.averaging). It needs
    heturun, and a method without a flush (pipedream).
    stragglers: artificial stragglers.
    first_blocks: the first block of each stage, or a function of the number of stages, which partition and speed override.
    None: cut by partition and speed. Partition "times" uses `costs`, a file with block times or a trace.
    compare_single: the chief also does every training step in one process. A tensor that differs ends the job.
    memory_limit, threads and other options of a training (listed below) are those of the scripts' flags. memory_limit is in
    bytes, or text such as "4GiB".

    Threads of one process may share an Executor: a prediction or evaluation runs between two training steps. In a job of
    one worker, a call that raises is undone. In other jobs, later calls name the first failure (docs/predict.md).
    """

    trains_now = in_hooks = stopped = False  # a training is running; its hooks are running; it was asked to stop

    @placed(tables.as_keywords)
    def __init__(
        self,
        fetches: dict[str, list[Value | Train]],
        devices: Any = None,
        pipeline: str | os.PathLike[str] | Callable[..., Any] = "1f1b",
        micro_batches: int | None = 1,
        *,
        replicas: int | None = None,
        costs: str | os.PathLike[str] | None = None,
        first_blocks: list[int] | Callable[[int], list[int] | None] | None = None,
        averaging: Averaging | None = None,
        stragglers: Stragglers | None = None,
        compare_single: bool = False,
        **told: Any,
    ) -> None:
        keywords.check_options("hetu.Executor", told, [field.name for field in KEYWORDS])
        told, method, times = {name: text_of(value) for name, value in told.items()}, text_of(pipeline), text_of(costs)
        self.fetches = read(fetches)
        self.train_handle = self.fetches.train
        graph: GraphBuilder = self.train_handle.graph
        self.data = self._one_source(graph)
        self.graph, graph.taken = graph.builder.finish(), True
        self.fetches.settle(self.graph)
        self.layout: Layout = _lay_out(devices)
        if averaging and self.layout.replicas:
            raise ValueError(
                f"{averaging.method} averages whole pipelines, one per column, but the rows of devices differ in length: "
                f"{', '.join(map(str, self.layout.replicas))}; give every row the same number of devices"
            )
        env = _hetu.env()
        asked = "auto" if told.get("device") is None else told["device"]
        self.device = resolve_device(asked, say=_unsaid if env["check"] else say)
        number = self.layout.number_of(env["worker"])
        if env["pipelines"] > 1:
            self._check_apart(env["pipelines"], averaging)
            number %= self.layout.stages  # the worker's number in its pipeline, which is a job of its own
        links = _hetu.thread_links(self.layout.pipelines * self.layout.stages) if self.layout.of_threads else []
        self.transport: Any = links[0] if links else None if env["check"] else leave.transport(number)
        if self.layout.note and self.is_chief:
            print(self.layout.note, flush=True)
        self.seed = told.get("seed") or 0
        common = {
            "pipelines": self.layout.pipelines, "stages": self.layout.stages,
            "stage_replicas": list(self.layout.replicas) or None, "batch_size": self.data.batch_size,
            "averaging": averaging.settings() if averaging else None,
            "stragglers": stragglers.settings() if stragglers else None,
            **told, "device": self.device, "threads": told.get("threads") or env["threads"] or _threads(len(links)),
        }
        self.cuts = Cuts(told.get("partition"), told.get("speed"), times, first_blocks)
        own: dict[str, Any] = {name: common.pop(name, None) for name in PLANNING} | {"replicas": replicas}
        if method == "choose":
            if any(value not in (None, False) for value in own.values()):
                raise ValueError("pipeline choose picks chunks, pairs, concat, recompute and run-time rule itself; leave "
                                 "these options out")
            options = self._choose(micro_batches, times, common)
        else:
            if times is not None:
                if schedule.goes_by_costs(method) or own["split_backward"]:
                    own["costs"] = times
                elif not self.cuts.by_times:
                    raise ValueError("costs apply only to pipeline choose, partition times, split_backward, and methods "
                                     f"that use costs: {', '.join(m['name'] for m in schedule.methods() if m['by_costs'])}")
            options = self._planned(method, micro_batches, own, common)
        self.method, self.micro_batches = options.method, options.micro_batches
        if env["check"]:  # heturun checks the script before it starts workers: nothing of the job may happen yet
            _hetu.check_training(self.graph, self.train_handle.optimizer.settings(), options)
            raise SystemExit(0)
        payload = told.get("payload") or "whole"
        self.meaningless = "" if payload == "whole" else f"payload {payload}"
        if self.meaningless and compare_single:
            raise ValueError(f"payload {payload} gives meaningless results, which can't be compared; remove compare_single")
        self.compares = compare_single
        if links:
            self.crew = Crew(self, links, lambda member: member._join(options))
        else:
            self._join(options)

    def _join(self, options: Any) -> None:
        """Creates this worker's part of the job. Collective."""
        compare_single = self.compares
        self.job: Any = _hetu.Job(self.graph, self.train_handle.optimizer.settings(), options, self.transport)
        self.under_way = ""  # the run that has not ended
        self.stepper = threading.get_ident()  # the thread that makes steps
        leave.join(self)
        self.sharers = list(range(self.layout.pipelines))
        self.comparison = _hetu.CompareSingle(self.job) if compare_single else None
        fields = self.comparison.fields if self.comparison else []
        self.readers = self.job.readers(fields)
        reads = self.graph.fields_of([], True)
        together = self.readers.open(self.averages, compare_single, reads)
        self.loader = self._loader(self.data, together, self.layout.pipelines, self.job.pipeline, reads)
        # By pipeline, for compare_single: one process does the same steps.
        self.loaders_of_all = [
            self.data.loader(self.layout.pipelines, d, fields, self.readers.single(together, d))
            for d in range(self.layout.pipelines) if fields
        ]
        self.draws = Draws(self)

    def unfinished(self) -> str:
        """Returns a description of the run that the script leaves unfinished if it ends at this point, or ""."""
        return f"its script ended in the middle of {self.under_way}, after {self.step} steps" if self.under_way else ""

    def release(self) -> None:
        """Releases memory, loaders and their threads, and objects that refer to the links."""
        self.loader, self.loaders_of_all, self.readers, self.comparison = None, [], None, None
        self.job, self.under_way = leave.Left(self.job), ""

    def _check_apart(self, pipelines: int, averaging: Averaging | None) -> None:
        """Throws ValueError unless the job can continue without a pipeline that dies (heturun --on-failure shrink)."""
        if averaging is None:
            raise ValueError("heturun --on-failure shrink: only a job whose pipelines average weights (--preduce, --adpsgd) "
                             "can lose one. Leave the flag out; after a failure, --resume continues the job.")
        if pipelines != self.layout.pipelines:
            raise ValueError(f"heturun --pipelines {pipelines}: the device list {self.layout.name} has "
                             f"{self.layout.pipelines} pipelines")

    @staticmethod
    def _one_source(graph: GraphBuilder) -> Data:
        sources = list({id(s): s for s in graph.sources.values()}.values())
        if len(sources) != 1:
            right = "" if sources else "; use a field of a data object of hetu.data as input, such as data.x"
            raise ValueError(f"the graph must read from one data object, but it reads from {len(sources)}{right}")
        return sources[0]

    @property
    def plateau(self) -> ReduceOnPlateau | None:
        """The learning rate if it follows a measure, else None."""
        rate = self.train_handle.optimizer.learning_rate
        return rate if isinstance(rate, ReduceOnPlateau) else None

    def _share_out(self) -> None:
        """Distributes the rows of dead pipelines among the living ones, beginning with the first epoch that no pipeline has
        begun."""
        if self.job.living == self.sharers:
            return
        epochs = self.job.exchange(str(self.position().get("epoch", 0)))
        self.sharers = sorted(epochs)
        if self.loader:
            self.loader.divide(1 + max(map(int, epochs.values())), len(self.sharers), self.sharers.index(self.job.pipeline))

    @property
    def is_chief(self) -> bool:
        """True in the worker that prints: worker 0, or in a job that continues without a dead pipeline, the first worker of
        the first living pipeline."""
        job = getattr(self, "job", None)
        env = _hetu.env()
        first = job.in_first_pipeline if job else env["pipelines"] == 1 or env["worker"] == 0
        return self.transport is not None and bool(self.transport.worker == 0 and first)

    @property
    def averages(self) -> bool:
        """True if pipelines average weights, each at its own pace."""
        return bool(self.job.averages)

    @property
    def step(self) -> int:
        """The number of steps done, over all runs of this training."""
        return int(self.job.step)

    @property
    def table_counters(self) -> dict[str, TableCounters]:
        """The counters of this worker's cache, for each table on parameter servers that it reads."""
        return {name: TableCounters(**counts) for name, counts in self.job.table_counters.items()}

    def run(
        self,
        name: str = "train",
        steps: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = 0,
        keep: int = 3,
        resume: bool = False,
        trace: str | os.PathLike[str] | None = None,
        data: Data | None = None,
        drain: int | None = None,
        *,
        until: int | None = None,
        hooks: Sequence[Any] = (),
        epoch_steps: int | None = None,
    ) -> Iterator[Step]:
        """Runs the list `name` and yields its steps as they are done. Nothing happens before the first step is requested.

        steps: of a training, the number of further steps (default 1), counted from its present step or, with `resume`, from
        the loaded step. Of a validation, the number of batches (default 1) from the start of `data`.
        until: of a training, the number of steps in all, counted from step 0 also after a resume. No steps are left if it
        is already reached.
        checkpoint, every, keep, resume: the folder for checkpoints, the steps between two of them (0: only at the end), the
        number of newest checkpoints to keep, and True to continue from the newest one.
        trace: a file for the measured events, next to the plan's prediction from the measured times.
        data: of a validation; the training data by default.
        hooks: called between steps, and at the end of each epoch; see hetu.hooks.
        epoch_steps: steps per epoch; by default a pass over the data.
        A training ends early, and saves, when a worker was asked to stop (SIGUSR1 or the first Ctrl-C; see
        hetu.process.stop).

        An asynchronous method (pipedream) runs without a flush. Its pipeline is drained every `drain` steps (0: never for
        this reason; by default at the end of epochs, if a hook has on_epoch), before a save and at the end. Validation is
        only possible after a drain. Only the chief has scalars and norms; elsewhere they are NaN.

        If pipelines average weights, the steps between two drains are those of this worker's pipeline. Their number may
        differ from the nominal number, and their results are those of the pipeline's batches. `step` advances by the
        nominal number. The first worker of each pipeline has results.
        """
        of_training = {"checkpoint": checkpoint, "every": every, "resume": resume, "trace": trace, "drain": drain,
                       "until": until, "hooks": hooks, "epoch_steps": epoch_steps}
        with placed():
            if (beyond := os.path.dirname(text_of(trace) or "")) and self.is_chief and not os.path.isdir(beyond):
                raise OSError(f"trace {trace}: there is no folder {beyond}")
            self.fetches.check(name, of_training, {"data": data})
            given = check_length(steps, until)
            beside = Hooks(self, hooks, epoch_steps)
        if self.fetches.trains[name]:
            saves = text_of(checkpoint), every, keep, resume
            made = self._train(name, steps, until, saves, text_of(trace), beside.drain(drain), beside)
        else:
            made = self._forward(name, self.fetches.names[name], data or self.data, steps or 1, stops=True)
        called = f"job.run({name!r}, {given})"
        return Steps(self._under_way(called, made), called, self.is_chief)

    def _under_way(self, called: str, steps: Iterator[Step]) -> Generator[Step, None, None]:
        self.under_way = called
        yield from steps
        self.under_way = ""  # stays set if a script breaks out of its loop

    def _train(self, name: str, steps: int | None, until: int | None, saves: tuple[str | None, int, int, bool],
               trace: str | None, drain: int, beside: Hooks) -> Iterator[Step]:
        self.stopped = False
        checkpoint, every, keep, resume = saves
        if checkpoint and self.meaningless:
            raise ValueError(f"{self.meaningless}: this run's weights are meaningless and can't be saved; remove checkpoint")
        with placed(tables.as_keywords):
            store = Checkpoints(checkpoint, self, keep, resume) if checkpoint else None
        end = until if until is not None else self.step + (steps or 1)
        self.job.record(trace is not None)
        with store or contextlib.nullcontext(), stop.training(checkpoint), self._training(), beside.of_run():
            while self.step < end and not self.stopped:
                if self.plateau:
                    self.job.set_rate_factor(self.plateau.state["multiplier"])
                self.pace, self.course = Pace(), (self.step, 0)
                self.job.begin_run(self._run_length(end, every if store else 0, drain))
                while True:
                    if stop.asked() and not self.stopped:
                        self.job.ask_to_stop()
                    step = self._step(name, self._next, self.loader)
                    if step is None:
                        break
                    self._call_hooks(beside, step, end, drain)
                    yield step
                if self.averages:
                    self.draws.compare()
                if self.job.may_lose:
                    self._share_out()
                if store and (self.stopped or (every and self.step % every == 0) or self.step >= end):
                    store.save()
        if self.stopped and self.is_chief:
            mean = f", the mean of {len(self.sharers)} pipelines" if self.averages else ""
            print(f"Stopped as asked after {self.step} steps{mean}; " + (
                f"saved in {checkpoint}" if store else "nothing saved: "
                  "no checkpoint folder was given"), flush=True)
        if self.compares and self.is_chief:
            print(f"compare-single: {self.comparison.summary}", flush=True)
        if self.loader and self.loader.skipped_rows:
            print(f"worker {self.transport.worker}: {self.loader.skipped_rows} damaged images among those read (and read "
                  "ahead) were replaced by others of their classes", flush=True)
        if self.job.in_first_pipeline:
            for table, counts in self.table_counters.items():
                print(f"table {table} on servers: {counts.describe()}", flush=True)
        if trace:
            self.job.write_trace(trace)

    @contextlib.contextmanager
    def _training(self) -> Iterator[None]:
        self.trains_now = True
        try:
            yield
        finally:
            self.trains_now = False

    def _call_hooks(self, beside: Hooks, step: Step, end: int, drain: int) -> None:
        self.in_hooks = True
        try:
            beside.step(step, end, drain)
        except stop.Stopping:  # raised in an evaluation, which has printed the reason
            pass
        finally:
            self.in_hooks = False

    def _next(self, loader: Any) -> Any:
        return self.job.next(loader, self.comparison, self.loaders_of_all)

    def seek(self, position: dict[str, Any]) -> None:
        """Continues reading from a saved position."""
        for loader in [self.loader, *self.loaders_of_all]:
            if loader:
                loader.seek(position)

    def _run_length(self, steps: int, *periods: int) -> int:
        """Returns the number of steps in the next run: up to the end, or to the end of a period; 1 if each step ends with
        an update."""
        if not self.job.asynchronous:
            return 1
        ends = [self.step - self.step % period + period for period in periods if period]
        return min([steps, *ends]) - self.step

    def _step(self, name: str, function: Any, loader: Any, reports: list[str] | None = None) -> Step | None:
        training, names = self.fetches.trains[name], reports or self.fetches.names[name]
        self.stepper = threading.get_ident()
        start = time.monotonic()
        with placed():
            result = function(loader)
        if result is None:
            return None
        seconds = time.monotonic() - start
        samples = result["rows"] or self.data.batch_size * result["batches"]
        done = result["step"] + 1
        if training:
            self.stopped = result["stop_asked"]
            if self.job.asynchronous:
                seconds = self.pace.seconds(samples)
            if self.averages:
                begin, batches = self.course
                self.course = begin, batches + result["batches"]
                done = begin + self.course[1] // len(self.sharers)
        own = self.data.batch_size if self.averages and training else samples
        scale = result["loss_scale"] if training and self.job.scales_loss else None
        if scale and result["skipped"] and self.is_chief:
            print(f"step {result['step']}: gradients exceed float16's range at this loss scale; the update is skipped, "
                  f"and the next step uses a scale of {scale:.7g}", file=sys.stderr, flush=True)
        found: list[Reported[Any]] = [Reported({fetch: value for fetch, value in result[kind].items() if fetch in names})
                                      for kind in ("scalars", "samples", "sums")]
        return Step(result["step"], found[0], result["gradient_norm"], result["learning_rate"], seconds, samples,
                    last=result["last"], own_samples=own, samples_of=found[1], sums=found[2],
                    stop_asked=result["stop_asked"], done=done, meaningless=self.meaningless, loss_scale=scale,
                    skipped=scale is not None and result["skipped"])

    def __repr__(self) -> str:
        return f"<hetu.Executor: {self.describe()}; step {self.step}>" if hasattr(self, "loader") else "<hetu.Executor>"

    def describe(self) -> str:
        """Returns one line: method, grid, blocks of the model per stage, micro-batches, memory of this worker."""
        cut = self.cuts.describe(self.job, self.graph.blocks)
        label = f"meaningless ({self.meaningless}): " if self.meaningless else ""
        return (
            f"{label}{self.method}, {self.layout.describe()}{cut}, {self.micro_batches} micro-batches; "
            f"worker {self.transport.worker} (pipeline {self.job.pipeline}, stage {self.job.stage}): {self.job.memory}"
        )

    def position(self) -> dict[str, Any]:
        """Returns the position in the data, for checkpoints. It is the same in all workers that read."""
        return dict(self.loader.position()) if self.loader else {}


tables.sign(Executor, KEYWORDS)
keywords.check_methods(Executor, "hetu.Executor")
