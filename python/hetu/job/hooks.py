"""Hooks of a training, for job.run(hooks=[...]), and the hooks that the model scripts use.

A hook is an object with any of these methods, or a function of (job, step), which acts as on_step:

    on_start(job)           before the first step, after a checkpoint was loaded
    on_step(job, step)      after each step
    on_epoch(job, epoch)    after the last step of an epoch, and of a run that is not stopped; may validate
    on_end(job)             once, however the run ends: to close files; must not wait for other workers

Every worker calls its hooks after the same steps, in the order of the list. So hooks may call collective methods such as
job.weights(), in all workers. job.stop() ends the run. Use job.is_chief to print only once. An epoch is one pass over the
training data, or `epoch_steps` steps. For data of unknown length, the whole run is one epoch. If pipelines average weights,
each has its own steps, and on_epoch is called after they have met.
"""

from __future__ import annotations

import contextlib
import math
import numbers
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hetu import keywords
from hetu.arithmetic import kind_of
from hetu.job.records import Records
from hetu.job.step import Step
from hetu.names import missing_from
from hetu.place import check_takes, is_whole, path_of, refuse
from hetu.progress import Reporter
from hetu.tensorboard import Course, Events, take_back

MOMENTS = {"on_start": ("job",), "on_step": ("job", "step"), "on_epoch": ("job", "epoch"), "on_end": ("job",)}


class _Job(Protocol):
    """The members of hetu.Executor that the hooks of this module use."""

    @property
    def data(self) -> Any: ...

    @property
    def layout(self) -> Any: ...

    @property
    def is_chief(self) -> bool: ...

    @property
    def averages(self) -> bool: ...

    @property
    def step(self) -> int: ...

    @property
    def job(self) -> Any: ...

    def stop(self) -> None: ...

    def describe_batch(self) -> str: ...


class Epoch:
    """Steps and their results: those of one epoch, or of a validation. `steps` are those of this run. If the run has resumed
    the epoch, `before` has the sums over its earlier steps, as sums() returns them. `scalars` holds TensorBoard's values of
    this epoch; hooks may add to it."""

    def __init__(self, number: int, steps: Iterable[Step] = (), before: Mapping[str, Any] | None = None) -> None:
        self.number = number
        self.steps = list(steps)
        self.before = before or {"steps": 0, "samples": 0, "own_samples": 0, "scalars": {}, "seconds": 0.0}
        self.drained = True  # every update is done, so validation is allowed
        self.scalars: dict[str, float] = {}
        self._started = time.monotonic()
        self.seconds = 0.0

    def end(self) -> None:
        """Notes the end of the last step, which determines the duration."""
        self.seconds = self.before["seconds"] + time.monotonic() - self._started

    def sums(self) -> dict[str, Any]:
        """Returns the sums over all steps so far, for a checkpoint."""
        names = self.steps[-1].scalars if self.steps else self.before["scalars"]
        self.end()
        return {"steps": self.before["steps"] + len(self.steps), "samples": self.samples,
                "own_samples": self._own_samples(), "scalars": {name: self._sum(name) for name in names},
                "seconds": self.seconds}

    def _sum(self, name: str) -> float:
        return sum((s.scalars[name] for s in self.steps), self.before["scalars"].get(name, 0))

    def _own_samples(self) -> int:
        return sum((s.own_samples for s in self.steps), int(self.before["own_samples"]))

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last update, or NaN without steps."""
        return self.steps[-1].learning_rate if self.steps else math.nan

    @property
    def samples(self) -> int:
        """The number of samples in all its steps."""
        return sum((s.samples for s in self.steps), int(self.before["samples"]))

    def mean(self, name: str) -> float:
        """Returns the mean of a scalar over the steps, or NaN without steps, like a step's mean over nothing."""
        return _quotient(self._sum(name), self.before["steps"] + len(self.steps))

    def share(self, name: str) -> float:
        """Returns a count divided by the number of samples that it covers, or NaN without samples."""
        return _quotient(self._sum(name), self._own_samples())


def _quotient(total: float, count: int) -> float:
    return total / count if count else math.nan


