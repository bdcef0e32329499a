"""Predicts the steps of a published production job, and repeats its published what-if results with Hetu's simulator.

    python3 -m hetu.profile.straggler FOLDER [--job ST] [--trace FILE.json --step N]

FOLDER has the files of one job in the format of "Understanding Stragglers in Large Model Training Using What-if Analysis"
(Lin et al., OSDI 2025): timeline-ST.json.gz, result-ST.json, ms-ST.json and mw-ST.json. The job ran 1F1B on several
pipelines. The command prints the measured and predicted step times and every published figure beside Hetu's. --trace writes
one measured step with its prediction as a trace, for `hetu compare` and `hetu timeline`. docs/lab/straggler.md explains the
figures.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from hetu import files, one_line_errors, schedule
from hetu.command_parser import CommandParser
from hetu.profile.straggler_trace import Job, chrome_events, read, trace_events

F, B = "forward-compute", "backward-compute"
GATHER, NORM, EMBEDDING, SCATTER = ("params-all-gather", "layernorm-grads-all-reduce", "embedding-grads-all-reduce",
                                    "grads-reduce-scatter")
CLIP, OPTIMIZER = "optimizer-clip-main-grad", "optimizer"
RECV_F, RECV_B = "forward-recv", "backward-recv"
# The published ideal replaces the times of these kinds by their mean, and those of all other kinds by their median.
COMPUTED = (F, B, OPTIMIZER, "gc")
MESSAGES = {"forward-send": "forward-pp-comm", RECV_F: "forward-pp-comm", "backward-send": "backward-pp-comm",
            RECV_B: "backward-pp-comm"}
Keeps = Callable[[str, int, int], bool]  # of kind, stage and pipeline: True if these operations keep their own times


def everything(_kind: str, _stage: int, _pipeline: int) -> bool:
    return True


def nothing(_kind: str, _stage: int, _pipeline: int) -> bool:
    return False


class Model:
    """A job as Hetu's plan and costs. Times are in milliseconds.

    A step of the job is: the parameters are gathered, the pipelines run 1F1B, each stage sums its gradients over its copies,
    all workers agree on the norm, and the optimizer runs. The sum of the embedding's gradient over the first and the last
    stage begins after the last backward of the first stage, and the gradients of both stages are summed after it.
    """

    def __init__(self, job: Job):
        self.job = job
        self.ends = (0, job.stages - 1)  # stages that share the embedding
        self.ideal = {kind: (fmean if kind in COMPUTED else median)(operation.time for operation in job.of(kind))
                      for kind in job.kinds}
        plan = json.loads(schedule.generate("1f1b", stages=job.stages, micro_batches=job.micro_batches).json())
        plan["lowering"] = {"pipelines": job.pipelines, "reduce_scalars": True}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plan.json"
            path.write_text(json.dumps(plan))
            self.plan = schedule.read(path)

    def _time(self, steps: Sequence[int], keeps: Keeps, kind: str, stage: int, pipeline: int) -> float:
        """Returns the mean time of a kind on a worker over steps, or the kind's ideal time."""
        if not self.job.has(kind, stage, pipeline):
            return 0
        if not keeps(kind, stage, pipeline):
            return self.ideal[kind]
        return fmean(operation.time for step in steps for operation in self.job.on(step, pipeline, stage, kind))

    def collective(self, steps: Sequence[int], keeps: Keeps, kind: str, stage: int) -> float:
        """Returns the time of a collective of a stage from the arrival of its last member in any pipeline that keeps its own
        times, or its ideal time if that is longer."""
        members = [d for d in range(self.job.pipelines) if self.job.has(kind, stage, d)]
        own = [d for d in members if keeps(kind, stage, d)]
        ideal = self.ideal[kind] if len(own) < len(members) else 0
        if not own:
            return ideal
        spans = []
        for step in steps:
            operations = [self.job.on(step, d, stage, kind)[0] for d in own]
            spans.append(max(o.end for o in operations) - max(o.start for o in operations))
        return max(ideal, fmean(spans))

    def _sums(self, steps: Sequence[int], keeps: Keeps) -> list[float]:
        """Returns the time of the sums of each stage's gradients. The first and the last stage have a sum in common, so
        both sums end when the longer one does."""
        sums = [sum(self.collective(steps, keeps, kind, stage) for kind in (NORM, EMBEDDING, SCATTER))
                for stage in range(self.job.stages)]
        longest = max(sums[stage] for stage in self.ends)
        return [longest if stage in self.ends else time for stage, time in enumerate(sums)]

    def _measured_sums(self, steps: Sequence[int]) -> list[float]:
        """Returns the time from the last backward to the end of the sums of each stage's gradients. This includes the time
        of the host between them. The first and the last stage begin after the first stage's last backward."""
        def span(step: int, stage: int) -> float:
            after = 0 if stage in self.ends else stage
            begin = max(self.job.on(step, d, after, B)[-1].end for d in range(self.job.pipelines))
            return max(self.job.on(step, d, stage, SCATTER)[-1].end for d in range(self.job.pipelines)) - begin

        return [fmean(span(step, stage) for step in steps) for stage in range(self.job.stages)]

    def before(self, steps: Sequence[int], keeps: Keeps, host: bool) -> float:
        """Returns the time from the beginning of a step to the first forward."""
        if not host:
            return self.collective(steps, keeps, GATHER, 0)
        return fmean(max(self.job.on(step, d, 0, F)[0].start for d in range(self.job.pipelines)) - self.job.span(step)[0]
                     for step in steps)

    def costs(self, steps: Sequence[int], keeps: Keeps = everything, host: bool = False) -> dict[str, Any]:
        """Returns the cost file of these steps. `keeps` selects the operations that keep their own times, and all others
        take their ideal time. `host` adds the time that the host needs between the operations at the end of a step."""
        job = self.job
        sums = self._measured_sums(steps) if host else self._sums(steps, keeps)
        clips = {(d, s): self._time(steps, keeps, CLIP, s, d) for d in range(job.pipelines) for s in range(job.stages)}
        stages, pairs = [], []
        for d in range(job.pipelines):
            for s in range(job.stages):
                backward = self._time(steps, keeps, B, s, d)
                update = self._time(steps, keeps, OPTIMIZER, s, d) + clips[d, s] - min(clips.values())
                stages.append({"forward": self._time(steps, keeps, F, s, d), "input_grad": backward / 2,
                               "weight_grad": backward / 2, "reduce_grad": sums[s], "update": update})
                for other, kind in ((s - 1, RECV_F), (s + 1, RECV_B)):
                    if 0 <= other < job.stages:
                        pairs.append({"from": d * job.stages + other, "to": d * job.stages + s,
                                      "latency": self._time(steps, keeps, kind, s, d)})
        return {"unit": "ms", "stages": stages, "link": {"pairs": pairs}, "reduce_scalars": min(clips.values()),
                "cuts": [list(range(job.stages))] * job.pipelines}

    def simulate(self, costs: dict[str, Any], events: bool = False) -> dict[str, Any]:
        """Returns the figures of `hetu simulate` for the job's plan under costs."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "costs.json"
            path.write_text(json.dumps(costs))
            return schedule.simulate(self.plan, costs=os.fspath(path), lowered=True, sync="eager",
                                     pipelines=self.job.pipelines, events=events)

    def predict(self, steps: Sequence[int], keeps: Keeps = everything, host: bool = False) -> float:
        """Returns the predicted time of a step, from its first to its last operation."""
        step: float = self.simulate(self.costs(steps, keeps, host))["step_time"]
        return self.before(steps, keeps, host) + step

    def measured(self, step: int) -> float:
        """Returns the measured time of a step, from its first to its last operation."""
        begin, end = self.job.span(step)
        return end - begin


class WhatIf:
    """The published analysis of a job, repeated with Hetu's simulator. Each figure is the mean step time under some change,
    divided by that of the ideal job, in which all operations of a kind take the same time."""

    def __init__(self, model: Model):
        self.model, self.job = model, model.job
        self.ideal = model.predict(self.job.steps, nothing)
        self.all = self.steps(everything)

    def steps(self, keeps: Keeps) -> dict[int, float]:
        """Returns the time of each step without time of the host if only these operations keep their own times."""
        return {step: self.model.predict([step], keeps) for step in self.job.steps}

    def results(self) -> dict[str, Any]:
        """Returns the figures of a published result file that has the same keys."""
        base = {step: self.model.measured(step) for step in self.job.steps}
        mean = fmean(self.all.values())
        out: dict[str, Any] = {
            "step_t_base": _seconds(base), "step_t_nodelay": _seconds(self.all),
            "step_t_noblk": _seconds(dict.fromkeys(base, self.ideal)),
            "launch_slowdown": fmean(base.values()) / mean, "blocking_slowdown": mean / self.ideal,
            "launch_step_slowdown": {str(step): time / self.all[step] for step, time in base.items()},
            "blocking_step_slowdown": {str(step): time / self.ideal for step, time in self.all.items()},
        }
        groups: dict[str, tuple[Iterable[Any], Callable[[Any], Keeps]]] = {
            "dp_rank": (range(self.job.pipelines), lambda one: lambda kind, s, d: d == one),
            "stage": (range(self.job.stages), lambda one: lambda kind, s, d: s == one),
            "optype": (sorted({MESSAGES.get(kind, kind) for kind in self.job.kinds}),
                       lambda one: lambda kind, s, d: MESSAGES.get(kind, kind) == one),
        }
        for name, (members, select) in groups.items():
            times = {one: self.steps(select(one)) for one in members}
            out[f"blocking_decompose_by_{name}"] = {str(one): fmean(t.values()) / self.ideal for one, t in times.items()}
            out[f"blocking_decompose_by_{name}_per_step"] = {
                str(step): {str(one): t[step] / self.ideal for one, t in times.items()} for step in self.job.steps}
        return out

    def explained(self, keeps: Keeps) -> dict[str, float]:
        """Returns how much of the slowdown the operations that `keeps` selects explain: `rem` if they alone are made ideal,
        `add` if they alone are slow. Times are means in seconds, and shares are relative to the whole slowdown."""
        original = fmean(self.all.values())
        removed = fmean(self.steps(lambda kind, s, d: not keeps(kind, s, d)).values())
        added = fmean(self.steps(keeps).values())
        return {"trem": removed / 1e3, "tadd": added / 1e3, "tori": original / 1e3, "tideal": self.ideal / 1e3,
                "rem": (original - removed) / (original - self.ideal), "add": (added - self.ideal) / (original - self.ideal)}

    def last_stage(self) -> dict[str, float]:
        """Returns the figures of an ms file: the share of the last stage."""
        figures = self.explained(lambda kind, s, d: s == self.job.stages - 1)
        return figures | {"Ms": figures["rem"]}

    def slowest_workers(self, results: dict[str, Any]) -> dict[str, float]:
        """Returns the figures of an mw file: the share of the slowest 3 % of the workers. A worker is as slow as its stage
        or its pipeline, whichever is less slow."""
        pipelines, stages = results["blocking_decompose_by_dp_rank"], results["blocking_decompose_by_stage"]
        scores = {(d, s): min(pipelines[str(d)], stages[str(s)])
                  for d in range(self.job.pipelines) for s in range(self.job.stages)}
        slowest = sorted(scores, key=lambda worker: -scores[worker])[:(len(scores) * 3 + 99) // 100]
        figures = self.explained(lambda kind, s, d: (d, s) in slowest)
        return figures | {"Mw": figures["rem"]}


def _seconds(of_step: dict[int, float]) -> dict[str, float]:
    return {str(step): ms / 1e3 for step, ms in of_step.items()}


def compared(theirs: Any, ours: Any, at: str = "") -> dict[str, list[tuple[float, float]]]:
    """Returns the numbers of two results as pairs (theirs, ours), by key. Figures per step are collected under one key.
    Throws ValueError if a number of theirs has no counterpart."""
    out: dict[str, list[tuple[float, float]]] = {}
    for key, value in theirs.items():
        if key == "job_meta" or value is None:
            continue
        if key not in ours:
            raise ValueError(f"{at}{key}: the published figure has no counterpart; the trace lacks this step or worker")
        name = at or key
        if isinstance(value, dict):
            for pairs in compared(value, ours[key], name).values():
                out.setdefault(name, []).extend(pairs)
        else:
            out.setdefault(name, []).append((float(value), float(ours[key])))
    return out


def trace_of(model: Model, step: int) -> dict[str, Any]:
    """Returns a trace of Hetu with the measured operations of a step and its prediction from the step's own times."""
    costs = model.costs([step], host=True)
    before_us = 1e3 * model.before([step], everything, True)
    predicted = [event | {"start_us": event["start_us"] + before_us} for event in model.simulate(costs, True)["events"]]
    plan = schedule.lower(model.plan, sync="eager", pipelines=model.job.pipelines)
    return {"traceEvents": chrome_events(predicted, False) + chrome_events(trace_events(model.job, step), True),
            "displayTimeUnit": "ms",
            "metadata": {"plan": json.loads(plan.json()), "costs": costs}}


