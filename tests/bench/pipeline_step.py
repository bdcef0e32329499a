#!/usr/bin/env python3
"""Times a training step of BERT-base on two workers of one thread, float32, by every method that
torch.distributed.pipelining has: Hetu under heturun beside torch over gloo, cut at the same blocks. Both sides run in turn.

usage: pipeline_step.py [--rounds N] [--steps N] [--rows 16] [--micro-batches 8] [--methods LIST] [--torch PYTHON]

Prints per method and side the median step, and its efficiency: the step that `hetu simulate` makes of the side's own stage
times in that step (means, without messages), divided by the measured one; the median over the steps. The gradient norm that
only Hetu computes counts as part of its update: what it took the worker that came to it last.
Exit status 1: a method by which ours is not the higher.
--torch names a Python that has torch and transformers (default: this one).
"""

from __future__ import annotations

import argparse
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
METHODS = ["gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "interleaved-zb", "zb-v", "dualpipev"]


def report_of(command: list[str]) -> dict[str, Any]:
    """What a worker printed, as the line {"steps": […], …}."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        at = line.find('{"steps"')
        if at >= 0:
            report: dict[str, Any] = json.loads(line[at:])
            return report
    raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")


def step_times(command: list[str]) -> list[float]:
    """Seconds per step that a worker printed."""
    return list(report_of(command)["steps"])


def stage_times(trace: Path) -> list[list[dict[str, float]]]:
    """Mean milliseconds of each stage as in a file of costs, for every step of a trace but the first, which warms up."""
    found: dict[tuple[int, int, str], list[float]] = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event.get("ph") == "X" and event["pid"] == 1:
            key = event["args"]["step"], event["args"]["stage"], event["args"]["kind"]
            found.setdefault(key, []).append(event["dur"] * 1e-3)
    steps, stages = (1 + max(key[of] for key in found) for of in (0, 1))

    def mean(step: int, stage: int, kind: str) -> float:
        return statistics.mean(found.get((step, stage, kind), [0.0]))

    def update(step: int, stage: int) -> float:
        return mean(step, stage, "UPDATE") + min(found[step, -1, "REDUCE_SCALARS"]) / (stages / WORKERS)

    return [[{"forward": mean(k, s, "F"), "input_grad": mean(k, s, "I") or mean(k, s, "B") / 2,
              "weight_grad": mean(k, s, "W") or mean(k, s, "B") / 2, "update": update(k, s)}
             for s in range(stages)] for k in range(1, steps)]


def ideal(method: str, micro_batches: int, stages: list[dict[str, float]]) -> float:
    """Seconds of a step by these stages, if nothing but the schedule made them wait."""
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
    """Step times of one side and the efficiency of each of its runs."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.efficiencies: list[float] = []  # of each step

    def add(self, method: str, micro_batches: int, steps: list[float], stages: list[list[dict[str, float]]]) -> None:
        self.steps += steps
        self.efficiencies += [ideal(method, micro_batches, of_step) / seconds
                              for of_step, seconds in zip(stages, steps, strict=True)]

    def efficiency(self) -> float:
        return statistics.median(self.efficiencies)

    def text(self) -> str:
        middle = statistics.median(self.steps)
        return f"{middle:9.3f} ({min(self.steps):.3f} to {max(self.steps):.3f}){self.efficiency():8.3f}"


def measure(method: str, args: argparse.Namespace, have_torch: bool) -> tuple[Side, Side]:
    ours, theirs = Side(), Side()
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "run.json"
            mine = report_of(["heturun", "-w", str(WORKERS), sys.executable, str(HERE / "pipeline_hetu.py"), method,
                              "--steps", str(args.steps), "--rows", str(args.rows),
                              "--micro-batches", str(args.micro_batches), "--trace", str(trace)])
            ours.add(method, args.micro_batches, mine["steps"], stage_times(trace))
        if have_torch:
            cuts = ",".join(map(str, mine["first_block"]))
            other = report_of([args.torch, str(HERE / "pipeline_torch.py"), method, str(args.steps), str(args.rows),
                               str(args.micro_batches), cuts])
            theirs.add(method, args.micro_batches, other["steps"], other["stages"])
    return ours, theirs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--torch", default=sys.executable)
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    asked = "import torch, transformers; print(torch.__version__)"
    torch = subprocess.run([args.torch, "-c", asked], capture_output=True, text=True, check=False)
    have = torch.returncode == 0
    if not have:
        print("pipeline_step: torch and transformers are not installed here; only Hetu is timed", file=sys.stderr)
    version = torch.stdout.strip() if have else "(none)"
    print(f"BERT-base, 2 workers, {args.micro_batches} micro-batches, {args.rows} x 128, float32, 1 thread per worker; "
          f"seconds per step, efficiency; beside torch {version} over gloo")
    held = True
    for method in args.methods.split(","):
        ours, theirs = measure(method, args, have)
        line = f"{method:<18}Hetu {ours.text()}"
        if have:
            held = held and ours.efficiency() > theirs.efficiency()
            ratio = statistics.median(ours.steps) / statistics.median(theirs.steps)
            line += f"   torch {theirs.text()}   step Hetu / torch {ratio:.3f}"
            line += "" if ours.efficiency() > theirs.efficiency() else "  LESS EFFICIENT"
        print(line, flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
