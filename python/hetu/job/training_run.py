"""The runs of a worker that train."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hetu import _hetu, options, progress
from hetu.job.checkpoint import Checkpoints
from hetu.job.hooks import Hooks
from hetu.job.row_comparison import RowComparison
from hetu.job.step import Pace, Step, step_of
from hetu.job.table_counters import TableCounters
from hetu.job.worker import Worker
from hetu.lr import Custom
from hetu.place import placed, refuse
from hetu.process import faults, stop, watch


@dataclass(frozen=True)
class Length:
    """The length of a run: `steps` further steps (None: one), or until step `until`. The pipeline of a method without a
    flush is drained every `drain` steps (0: only at the end)."""

    steps: int | None
    until: int | None
    drain: int

    def end(self, begin: int) -> int:
        """Returns the step at which a run that begins at step `begin` ends."""
        return self.until if self.until is not None else begin + (self.steps or 1)


@dataclass(frozen=True)
class Saves:
    """The checkpoints of a run, as in Executor.run()."""

    folder: str | None
    every: int
    keep: int
    resume: bool


class TrainingRun:
    """One run of a worker that trains. Collective: every worker makes the same runs."""

    def __init__(self, worker: Worker, comparison: RowComparison, name: str) -> None:
        self.worker, self.comparison = worker, comparison
        self.fetches = worker.spec.fetches.names[name]
        self.pace = Pace()
        self.first_step, self.batches = 0, 0  # since the last drain: the step of the job, and the batches done

    def steps(self, length: Length, saves: Saves, trace: str | None, hooks: Hooks) -> Iterator[Step]:
        """Yields the steps. `trace` is a file for the measured events."""
        worker = self.worker
        worker.is_stopped = worker.asks_to_stop = False
        if saves.folder and worker.spec.meaningless:
            raise ValueError(f"{worker.spec.meaningless}: this run's weights are meaningless and can't be saved; remove "
                             "checkpoint")
        if worker.job.asynchronous and isinstance(worker.spec.optimizer.learning_rate, Custom):
            refuse(f"{worker.spec.options.method} has no flush, so a rate of your own (hetu.lr.Custom) can't be set for "
                   "each update; use another of hetu.lr, or a method with a flush, such as 1f1b")
        with placed(options.as_keywords):
            store = Checkpoints(saves.folder, worker, saves.keep, saves.resume, hooks) if saves.folder else None
        end, every = length.end(worker.step), saves.every if store else 0
        worker.job.record(trace is not None)
        with (store or contextlib.nullcontext(), stop.training(saves.folder), watch.training(), self._training(),
              hooks.of_run()):
            while worker.step < end and not worker.is_stopped:
                if (factor := worker.spec.rate_factor(self._update())) is not None:
                    worker.job.set_rate_factor(factor)
                yield from self._to_drain(end, every, length.drain, hooks)
                if worker.job.asynchronous and not worker.averages and worker.step < end:
                    worker.is_stopped = worker.is_stopped or self._any_asks_to_stop()
                if worker.averages:
                    self.comparison.compare_items()
                if worker.job.may_lose:
                    worker.divide_rows()
                if store and (worker.is_stopped or (every and worker.step % every == 0) or worker.step >= end):
                    with watch.during("saves"), faults.saving():
                        store.save()
        self._report(saves.folder)
        if trace:
            worker.job.write_trace(trace)
            if worker.is_chief:
                progress.tell_trace(trace)

    def _update(self) -> int:
        """Returns the number of the next update, from 1. Steps that float16 skipped made no update."""
        scale = self.worker.job.loss_scale()
        return int(self.worker.step) + 1 - int(scale["skipped"] if scale else 0)

    def _any_asks_to_stop(self) -> bool:
        """Returns true in every worker if one of them was asked to stop. Between two drains of a method without a flush, a
        request has no effect if all steps up to the drain have begun already."""
        asks = stop.asked() or self.worker.asks_to_stop
        return any(_hetu.gather_texts(self.worker.transport, "stop" if asks else ""))

    def _to_drain(self, end: int, every: int, drain: int, hooks: Hooks) -> Iterator[Step]:
        """Yields the steps until the pipeline is drained."""
        worker = self.worker
        self.pace, self.first_step, self.batches = Pace(), worker.step, 0
        worker.job.begin_run(self._length(end, every, drain))
        while True:
            if (stop.asked() or worker.asks_to_stop) and not worker.is_stopped:
                worker.job.ask_to_stop()
            step = self._step()
            if step is None:
                return
            self._call_hooks(hooks, step, end, drain)
            yield step

    def _length(self, end: int, *periods: int) -> int:
        """Returns the number of steps until the next drain: up to the end of the run, or to the end of a period; 1 if each
        step ends with an update."""
        worker = self.worker
        if not worker.job.asynchronous:
            return 1
        ends = [worker.step - worker.step % period + period for period in periods if period]
        return min([end, *ends]) - worker.step

    def _step(self) -> Step | None:
        worker = self.worker
        faults.at_step(worker.step)
        with watch.step(lambda: int(worker.step), worker.job.row):
            computed = worker.compute(lambda loader: worker.job.next(loader, worker.single, worker.loaders_of_all),
                                      worker.loader, worker.words_of_step())
        if computed is None:
            return None
        result, seconds = computed
        worker.is_stopped = result["stop_asked"]
        samples = own = worker.samples_of(result)
        done = result["step"] + 1
        if worker.job.asynchronous:
            seconds = self.pace.seconds(samples)
        if worker.averages:
            own = worker.spec.data.batch_size
            self.batches += result["batches"]
            done = self.first_step + self.batches // len(worker.reading_pipelines)
        scale = result["loss_scale"] if worker.job.scales_loss else None
        skipped = bool(scale is not None and result["skipped"])
        if skipped and worker.is_chief:
            print(f"step {result['step']}: gradients exceed float16's range at this loss scale; the update is skipped, "
                  f"and the next step uses a scale of {scale:.7g}", file=sys.stderr, flush=True)
        return step_of(result, self.fetches, seconds, samples, own_samples=own, done=done, loss_scale=scale,
                       skipped=skipped, meaningless=worker.spec.meaningless)

    @contextlib.contextmanager
    def _training(self) -> Iterator[None]:
        self.worker.is_training = True
        try:
            yield
        finally:
            self.worker.is_training = False

    def _call_hooks(self, hooks: Hooks, step: Step, end: int, drain: int) -> None:
        self.worker.in_hooks = True
        try:
            hooks.step(step, end, drain)
        except stop.Stopping:  # raised in an evaluation, which has printed the reason
            pass
        finally:
            self.worker.in_hooks = False

    def _report(self, folder: str | None) -> None:
        """Prints what happened in the run besides its steps."""
        worker = self.worker
        if worker.is_stopped and worker.is_chief:
            mean = f", the mean of {len(worker.reading_pipelines)} pipelines" if worker.averages else ""
            print(f"Stopped as asked after {worker.step} steps{mean}; " + (
                f"saved in {folder}" if folder else "nothing saved: no checkpoint folder was given"), flush=True)
        if worker.single and worker.is_chief:
            print(f"compare-single: {worker.single.summary}", flush=True)
        if worker.loader and worker.loader.skipped_rows:
            print(f"worker {worker.transport.worker}: {worker.loader.skipped_rows} damaged images among those read (and "
                  "read ahead) were replaced by others of their classes", flush=True)
        if worker.job.in_first_pipeline:
            for table, counts in table_counters(worker.job).items():
                print(f"table {table} on servers: {counts.describe()}", flush=True)


def table_counters(job: Any) -> dict[str, TableCounters]:
    """Returns the counters of this worker's cache, for each table on parameter servers that it reads."""
    return {name: TableCounters(**counts) for name, counts in job.table_counters.items()}