def print_steps(model: Model) -> None:
    """Prints the measured time of each step, and its prediction from the mean times of the job and of the step."""
    job = model.job
    mean = model.predict(job.steps, host=True)
    print(f"{job.pipelines} pipelines of {job.stages} stages, {job.micro_batches} micro-batches, {len(job.steps)} steps\n")
    print(f"{'step':>6}{'measured ms':>14}{'from means':>12}{'error':>9}{'from its own':>14}{'error':>9}")
    measured, own = [], []
    for step in job.steps:
        measured.append(model.measured(step))
        own.append(model.predict([step], host=True))
        print(f"{step:>6}{measured[-1]:>14.1f}{mean:>12.1f}{mean / measured[-1] - 1:>9.2%}{own[-1]:>14.1f}"
              f"{own[-1] / measured[-1] - 1:>9.2%}")
    print(f"{'mean':>6}{fmean(measured):>14.1f}{mean:>12.1f}{mean / fmean(measured) - 1:>9.2%}{fmean(own):>14.1f}"
          f"{fmean(own) / fmean(measured) - 1:>9.2%}")


def print_figures(name: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Prints the published figures beside Hetu's. Keys with a figure per step show the largest difference only."""
    print(f"\n{name + ' figure':<48}{'values':>7}{'published':>11}{'Hetu':>11}{'largest difference':>21}")
    for key, pairs in compared(theirs, ours).items():
        largest = max(abs(our / their - 1) for their, our in pairs)
        mean = [fmean(side) for side in zip(*pairs, strict=True)]
        print(f"{key:<48}{len(pairs):>7}{mean[0]:>11.5f}{mean[1]:>11.5f}{largest:>21.3%}")
        if 1 < len(pairs) <= len(theirs[key]) and not key.startswith("step_t") and "step" not in key:
            for member, value in theirs[key].items():
                our = ours[key][member]
                print(f"    {member:<44}{'':>7}{value:>11.5f}{our:>11.5f}{abs(our / value - 1):>21.3%}")


def arguments() -> argparse.Namespace:
    parser = CommandParser(prog="python3 -m hetu.profile.straggler", description=__doc__.partition("\n\n    ")[0],
                           formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the published files")
    parser.add_argument("--job", default="ST", help="name of the job in the files' names (default: ST)")
    parser.add_argument("--trace", help="file for the trace of one step; also set --step")
    parser.add_argument("--step", type=int, help="step of --trace")
    given = parser.parse_args()
    if (given.trace is None) != (given.step is None):
        parser.error("--trace FILE and --step N belong together")
    return given


def main() -> None:
    given = arguments()
    model = Model(read(given.folder / f"timeline-{given.job}.json.gz"))
    if given.trace is not None:
        if given.step not in model.job.steps:
            raise ValueError(f"--step {given.step}: the job has no such step; its steps are {model.job.steps}")
        files.write_text(given.trace, json.dumps(trace_of(model, given.step)))
        return
    print_steps(model)
    analysis = WhatIf(model)
    results = analysis.results()
    for name, ours in (("result", results), ("ms", analysis.last_stage()), ("mw", analysis.slowest_workers(results))):
        print_figures(name, files.read_json(given.folder / f"{name}-{given.job}.json"), ours)


if __name__ == "__main__":
    with one_line_errors("straggler"):
        main()
