"""What trainings beside a slow pipeline come to, by method: tests/bench/group_convergence.py measures, the page shows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from figures.curves import Curve, Panel

# The final loss, in parts of all-reduce's, that a method may have.
BOUNDS = {"all-reduce": 1.0, "partial reduce": 1.02, "AD-PSGD": 1.05}


@dataclass
class Run:
    """One training: the loss of the trained model, and pipeline 0's smoothed loss over time."""

    final: float
    seconds: list[float]
    losses: list[float]

    def seconds_to(self, loss: float) -> float:
        """When the smoothed loss was first as low."""
        return next((s for s, value in zip(self.seconds, self.losses, strict=True) if value <= loss), self.seconds[-1])

    def thinned(self, points: int) -> Run:
        """The same with about so many points; the last one stays."""
        keep = sorted({len(self.seconds) - 1, *range(0, len(self.seconds), max(1, len(self.seconds) // points))})
        return Run(self.final, [round(self.seconds[i], 2) for i in keep], [round(self.losses[i], 4) for i in keep])


@dataclass
class Row:
    """A method over all seeds; ratios are in parts of all-reduce's."""

    method: str
    finals: list[float]
    mean: float
    ratio: float
    seconds: float  # until the loss is that of the worst method at its end
    seconds_ratio: float

    @property
    def held(self) -> bool:
        return self.ratio <= BOUNDS[self.method] and (self.method == "all-reduce" or self.seconds_ratio < 1)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def summary(runs: dict[str, list[Run]]) -> list[Row]:
    """Runs by method, each in the order of the seeds."""
    seeds = range(len(runs["all-reduce"]))
    targets = [max(found[k].losses[-1] for found in runs.values()) for k in seeds]
    finals = {method: mean([run.final for run in found]) for method, found in runs.items()}
    seconds = {method: mean([found[k].seconds_to(targets[k]) for k in seeds]) for method, found in runs.items()}
    return [
        Row(method, [run.final for run in found], finals[method], finals[method] / finals["all-reduce"], seconds[method],
            seconds[method] / seconds["all-reduce"])
        for method, found in runs.items()
    ]


def panel(model: str, runs: dict[str, list[Run]]) -> Panel:
    return Panel(model, "seconds of training", "loss", [
        Curve(method, run.seconds, run.losses) for method, found in runs.items() for run in found])


def write(path: Path, models: dict[str, dict[str, list[Run]]]) -> None:
    text = {model: {method: [vars(run.thinned(60)) for run in found] for method, found in runs.items()}
            for model, runs in models.items()}
    path.write_text(json.dumps(text) + "\n")


def read(path: Path) -> dict[str, dict[str, list[Run]]]:
    return {model: {method: [Run(**run) for run in found] for method, found in runs.items()}
            for model, runs in json.loads(path.read_text()).items()}
