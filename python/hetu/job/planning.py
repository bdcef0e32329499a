"""Converts the `pipeline=` argument to the options of a job."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hetu import _hetu, schedule
from hetu.data import Data
from hetu.devices import Layout
from hetu.job.cuts import Cuts
from hetu.optim import Train
from hetu.place import path_of


def text_of(given: Any) -> Any:
    """Returns a path as text with ~ at its beginning replaced by the home folder. Returns any other value unchanged."""
    is_path = isinstance(given, os.PathLike) or (isinstance(given, str) and given.startswith("~"))
    return path_of(given) if is_path else given


class Planning:
    """The part of Executor that makes the plan. Executor defines these attributes."""

    graph: Any
    train_handle: Train
    layout: Layout
    cuts: Cuts
    data: Data
    micro_batches: int

    @property
    def is_chief(self) -> bool:
        raise NotImplementedError

    @property
    def averages(self) -> bool:
        raise NotImplementedError

    @property
    def global_batch(self) -> int:
        """The number of samples per step in all pipelines together."""
        return int(self.data.batch_size) * self.layout.pipelines

    def describe_batch(self) -> str:
        """Returns one line: the samples per step, and their division into pipelines and micro-batches."""
        pipelines, batch = self.layout.pipelines, int(self.data.batch_size)
        micros = self.micro_batches
        parts = f" in {micros} micro-batches of {batch // micros}" if micros > 1 else ""
        if pipelines == 1:
            return f"global batch: {batch} samples per step{parts}"
        own = "; each pipeline makes steps of its own" if self.averages else ""
        each = ", each" if parts else ""
        return f"global batch: {self.global_batch} samples per step, {pipelines} pipelines x {batch}{each}{parts}{own}"

    def _choose(self, micro_batches: int | None, costs: str | None, common: dict[str, Any]) -> Any:
        """Returns the options of a job by the first method in the ranking of `hetu choose` whose compiled stages keep to
        the memory limit. The chief prints the choice."""
        if costs is None:
            raise ValueError("pipeline choose needs costs: a cost file or the trace of a run (--costs FILE)")
        micro_batches = micro_batches or _hetu.default_micro_batches("choose")
        limit = _hetu.TrainingOptions({"memory_limit": common.get("memory_limit")}).memory_limit
        text = f"{limit / 1024}KiB" if limit else None
        for best in schedule.ranked(stages=self.layout.stages, pipelines=self.layout.pipelines, costs=costs,
                                    micro_batches=[micro_batches], memory_limit=text, sync=common.get("sync")):
            method = best.pop("method")
            name = "".join(f" --{option} {value}" for option, value in {"pipeline": method, **best}.items()
                           if option != "with_recompute") + " --with-recompute" * best["with_recompute"]
            options = self._planned(method, micro_batches, {**best, "costs": costs, "memory_limit": text}, common)
            peak = self._peak_bytes(options) if limit else 0
            if self.is_chief:
                over = f" needs {peak} bytes in a worker, over the limit of {limit}; trying the next method"
                print(f"pipeline choose:{name}{over if peak > limit else ''}", flush=True)
            if peak <= limit:
                return options
        raise ValueError(f"pipeline choose: no method fits into {limit} bytes per worker; use more stages or smaller "
                         "micro-batches")

    def _peak_bytes(self, options: Any) -> int:
        """Returns the bytes that the worker with the highest need would use, whatever the limit."""
        return int(_hetu.check_training(self.graph, self.train_handle.optimizer.settings(), options, limited=False))

    def _planned(self, pipeline: str | Callable[..., Any], micro_batches: int | None, own: dict[str, Any],
                 common: dict[str, Any]) -> Any:
        """Returns the options of a job by this plan, in addition to the common ones. A method by name makes its plan when
        the job is created. All other pipelines, and methods that depend on costs, become a plan here."""
        name = pipeline if isinstance(pipeline, str) else getattr(pipeline, "__name__", "function")
        if schedule.is_method(pipeline) and own.get("costs") is None:
            of_plan = {**own, "micro_batches": micro_batches}
        else:
            late = {option: own.get(option) for option in ("with_recompute", "runtime_rule")}
            made = {option: value for option, value in own.items() if option not in late}
            of_plan = {**late, "plan": self._plan(pipeline, micro_batches, made)}
        options = _hetu.TrainingOptions({**common, "method": name, **of_plan})
        self.cuts.tell(options)
        return options

    def _plan(self, pipeline: str | Callable[..., Any], micro_batches: int | None, options: dict[str, Any]) -> Any:
        """Returns the plan of one step, as given."""
        if micro_batches is None and not (isinstance(pipeline, str) and schedule.is_file(pipeline)):
            micro_batches = _hetu.default_micro_batches(pipeline if isinstance(pipeline, str) else "")
        uneven = {"stage_replicas": self.layout.replicas} if self.layout.replicas else {}
        return schedule.named(pipeline, stages=self.layout.stages, micro_batches=micro_batches, **uneven, **options)
