#!/usr/bin/env python3
"""Compares predicted and measured steps with real kernels: BERT-base in two stages on two workers of one core each.

One traced run of 1f1b gives the costs. Every other method is predicted from them only, then run.

usage: real_methods.py [--rounds N] [--steps N] [--rows 8] [--micro-batches 8] [--methods LIST] [--limit 0.1] [--traces DIR]

The same two processes hold a job of each method. A round is a traced run of 1f1b and, right after it, an untraced run of
each method, in a different order each time. A machine that is slower for a minute slows a whole round, so the result is the
median over the rounds of measured / predicted. `hetu choose` ranks the methods by each round's costs. The fastest method by
the medians must be among its first two in most rounds. Exit status 1: a method further than the limit from its prediction,
or a bad choice."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turns import OtherWork

HERE = Path(__file__).resolve().parent
METHODS = ["1f1b", "gpipe", "interleaved-1f1b", "chimera", "zb-h1", "zb-v"]
TRACED = "traced"  # a run of the first method

Round = dict[str, tuple[float, float]]  # predicted and measured seconds of each method, and of the traced run


def hetu(*words: str) -> Any:
    """Returns the JSON that a command of hetu prints."""
    done = subprocess.run(["hetu", *words, "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"hetu {' '.join(words)}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def sizes(args: argparse.Namespace, trace: str) -> list[str]:
    return ["--stages", "2", "--micro-batches", str(args.micro_batches), "--costs", trace, "--sync", "eager-opt"]


def first_two(args: argparse.Namespace, trace: str) -> list[str]:
    """Returns the two best methods of `hetu choose` by these costs."""
    ranked = hetu("choose", *sizes(args, trace), "--methods", args.methods)["ranked"]
    return list(dict.fromkeys(one["method"] for one in ranked))[:2]


def rounds_of(args: argparse.Namespace, traces: str) -> Iterator[dict[str, Any]]:
    """Yields the workers' output, round after round."""
    command = ["heturun", "-w", "2", sys.executable, str(HERE / "real_turns.py"), args.methods, "--traces", traces,
               "--rounds", str(args.rounds), "--steps", str(args.steps), "--rows", str(args.rows),
               "--micro-batches", str(args.micro_batches)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            at = line.find('{"round"')
            if at >= 0:
                yield json.loads(line[at:])
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")


def predicted_and_measured(args: argparse.Namespace, told: dict[str, Any]) -> Round:
    traced = args.methods.split(",")[0]
    seen = {}
    for method, times in told["seconds"].items():
        predicted = hetu("simulate", traced if method == TRACED else method, *sizes(args, told["trace"]))
        seen[method] = predicted["step_time"] * 1e-3, statistics.median(times)
    return seen


def summary(rounds: list[Round], limit: float) -> bool:
    """Prints the medians over the rounds. Returns true if all except the traced run are within the limit."""
    print(f"\n{'method':<18}{'predicted s':>12}{'measured s':>12}{'ratio':>8}{'from':>8}{'to':>8}")
    held = True
    for method in rounds[0]:
        ratios = [seen[method][1] / seen[method][0] for seen in rounds]
        predicted, measured = (statistics.median(seen[method][of] for seen in rounds) for of in (0, 1))
        beyond = abs(statistics.median(ratios) - 1) > limit and method != TRACED
        held = held and not beyond
        print(f"{method:<18}{predicted:>12.3f}{measured:>12.3f}{statistics.median(ratios):>8.3f}{min(ratios):>8.3f}"
              f"{max(ratios):>8.3f}{'  beyond the limit' if beyond else ''}")
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--methods", default=",".join(METHODS), help="the first is traced")
    parser.add_argument("--limit", type=float, default=0.1)
    parser.add_argument("--traces", help="keep the traces in this folder")
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    print(f"BERT-base, 2 workers of 1 core, {args.micro_batches} micro-batches, {args.rows} x 128, float32, "
          f"{args.rounds} rounds of {args.steps} steps; limit {args.limit:.0%}\nmeasured / predicted", flush=True)
    rounds, chosen = [], []
    with tempfile.TemporaryDirectory() as folder:
        work = OtherWork()
        for told in rounds_of(args, args.traces or folder):
            rounds.append(predicted_and_measured(args, told))
            chosen.append(first_two(args, told["trace"]))
            ratios = "  ".join(f"{method} {measured / predicted:.3f}"
                               for method, (predicted, measured) in rounds[-1].items())
            print(f"{len(rounds)}: {ratios}; choose: {chosen[-1][0]}, {chosen[-1][1]}", flush=True)
    print(f"other work took {work.seen()[0]:.2f} processors meanwhile")
    held = summary(rounds, args.limit)
    fastest = min(args.methods.split(","), key=lambda method: statistics.median(seen[method][1] for seen in rounds))
    among = sum(fastest in first for first in chosen)
    print(f"the fastest measured is {fastest}, among the first two of hetu choose in {among} of {args.rounds} rounds")
    return 0 if held and 2 * among > args.rounds else 1


if __name__ == "__main__":
    sys.exit(main())
