"""Results of trainings with a slow pipeline, by method: tests/bench/group_convergence.py measures them, and the page shows
them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from figures.curves import Curve, Panel

# Upper bounds of a method's final loss, relative to that of its reference method.
BOUNDS = {"all-reduce": 1.0, "partial reduce": 1.02, "AD-PSGD": 1.05, "HetPipe, D = 0": 1.05, "HetPipe, D = 1": 1.05,
          "HetPipe, D = 4": 1.05, "1f1b, all-reduce": 1.0, "1f1b, SSP, s = 4": 1.05}
# The reference is an all-reduce with the same order of forwards and backwards: pipedream's, except for methods with a flush.
BESIDE = {"1f1b, all-reduce": "1f1b, all-reduce", "1f1b, SSP, s = 4": "1f1b, all-reduce"}


def beside(method: str) -> str:
    return BESIDE.get(method, "all-reduce")


@dataclass
class Run:
    """One training: the loss of the trained model, pipeline 0's smoothed loss over time, and, where the model is evaluated
    during training, (seconds, loss) of the model that all pipelines have trained."""

    final: float
    seconds: list[float]
    losses: list[float]
    evaluated: list[list[float]] = field(default_factory=list)

    @property
    def last(self) -> float:
        """Returns the final loss, of the kind that `seconds_to` uses."""
        return self.evaluated[-1][1] if self.evaluated else self.losses[-1]

    def seconds_to(self, loss: float) -> float:
        """Returns the time at which the evaluated loss, interpolated between evaluations, first reached `loss`. Without
        evaluations, the smoothed loss is used."""
        for (before_s, high), (after_s, low) in zip(self.evaluated, self.evaluated[1:], strict=False):
            if low <= loss < high:
                return before_s + (after_s - before_s) * (high - loss) / (high - low)
        if self.evaluated:
            return self.evaluated[0 if self.evaluated[0][1] <= loss else -1][0]
        return next((s for s, value in zip(self.seconds, self.losses, strict=True) if value <= loss), self.seconds[-1])

    def thinned(self, points: int) -> Run:
        """Returns the run with about `points` points. The last point stays."""
        keep = sorted({len(self.seconds) - 1, *range(0, len(self.seconds), max(1, len(self.seconds) // points))})
        return Run(self.final, [round(self.seconds[i], 2) for i in keep], [round(self.losses[i], 4) for i in keep],
                   self.evaluated)


@dataclass
class Row:
    """A method over all seeds. Ratios are relative to its reference method."""

    method: str
    finals: list[float]
    mean: float
    ratio: float
    seconds: float  # until the loss equals the final loss of the worst method
    seconds_ratio: float

    @property
    def held(self) -> bool:
        return self.ratio <= BOUNDS[self.method] and (beside(self.method) == self.method or self.seconds_ratio < 1)


# Runs of one model by method and seed.
Runs = dict[str, dict[int, Run]]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def summary(runs: Runs) -> list[Row]:
    """Returns the rows for the seeds that every method has. Methods without a run, or without a run of their reference, are
    left out."""
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
    """Writes one run per line, so that two files can be merged manually."""
    lines = [json.dumps({"model": model, "method": method, "seed": seed, **vars(run.thinned(60))})
             for model, runs in models.items() for method, found in runs.items() for seed, run in sorted(found.items())]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def read(path: Path) -> dict[str, Runs]:
    """Returns the runs by model, with methods in the order of BOUNDS."""
    models: dict[str, Runs] = {}
    found = json.loads(path.read_text())
    for one in sorted(found, key=lambda one: list(BOUNDS).index(one["method"])):
        runs = models.setdefault(one["model"], {}).setdefault(one["method"], {})
        runs[one["seed"]] = Run(one["final"], one["seconds"], one["losses"], one.get("evaluated", []))
    return {model: models[model] for model in dict.fromkeys(one["model"] for one in found)}
