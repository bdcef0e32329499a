"""One worker of a job: its compiled stages, its loaders and its position in the data."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from hetu import _hetu
from hetu.data import Data
from hetu.job.bad_rows import words_for
from hetu.job.job_spec import JobSpec
from hetu.job.step import Step
from hetu.place import placed
from hetu.process import leave


def is_first_worker(transport: Any) -> bool:
    """Returns true in worker 0 of the job, before its stages are compiled. `transport` is None in heturun's check before the
    start."""
    env = _hetu.env()
    return transport is not None and transport.worker == 0 and (env["pipelines"] == 1 or env["worker"] == 0)


class Worker:
    """The state of one worker. Creating it is collective: every worker of the job does it."""

    def __init__(self, spec: JobSpec, transport: Any) -> None:
        self.spec = spec
        self.transport = transport
        self.job: Any = _hetu.Job(spec.graph, spec.optimizer.settings(), spec.options, transport)
        self.current_run = ""  # the call of a run that has not ended
        self.stepper = threading.get_ident()  # the thread that makes steps
        self.is_training = self.in_hooks = self.is_stopped = False
        self.asks_to_stop = False  # the script or a hook called Executor.stop()
        leave.join(self)
        pipelines, data = spec.layout.pipelines, spec.data
        self.reading_pipelines = list(range(pipelines))  # the living pipelines, which divide the rows
        self.single = _hetu.CompareSingle(self.job) if spec.compares else None
        fields = self.single.fields if self.single else []
        self.readers: Any = self.job.readers(fields)
        reads = spec.graph.fields_of([], True)
        together = self.readers.open(self.averages, spec.compares, reads)
        self.loader = self.open_loader(data, together, (pipelines, self.job.pipeline), reads)
        # By pipeline, for compare_single: one process does the same steps.
        self.loaders_of_all = [
            data.loader(pipelines, d, fields, self.readers.single(together, d)) for d in range(pipelines) if fields
        ]

    @property
    def is_chief(self) -> bool:
        """True in the worker that prints."""
        return bool(self.transport.worker == 0 and self.job.in_first_pipeline)

    @property
    def averages(self) -> bool:
        """True if pipelines average weights, each at its own pace."""
        return bool(self.job.averages)

    @property
    def step(self) -> int:
        """The number of steps done, over all runs of this training."""
        return int(self.job.step)

    # ---- data ----

    def open_loader(self, data: Data, together: Any, share: tuple[int, int], reads: list[str]) -> Any:
        """Returns this worker's loader, or None if it reads nothing. All workers open their loaders together.

        share: the number of pipelines that divide the rows, and the number of this one.
        """
        fields = [name for name in self.job.fields if name in reads]
        return data._divided(self.spec.shares).loader(*share, fields, together) if fields else None

    def position(self) -> dict[str, Any]:
        """Returns the position in the data, for checkpoints. It is the same in all workers that read."""
        return dict(self.loader.position()) if self.loader else {}

    def words_of_step(self) -> Callable[[str], str]:
        """Returns a function that adds rows of the data to the error of the next step, if each step ends with an update."""
        if self.job.asynchronous or not self.loader:
            return str
        place = self.position()
        return words_for(self.spec.data, self.loader.global_batch, place["epoch"], place["index"])

    def seek(self, position: dict[str, Any]) -> None:
        """Continues reading from a saved position."""
        for loader in [self.loader, *self.loaders_of_all]:
            if loader:
                loader.seek(position)

    def divide_rows(self) -> None:
        """Distributes the rows of dead pipelines among the living ones, beginning with the first epoch that no pipeline has
        begun."""
        if self.job.living == self.reading_pipelines:
            return
        epochs = self.job.exchange(str(self.position().get("epoch", 0)))
        self.reading_pipelines = sorted(epochs)
        if self.loader:
            own = self.reading_pipelines.index(self.job.pipeline)
            self.loader.divide(1 + max(map(int, epochs.values())), len(self.reading_pipelines), own)

    # ---- runs ----

    def compute(self, function: Callable[[Any], Any], loader: Any, words: Callable[[str], str] = str
                ) -> tuple[dict[str, Any], float] | None:
        """Calls a function of the job that computes one step. Returns its result and its seconds, or None after the last
        step. Errors begin with the line of the user's script, and `words` completes them."""
        self.stepper = threading.get_ident()
        start = time.monotonic()
        with placed():
            try:
                result = function(loader)
            except ValueError as error:
                if (text := words(str(error))) == str(error):
                    raise
                raise ValueError(text) from None
        return None if result is None else (result, time.monotonic() - start)

    def samples_of(self, result: dict[str, Any]) -> int:
        """Returns the number of samples in a step."""
        return int(result["rows"] or self.spec.data.batch_size * result["batches"])

    def named_run(self, called: str, steps: Iterator[Step]) -> Generator[Step, None, None]:
        """Yields the steps of a run. Until the last step, the run counts as unfinished."""
        self.current_run = called
        yield from steps
        self.current_run = ""  # stays set if a script breaks out of its loop

    def unfinished(self) -> str:
        """Returns a description of the run that the script leaves unfinished if it ends at this point, or ""."""
        run = self.current_run
        return f"its script ended in the middle of {run}, after {self.step} steps" if run else ""

    def release(self) -> None:
        """Releases memory, loaders and their threads, and objects that refer to the links."""
        self.loader, self.loaders_of_all, self.readers, self.single = None, [], None, None
        self.job, self.current_run = leave.Left(self.job), ""

    def describe(self) -> str:
        """Returns one line: method, grid, blocks of the model per stage, micro-batches, memory of this worker."""
        spec, job = self.spec, self.job
        cut = spec.cuts.describe(job, spec.graph.blocks)
        label = f"meaningless ({spec.meaningless}): " if spec.meaningless else ""
        micros = " + ".join(map(str, spec.options.shares or [spec.options.micro_batches]))
        return (
            f"{label}{spec.options.method}, {spec.layout.describe()}{cut}, {micros} micro-batches; "
            f"worker {self.transport.worker} (pipeline {job.pipeline}, stage {job.stage}): {job.memory}"
        )
