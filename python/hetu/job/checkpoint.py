"""Saving and resuming a training, for `Executor.run(checkpoint=...)`."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from hetu import _hetu, progress
from hetu.job.hooks import Hooks
from hetu.job.worker import Worker
from hetu.process import faults

NUMBER = "number"  # key in a manifest for a number that JSON lacks: {"number": "inf"}


def _as_text(run: dict[str, Any]) -> str:
    """Returns the JSON text of a manifest. JSON has no infinity and no NaN, so they are encoded with NUMBER."""

    def spelled(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return {NUMBER: str(float(value))}
        if isinstance(value, dict):
            return {key: spelled(part) for key, part in value.items()}
        return [spelled(part) for part in value] if isinstance(value, (list, tuple)) else value

    return json.dumps(spelled(run), allow_nan=False)


def _as_number(found: dict[str, Any]) -> Any:
    """Decodes NUMBER; called for every object of the JSON."""
    return float(found[NUMBER]) if found.keys() == {NUMBER} else found


class Checkpoints:
    """The checkpoints of one folder, with the sums of the epoch that `hooks` count. Throws ValueError if the folder already
    holds a checkpoint and `resume` is false."""

    def __init__(self, folder: str, worker: Worker, keep: int, resume: bool, hooks: Hooks) -> None:
        if keep < 1:
            raise ValueError(f"at least one checkpoint must be kept, got {keep}")
        self.folder = folder
        self.worker = worker
        self.keep = keep
        self.hooks = hooks
        self._check_place()
        # Held until the run ends, so that no other job can save into the folder. None in workers that don't save.
        self.lock: Any = _hetu.claim_folder(folder, worker.transport)
        try:
            self._begin(resume)
        except BaseException:
            self.lock = None
            raise

    def _begin(self, resume: bool) -> None:
        """Loads the newest checkpoint if there is one, which requires `resume`."""
        found = _hetu.list_checkpoints(self.folder)
        if found and not resume:
            raise ValueError(f"{self.folder} holds a checkpoint already ({found[-1]}); resume from it (--resume) or choose "
                             "another folder")
        if found:
            self._load()
        elif resume and self.worker.is_chief:
            print(f"warning: {self.folder} holds no checkpoint: starting at step 0", flush=True)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self.lock = None

    def _check_place(self) -> None:
        """Throws an error for a folder that can't be saved into later. Leaves nothing behind."""
        place = Path(self.folder).absolute()
        if (place / "manifest.json").exists():
            raise ValueError(f"{self.folder} is the checkpoint of one step; give the folder that holds it: {place.parent}")
        while not place.exists():
            if place.is_symlink():
                raise OSError(f"{self.folder}: checkpoints can't be saved there: {place} links to {os.readlink(place)}, "
                              "which does not exist; create that folder, or remove the link")
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK):
            raise OSError(f"{self.folder}: checkpoints can't be saved there: {place} is not a writable folder")

    def _run(self) -> dict[str, Any]:
        worker, spec = self.worker, self.worker.spec
        return {
            **self._positions(), "seed": spec.seed, "method": spec.options.method, "pipelines": spec.layout.pipelines,
            "stages": spec.layout.stages, "micro_batches": spec.options.micro_batches, "batch_size": spec.data.batch_size,
            "optimizer": self._optimizer(), "global_batch": spec.global_batch,
            **({"epoch": sums} if (sums := self.hooks.saved()) else {}),
            **({"plateau": spec.plateau.state} if spec.plateau else {}),
            **({"loss_scale": scale} if (scale := worker.job.loss_scale()) else {}),
            **({"state_dtype": kept} if (kept := worker.job.state_dtype) != "float32" else {}),
        }

    def _positions(self) -> dict[str, Any]:
        """Returns the positions in the data for the next read. Pipelines that average weights have read as many batches as
        they have made updates."""
        worker, spec = self.worker, self.worker.spec
        if not worker.averages:
            return {"position": worker.position()}
        texts = _hetu.gather_texts(worker.transport, json.dumps([worker.job.pipeline, worker.position()]))
        places = {pipeline: position for pipeline, position in map(json.loads, texts) if position}
        if worker.job.may_lose:  # the transport links only one pipeline
            texts = worker.job.exchange(json.dumps(places[worker.job.pipeline]))
            places = {pipeline: json.loads(text) for pipeline, text in texts.items()}
        least = min(places.values(), key=lambda p: (p["epoch"], p["index"]))
        return {"position": least, "positions": [places.get(d) for d in range(spec.layout.pipelines)]}

    def _load(self) -> None:
        worker, spec = self.worker, self.worker.spec
        faults.at("load")
        step, run_json = _hetu.read_run(self.folder)
        run = json.loads(run_json, object_hook=_as_number)
        if not run.get("weights_only"):
            self._compare(run)
        worker.job.load(self.folder)
        if scale := run.get("loss_scale"):
            worker.job.resume_loss_scale(**scale)
        if spec.plateau and run.get("plateau"):
            spec.plateau.state = run["plateau"]
        self.hooks.resume(run.get("epoch", {}))
        places = run.get("positions", [])
        own = places[worker.job.pipeline] if worker.averages and len(places) == spec.layout.pipelines else None
        place = own or run.get("position")
        # an index is a number of rows of the epoch, read by any number of pipelines: round it to batches of this job
        if places and place and worker.loader:
            batch = worker.loader.global_batch
            place = {**place, "index": place["index"] // batch * batch, "global_batch": batch}
        if place:
            worker.seek(place)
        if worker.is_chief:
            imported = ", with imported weights and zeroed optimizer states"
            print(f"Resumed from {self.folder} at step {step}{imported if run.get('weights_only') else self._states(run)}",
                  flush=True)

    def _states(self, run: dict[str, Any]) -> str:
        """Describes the conversion of optimizer states that were saved in another dtype."""
        saved, here = run.get("state_dtype", "float32"), self.worker.job.state_dtype
        if saved == here:
            return ""
        how = "rounded to the nearest" if here == "bf16" else "widened exactly to"
        return f", with {saved} optimizer states {how} {here}"

    def _compare(self, run: dict[str, Any]) -> None:
        """Checks the properties that a resumed run must share with the saved one. Numbers of stages, pipelines and
        micro-batches may differ."""
        worker, spec = self.worker, self.worker.spec
        mine: dict[str, Any] = {
            "seed": spec.seed, "optimizer": self._optimizer(), "pipelines": spec.layout.pipelines,
            "batch_size": spec.data.batch_size, "global_batch": spec.global_batch,
        }
        for name in ("seed", "optimizer"):
            if run[name] != mine[name]:
                raise ValueError(f"{self.folder} was saved with {name} {run[name]}, this run has {name} {mine[name]}")
        if worker.averages and "positions" in run and run["batch_size"] == mine["batch_size"]:
            return  # an update is one pipeline's batch, whatever the number of pipelines
        saved, here = (r.get("global_batch", r["pipelines"] * r["batch_size"]) for r in (run, mine))
        if saved != here:
            raise ValueError(
                f"{self.folder} was saved at a global batch of {saved} "
                f"({run['pipelines']} pipelines x {run['batch_size']}), "
                f"this run has {here} ({mine['pipelines']} x {mine['batch_size']}); keep pipelines x --batch-size"
            )

    def _optimizer(self) -> str:
        return str(self.worker.spec.optimizer.settings()["kind"])

    @staticmethod
    def _without(run: dict[str, Any], losses: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns what is known of a run after pipelines have died, possibly while the checkpoint was being written."""
        lost = {one["pipeline"] for one in losses}
        positions = [None if pipeline in lost else place for pipeline, place in enumerate(run["positions"])]
        return {**run, "positions": positions, "lost": losses}

    def save(self) -> None:
        """Saves the current step. Collective: every worker calls it."""
        job, run = self.worker.job, self._run()

        def run_json() -> str:
            return _as_text(self._without(run, job.losses) if job.losses else run)

        job.save(self.folder, run_json, self.keep)
        if self.worker.is_chief:
            progress.tell_saved(int(self.worker.step), self.folder)
