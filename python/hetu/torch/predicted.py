"""Puts a forecast into the trace of a run, so that `hetu compare` shows it beside the measured events.

By itself, a trace is predicted from the run's own kernels. Here the prediction is the one that was known before the run: a
profile or other costs, the machines, and the plan.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hetu import _hetu, files
from hetu import schedule as plans
from hetu.counted import counted
from hetu.profile_file import SIZES
from hetu.torch.planned import FoundPlan

_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
Link = tuple[float, float]  # latency in ms, and bytes per ms; 0: unlimited
Links = dict[tuple[int, int], Link]  # by places


class FollowedPlan(NamedTuple):
    """The plan of a Pipeline that was made with schedule=, in the form of a FoundPlan."""

    name: str
    made: _hetu.Schedule
    first_pieces: Sequence[int]
    pieces: int
    micro_batch_size: int
    pipelines: int

    @property
    def width(self) -> int:
        """The number of workers of a pipeline."""
        return len(self.made.rows)

    @property
    def workers(self) -> list[int]:
        """The worker at each place, which is its own number."""
        return list(range(self.width * self.pipelines))

    def schedule(self) -> _hetu.Schedule:
        """Returns the plan of a pipeline's instructions."""
        return self.made


AnyPlan = FoundPlan | FollowedPlan


def add_forecast(pipe: Any, path: str | os.PathLike[str], costs: str | os.PathLike[str],
                 machines: str | os.PathLike[str] | None) -> None:
    """Puts the forecast of a Pipeline into its trace, as predict() does. An error says that the trace exists."""
    plan: AnyPlan = pipe.plan or FollowedPlan("schedule=", pipe.schedule, [stage.first_piece for stage in pipe.stages],
                                              len(pipe.pieces.pieces), max(pipe.expected[1]), pipe.pipelines)
    try:
        predict(path, plan, costs, machines)
    except (ValueError, OSError) as error:
        raise type(error)(f"{error} ({os.fspath(path)} is written, with a prediction by the run's own kernels)") from None


def predict(path: str | os.PathLike[str], plan: AnyPlan, costs: str | os.PathLike[str],
            machines: str | os.PathLike[str] | None) -> float:
    """Replaces the predicted events of a trace by those of a plan. Returns the predicted step time in ms.

    costs, machines: for a FoundPlan, the files that `hetu plan` received as --costs and --machines. For other plans, costs
    are a profile, a cost file or an earlier trace. Its blocks are the pieces of the model. Costs without blocks must have
    the plan's stages. Without machines, the workers are equal.
    Throws ValueError if the plan wasn't made from these files, or the costs don't fit it, and OSError.
    """
    trace = files.read_json(path)
    figures = _figures(plan, costs, machines)
    step_ms: float = figures["step_time"]
    if isinstance(plan, FoundPlan) and not math.isclose(step_ms, plan.step_time, rel_tol=1e-6):
        raise ValueError(f"{plan.name} predicts {plan.step_time:.6g} ms per step, and its plan takes {step_ms:.6g} ms by "
                         f"{os.fspath(costs)} and machines={machines and os.fspath(machines)}: pass the files that the plan "
                         f"was made from")
    events = trace["traceEvents"]
    measured = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    start = min((event["ts"] for event in measured), default=0.0)
    kept = [event for event in events if event["ph"] != "X" or event["pid"] != 0]
    for turn, step in enumerate(sorted({event["args"]["step"] for event in measured})):
        kept += _events(figures["events"], step, start + 1e3 * step_ms * turn)
    trace["traceEvents"] = kept
    trace["metadata"]["forecast"] = os.fspath(costs)
    trace["metadata"]["simulated"] = {key: value for key, value in figures.items() if key != "events"}
    files.write_text(path, json.dumps(trace))
    return step_ms


def _events(rows: Iterable[Mapping[str, Any]], step: int, start: float) -> list[dict[str, Any]]:
    found = []
    for row in rows:
        kind, stage, micro = row["kind"], row["stage"], row["micro"]
        name = f"{stage if stage >= 0 else ''}{kind}{micro if micro >= 0 else ''}"
        found.append({"ph": "X", "name": name, "cat": kind, "pid": 0, "tid": row["worker"], "ts": row["start_us"] + start,
                      "dur": row["duration_us"],
                      "args": {"kind": kind, "stage": stage, "micro": micro, "part": row["part"],
                               "step": row["step"] + step}})
    return found


