"""What the lists of an Executor ask for: which run trains, and what each reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetu.graph import BATCH, GraphBuilder, Value
from hetu.optim import Train


@dataclass
class Fetches:
    """By name of a run: whether it trains, and the names of the scalars that it reports."""

    train: Train
    trains: dict[str, bool]
    names: dict[str, set[str]]

    def check(self, run: str, of_training: dict[str, Any], of_validation: dict[str, Any]) -> None:
        """Refuses what a run does not know, or would ignore: arguments by name."""
        if run not in self.trains:
            raise ValueError(f"no fetches called '{run}'; there are: {', '.join(self.trains)}")
        trains = self.trains[run]
        given = [name for name, value in (of_validation if trains else of_training).items() if value]
        if given:
            raise ValueError(f"run '{run}' {'trains' if trains else 'validates'}, and {', '.join(given)} would be ignored")
        if (of_training["every"] or of_training["resume"]) and not of_training["checkpoint"]:
            raise ValueError("every and resume need a checkpoint folder (checkpoint=)")


def _name_of(graph: GraphBuilder, run: str, value: Value, trains: bool) -> str:
    """The name under which a value of a list is reported."""
    if trains and value.shape:
        name, _ = graph.builder.producer_of(value.number)
        raise NotImplementedError(f"fetches '{run}': '{name}' is {value.dtype}{value.shape}; a run that trains reports "
                                  "float32 scalars; ask for numbers per sample in a list without minimize()")
    for name, known in graph.fetches.items():
        if known.number == value.number:
            return name
    name, op = graph.builder.producer_of(value.number)
    if value.dtype != "float32" or value.shape not in ([], [BATCH]):
        raise NotImplementedError(f"fetches '{run}': '{name}' is {value.dtype}{value.shape}; a run reports float32 scalars, "
                                  "such as a loss or top_k_hits, and one that validates float32 numbers per sample, "
                                  f"[{BATCH}]; prediction, which gives whole tensors, is to come")
    if op in ("parameter", "buffer"):
        raise ValueError(f"fetches '{run}': '{name}' is a {op}; a run reports what operators compute, summed over the step")
    if name in graph.fetches:
        raise ValueError(f"fetches '{run}': another value is reported as '{name}'; name the operator otherwise (name=)")
    graph.fetch(name, value)
    return name


def read(fetches: Mapping[str, Sequence[Value | Train]]) -> Fetches:
    """Checks the lists, and adds their values to those that the graph reports. Throws ValueError, and NotImplementedError
    for a tensor that is no scalar."""
    for run, items in fetches.items():
        if not isinstance(items, (list, tuple)) or not items:
            raise ValueError(f"fetches '{run}': a list of values is wanted, got {items!r}")
        for item in items:
            if not isinstance(item, (Value, Train)):
                raise ValueError(f"fetches '{run}': {item!r} is neither a value nor what minimize() returns")
    handles = [item for items in fetches.values() for item in items if isinstance(item, Train)]
    if len(handles) != 1:
        raise ValueError(f"exactly one minimize() handle is needed among the fetches, got {len(handles)}")
    train = handles[0]
    graph = train.graph
    if "loss" not in graph.fetches:
        graph.fetch("loss", train.loss)
    always = set(graph.fetches)
    names = {run: set(always) for run in fetches}
    trains = {run: any(item is train for item in items) for run, items in fetches.items()}
    for run, items in fetches.items():
        for item in items:
            if isinstance(item, Train):
                continue
            if item.graph is not graph:
                raise ValueError(f"fetches '{run}': a value of another graph than the one that is trained")
            names[run].add(_name_of(graph, run, item, trains[run]))
    return Fetches(train, trains, names)
