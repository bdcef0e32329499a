"""Saving and resuming a training, by `Executor.run(checkpoint=...)`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hetu import _hetu

if TYPE_CHECKING:
    from hetu.executor import Executor


class Checkpoints:
    """The checkpoints of one folder. A folder that holds one already is refused without `resume`."""

    def __init__(self, folder: str, executor: Executor, keep: int, resume: bool) -> None:
        if keep < 1:
            raise ValueError(f"at least one checkpoint must be kept, got {keep}")
        self.folder = folder
        self.executor = executor
        self.keep = keep
        found = _hetu.list_checkpoints(folder)
        if found and not resume:
            raise ValueError(f"{folder} holds a checkpoint already ({found[-1]}); resume from it or choose another folder")
        if found:
            self._load()
        elif resume and executor.is_chief:
            print(f"{folder} holds no checkpoint: starting at step 0", flush=True)

    def _run(self) -> dict[str, Any]:
        e = self.executor
        return {
            "position": e.position(), "seed": e.seed, "method": e.method, "pipelines": e.layout.pipelines,
            "stages": e.layout.stages, "micro_batches": e.micro_batches, "batch_size": e.data.batch_size,
            "optimizer": e.train_handle.optimizer.settings()["kind"],
        }

    def _load(self) -> None:
        e = self.executor
        step, run_json = e.job.load(self.folder)
        run = json.loads(run_json)
        if run["seed"] != e.seed:
            raise ValueError(f"{self.folder} was saved with seed {run['seed']}, this run has seed {e.seed}")
        if e.loader and run["position"]:
            e.loader.seek(run["position"])
        if e.is_chief:
            print(f"Resumed from {self.folder} at step {step}", flush=True)

    def save(self) -> None:
        """Saves the present step; every worker calls it."""
        self.executor.job.save(self.folder, json.dumps(self._run()), self.keep)
