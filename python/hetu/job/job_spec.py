"""The properties of a job that all of its workers share: model, data, layout and plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hetu.data import Data
from hetu.devices import Layout
from hetu.job.cuts import Cuts
from hetu.job.fetches import Fetches
from hetu.lr import Custom, ReduceOnPlateau
from hetu.optim import Optimizer


@dataclass(frozen=True)
class JobSpec:
    """A job as its script has described it, before any worker takes part.

    options: the plan and all other options, a _hetu.TrainingOptions.
    meaningless: the option that makes results meaningless, or "".
    compares: the chief also does every step in one process.
    """

    graph: Any  # a _hetu.Graph
    fetches: Fetches
    data: Data
    layout: Layout
    cuts: Cuts
    options: Any
    seed: int
    meaningless: str
    compares: bool

    @property
    def optimizer(self) -> Optimizer:
        return self.fetches.train.optimizer

    @property
    def plateau(self) -> ReduceOnPlateau | None:
        """The learning rate if it follows a measure, else None."""
        rate = self.optimizer.learning_rate
        return rate if isinstance(rate, ReduceOnPlateau) else None

    def rate_factor(self, update: int) -> float | None:
        """Returns the factor of the learning rate at an update, counted from 1, or None if the rate has no factor."""
        rate = self.optimizer.learning_rate
        if isinstance(rate, Custom):
            return rate.at(update)
        return rate.state["multiplier"] if isinstance(rate, ReduceOnPlateau) else None

    @property
    def shares(self) -> list[int]:
        """The samples of each pipeline per step if they differ, else []."""
        samples = int(self.data.batch_size) // self.options.micro_batches
        return [samples * micros for micros in self.options.shares]

    @property
    def global_batch(self) -> int:
        """The number of samples per step in all pipelines together."""
        return sum(self.shares) or int(self.data.batch_size) * self.layout.pipelines

    def describe_batch(self, averages: bool) -> str:
        """Returns one line: the samples per step, and their division into pipelines and micro-batches.

        averages: True if pipelines average weights, each at its own pace.
        """
        pipelines, batch, micros = self.layout.pipelines, int(self.data.batch_size), self.options.micro_batches
        parts = f" in {micros} micro-batches of {batch // micros}" if micros > 1 else ""
        if pipelines == 1:
            return f"global batch: {batch} samples per step{parts}"
        if self.shares:
            shares = " + ".join(map(str, self.options.shares))
            return (f"global batch: {self.global_batch} samples per step, {shares} micro-batches of {batch // micros} in "
                    f"{pipelines} pipelines")
        own = "; each pipeline makes steps of its own" if averages else ""
        each = ", each" if parts else ""
        return f"global batch: {self.global_batch} samples per step, {pipelines} pipelines x {batch}{each}{parts}{own}"
