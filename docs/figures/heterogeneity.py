"""The cases of training with slow pipelines, the results of `hetu simulate` for each, and the ideal.

usage: docs/figures/heterogeneity.py   prints the table; benchmarks compare measured runs with `simulated`"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from functools import cache

FORWARD, BACKWARD, AVERAGING = 30, 60, 5  # ms: the timed devices
METHODS = {"all-reduce": "allreduce", "partial reduce": "preduce", "AD-PSGD": "adpsgd"}


@dataclass(frozen=True)
class Case:
    """Pipelines in parallel, one of them `slower` times as slow, or all with pauses of `hetero` ms."""

    stages: int
    pipelines: int
    words: str
    slower: float = 1
    hetero: float = 0
    updates: int = 400
    more: tuple[str, ...] = field(default=())

    def ideal(self) -> float:
        """Returns the throughput of pipelines that never wait for each other, relative to equal ones without pauses."""
        if self.hetero:  # a single pipeline, as the mean over as many seeds
            alone = Case(self.stages, 1, "alone", hetero=self.hetero, updates=self.updates)
            sum_of_all = sum(throughput(alone, "--seed", f"{seed}") for seed in range(self.pipelines))
            return sum_of_all * (FORWARD + BACKWARD) / self.pipelines
        return (self.pipelines - 1 + 1 / self.slower) / self.pipelines

    def arguments(self) -> tuple[str, ...]:
        words = ["simulate", "pipedream", "--stages", f"{self.stages}", "--micro-batches", "8"]
        words += ["--steps", f"{self.updates // 8}", "--pipelines", f"{self.pipelines}"]
        words += ["--forward", f"{FORWARD}", "--backward", f"{BACKWARD}", "--allreduce", f"{AVERAGING}"]
        return (*words, *self.stragglers(), *self.more)

    def stragglers(self) -> tuple[str, ...]:
        slow = ("--slow", f"pipeline=1,factor={self.slower:g}") if self.slower != 1 else ()
        return (*slow, "--hetero", f"{self.hetero:g}") if self.hetero else slow


CASES = [
    Case(4, 4, "equal"),
    Case(4, 4, "one pipeline 2x slower", slower=2),
    Case(4, 4, "one pipeline 4x slower", slower=4),
    Case(1, 8, "one pipeline 4x slower", slower=4),
    Case(4, 16, "one pipeline 2x slower, pairs", slower=2, updates=200),
    Case(4, 64, "one pipeline 2x slower, pairs", slower=2, updates=104),
]
PAUSES = Case(4, 4, "a pause of 100 ms before one forward or backward in ten", hetero=100, updates=800)


@cache
def figures(arguments: tuple[str, ...]) -> dict[str, object]:
    """Returns the JSON of one `hetu simulate`."""
    done = subprocess.run(["hetu", *arguments, "--format", "json"], capture_output=True, text=True, check=True)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def throughput(case: Case, *how: str) -> float:
    """Returns the micro-batches per ms over all pipelines, in the steady part."""
    return float(str(figures((*case.arguments(), *how))["throughput"]))


def simulated(case: Case, method: str) -> float:
    """Returns the throughput relative to as many equal pipelines that never wait for each other."""
    return throughput(case, "--sync-method", METHODS[method]) * (FORWARD + BACKWARD) / case.pipelines


def to_all_reduce(case: Case, method: str) -> float:
    """Returns the throughput relative to a blocking all-reduce over as many equal pipelines."""
    equal = Case(case.stages, case.pipelines, "equal", updates=case.updates)
    return throughput(case, "--sync-method", METHODS[method]) / throughput(equal, "--sync-method", "allreduce")


def table() -> list[list[str]]:
    """Returns a row per case: sizes, case, the simulated fraction of the ideal machine per method, and the ideal."""
    rows = []
    for case in [*CASES, PAUSES]:
        cells = [f"{simulated(case, method):.3f}" for method in METHODS]
        rows.append([f"{case.stages} x {case.pipelines}", case.words, *cells, f"{case.ideal():.3f}"])
    return rows


HEAD = ["stages x pipelines", "case", *METHODS, "ideal"]

if __name__ == "__main__":
    lines = [HEAD, *table()]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
