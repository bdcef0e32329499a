"""Running a graph: in a single process, or by the same script in every worker under `heturun`."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from hetu import keywords
from hetu import options as tables
from hetu.averaging import Averaging, Stragglers
from hetu.data import Data
from hetu.graph import Value
from hetu.job.fetches import check_length, read
from hetu.job.hooks import Hooks
from hetu.job.member import Member, OneMember
from hetu.job.planning import text_of
from hetu.job.setup import KEYWORDS, OWN_KEYWORDS, Arguments, JobSetup
from hetu.job.step import Step, Steps
from hetu.job.table_counters import TableCounters
from hetu.job.thread_workers import ThreadMembers
from hetu.job.training_run import Length, Saves, TrainingRun, table_counters
from hetu.lr import ReduceOnPlateau
from hetu.names import missing_of
from hetu.optim import Train
from hetu.place import placed, refuse

if TYPE_CHECKING:
    import numpy

    from hetu.job.predict import Metric, Rows


class Executor:
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
        **options: Any,
    ) -> None:
        keywords.check_options("hetu.Executor", options, [*OWN_KEYWORDS, *(field.name for field in KEYWORDS)])
        arguments = Arguments(devices, pipeline, micro_batches, replicas, costs, first_blocks, averaging, stragglers,
                              compare_single, options)
        self.fetches = read(fetches)
        setup = JobSetup(self.fetches, arguments)
        self.spec, self.device = setup.spec, setup.device
        self._members: OneMember | ThreadMembers = (
            ThreadMembers(self.spec, setup.links) if setup.links else OneMember(self.spec, setup.transport))
        self._worker = self._members.first.worker

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            missing_of("Executor", name, dir(type(self)))

    def __setattr__(self, name: str, value: Any) -> None:
        if "_worker" in self.__dict__ and not isinstance(getattr(type(self), name, None), property):
            hint = ("give the optimizer a rate of hetu.lr, such as hetu.lr.Custom(function)"
                    if name in ("learning_rate", "lr") else "give it to the constructor, or set it on an object of your own")
            refuse(f"Executor.{name} can't be set, because an Executor reads its arguments only once; {hint}")
        super().__setattr__(name, value)

    # ---- the job ----

    @property
    def train_handle(self) -> Train:
        """The minimize() handle among the fetches."""
        return self.fetches.train

    @property
    def graph(self) -> Any:
        """The finished graph."""
        return self.spec.graph

    @property
    def data(self) -> Data:
        """The data object that the graph reads."""
        return self.spec.data

    @property
    def layout(self) -> Any:
        """The grid of workers: pipelines, stages and hosts."""
        return self.spec.layout

    @property
    def method(self) -> str:
        """The name of the pipeline method, file or function."""
        return str(self.spec.options.method)

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches per pipeline and step; with `shares`, the number that they replace."""
        return int(self.spec.options.micro_batches)

    @property
    def seed(self) -> int:
        """The seed of initial weights, dropout and the like."""
        return self.spec.seed

    @property
    def plateau(self) -> ReduceOnPlateau | None:
        """The learning rate if it follows a measure, else None."""
        return self.spec.plateau

    @property
    def global_batch(self) -> int:
        """The number of samples per step in all pipelines together."""
        return self.spec.global_batch

    # ---- this worker ----

    @property
    def job(self) -> Any:
        """The compiled part of this worker, a _hetu.Job."""
        return self._worker.job

    @property
    def transport(self) -> Any:
        """This worker's links to the other workers."""
        return self._worker.transport

    @property
    def loader(self) -> Any:
        """This worker's loader of the training data, or None if the worker reads nothing."""
        return self._worker.loader

    @property
    def is_chief(self) -> bool:
        """True in the worker that prints: worker 0, or in a job that continues without a dead pipeline, the first worker of
        the first living pipeline."""
        return self._worker.is_chief

    @property
    def averages(self) -> bool:
        """True if pipelines average weights, each at its own pace."""
        return self._worker.averages

    @property
    def step(self) -> int:
        """The number of steps done, over all runs of this training."""
        return self._worker.step

    @property
    def table_counters(self) -> dict[str, TableCounters]:
        """The counters of this worker's cache, for each table on parameter servers that it reads."""
        return table_counters(self.job)

    def describe(self) -> str:
        """Returns one line: method, grid, blocks of the model per stage, micro-batches, memory of this worker."""
        return self._worker.describe()

    def describe_batch(self) -> str:
        """Returns one line: the samples per step, and their division into pipelines and micro-batches."""
        return self.spec.describe_batch(self.averages)

    def __repr__(self) -> str:
        made = "_worker" in self.__dict__
        return f"<hetu.Executor: {self.describe()}; step {self.step}>" if made else "<hetu.Executor>"

    # ---- runs ----

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

        steps: in a training, the number of further steps (default 1), counted from its present step or, with `resume`, from
        the loaded step. In a validation, the number of batches (default 1) from the start of `data`.
        until: in a training, the number of steps in all, counted from step 0 also after a resume. No steps are left if it
        is already reached.
        checkpoint, every, keep, resume: the folder for checkpoints, the steps between two of them (0: only at the end), the
        number of newest checkpoints to keep, and True to continue from the newest one.
        trace: a file for the measured events, next to the plan's prediction from the measured times.
        data: of a validation; by default that of the training.
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
            called = f"job.run({name!r}, {check_length(steps, until)})"
            own_hooks, no_hooks = Hooks(self, hooks, epoch_steps), Hooks(self, (), epoch_steps)
        length = Length(steps, until, own_hooks.drain(drain))
        saves = Saves(text_of(checkpoint), every, keep, resume)

        def of_member(member: Member) -> Generator[Step, None, None]:
            if self.fetches.trains[name]:
                own = own_hooks if member is self._members.first else no_hooks
                made = TrainingRun(member.worker, member.comparison, name).steps(length, saves, text_of(trace), own)
            else:
                made = member.prediction.forward(name, self.fetches.names[name], data or self.data, steps or 1, stops=True)
            return member.worker.named_run(called, made)

        return Steps(self._members.steps(of_member), called, self.is_chief)

    def stop(self) -> None:
        """Ends the training that runs, in all workers, after one more step. It then saves if it has a checkpoint folder.
        Call it in a hook or in the loop; one worker suffices. Throws ValueError if no training runs."""
        if not self._worker.is_training:
            refuse("job.stop(): no training runs; call it in a hook or in the loop over job.run(…)")
        self._worker.asks_to_stop = True

    def predict(
        self, data: Rows | None = None, run: str | None = None, fetches: Sequence[Value | str] | None = None
    ) -> numpy.ndarray | dict[str, numpy.ndarray]:
        """Returns the values of every sample of `data`, in its order. The last batch may be short. The result is an array
        for one value, else a dict from name to array. Only the fields that the values need are read.

        data: an object of hetu.data, or arrays by field; the training data by default.
        run: a list of the Executor. Default: a list that has all of `fetches`. Without `fetches`, the list called
        "predict", or the only list with such values that does not train.
        fetches: some of the list's values.
        """
        with placed():
            return self._members.call(lambda member: member.prediction.predict(data, run, fetches))

    def evaluate(
        self, data: Rows | None = None, run: str | None = None, metrics: Mapping[str, Metric] | None = None
    ) -> dict[str, float]:
        """Returns the scalars of a run over all of `data`, and metrics of its values per sample.

        A scalar that is a mean over a count of the step (a loss) becomes the mean over that count in all of the data. A
        mean over several counts becomes the mean of the batches, weighted by their samples. Any other scalar becomes the
        sum. A batch whose count is 0 does not change a mean; if all counts are 0, the mean is NaN.
        metrics: name -> a function of the run's arrays per sample, in the order of its list ({"evaluate": [logits,
        data.y]}, metrics={"auc": hetu.metrics.auc}); or the name of a sum, which is divided by the number of samples; or
        the names of two sums, the first of which is divided by the second.
        data: as in predict().
        run: a list of the Executor. Default: the list called "evaluate" or "validate", or the only list that does not
        train.
        """
        with placed():
            return self._members.call(lambda member: member.prediction.evaluate(data, run, metrics))

    def save(self, folder: str, run: str | None = None,
             fetches: Sequence[Value | str] | Mapping[str, Value | str] | None = None) -> None:
        """Saves a model for prediction, the graph of these values and its weights, to a folder for hetu.load. A single
        process can run it without the script.

        The arguments select the same values as in predict(). The model returns each value under its name in the graph, or
        under the name that a dict gives it: fetches={"logits": logits}. Collective: every worker calls it and must have
        access to the folder. The model in the folder is replaced, whatever its step: a kill at any moment leaves either the
        old or the new model. Throws OSError for a folder with checkpoints of a training.
        """
        with placed():
            self._members.call(lambda member: member.prediction.save(folder, run, fetches))

    # ---- weights ----

    def weights(self, names: Sequence[str] | None = None, own: bool = False) -> dict[str, numpy.ndarray]:
        """Returns the weights and buffers (running statistics) of the whole model by name, as float32 copies.

        names: the tensors to return; by default all.
        own: returns only the tensors of this worker's stages, without communication.
        The values are those that a checkpoint at this moment would contain. Collective: every worker calls it, after the
        same step and with the same names, and receives the weights of all stages. A call in only one worker waits for the
        others until the job's timeout.
        Inside a loop over run(), it works for methods that update at the end of each step. For a method without a flush
        (pipedream), call it between runs or after a drain. Tables on parameter servers are not included.
        """
        return self._members.call(lambda member: member.access.weights(names, own))

    def gradients(self, names: Sequence[str] | None = None, own: bool = False) -> dict[str, numpy.ndarray]:
        """Returns the gradients of the last step by name, summed over its micro-batches and pipelines, before clipping.
        Arguments and conditions are those of `weights`. For a method that updates within a step, the gradients are those of
        the last update."""
        return self._members.call(lambda member: member.access.gradients(names, own))

    def gradient_norms(self) -> dict[str, float]:
        """Returns the Euclidean norm of each parameter's gradient (see `gradients`). Collective: every worker calls it.
        Only norms are sent."""
        return self._members.call(lambda member: member.access.gradient_norms())

    def set_weights(self, values: Mapping[str, Any]) -> None:
        """Replaces weights and buffers by arrays, by name. Other tensors, optimizer states and the step stay unchanged.
        Collective: every worker calls it with the same arrays, whatever its stages hold. Throws ValueError, before anything
        has changed, for an unknown name, another shape, or different values on the workers."""
        self._members.call(lambda member: member.access.set_weights(values))

    # ---- position in the data ----

    def position(self) -> dict[str, Any]:
        """Returns the position in the data, for checkpoints. It is the same in all workers that read."""
        return self._worker.position()

    def seek(self, position: dict[str, Any]) -> None:
        """Continues reading from a saved position."""
        self._worker.seek(position)


tables.sign(Executor, KEYWORDS)
keywords.check_methods(Executor, "hetu.Executor")
