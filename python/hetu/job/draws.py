"""Whether workers and pipelines, each of which makes the user's own data, have made the same."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hetu import _hetu
from hetu.data import Batches

if TYPE_CHECKING:
    from hetu.job.executor import Executor


def unlike(name: str, who: str, draws: Mapping[int, Mapping[str, Any]], apart: bool) -> list[str]:
    """In one line each, how draws of one's own data do not fit each other: `slices` and `length` of a Batches, by number of
    the worker or pipeline that has them (`who`). `apart`: each draws for itself, and takes the slice of its number.
    """
    lines = []
    (first, own), *others = sorted(draws.items())
    for other, theirs in others:
        if apart and theirs["slices"] != own["slices"]:
            lines.append(f"{name}: {who}s {first} and {other} begin with other items, and each takes its own slice of its "
                         "own: a sample may come twice in an epoch, or never; draw them alike, from one seed")
            break
    for other, theirs in others:
        if apart and own["slices"][first:first + 1] == theirs["slices"][other:other + 1] != []:
            lines.append(f"{name}: {who}s {first} and {other} get the same samples in the first step; each should have "
                         "samples of its own: an item holds those of all pipelines")
            break
    for other, theirs in others:
        if None not in (own["length"], theirs["length"]) and own["length"] != theirs["length"]:
            lines.append(f"{name}: an epoch of {who} {first} has {own['length']} items, of {who} {other} {theirs['length']}"
                         + ("" if apart else "; one worker draws for all, and its items count"))
            break
    return lines


class Draws:
    """What a job's workers draw; the chief says once what does not fit. Every worker makes one, and all compare."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.said: set[str] = set()
        self.compare()

    def compare(self) -> None:
        """As far as is known now: how long an epoch of an iterable is shows at its end."""
        e, data = self.executor, self.executor.data
        if not isinstance(data, Batches):
            return
        by = e.job.pipeline if e.averages else e.transport.worker
        mine = json.dumps([by, {"slices": data.slices, "length": data.length}] if e.loader else None)
        texts = e.job.exchange(mine).values() if e.job.may_lose else _hetu.gather_texts(e.transport, mine)
        draws: dict[int, dict[str, Any]] = {}
        for number, draw in filter(None, map(json.loads, texts)):
            if draws.setdefault(number, draw)["length"] is None:  # of a pipeline, whose first reader alone draws
                draws[number]["length"] = draw["length"]
        if not draws:  # of a model that reads nothing
            return
        for line in unlike(data.name, "pipeline" if e.averages else "worker", draws, e.averages):
            if e.is_chief and line not in self.said:
                print(line, file=sys.stderr, flush=True)
            self.said.add(line)
