"""What trainings beside a slow pipeline come to, by method: tests/bench/group_convergence.py measures, the page shows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from figures.curves import Curve, Panel

# The final loss, in parts of that of the method which it stands beside, that a method may have.
BOUNDS = {"all-reduce": 1.0, "partial reduce": 1.02, "AD-PSGD": 1.05, "HetPipe, D = 0": 1.05, "HetPipe, D = 1": 1.05,
          "HetPipe, D = 4": 1.05, "1f1b, all-reduce": 1.0, "1f1b, SSP, s = 4": 1.05}
# An all-reduce of the same order of forwards and backwards: pipedream's, but for methods with a flush.
BESIDE = {"1f1b, all-reduce": "1f1b, all-reduce", "1f1b, SSP, s = 4": "1f1b, all-reduce"}


def beside(method: str) -> str:
    return BESIDE.get(method, "all-reduce")


@dataclass
class Run:
    """One training: the loss of the trained model, pipeline 0's smoothed loss over time, and (seconds, loss) of what all
    pipelines have trained where it is evaluated on the way, too."""

    final: float
    seconds: list[float]
    losses: list[float]
    evaluated: list[list[float]] = field(default_factory=list)

    @property
    def last(self) -> float:
        """The loss at its end, of the kind that `seconds_to` goes by."""
        return self.evaluated[-1][1] if self.evaluated else self.losses[-1]

    def seconds_to(self, loss: float) -> float:
        """When the evaluated loss, on a line between evaluations, was first as low; without them the smoothed one."""
        for (before_s, high), (after_s, low) in zip(self.evaluated, self.evaluated[1:], strict=False):
            if low <= loss < high:
                return before_s + (after_s - before_s) * (high - loss) / (high - low)
        if self.evaluated:
            return self.evaluated[0 if self.evaluated[0][1] <= loss else -1][0]
        return next((s for s, value in zip(self.seconds, self.losses, strict=True) if value <= loss), self.seconds[-1])

    def thinned(self, points: int) -> Run:
        """The same with about so many points; the last one stays."""
        keep = sorted({len(self.seconds) - 1, *range(0, len(self.seconds), max(1, len(self.seconds) // points))})
        return Run(self.final, [round(self.seconds[i], 2) for i in keep], [round(self.losses[i], 4) for i in keep],
                   self.evaluated)


@dataclass
class Row:
    """A method over all seeds; ratios are in parts of what the method stands beside."""

    method: str
    finals: list[float]
    mean: float
    ratio: float
    seconds: float  # until the loss is that of the worst method at its end
    seconds_ratio: float

    @property
    def held(self) -> bool:
        return self.ratio <= BOUNDS[self.method] and (beside(self.method) == self.method or self.seconds_ratio < 1)


# Runs of one model by method and seed.
Runs = dict[str, dict[int, Run]]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def summary(runs: Runs) -> list[Row]:
    """Of the seeds that every method has; methods without a run, or without what they stand beside, are left out."""
    shown = {method: found for method, found in runs.items() if found and runs.get(beside(method))}
    seeds = sorted(set.intersection(*(set(found) for found in shown.values()))) if shown else []
    if not seeds:
        return []
    targets = [max(found[k].last for found in shown.values()) for k in seeds]
    finals = {method: mean([found[k].final for k in seeds]) for method, found in shown.items()}
    seconds = {method: mean([found[k].seconds_to(target) for k, target in zip(seeds, targets, strict=True)])
               for method, found in shown.items()}
    return [
        Row(method, [found[k].final for k in seeds], finals[method], finals[method] / finals[beside(method)],
            seconds[method], seconds[method] / seconds[beside(method)])
        for method, found in shown.items()
    ]


def panel(model: str, runs: Runs) -> Panel:
    return Panel(model, "seconds of training", "loss", [
        Curve(method, run.seconds, run.losses) for method, found in runs.items() for _, run in sorted(found.items())])


def write(path: Path, models: dict[str, Runs]) -> None:
    """One run a line, so that two files are merged by hand, too."""
    lines = [json.dumps({"model": model, "method": method, "seed": seed, **vars(run.thinned(60))})
             for model, runs in models.items() for method, found in runs.items() for seed, run in sorted(found.items())]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def read(path: Path) -> dict[str, Runs]:
    """By model; methods in the order of BOUNDS."""
    models: dict[str, Runs] = {}
    found = json.loads(path.read_text())
    for one in sorted(found, key=lambda one: list(BOUNDS).index(one["method"])):
        runs = models.setdefault(one["model"], {}).setdefault(one["method"], {})
        runs[one["seed"]] = Run(one["final"], one["seconds"], one["losses"], one.get("evaluated", []))
    return {model: models[model] for model in dict.fromkeys(one["model"] for one in found)}
