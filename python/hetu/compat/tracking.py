"""Weights & Biases for --wandb of Chimera's and PipeFisher's scripts. The package wandb is imported only with the flag."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from typing import Any


def check(args: argparse.Namespace) -> None:
    """Throws ValueError if --wandb is given and the package wandb is not installed."""
    if args.wandb and importlib.util.find_spec("wandb") is None:
        raise ValueError("--wandb needs the package wandb, which is not installed: use pip install wandb, or remove --wandb "
                         "(--log FILE.jsonl writes a record per step)")


class Wandb:
    """Logs the figures of each step to a run of Weights & Biases, by the chief. A hook. `config` is stored in the run."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.run: Any = None

    def on_start(self, job: Any) -> None:
        self.run = importlib.import_module("wandb").init(config=self.config) if job.is_chief else None

    def on_step(self, job: Any, step: Any) -> None:
        if self.run:
            values = {"loss": step.loss, "learning_rate": step.learning_rate, "norm": step.gradient_norm, **step.scalars}
            self.run.log(values, step=step.index)

    def on_end(self, job: Any) -> None:
        if self.run:
            self.run.finish()


def hooks_of(args: argparse.Namespace) -> list[Wandb]:
    """Returns the hook for --wandb, or an empty list."""
    return [Wandb(vars(args).copy())] if args.wandb else []
