"""Compares the data of a job's workers.

Every worker runs the same script, so every worker creates its own data object. Hetu expects the same rows in all of them
and distributes the rows itself. A script that shards its rows by rank, like scripts for DDP, would train on the rows of a
single worker, so it is rejected here. Rows that differ at each reading (random without a seed) are allowed: one worker
reads them for all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hetu import _hetu
from hetu.data import Batches, Data
from hetu.job.worker import Worker

ROWS_EXPECTED = ("Hetu expects the same rows on every worker and shares them out itself: give every worker all rows, "
                 "without sharding by rank, and seed every shuffle and split")
ALIKE = "Give every worker the same data in the same order: the same files, fields, batch size and seed"
REREADS = 3  # random rows pass this test by chance less than once in 2^24 jobs


def facts_of(data: Data, loader: Any) -> dict[str, Any]:
    """Returns the properties in which all workers' data objects must agree. `loader` is this worker's loader of `data`."""
    drawn = data.__dict__.get("drawn")
    return {"source": type(data).__name__, "rows": data.known_rows(), "fields": [list(field) for field in data.fields],
            "batch size": data.batch_size, "seed": drawn.seed if drawn else data.__dict__.get("seed"),
            "order": loader.position()["order"] if data._order_names_rows else None, "checksums": data.row_checksums()}


def name_of(data: Data) -> str:
    """Returns the name of the data in messages."""
    return str(data.__dict__.get("called") or data.__dict__.get("name") or type(data).__name__)


def difference(name: str, who: str, facts: Mapping[int, Mapping[str, Any]]) -> tuple[str, str]:
    """Returns the first fact that differs between workers or pipelines, and an error message, or ("", "") if all agree.

    who: "worker" or "pipeline".
    facts: facts_of() by number.
    """
    (first, own), *others = sorted(facts.items())
    for fact in own:
        for other, theirs in others:
            if theirs[fact] == own[fact]:
                continue
            expected = ROWS_EXPECTED if fact in ("rows", "checksums") else ALIKE
            if fact == "rows":
                unit = "items" if own["source"] == Batches.__name__ else "rows"
                found = f"{who} {first} was given {_count(own[fact], unit)}, {who} {other} {_count(theirs[fact], unit)}"
            elif fact == "checksums":
                found = f"{who} {first} and {who} {other} were given different rows"
            else:
                found = f"{who} {first} has the {fact} {own[fact]!r}, {who} {other} {theirs[fact]!r}"
            return fact, f"{name}: {found}. {expected}"
    return "", ""


def _count(rows: int | None, unit: str) -> str:
    return f"an unknown number of {unit}" if rows is None else f"{rows} {unit}"


def differing_items(name: str, items: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Returns a line for each difference between the Batches of pipelines that average weights. Each such pipeline reads
    its own items and takes the slice of its number.

    items: `slices` and `length` by pipeline.
    """
    lines = []
    (first, own), *others = sorted(items.items())
    for other, theirs in others:
        if theirs["slices"] != own["slices"]:
            lines.append(f"{name}: pipelines {first} and {other} read different items, but each takes only its slice of an "
                         "item: a sample may occur twice in an epoch, or never; draw the items alike, with one seed")
            break
    for other, theirs in others:
        if own["slices"][first:first + 1] == theirs["slices"][other:other + 1] != []:
            lines.append(f"{name}: pipelines {first} and {other} get the same samples in the first step; each needs "
                         "samples of its own: an item must hold the samples of all pipelines")
            break
    for other, theirs in others:
        if None not in (own["length"], theirs["length"]) and own["length"] != theirs["length"]:
            lines.append(f"{name}: an epoch of pipeline {first} has {own['length']} items, an epoch of pipeline {other} "
                         f"{theirs['length']}")
            break
    return lines


class RowComparison:
    """Compares the training data of a job at its start, and the data of each evaluation. Every worker creates one object
    and calls the same methods."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.printed: set[str] = set()  # lines
        self.check(worker.spec.data, worker.loader, worker.averages)
        self.compare_items()

    def check(self, data: Data, loader: Any, across: bool = False) -> None:
        """Throws ValueError on every worker if the workers that read `data` have different rows.

        loader: None on a worker that reads nothing.
        across: also compares with pipelines that are jobs of their own.
        """
        worker = self.worker
        if worker.spec.layout.of_threads:  # all workers hold the same object
            return
        facts = facts_of(data, loader) if loader else None
        if worker.transport.workers > 1:
            self._compare(data, facts, "worker", lambda text: dict(enumerate(_hetu.gather_texts(worker.transport, text))))
        if across and worker.job.may_lose:
            self._compare(data, facts, "pipeline", worker.job.exchange)

    def _compare(self, data: Data, facts: dict[str, Any] | None, who: str, exchange: Any) -> None:
        given = _readers_of(exchange(json.dumps(facts)))
        if len(given) < 2:
            return
        fact, message = difference(name_of(data), who, given)
        if fact == "checksums":  # an error only if these rows are not random
            is_steady = facts and all(data.row_checksums(again=True) == facts["checksums"] for _ in range(REREADS))
            steady = _readers_of(exchange(json.dumps(facts if is_steady else None)))
            fact, message = difference(name_of(data), who, steady) if len(steady) > 1 else ("", "")
        if fact:
            raise ValueError(message)

    def compare_items(self) -> None:
        """Prints, once each, the differences between the Batches of pipelines that average weights, as far as they are
        known. The length of an iterable is known only at the end of its epoch."""
        worker, data = self.worker, self.worker.spec.data
        if not isinstance(data, Batches) or not worker.averages:
            return
        mine = json.dumps([worker.job.pipeline, {"slices": data.slices, "length": data.length}] if worker.loader else None)
        texts: Sequence[str] = (worker.job.exchange(mine).values() if worker.job.may_lose
                                else _hetu.gather_texts(worker.transport, mine))
        items: dict[int, dict[str, Any]] = {}
        for number, own in filter(None, map(json.loads, texts)):
            if items.setdefault(number, own)["length"] is None:  # only the first reader of a pipeline reads items
                items[number]["length"] = own["length"]
        if not items:  # the model reads nothing
            return
        for line in differing_items(data.name, items):
            if worker.is_chief and line not in self.printed:
                print(line, file=sys.stderr, flush=True)
            self.printed.add(line)


def _readers_of(texts: Mapping[int, str]) -> dict[int, dict[str, Any]]:
    """Returns the facts by number, without those that read nothing."""
    return {number: facts for number, text in texts.items() if (facts := json.loads(text)) is not None}
