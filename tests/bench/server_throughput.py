#!/usr/bin/env python3
"""Measures throughput over parameter servers with slow pipelines: 16 processes and servers, and devices that wait.

usage: server_throughput.py [--window 10] [--cases WORD,…] [--attempts 3] [--csv FILE] [--sample]

The cases of docs/figures/served.py: forward 30 ms, backward 60 ms, 5 ms to the servers and back. hetpipe runs by waves of 8.
1f1b has as many micro-batches per step, and the servers apply its gradients. Each is rehearsed (`hetu rehearse`) for about
--window seconds. Figures are relative to as many equal pipelines that never wait. The result of `hetu simulate` for the same
run is printed next to them. Every figure is the median of --attempts runs. Exit status 1: a median is more than 5 % from the
simulated one."""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))
from figures import served  # noqa: E402
from figures.heterogeneity import Case  # noqa: E402
from figures.served import BACKWARD, FORWARD, MICRO_BATCHES, SLOWED, WAYS, Way  # noqa: E402

NEAR = 0.05
SAMPLE = [Case(2, 2, "one pipeline 2x slower", slower=2)]


def steps_for(case: Case, window: float) -> int:
    """Returns the number of steps for which the slowest pipeline works for about the window."""
    return max(4, math.ceil(1000 * window / (MICRO_BATCHES * (FORWARD + BACKWARD) * case.slower)))


def measured(case: Case, way: Way, steps: int) -> float:
    with tempfile.TemporaryDirectory(prefix="hetu-served-") as folder:
        report = Path(folder) / "report.json"
        words = ["heturun", "-w", f"{case.stages * case.pipelines}", "-s", f"{served.SERVERS}", "hetu", "rehearse",
                 *way.words(case, steps), "--time-unit", "1ms", "--repeat", "1", "--format", "json", "-o", str(report)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return served.parts(case, float(json.loads(report.read_text())["measured"]["throughput"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=float, default=10, help="seconds (default %(default)s)")
    parser.add_argument("--cases", default="", help="only those whose words have one of these, as in equal,pause")
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--sample", action="store_true", help="a small case, once")
    args = parser.parse_args()
    cases = SAMPLE if args.sample else [c for c in SLOWED if any(word in c.words for word in args.cases.split(","))]
    rows = []
    near = True
    print(f"{'case':<58}{'way':<18}{'measured':>9}{'simulated':>10}{'ratio':>8}{'least':>8}{'most':>8}")
    for case in cases:
        steps = 4 if args.sample else steps_for(case, args.window)
        for way in WAYS[1::3] if args.sample else WAYS:
            found = [measured(case, way, steps) for _ in range(1 if args.sample else args.attempts)]
            value, said = statistics.median(found), served.simulated(case, way, steps)
            near = near and abs(value / said - 1) <= NEAR
            print(f"{case.words:<58}{way.name:<18}{value:>9.3f}{said:>10.3f}{value / said:>8.3f}{min(found):>8.3f}"
                  f"{max(found):>8.3f}", flush=True)
            rows.append({"stages": case.stages, "pipelines": case.pipelines, "case": case.words, "way": way.name,
                         "steps": steps, "measured": f"{value:.4f}", "simulated": f"{said:.4f}"})
    if args.csv:
        with args.csv.open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    return 0 if args.sample or near else 1


if __name__ == "__main__":
    sys.exit(main())