class Hooks:
    """The hooks of one run."""

    def __init__(self, job: _Job, hooks: Sequence[Any], epoch_steps: int | None) -> None:
        if callable(hooks) or not isinstance(hooks, (list, tuple)):
            refuse(f"hooks must be a list, got {kind_of(hooks)}")
        for hook in hooks:
            if isinstance(hook, type):
                refuse(f"hooks: {hook.__name__} is a class; give an object of it, {hook.__name__}(…)")
            if not callable(hook) and not any(hasattr(hook, moment) for moment in MOMENTS):
                refuse(f"hooks: {hook!r} has none of the methods {', '.join(MOMENTS)}, and is not a function of (job, step)")
            for moment, inputs in MOMENTS.items():
                if hasattr(hook, moment):
                    check_takes(f"hooks: {type(hook).__name__}.{moment}", getattr(hook, moment), *inputs)
            if not hasattr(hook, "on_step") and callable(hook):
                check_takes(f"hooks: {getattr(hook, '__name__', type(hook).__name__)}", hook, *MOMENTS["on_step"])
        if epoch_steps is not None and epoch_steps < 1:
            refuse(f"epoch_steps must be >= 1, got {epoch_steps}")
        self.job = job
        self.hooks = hooks
        self.has_epochs = any(hasattr(hook, "on_epoch") for hook in hooks)
        self.epoch_steps = epoch_steps or job.data.steps_per_epoch(job.layout.pipelines) or sys.maxsize
        self._epoch: Epoch | None = None
        self._unfinished: Epoch | None = None  # the last epoch of a run that ended within it
        self._resumed: Mapping[str, Any] = {}  # the sums of the epoch that a checkpoint was saved in

    def saved(self) -> dict[str, Any]:
        """Returns the sums of the current epoch for a checkpoint, or {}. Pipelines that average weights have their own
        steps, so theirs aren't saved."""
        epoch = self._epoch or self._unfinished
        if not epoch or self.job.averages:
            return {}
        sums = epoch.sums()
        return {**sums, "scalars": list(sums["scalars"].items()), "number": epoch.number, "epoch_steps": self.epoch_steps}

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continues the epoch that a checkpoint was saved in, if epochs have the same length."""
        if saved.get("epoch_steps") == self.epoch_steps:
            self._resumed = {**saved, "scalars": dict(saved["scalars"])}

    def drain(self, given: int | None) -> int:
        """Returns the steps between two drains: `given`, or by default an epoch if a hook has on_epoch, else 0."""
        return given if given is not None else self.epoch_steps if self.has_epochs else 0

    @contextlib.contextmanager
    def of_run(self) -> Iterator[None]:
        """Surrounds the steps of a run with on_start and on_end."""
        try:
            self._call("on_start")
            yield
        except BaseException:
            with contextlib.suppress(OSError):  # for example a full disk, which was already reported
                self._call("on_end")
            raise
        self._call("on_end")

    def step(self, step: Step, until: int, drain: int) -> None:
        """Calls the hooks after a step.

        until: the step at which the run ends.
        drain: steps between two drains, 0: only at the end.
        """
        for hook in self.hooks:
            getattr(hook, "on_step", hook if callable(hook) else lambda *_: None)(self.job, step)
        if not self.has_epochs:
            return
        averages = self.job.averages
        self._epoch = epoch = self._epoch or self._begun(step.index // self.epoch_steps)
        epoch.steps.append(step)
        done = self.job.step if averages else step.index + 1  # a pipeline that averages has its own number of steps
        over = done >= until
        if (step.last or not averages) and (done % self.epoch_steps == 0 or over):
            epoch.end()
            epoch.drained = not self.job.job.asynchronous or over or (drain > 0 and done % drain == 0)
            self._call("on_epoch", epoch)
            self._epoch, self._unfinished = None, epoch if done % self.epoch_steps else None

    def _begun(self, number: int) -> Epoch:
        before, self._resumed, self._unfinished = self._resumed, {}, None
        return Epoch(number, (), before if before.get("number") == number else None)

    def _call(self, moment: str, *more: Any) -> None:
        for hook in self.hooks:
            if hasattr(hook, moment):
                getattr(hook, moment)(self.job, *more)


class EarlyStopping:
    """Ends a training when a measure has not improved for `patience` epochs in a row (Executor.stop).

    measure: a function of (job, epoch) that returns a number, the same in every worker, such as
    lambda job, epoch: job.evaluate(held_out)["loss"]. Every worker calls it after each epoch. A NaN is no improvement.
    mode: "min" or "max".
    least: the least change that counts as an improvement.
    on_best: a function of job that every worker calls after each improvement, such as
    lambda job: job.save("model", fetches={"price": price}).

    `best` is the best measure so far, and `best_epoch` its epoch. A resumed run starts them anew.
    """

    def __init__(self, measure: Callable[[Any, Epoch], float], patience: int = 5, mode: str = "min", least: float = 0.0,
                 on_best: Callable[[Any], Any] | None = None) -> None:
        check_takes("EarlyStopping: measure", measure, "job", "epoch")
        if on_best is not None:
            check_takes("EarlyStopping: on_best", on_best, "job")
        if mode not in ("min", "max") or not is_whole(patience, 1) or not least >= 0:
            refuse("EarlyStopping: mode must be min or max, patience a whole number >= 1 and least >= 0, got "
                   f"mode={mode!r}, patience={patience!r}, least={least!r}")
        self.measure, self.patience, self.mode, self.least, self.on_best = measure, patience, mode, least, on_best
        self.best, self.best_epoch, self.epochs_without = math.nan, -1, 0

    def on_epoch(self, job: _Job, epoch: Epoch) -> None:
        found = self.measure(job, epoch)
        if isinstance(found, bool) or not isinstance(found, numbers.Real):
            refuse(f"EarlyStopping: measure must return a number, got {kind_of(found)}")
        gain = (self.best - float(found)) * (1 if self.mode == "min" else -1)
        if gain > self.least or (math.isnan(self.best) and not math.isnan(float(found))):
            self.best, self.best_epoch, self.epochs_without = float(found), epoch.number, 0
            if self.on_best is not None:
                self.on_best(job)
            return
        self.epochs_without += 1
        if self.epochs_without >= self.patience:
            if job.is_chief:
                print(f"EarlyStopping: no improvement in {self.patience} epochs; the best measure is {self.best:.6g}, after "
                      f"epoch {self.best_epoch}", flush=True)
            job.stop()


class Log:
    """Writes a record per step to a file, by the chief: JSON lines, or CSV if its name ends in .csv. After a resume, the
    file contains each step once. `goes_on` continues an existing file, also from step 0."""

    def __init__(self, path: str, goes_on: bool = False, called: str = "log ") -> None:
        self.path, self.goes_on, self.called = path and path_of(path), goes_on, called
        self.records: Records | None = None

    def on_start(self, job: _Job) -> None:
        if job.is_chief:
            self.records = Records(self.path, self.goes_on or job.step > 0, self.called)

    def on_step(self, job: _Job, step: Step) -> None:
        if job.is_chief:  # the previous chief may have died with its pipeline
            self.records = self.records or Records(self.path, True, self.called)
            self.records.write(step)

    def on_end(self, job: _Job) -> None:
        if self.records:
            self.records.close()
        self.records = None


class TensorBoard:
    """Writes scalars for TensorBoard to a folder, by the chief. After every `every` steps (0: never) and after step `last`,
    it writes loss, rate, gradient norm and samples per second as Step/…. After an epoch it writes the epoch's `scalars`.

    A run that continues removes the points that it will write again; epochs then have `epoch_steps` steps. `goes_on`
    continues an existing folder, also from step 0.
    """

    def __init__(self, folder: str | Path, every: int = 10, last: int = 0, epoch_steps: int = 0,
                 goes_on: bool = False) -> None:
        self.folder, self.every, self.last, self.goes_on = Path(path_of(folder)), every, last, goes_on
        self.epoch_steps = epoch_steps
        self.events: Events | None = None
        self.fresh = True

    def on_start(self, job: _Job) -> None:
        self.fresh = True
        self.epoch_steps = self.epoch_steps or job.data.steps_per_epoch(job.layout.pipelines) or 1
        if job.is_chief:
            self._open()

    def _open(self) -> Events:
        self.events = Events(self.folder)
        self.course = Course(self.events, self.every, self.last)
        return self.events

    def on_step(self, job: _Job, step: Step) -> None:
        if not job.is_chief:
            return
        goes_on = self.goes_on or not self.events or step.index > 0
        self.events = self.events or self._open()
        if self.fresh and goes_on:
            take_back(self.folder, lambda number, tag: step.index < (
                number if tag.startswith("Step/") else (number + 1) * self.epoch_steps))
        self.fresh = False
        self.course.add(step)

    def on_epoch(self, job: _Job, epoch: Epoch) -> None:
        if self.events and epoch.scalars:
            self.events.add(epoch.number, epoch.scalars)

    def on_end(self, job: _Job) -> None:
        if self.events:
            self.events.close()
        self.events = None


class Progress:
    """Shows a bar on a terminal, or prints a line every 10 s elsewhere, by the chief.

    total: the number of steps (0: unknown).
    tokens: tokens per sample.
    says_batch: first prints a line with the global batch on standard error.
    """

    def __init__(self, total: int = 0, tokens: int = 0, says_batch: bool = True) -> None:
        self.total, self.tokens, self.says_batch = total, tokens, says_batch
        self.reporter: Reporter | None = None

    def on_step(self, job: _Job, step: Step) -> None:
        if job.is_chief:
            self.reporter = self.reporter or Reporter(self.total)
            rate = {"tokens_per_s": step.samples_per_s * self.tokens} if self.tokens else {}
            done = min(step.done, self.total or step.done)
            label = {"meaningless": step.meaningless} if step.meaningless else None
            self.reporter.update(done, loss=step.loss, samples_per_s=step.samples_per_s, **rate, extra=label)

    def on_start(self, job: _Job) -> None:
        if job.is_chief:
            if self.says_batch:
                print(job.describe_batch(), file=sys.stderr, flush=True)
            self.reporter = Reporter(self.total)

    def on_end(self, job: _Job) -> None:
        if self.reporter:
            self.reporter.close()
        self.reporter = None


__all__ = ["EarlyStopping", "Epoch", "Log", "Progress", "TensorBoard"]

keywords.check_module(__name__, "hetu.hooks")
globals()["__getattr__"] = missing_from(__name__)  # assigned, not defined: otherwise mypy would accept any name
