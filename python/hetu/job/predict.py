"""Runs of an Executor without training: predictions for a whole data set, and evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetu.arithmetic import kind_of
from hetu.data import Batches, Data
from hetu.graph import Value, current
from hetu.job.step import Reported
from hetu.place import check_takes, path_of
from hetu.process import stop
from hetu.rows import as_array

if TYPE_CHECKING:
    import numpy

    from hetu.devices import Layout
    from hetu.job.draws import Draws
    from hetu.job.fetches import Fetches
    from hetu.job.step import Step

    Rows = Data | Mapping[str, numpy.ndarray]
    Metric = Callable[..., float] | str | tuple[str, str]


class Predicting:
    """The part of Executor that runs only forwards. Collective: every worker calls these methods, and every worker has the
    results."""

    job: Any
    data: Data
    graph: Any
    readers: Any
    draws: Draws
    layout: Layout
    fetches: Fetches
    trains_now: bool
    in_hooks: bool
    stopped: bool
    _step: Callable[..., Step | None]

    def predict(
        self, data: Rows | None = None, run: str | None = None, fetches: Sequence[Value | str] | None = None
    ) -> numpy.ndarray | dict[str, numpy.ndarray]:
        """Returns the values of every sample of `data`, in its order. The last batch may be short. The result is an array
        for one value, else a dict from name to array. Only the fields that the values need are read.

        data: an object of hetu.data, or arrays by field; the training data by default.
        run: a list of the Executor. Default: the list called "predict", or the only list with such values that does not
        train.
        fetches: some of the list's values.
        """
        run, names = self._predicted("predict", run, fetches)
        found = self._arrays(names, list(self._forward(run, names, self._data_of(data), None)))
        return found[names[0]] if len(names) == 1 else Reported(found, "job.predict returned")

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
        if metrics is not None and not isinstance(metrics, Mapping):
            current().refuse("evaluate: metrics must be a dict by name, such as {'accuracy': 'hits'}, got "
                             f"{kind_of(metrics)}")
        metrics = dict(metrics or {})
        run = self._run_of("evaluate", run, ("evaluate", "validate"), list(self.fetches.names))
        arrays = [name for name in self.fetches.names[run] if name in self.fetches.per_sample]
        scalars = [name for name in self.fetches.names[run] if name not in self.fetches.per_sample]
        if not any(callable(metric) for metric in metrics.values()):
            arrays = []
        counts = {name: count for name, count in self.fetches.counts.items() if name in scalars}
        wanted = list(dict.fromkeys([*scalars, *counts.values(), *arrays]))
        if not wanted:
            current().refuse(f"evaluate: run '{run}' has no scalar; give metrics= that use its values per sample")
        for name, metric in metrics.items():
            if callable(metric):
                check_takes(f"evaluate: metric '{name}'", metric, *arrays)
            for part in () if callable(metric) else (metric,) if isinstance(metric, str) else metric:
                self._known(f"evaluate: metric '{name}'", part, scalars)
        steps = list(self._forward(run, wanted, self._data_of(data), None, stops=True))
        per_sample = [self._arrays([name], steps)[name] for name in arrays]
        found = {name: self._over(name, counts.get(name), steps) for name in scalars if name in steps[0].scalars}
        for name, metric in metrics.items():
            if callable(metric):
                measured = metric(*per_sample)
                try:
                    found[name] = float(measured)
                except (TypeError, ValueError):
                    current().refuse(f"evaluate: metric '{name}' must return a number, got "
                                     f"{kind_of(measured).split(',')[0]}")
            else:
                above, below = (metric, None) if isinstance(metric, str) else metric
                found[name] = _quotient(_sum(above, steps), _sum(below, steps) if below else sum(s.samples for s in steps))
        return found

    def save(self, folder: str, run: str | None = None, fetches: Sequence[Value | str] | None = None) -> None:
        """Saves a model for prediction, the graph of these values and its weights, to a folder for hetu.load. A single
        process can run it without the script.

        The arguments select the same values as in predict(). Collective: every worker calls it and must have access to the
        folder. The model in the folder is replaced, whatever its step: a kill at any moment leaves either the old or the
        new model. Throws ValueError for a folder with checkpoints of a training.
        """
        _, names = self._predicted("save", run, fetches)
        self.job.save_model(path_of(folder), names)

    def _predicted(self, what: str, run: str | None, fetches: Sequence[Value | str] | None) -> tuple[str, list[str]]:
        """Returns the run for predictions, and the names of its selected values with a batch axis."""
        candidates = [name for name, names in self.fetches.names.items() if self.fetches.per_sample.intersection(names)]
        run = self._run_of(what, run, ("predict",), candidates)
        names = [name for name in self.fetches.names[run] if name in self.fetches.per_sample]
        if fetches is not None:
            names = [self._known(f"{what}: run '{run}'", value, names) for value in fetches]
        if not names:
            current().refuse(f"{what}: run '{run}' has no value with a batch axis")
        return run, names

    def _over(self, name: str, count: str | None, steps: list[Step]) -> float:
        """Returns a scalar combined over all steps."""
        if not self.graph.counts_of(name):
            return _sum(name, steps)
        weights = [step.scalars[count] if count else step.samples for step in steps]
        # The mean of a batch without elements is NaN. It must not affect the other batches.
        weighted = [(step.scalars[name], weight) for step, weight in zip(steps, weights, strict=True) if weight != 0]
        return _quotient(sum(value * weight for value, weight in weighted), sum(weights))

    def _run_of(self, what: str, run: str | None, preferred: tuple[str, ...], candidates: list[str]) -> str:
        """Returns the run that is named, or the default one."""
        still = [name for name in candidates if not self.fetches.trains[name]]
        if run is None:
            run = next((name for name in preferred if name in still), still[0] if len(still) == 1 else None)
        if run is None:
            current().refuse(f"{what}: choose a list of the Executor with run=; it has "
                             f"{', '.join(self.fetches.trains)}")
        self.fetches.check_run(run)
        if self.fetches.trains[run]:
            current().refuse(f"{what}: run '{run}' trains; choose a list without minimize()")
        return run

    def _known(self, what: str, value: Value | str, names: list[str]) -> str:
        """Returns the name of a value in `names`. Throws ValueError if it is missing."""
        for name in names:
            if isinstance(value, Value):
                same = value.graph is self.fetches.train.graph and value.number == self.fetches.numbers[name]
            else:
                same = value == name
            if same:
                return name
        current().refuse(f"{what} does not report {value!r}; it has: {', '.join(names) or 'nothing'}")

    @staticmethod
    def _arrays(names: list[str], steps: list[Step]) -> dict[str, numpy.ndarray]:
        """Concatenates the arrays of all steps."""
        import numpy  # imported late: NumPy takes half of a worker's start

        return {name: numpy.concatenate([step.samples_of[name] for step in steps]) for name in names}

    def _data_of(self, data: Rows | None) -> Data:
        if data is None:
            return self.data
        if isinstance(data, Data):
            return data
        if not isinstance(data, Mapping):
            current().refuse(f"expected a dict of arrays by field, such as {{'{self.data.fields[0][0]}': rows}}, or a data "
                             f"object of hetu.data; got {kind_of(data).split(',')[0]}")
        data = {name: as_array("arrays", name, array) for name, array in data.items()}
        rows = {name: len(array) if array.ndim else 0 for name, array in data.items()}
        if len(set(rows.values())) != 1 or 0 in rows.values():
            current().refuse(f"the arrays must have the same number of rows, at least one; they have {rows}")
        each = self.data.batch_size * self.layout.pipelines
        count = next(iter(rows.values()))
        items = [{name: array[row:row + each] for name, array in data.items()} for row in range(0, count, each)]
        dtypes = {name: dtype for name, dtype, _ in self.data.fields if name in data}
        return Batches(items, self.data.batch_size, "arrays", dtypes)

    def _forward(self, run: str, names: list[str], data: Data, batches: int | None, stops: bool = False) -> Iterator[Step]:
        """Runs `batches` batches from the start of `data`, or every row once if `batches` is None. Computes only the values
        `names`.

        stops: ends after the batch in which a worker was asked to stop, if a training is running.
        """
        wanted = list(self.graph.fields_of(names))
        self._check_data(run, data, wanted)
        once, pipelines, pipeline = batches is None, self.layout.pipelines, self.job.pipeline
        if self.job.may_lose:  # each pipeline works alone, because any other may die
            data, pipelines, pipeline = data.alone(pipelines), 1, 0
            batches = None if batches is None else batches * self.layout.pipelines
        together = self.readers.open(bool(self.job.may_lose), False, wanted)
        loader = self._loader(data.once() if once else data, together, pipelines, pipeline, wanted)
        self.draws.check(data, loader)
        done = 0
        while batches is None or done < batches:
            asks = stops and self.trains_now and stop.asked()
            step = self._step(run, lambda rows, asks=asks: self.job.validate(rows, names, once, asks), loader, names)
            if step is None:
                break
            done += 1
            yield step
            if stops and self.trains_now and step.stop_asked:
                self.stopped = self.stopped or not self.job.may_lose  # otherwise other pipelines are not informed yet
                if done != batches:
                    self._end_early(run, done)
                    return
        if once and not done:
            current().refuse(f"run '{run}': the data have no rows")

    def _end_early(self, run: str, batches: int) -> None:
        """Ends an evaluation after all workers have agreed. In a hook, the hook ends too, because it expects the results of
        all batches."""
        text = f"Run '{run}' ended after {batches} batches, as asked"
        if self.draws.executor.is_chief:
            print(text if self.in_hooks else f"{text}: its results cover only these batches", flush=True)
        if self.in_hooks:
            raise stop.Stopping(text)

    def _loader(self, data: Data, together: Any, pipelines: int, pipeline: int, reads: list[str]) -> Any:
        """Returns this worker's loader, or None if it reads nothing. All workers open their loaders together."""
        fields = [name for name in self.job.fields if name in reads]
        return data.loader(pipelines, pipeline, fields, together) if fields else None

    def _check_data(self, run: str, data: Data, wanted: list[str]) -> None:
        """Throws ValueError for data that the run can't read."""
        given, trained = ({name: (dtype, shape) for name, dtype, shape in d.fields} for d in (data, self.data))
        for name in wanted:
            if name not in given:
                current().refuse(f"run '{run}' reads field '{name}', but the data have only {', '.join(given)}")
            if given[name] != trained[name]:
                current().refuse(f"run '{run}': field '{name}' is {given[name][0]} rows of shape {given[name][1]}, the "
                                 f"graph reads {trained[name][0]} rows of shape {trained[name][1]}")
        if data is not self.data:
            try:
                self.data.check_meaning(data, wanted)
            except ValueError as error:
                current().refuse(f"run '{run}': {error}")
        if data.batch_size != self.data.batch_size:
            current().refuse(f"run '{run}': the data have batches of {data.batch_size} samples, the job needs "
                             f"{self.data.batch_size}")


def _sum(name: str, steps: list[Step]) -> float:
    return sum(step.scalars[name] for step in steps)


def _quotient(total: float, count: float) -> float:
    """Returns total / count, or NaN for a count of 0, like a mean over nothing in a step."""
    return total / count if count != 0 else math.nan
