"""Runs of an Executor without training: predictions for a whole data set, and evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from hetu.arithmetic import kind_of
from hetu.data import Batches, Data
from hetu.graph import Value, current
from hetu.job.bad_rows import words_for
from hetu.job.row_comparison import RowComparison
from hetu.job.step import Reported, Step, step_of
from hetu.job.worker import Worker
from hetu.place import check_takes, path_of
from hetu.predictor import output_names
from hetu.process import faults, stop, watch
from hetu.rows import as_array

if TYPE_CHECKING:
    import numpy

    Rows = Data | Mapping[str, numpy.ndarray]
    Metric = Callable[..., float] | str | tuple[str, str]


class Prediction:
    """The runs of a worker that compute only forwards. Collective: every worker calls these methods, and every worker has
    the results."""

    def __init__(self, worker: Worker, comparison: RowComparison) -> None:
        self.worker, self.comparison = worker, comparison
        self.data, self.fetches = worker.spec.data, worker.spec.fetches

    def predict(self, data: Rows | None, run: str | None, fetches: Sequence[Value | str] | None
                ) -> numpy.ndarray | dict[str, numpy.ndarray]:
        """Implements Executor.predict()."""
        run, names = self._predicted("predict", run, fetches)
        found = self._arrays(names, list(self.forward(run, names, self._data_of(data), None)))
        return found[names[0]] if len(names) == 1 else Reported(found, "job.predict returned")

    def evaluate(self, data: Rows | None, run: str | None, metrics: Mapping[str, Metric] | None) -> dict[str, float]:
        """Implements Executor.evaluate()."""
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
                if not self._find(part, scalars):
                    current().refuse(f"evaluate: metric '{name}' is made of {part!r}, which is not a scalar of the list "
                                     f"'{run}'; its scalars are {', '.join(scalars) or 'none'}. Add the value to that list")
        steps = list(self.forward(run, wanted, self._data_of(data), None, stops=True))
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

    def save(self, folder: str, run: str | None,
             fetches: Sequence[Value | str] | Mapping[str, Value | str] | None) -> None:
        """Implements Executor.save()."""
        outputs: list[str] = []
        if isinstance(fetches, Mapping):
            outputs, fetches = output_names("save: fetches", fetches), list(fetches.values())
        _, names = self._predicted("save", run, fetches)
        self.worker.job.save_model(path_of(folder), names, outputs)

    def _predicted(self, what: str, run: str | None, fetches: Sequence[Value | str] | None) -> tuple[str, list[str]]:
        """Returns the run for predictions, and the names of its selected values with a batch axis."""
        lists = {name: [value for value in names if value in self.fetches.per_sample]
                 for name, names in self.fetches.names.items() if not self.fetches.trains[name]}
        if fetches is None:
            run = self._run_of(what, run, ("predict",), [name for name, names in lists.items() if names])
            if not lists[run]:
                current().refuse(f"{what}: run '{run}' has no value with a batch axis")
            return run, lists[run]
        if isinstance(fetches, (Value, str)) or not fetches:
            current().refuse(f"{what}: fetches must be a list of values, such as [logits], got {fetches!r}")
        fitting = [name for name, names in lists.items() if all(self._find(value, names) for value in fetches)]
        if run is None and fitting:
            run = "predict" if "predict" in fitting else fitting[0]
        if run not in fitting:
            self._refuse_fetches(what, run, fetches, lists)
        return run, [self._find(value, lists[run]) for value in fetches]

    def _refuse_fetches(self, what: str, run: str | None, fetches: Sequence[Value | str], lists: dict[str, list[str]]
                        ) -> NoReturn:
        """Throws ValueError for values that `run` (None: no single list) doesn't report per sample."""
        if run is not None:
            self._run_of(what, run, (), [])
        for value in fetches:
            if isinstance(value, Value) and value.graph is not self.fetches.train.graph:
                current().refuse(f"{what}: {value!r} belongs to another graph than the trained one")
        names = [value.name if isinstance(value, Value) else str(value) for value in fetches]
        if lost := [name for name, value in zip(names, fetches, strict=True)
                    if not any(self._find(value, list_) for list_ in lists.values())]:
            scalar = any(self._find(value, [name]) for value in fetches for name in self.fetches.numbers
                         if name in lost and name not in self.fetches.per_sample)
            if scalar:
                current().refuse(f"{what}: '{lost[0]}' has no batch axis, so it has no value per sample")
            current().refuse(f"{what}: '{lost[0]}' is in no list of the Executor that predicts; add a list without "
                             f"minimize(), such as \"predict\": [{lost[0].rpartition('/')[2]}]")
        if run is None:
            current().refuse(f"{what}: no list of the Executor has all of {', '.join(names)}; add one that has")
        missing = next(name for name, value in zip(names, fetches, strict=True) if not self._find(value, lists[run]))
        other = next(name for name, list_ in lists.items() if missing in list_)
        current().refuse(f"{what}: '{missing}' is not in the list '{run}', but in '{other}'; leave run= out, or name that "
                         "list")

    def _over(self, name: str, count: str | None, steps: list[Step]) -> float:
        """Returns a scalar combined over all steps."""
        if not self.worker.spec.graph.counts_of(name):
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

    def _find(self, value: Value | str, names: list[str]) -> str:
        """Returns the name of a value in `names`, or ""."""
        for name in names:
            if isinstance(value, Value):
                same = value.graph is self.fetches.train.graph and value.number == self.fetches.numbers[name]
            else:
                same = value == name
            if same:
                return name
        return ""

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
        each = self.worker.spec.global_batch
        count = next(iter(rows.values()))
        items = [{name: array[row:row + each] for name, array in data.items()} for row in range(0, count, each)]
        dtypes = {name: dtype for name, dtype, _ in self.data.fields if name in data}
        found = Batches(items, self.data.batch_size, "arrays", dtypes)
        found.are_slices = True
        return found

    def forward(self, run: str, names: list[str], data: Data, batches: int | None, stops: bool = False
                ) -> Generator[Step, None, None]:
        """Runs `batches` batches from the start of `data`, or every row once if `batches` is None. Computes only the values
        `names`.

        stops: ends after the batch in which a worker was asked to stop, if a training is running.
        """
        worker = self.worker  # not its job, which must not outlive hetu.close() in a run that the script keeps
        wanted = list(worker.spec.graph.fields_of(names))
        self._check_data(run, data, wanted)
        once, pipelines, pipeline = batches is None, worker.spec.layout.pipelines, worker.job.pipeline
        if worker.job.may_lose:  # each pipeline works alone, because any other may die
            data, pipelines, pipeline = data.alone(pipelines), 1, 0
            batches = None if batches is None else batches * worker.spec.layout.pipelines
        together = worker.readers.open(bool(worker.job.may_lose), False, wanted)
        read = data.once() if once else data
        loader = worker.open_loader(read, together, (pipelines, pipeline), wanted)
        self.comparison.check(data, loader)
        done = 0
        while batches is None or done < batches:
            asks = stops and worker.is_training and stop.asked()
            with watch.during("evaluates"), faults.during("evaluate"):
                words = words_for(read, loader.global_batch, 0, done * loader.global_batch) if loader else str
                computed = worker.compute(partial(self._validate, names, once, asks), loader, words)
            if computed is None:
                break
            result, seconds = computed
            done += 1
            yield step_of(result, names, seconds, worker.samples_of(result), meaningless=worker.spec.meaningless)
            if stops and worker.is_training and result["stop_asked"]:
                if not worker.job.may_lose:  # otherwise other pipelines are not informed yet
                    worker.is_stopped = True
                if done != batches:
                    self._end_early(run, done)
                    return
        if once and not done:
            current().refuse(f"run '{run}': the data have no rows")

    def _validate(self, names: list[str], once: bool, asks_to_stop: bool, loader: Any) -> Any:
        return self.worker.job.validate(loader, names, once, asks_to_stop)

    def _end_early(self, run: str, batches: int) -> None:
        """Ends an evaluation after all workers have agreed. In a hook, the hook ends too, because it expects the results of
        all batches."""
        text = f"Run '{run}' ended after {batches} batches, as asked"
        if self.worker.is_chief:
            print(text if self.worker.in_hooks else f"{text}: its results cover only these batches", flush=True)
        if self.worker.in_hooks:
            raise stop.Stopping(text)

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
