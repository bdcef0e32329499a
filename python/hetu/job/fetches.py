"""The lists of an Executor: which run trains, and which values each run reports."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from hetu.graph import GraphBuilder, Value, current
from hetu.optim import Train
from hetu.place import is_whole

LOSS = "loss"  # the name of the minimized value in every run


@dataclass
class Fetches:
    """By name of a run: true if it trains, and the names of the values that it reports, in the order of its list."""

    train: Train
    trains: dict[str, bool]
    names: dict[str, list[str]]
    always: list[str] = field(default_factory=list)  # values that every run reports, if possible
    per_sample: set[str] = field(default_factory=set)  # names of the values with a batch axis
    numbers: dict[str, int] = field(default_factory=dict)  # name -> number of the value
    # Name of a mean over a count -> name under which the count is reported.
    counts: dict[str, str] = field(default_factory=dict)

    def check(self, run: str, of_training: dict[str, Any], of_validation: dict[str, Any]) -> None:
        """Checks the arguments of a run. Throws ValueError for arguments that it would ignore, for an unknown run, for an
        invalid `every`, and for `every` or `resume` without a checkpoint folder."""
        self.check_run(run)
        trains = self.trains[run]
        given = [name for name, value in (of_validation if trains else of_training).items() if value]
        if given:
            raise ValueError(f"run '{run}' {'trains' if trains else 'validates'}, so {', '.join(given)} would be ignored")
        if not is_whole(of_training["every"], 0):
            raise ValueError(f"every must be a whole number >= 0, got {of_training['every']!r}")
        if (of_training["every"] or of_training["resume"]) and not of_training["checkpoint"]:
            raise ValueError("every and resume need a checkpoint folder (checkpoint=)")

    def check_run(self, run: str) -> None:
        """Throws ValueError for a name that no list has."""
        if run not in self.trains:
            current().refuse(f"no fetches called '{run}'; there are: {', '.join(self.trains)}")

    def note_count(self, graph: GraphBuilder, name: str, value: Value) -> None:
        """If the value is a scalar that is a mean over one count of the step, also reports the count."""
        sums = graph.builder.reads(value.number)[1]
        if not value.shape and len(sums) == 1 and sums[0] != value.number:
            self.counts[name] = _name_of(graph, name, Value(graph, sums[0]), False)

    def add_common_values(self, graph: Any) -> None:
        """Adds the values that every run reports to runs that don't train, if these read the necessary fields anyway."""
        for run, names in self.names.items():
            if not self.trains[run]:
                fields = set(graph.fields_of(names))
                names += [name for name in self.always if name not in names and fields.issuperset(graph.fields_of([name]))]


def _refuse(run: str, message: str) -> NoReturn:
    """Throws ValueError with the line of the user's script."""
    current().refuse(f"fetches '{run}': {message}")


def _check(graph: GraphBuilder, run: str, value: Value, trains: bool) -> None:
    """Throws an error for a value that a run can't report."""
    name, op = graph.builder.producer_of(value.number)
    what = f"'{name}' is {value.dtype}{value.shape}"
    if trains and (value.shape or value.dtype != "float32"):
        raise NotImplementedError(f"fetches '{run}': {what}, but a run that trains reports only float32 scalars; put it in "
                                  "a list without minimize()")
    if op in ("parameter", "buffer"):
        _refuse(run, f"'{name}' is a {op}; a run reports only values that operators compute from the data")
    if not (value.shape and value.shape[0] < 0) and value.dtype not in ("float32", "int32"):
        _refuse(run, f"{what}; a value without a batch axis is summed over micro-batches, as float32 or int32: cast it")
    if not graph.builder.reads(value.number)[0]:
        _refuse(run, f"{what}, and does not depend on the data")


def check_length(steps: int | None, until: int | None) -> str:
    """Returns the length of a run as text, as it was given. Throws ValueError."""
    given = {name: value for name, value in (("steps", steps), ("until", until)) if value is not None}
    if len(given) > 1:
        raise ValueError(f"steps={steps} counts further steps, until={until} counts all steps; give only one of them")
    for name, value in given.items():
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
    return "".join(f"{name}={value}" for name, value in given.items()) or "steps=1"


def _name_of(graph: GraphBuilder, run: str, value: Value, trains: bool) -> str:
    """Returns the name under which a value of a list is reported: the name that GraphBuilder.fetch was given, or else the
    name of its operator. The minimized value is `loss`, and is also reported under a name that the script gave it."""
    _check(graph, run, value, trains)
    own = graph.name_of(value)
    names = [name for name, known in graph.fetches.items() if known.number == value.number]
    if own in names:
        return own
    if names and (names != [LOSS] or value.number not in graph.named or own in graph.fetches):
        return names[0]
    if own in graph.fetches:
        found = graph.name_of(graph.fetches[own])
        why = (f"'{LOSS}' is the value given to minimize(), the result of '{found}'" if own == LOSS else
               f"another value, the result of '{found}', is reported as '{own}'")
        _refuse(run, f"{why}; give the operator '{own}' of this list another name (name=)")
    graph.fetch(own, value)
    return own


def _train_of(fetches: Mapping[str, Sequence[Value | Train]]) -> Train:
    """Checks the lists, and returns their only minimize() handle. Throws ValueError."""
    if not isinstance(fetches, Mapping) or not fetches:
        current().refuse("Executor: expected a dict of lists of values, such as {'train': [loss, train]}, got "
                         f"{fetches!r}")
    handles = []
    for run, items in fetches.items():
        if not isinstance(items, (list, tuple)) or not items:
            _refuse(run, f"expected a list of values, got {items!r}")
        for item in items:
            if not isinstance(item, (Value, Train)):
                _refuse(run, f"{item!r} is neither a value nor the result of minimize()")
            handles += [item] if isinstance(item, Train) else []
    if len(handles) != 1:
        right = "" if handles else "; a model that only predicts needs no Executor: use hetu.save and hetu.load"
        current().refuse(f"exactly one minimize() handle is needed among the fetches, got {len(handles)}{right}")
    return handles[0]


def read(fetches: Mapping[str, Sequence[Value | Train]]) -> Fetches:
    """Checks the lists, and adds their values to those that the graph reports. Throws ValueError, and NotImplementedError
    for a run that trains and a tensor that is not a scalar."""
    train = _train_of(fetches)
    graph = train.graph
    if LOSS not in graph.fetches:
        graph.fetch(LOSS, train.loss)
    always = dict(graph.fetches)
    found = Fetches(train, {run: any(item is train for item in items) for run, items in fetches.items()}, {}, list(always))
    for run, items in fetches.items():
        names = found.names[run] = []
        for item in items:
            if isinstance(item, Train):
                continue
            if item.graph is not graph:
                _refuse(run, f"{item!r} belongs to another graph than the trained one")
            name = _name_of(graph, run, item, found.trains[run])
            names.append(name)
            if not found.trains[run]:
                found.note_count(graph, name, item)
        if found.trains[run]:
            names += [name for name in always if name not in names]
    for name, value in always.items():
        if not all(found.trains.values()):
            found.note_count(graph, name, value)
    found.numbers = {name: value.number for name, value in graph.fetches.items()}
    found.per_sample = {name for name, value in graph.fetches.items() if value.shape and value.shape[0] < 0}
    return found
