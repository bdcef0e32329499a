#!/usr/bin/env python3
"""Times a training step of BERT-base on two workers of one thread, float32, by every method of torch.distributed.pipelining.

Hetu runs under heturun, and torch over gloo, with the same cuts as Hetu. Both sides run in turn. Hetu's logits are of the
masked positions. torch's are of all positions, as users run it, or of the masked ones.

usage: pipeline_step.py [--rounds N] [--steps N] [--rows 8] [--micro-batches 8] [--methods LIST] [--torch PYTHON]
                        [--torch-positions all|masked] [--no-serial]

Prints per method and side the median step, and its efficiency in two forms. An efficiency is the step that `hetu simulate`
predicts from the side's own stage times (without messages), divided by the measured step.
  run    stage times of that very step: includes losses by waiting, messages and all work outside kernels
  alone  stage times that the same two processes measure between those steps, each side by the same plan from a file in which
         one worker computes at a time: also includes the slowdown of a worker's kernels by the other worker; with
         --no-serial those steps are left out, which halves the time
The last line has the fastest method of each side.
All figures are medians over the steps of a run, and over the runs (--rounds). The gradient norm, which only Hetu computes,
counts as part of its update, with the time of the worker that started it last.
Exit status 1: a method for which Hetu's `run` efficiency is not the higher one.
--torch names a Python that has torch and transformers (default: this one)."""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WORKERS = 2
SERIAL_MICRO_BATCHES = 4
# methods with separate I and W; methods with V-shaped placement of stages
SPLIT, V_SHAPED = ("interleaved-zb", "zb-v", "dualpipev"), ("zb-v", "dualpipev")
METHODS = ["gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "interleaved-zb", "zb-v", "dualpipev"]

Stages = list[dict[str, float]]  # costs of each stage, as in a file of costs, ms


def report_of(command: list[str]) -> dict[str, Any]:
    """Returns the line {"steps": […], …} that a worker printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        at = line.find('{"steps"')
        if at >= 0:
            report: dict[str, Any] = json.loads(line[at:])
            return report
    raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")


def serial_plan(method: str, micro_batches: int) -> str:
    """Returns the text of a plan for both sides: the stages of `method` on its workers, with one instruction at a time."""
    stages = WORKERS if method in ("gpipe", "1f1b") else 2 * WORKERS

    def worker_of(stage: int) -> int:
        return stage if stage < WORKERS else 2 * WORKERS - 1 - stage if method in V_SHAPED else stage - WORKERS

    backward = "I" if method in SPLIT else "B"
    order: list[tuple[int, str]] = []  # (worker, instruction), one after another
    waiting: list[list[str]] = [[] for _ in range(WORKERS)]  # weight gradients for the next time that the others wait

    def after(stage: int, cell: str) -> None:
        worker = worker_of(stage)
        if order and order[-1][0] == worker:  # the others wait for this worker anyway
            order.extend((worker, one) for one in waiting[worker])
            waiting[worker].clear()
        order.append((worker, cell))

    for m in range(micro_batches):
        for s in range(stages):
            after(s, f"{s}F{m}")
        for s in reversed(range(stages)):
            after(s, f"{s}{backward}{m}")
            if method in SPLIT:
                waiting[worker_of(s)].append(f"{s}W{m}")
    order.extend((worker, one) for worker in range(WORKERS) for one in waiting[worker])
    return "".join(",".join(cell if worker == of else "" for of, cell in order) + "\n" for worker in range(WORKERS))


def stage_times(trace: Path) -> Stages:
    """Returns the mean milliseconds of each stage in a traced step, as in a file of costs."""
    found: dict[tuple[int, str], list[float]] = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event.get("ph") == "X" and event["pid"] == 1:
            found.setdefault((event["args"]["stage"], event["args"]["kind"]), []).append(event["dur"] * 1e-3)
    stages = 1 + max(stage for stage, _ in found)

    def mean(stage: int, kind: str) -> float:
        return statistics.mean(found.get((stage, kind), [0.0]))

    norm = min(found[-1, "REDUCE_SCALARS"]) / (stages / WORKERS)
    return [{"forward": mean(s, "F"), "input_grad": mean(s, "I") or mean(s, "B") / 2,
             "weight_grad": mean(s, "W") or mean(s, "B") / 2, "update": mean(s, "UPDATE") + norm} for s in range(stages)]


def ideal(method: str, micro_batches: int, stages: Stages) -> float:
    """Returns the seconds of a step with these stages, if workers wait because of the schedule only."""
    with tempfile.TemporaryDirectory() as folder:
        costs = Path(folder) / "costs.json"
        costs.write_text(json.dumps({"unit": "ms", "stages": stages}))
        words = ["hetu", "simulate", method, "--stages", "2", "--micro-batches", str(micro_batches), "--costs", str(costs),
                 "--format", "json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: exit status {done.returncode}\n{done.stderr}")
    return float(json.loads(done.stdout)["step_time"]) * 1e-3


class Side:
    """Step times of one side and the efficiencies of its runs."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.run: list[float] = []  # one value per step
        self.alone: list[float] = []  # one value per run

    def add(self, method: str, micro_batches: int, steps: list[float], run: list[Stages], serial: list[Stages]) -> None:
        """Adds the steps of one run, the stage times of each, and those of the serial steps between them."""
        self.steps += steps
        self.run += [ideal(method, micro_batches, of_step) / seconds for of_step, seconds in zip(run, steps, strict=True)]
        if serial:
            alone = [{what: statistics.median(step[s][what] for step in serial) for what in serial[0][s]}
                     for s in range(len(serial[0]))]
            self.alone.append(ideal(method, micro_batches, alone) / statistics.median(steps))

    def join(self, other: Side) -> None:
        self.steps += other.steps
        self.run += other.run
        self.alone += other.alone

    def text(self) -> str:
        step, run = map(statistics.median, (self.steps, self.run))
        alone = f" alone {statistics.median(self.alone):.3f}" if self.alone else ""
        return f"{step:7.3f} ({min(self.steps):.3f} to {max(self.steps):.3f}) run {run:.3f}{alone}"


Sides = tuple[Side, Side]  # Hetu's, torch's


def line_of(method: str, sides: Sides) -> tuple[str, bool]:
    """Returns a line of the table, and true if Hetu is the more efficient side or the only one."""
    ours, theirs = sides
    line = f"{method:<17}Hetu {ours.text()}"
    if not theirs.steps:
        return line, True
    held = statistics.median(ours.run) > statistics.median(theirs.run)
    ratio = statistics.median(ours.steps) / statistics.median(theirs.steps)
    return f"{line}   torch {theirs.text()}   step Hetu / torch {ratio:.3f}{'' if held else '  LESS EFFICIENT'}", held


def best_line(table: dict[str, Sides]) -> str:
    """Returns a line with the fastest method of each side, by its median step."""
    found = []
    for name, side in (("Hetu", 0), ("torch", 1)):
        steps = {method: statistics.median(sides[side].steps) for method, sides in table.items() if sides[side].steps}
        if steps:
            method = min(steps, key=lambda one: steps[one])
            found.append((f"{name} {method} {steps[method]:.3f}", steps[method]))
    ratio = f"   step Hetu / torch {found[0][1] / found[1][1]:.3f}" if len(found) > 1 else ""
    return "best: " + "   ".join(words for words, _ in found) + ratio


@functools.cache
def cuts_of_all(stages: int, rows: int, micro_batches: int) -> list[int]:
    """Returns the first block of each stage where logits are of all positions."""
    method = "gpipe" if stages == WORKERS else "interleaved-1f1b"
    found: list[int] = report_of(["heturun", "-w", str(WORKERS), sys.executable, str(HERE / "pipeline_hetu.py"), method,
                                  "--rows", str(rows), "--micro-batches", str(micro_batches), "--cut-only"])["first_block"]
    return found


def measure(method: str, args: argparse.Namespace, have_torch: bool) -> Sides:
    """Measures one run of each side."""
    ours, theirs = Side(), Side()
    with tempfile.TemporaryDirectory() as folder:
        serial = Path(folder) / "serial.csv"
        serial.write_text(serial_plan(method, SERIAL_MICRO_BATCHES))
        by_turns = ["--serial", str(serial), "--serial-micro-batches", str(SERIAL_MICRO_BATCHES)]
        mine = report_of(["heturun", "-w", str(WORKERS), sys.executable, str(HERE / "pipeline_hetu.py"), method,
                          "--steps", str(args.steps), "--rows", str(args.rows), "--micro-batches", str(args.micro_batches),
                          *([] if args.no_serial else by_turns), "--traces", folder])
        run, alone = ([stage_times(Path(folder) / f"{name}-{turn}.json") for turn in range(count)]
                      for name, count in (("run", args.steps), ("serial", 0 if args.no_serial else args.steps + 1)))
        ours.add(method, args.micro_batches, mine["steps"], run, alone)
        if have_torch:
            cuts = mine["first_block"]
            if args.torch_positions == "all":
                cuts = cuts_of_all(len(cuts), args.rows, args.micro_batches)
            sizes = [str(args.steps), str(args.rows), str(args.micro_batches)]
            other = report_of([args.torch, str(HERE / "pipeline_torch.py"), method, *sizes,
                               "-" if args.no_serial else str(serial), str(SERIAL_MICRO_BATCHES), ",".join(map(str, cuts)),
                               args.torch_positions])
            theirs.add(method, args.micro_batches, other["steps"], other["run"], other["serial"])
    return ours, theirs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--torch-positions", choices=("all", "masked"), default="all")
    parser.add_argument("--no-serial", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    asked = "import torch, transformers; print(torch.__version__)"
    torch = subprocess.run([args.torch, "-c", asked], capture_output=True, text=True, check=False)
    have = torch.returncode == 0
    if not have:
        print("pipeline_step: torch and transformers are not installed here; only Hetu is timed", file=sys.stderr)
    version = torch.stdout.strip() if have else "(none)"
    print(f"BERT-base, 2 workers, {args.micro_batches} micro-batches, {args.rows} x 128, float32, 1 thread per worker; "
          f"seconds per step, efficiencies; beside torch {version} over gloo, logits of "
          f"{'all positions' if args.torch_positions == 'all' else 'the masked positions alone'}")
    table: dict[str, Sides] = {method: (Side(), Side()) for method in args.methods.split(",")}
    for turn in range(args.rounds):
        for method, sides in table.items():
            run = measure(method, args, have)
            print(f"{turn + 1}: {line_of(method, run)[0]}", flush=True)
            for side, more in zip(sides, run, strict=True):
                side.join(more)
    lines = [line_of(method, sides) for method, sides in table.items()]
    print("\nall rounds")
    for line, _ in lines:
        print(line)
    print(best_line(table))
    return 0 if all(held for _, held in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
