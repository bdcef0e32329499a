"""Converts the `pipeline=` argument to the options of a job."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hetu import _hetu, schedule
from hetu.devices import Layout
from hetu.job.cuts import Cuts
from hetu.optim import Optimizer
from hetu.place import path_of


def text_of(given: Any) -> Any:
    """Returns a path as text with ~ at its beginning replaced by the home folder. Returns any other value unchanged."""
    is_path = isinstance(given, os.PathLike) or (isinstance(given, str) and given.startswith("~"))
    return path_of(given) if is_path else given


def _memory(size: int) -> str:
    """Returns a number of bytes for messages, as memory_text() in base/words.h does."""
    return f"{size / 2 ** 20:.1f} MiB ({size} bytes)"


class Planner:
    """Makes the plan of a job from its `pipeline=` argument.

    graph: a _hetu.Graph.
    common: the options that don't depend on the plan.
    prints: prints the choices of "choose".
    """

    def __init__(self, graph: Any, optimizer: Optimizer, layout: Layout, cuts: Cuts, common: dict[str, Any],
                 prints: bool) -> None:
        self.graph, self.optimizer, self.layout, self.cuts = graph, optimizer, layout, cuts
        self.common, self.prints = common, prints

    def options(self, pipeline: str | Callable[..., Any], micro_batches: int | None, costs: str | None,
                own: dict[str, Any]) -> Any:
        """Returns the options of the job, a _hetu.TrainingOptions.

        own: the options that determine the plan (PLANNING), and replicas.
        """
        if pipeline == "choose":
            if any(value not in (None, False) for value in own.values()):
                raise ValueError("pipeline choose picks chunks, pairs, concat, recompute and run-time rule itself; leave "
                                 "these options out")
            return self._choose(micro_batches, costs)
        if costs is not None:
            if schedule.goes_by_costs(pipeline) or own["split_backward"]:
                own = {**own, "costs": costs}
            elif not self.cuts.by_times:
                raise ValueError("costs apply only to pipeline choose, partition times, split_backward, and methods "
                                 f"that use costs: {', '.join(m['name'] for m in schedule.methods() if m['by_costs'])}")
        return self._planned(pipeline, micro_batches, own)

    def _choose(self, micro_batches: int | None, costs: str | None) -> Any:
        """Returns the options of a job by the first method in the ranking of `hetu choose` whose compiled stages keep to
        the memory limit. The chief prints the choice."""
        if costs is None:
            raise ValueError("pipeline choose needs costs: a cost file or the trace of a run (--costs FILE)")
        micro_batches = micro_batches or _hetu.default_micro_batches("choose")
        limit = _hetu.TrainingOptions({"memory_limit": self.common.get("memory_limit")}).memory_limit
        text = f"{limit / 1024}KiB" if limit else None
        for best in schedule.ranked(stages=self.layout.stages, pipelines=self.layout.pipelines, costs=costs,
                                    micro_batches=[micro_batches], memory_limit=text, sync=self.common.get("sync")):
            method = best.pop("method")
            name = "".join(f" --{option} {value}" for option, value in {"pipeline": method, **best}.items()
                           if option != "with_recompute") + " --with-recompute" * best["with_recompute"]
            options = self._planned(method, micro_batches, {**best, "costs": costs, "memory_limit": text})
            try:
                peak = self._peak_bytes(options) if limit or best.get("concat") == "halving" else 0
            except NotImplementedError as error:  # for example halving, for a model with batch norm
                if self.prints:
                    print(f"pipeline choose:{name} can't run: {error}; trying the next method", flush=True)
                continue
            if self.prints:
                over = f" needs {_memory(peak)} in a worker, over the limit of {_memory(limit)}; trying the next method"
                print(f"pipeline choose:{name}{over if limit and peak > limit else ''}", flush=True)
            if not limit or peak <= limit:
                return options
        fits = f"fits into {_memory(limit)} per worker" if limit else "can run this model"
        raise ValueError(f"pipeline choose: no method {fits}; use more stages or smaller micro-batches")

    def _peak_bytes(self, options: Any) -> int:
        """Returns the bytes that the worker with the highest need would use, whatever the limit."""
        return int(_hetu.check_training(self.graph, self.optimizer.settings(), options, limited=False))

    def _planned(self, pipeline: str | Callable[..., Any], micro_batches: int | None, own: dict[str, Any]) -> Any:
        """Returns the options of a job by this plan, in addition to the common ones. A method by name makes its plan when
        the job is created. All other pipelines, and methods that depend on costs, become a plan here."""
        name = pipeline if isinstance(pipeline, str) else getattr(pipeline, "__name__", "function")
        if schedule.is_method(pipeline) and own.get("costs") is None:
            of_plan = {**own, "micro_batches": micro_batches}
        else:
            late = {option: own.get(option) for option in ("with_recompute", "runtime_rule")}
            made = {option: value for option, value in own.items() if option not in late}
            of_plan = {**late, "plan": self._plan(pipeline, micro_batches, made)}
        options = _hetu.TrainingOptions({**self.common, "method": name, **of_plan})
        self.cuts.apply_to(options)
        return options

    def _plan(self, pipeline: str | Callable[..., Any], micro_batches: int | None, options: dict[str, Any]) -> Any:
        """Returns the plan of one step, as given."""
        if micro_batches is None and not (isinstance(pipeline, str) and schedule.is_file(pipeline)):
            micro_batches = _hetu.default_micro_batches(pipeline if isinstance(pipeline, str) else "")
        uneven = {"stage_replicas": self.layout.replicas} if self.layout.replicas else {}
        return schedule.named(pipeline, stages=self.layout.stages, micro_batches=micro_batches, **uneven, **options)
