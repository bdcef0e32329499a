#!/usr/bin/env python3
"""Predicted = measured with real kernels: BERT-base in two stages on two workers of one core each. One traced run of 1f1b
gives the costs; every other method is predicted from them alone, then run.

usage: real_methods.py [--steps N] [--rows 16] [--micro-batches 8] [--methods LIST] [--attempts N] [--limit 0.1]
                       [--trace FILE]

A step is measured as the median after a warm-up. `hetu choose` ranks the same methods by the same costs: the fastest
measured one must be among its first two. Other work on the machine lengthens steps, of the traced run or of the others, so
a table that misses is measured again, trace included; `others` says how many processors other work took meanwhile.
Exit status 1: a step further than the limit from its prediction, or a bad choice, in each attempt.
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

from pipeline_step import HERE, step_times
from turns import OtherWork

METHODS = ["gpipe", "interleaved-1f1b", "chimera", "zb-h1", "zb-v"]
TRACED = "1f1b"


def hetu(*words: str) -> Any:
    """The JSON that a command of hetu prints."""
    done = subprocess.run(["hetu", *words, "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"hetu {' '.join(words)}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def sizes(args: argparse.Namespace, trace: Path) -> list[str]:
    return ["--stages", "2", "--micro-batches", str(args.micro_batches), "--costs", str(trace), "--sync", "eager-opt"]


def measure(method: str, args: argparse.Namespace, trace: Path | None = None) -> list[float]:
    """Seconds of the steps of a method; of the traced run if there is a file to write."""
    command = ["heturun", "-w", "2", sys.executable, str(HERE / "pipeline_hetu.py"), method, "--pin",
               "--steps", str(args.steps), "--rows", str(args.rows), "--micro-batches", str(args.micro_batches)]
    return step_times(command + (["--trace", str(trace)] if trace else []))


def table(args: argparse.Namespace, trace: Path) -> bool:
    """Measures and prints all methods once; whether everything held."""
    print(f"\n{'method':<18}{'predicted s':>12}{'measured s':>12}{'from':>9}{'to':>9}{'ratio':>8}{'others':>8}")
    held, medians = True, {}
    for method in [TRACED, *args.methods.split(",")]:
        work = OtherWork()
        times = measure(method, args, trace if method == TRACED else None)
        others, _ = work.seen()
        predicted = hetu("simulate", method, *sizes(args, trace))["step_time"] * 1e-3
        medians[method] = statistics.median(times)
        ratio = medians[method] / predicted
        beyond = abs(ratio - 1) > args.limit and method != TRACED
        held = held and not beyond
        print(f"{method:<18}{predicted:>12.3f}{medians[method]:>12.3f}{min(times):>9.3f}{max(times):>9.3f}{ratio:>8.3f}"
              f"{others:>8.2f}{'  traced' if method == TRACED else '  beyond the limit' if beyond else ''}", flush=True)
    ranked = hetu("choose", *sizes(args, trace), "--methods", ",".join(medians))["ranked"]
    first = list(dict.fromkeys(one["method"] for one in ranked))[:2]
    fastest = min(medians, key=medians.__getitem__)
    print(f"hetu choose: {first[0]}, then {first[1]}; the fastest measured is {fastest}")
    return held and fastest in first


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--attempts", type=int, default=2)
    parser.add_argument("--limit", type=float, default=0.1)
    parser.add_argument("--trace", type=Path, help="keep the trace of the 1f1b run here")
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    print(f"BERT-base, 2 workers of 1 core, {args.micro_batches} micro-batches, {args.rows} x 128, float32, "
          f"median of {args.steps} steps; costs from {TRACED}, limit {args.limit:.0%}")
    with tempfile.TemporaryDirectory() as folder:
        trace = args.trace or Path(folder) / "run.json"
        return 0 if any(table(args, trace) for _ in range(args.attempts)) else 1


if __name__ == "__main__":
    sys.exit(main())