def _figures(plan: AnyPlan, costs: str | os.PathLike[str], machines: str | os.PathLike[str] | None) -> dict[str, Any]:
    name, known = os.fspath(costs), files.read_json(costs)
    if isinstance(plan, FoundPlan) or SIZES in known or known.get("blocks"):
        return _simulated(plan, costs_of(plan, known, files.read_json(machines) if machines else {}, name))
    if machines:
        raise ValueError(f"{name}: machines= needs costs with blocks, such as a profile; leave machines= out")
    return plans.simulate(plan.schedule(), events=True, costs=name, pipelines=plan.pipelines)


def _simulated(plan: AnyPlan, costs: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hetu-predict-") as folder:
        path = os.path.join(folder, "costs.json")
        files.write_text(path, json.dumps(costs))
        return plans.simulate(plan.schedule(), events=True, costs=path, pipelines=plan.pipelines)


def costs_of(plan: AnyPlan, profile: Mapping[str, Any], machines: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the cost file of a plan's stages on its workers.

    profile: the contents of a profile, or of a cost file with blocks. machines: those of a machines file; empty: equal
    workers, with the link of the profile. name: the profile's, for errors.
    Throws ValueError if the profile lacks the plan's micro-batch size, or blocks.
    """
    one = profile
    if SIZES in profile:
        one = profile[SIZES].get(str(plan.micro_batch_size))
        if one is None:
            raise ValueError(f"{name}: the profile has no micro-batches of {plan.micro_batch_size} samples, which the plan "
                             f"uses; pass the profile that the plan was made from")
    blocks = one.get("blocks")
    if not blocks or plan.pieces != len(blocks):
        raise ValueError(f"{name}: the profile has {counted(len(blocks or ()), 'block')}, "
                         f"and the model {counted(plan.pieces, 'piece')}; pass a profile of this model, "
                         f"cut at the same names")
    ms = _MS[one.get("unit", "ms")]
    links = _links(plan, one, machines)
    placements = plan.schedule().placements
    stages = []
    for number, (first, end) in enumerate(zip(plan.first_pieces, [*plan.first_pieces[1:], len(blocks)], strict=True)):
        copies = [pipeline * plan.width + p["workers"][0] for pipeline in range(plan.pipelines) for p in placements
                  if p["model_stage"] == number]
        stages.append(_stage(blocks[first:end], ms, copies, links))
    speeds = [worker.get("speed", 1) for worker in machines.get("workers", ())]
    return {"unit": "ms", "stages": stages, "reduce_scalars": one.get("reduce_scalars", 0.0) * ms,
            "link": {"latency": 0.0, "bandwidth": 0.0,
                     "pairs": [{"from": a, "to": b, "latency": latency, "bandwidth": bandwidth}
                               for (a, b), (latency, bandwidth) in links.items()]},
            "workers": [{"speed": speeds[worker] if speeds else 1} for worker in plan.workers]}


def _stage(blocks: Sequence[Mapping[str, float]], ms: float, copies: Sequence[int], links: Links) -> dict[str, float]:
    times = ("forward", "input_grad", "weight_grad", "recompute", "update")
    stage = {key: ms * sum(block.get(key, 0.0) for block in blocks) for key in times}
    stage["bytes_out"] = blocks[-1].get("bytes_out", 0.0)
    size = sum(block.get("gradient_bytes", 0.0) for block in blocks)
    sums = [_sum_ms(links[a, b], size, len(copies)) for a in copies for b in copies if a != b]
    stage["reduce_grad"] = max(sums, default=0.0)
    return stage


def _sum_ms(link: Link, size: float, members: int) -> float:
    """Returns the time of a sum of gradients over copies, as the planner estimates it (docs/compare.md)."""
    latency, bandwidth = link
    return 2 * math.log2(members) * latency + (2 * (members - 1) / members * size / bandwidth if bandwidth else 0.0)


def _links(plan: AnyPlan, costs: Mapping[str, Any], machines: Mapping[str, Any]) -> Links:
    """Returns the link between each two places."""
    source = machines or costs
    ms = _MS[source.get("unit", "ms")]

    def link_of(one: Mapping[str, Any]) -> Link:
        return ms * one.get("latency", 0.0), one.get("bandwidth", 0.0) / ms

    every = source.get("link", {})
    pairs = {(pair["from"], pair["to"]): link_of(pair) for pair in every.get("pairs", ())}
    hosts = [worker.get("host", "") for worker in machines.get("workers", ())]
    inside = machines.get("link_in_host")
    found: Links = {}
    for a, one in enumerate(plan.workers):
        for b, other in enumerate(plan.workers):
            if a != b:
                near = inside is not None and hosts[one] == hosts[other]
                found[a, b] = pairs.get((one, other)) or link_of(inside if near and inside is not None else every)
    return found
