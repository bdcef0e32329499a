#!/usr/bin/env python3
"""Compares predicted and measured steps of every method, rehearsed with a process per worker.

usage: rehearsed_methods.py [--workers 16] [--micro-batches 32] [--attempts 3] [--methods LIST] [--case NAME] [--json FILE]

10 ms forwards, 4 KiB messages, median of 5 steps after a warm-up. Three cases: as planned (within 3 %), one worker at half
speed and seeded jitter (within 5 %). The order of methods by measured time must be that by prediction wherever predictions
differ by more than 5 %. Each figure is the median of --attempts rehearsals, with the minimum and the maximum of their
ratios. Kernels wait, so two cores are enough for 16 workers. Other load lengthens steps, and the last columns show this
load. Exit status 1: a figure beyond its limit."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from turns import OtherWork

METHODS = ["gpipe", "1f1b", "interleaved-1f1b", "chimera", "hanayo", "zb-h1", "zb-v", "dualpipe", "dualpipev", "varuna"]
CASES: dict[str, tuple[float, list[str]]] = {
    "as planned": (0.03, []),
    "worker 5 at half speed": (0.05, ["--slow", "worker=5,factor=2"]),
    "jitter 0.2": (0.05, ["--jitter", "0.2", "--seed", "1"]),
}


def rehearse(workers: int, words: list[str]) -> dict[str, Any]:
    """Returns the report of `hetu rehearse WORDS` in `workers` processes, or in threads for 0. `others` and `stolen` are the
    processors that other load and the host used during the run."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        start = ["heturun", "-w", str(workers)] if workers else []
        command = [*start, "hetu", "rehearse", *words, "--format", "json", "-o", str(report)]
        work = OtherWork()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        result: dict[str, Any] = json.loads(report.read_text())
        result["others"], result["stolen"] = work.seen()
    return result


def median_of(method: str, args: argparse.Namespace, options: list[str]) -> dict[str, Any]:
    """Returns the attempt with the median ratio; for an even number, the upper of the middle two. `least` and `most` are the
    smallest and the largest ratio."""
    words = [method, "--stages", str(args.workers), "--micro-batches", str(args.micro_batches), "--time-unit", "10ms",
             "--payload", "4096", "--repeat", "5", *options]
    return median(args.workers, words, args.attempts)


def median(workers: int, words: list[str], attempts: int) -> dict[str, Any]:
    """Returns the rehearsal with the median ratio of `attempts` rehearsals, as above."""
    results = sorted((rehearse(workers, words) for _ in range(attempts)), key=lambda r: float(r["ratio"]))
    return {**results[len(results) // 2], "least": results[0]["ratio"], "most": results[-1]["ratio"]}


def misplaced(rows: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Returns the pairs of methods whose measured order differs from the predicted one, where predictions differ by more
    than 5 %."""
    wrong = []
    for a, first in rows:
        for b, second in rows:
            planned = second["predicted"]["step_time"] / first["predicted"]["step_time"]
            if planned > 1.05 and second["measured"]["step_time"] <= first["measured"]["step_time"]:
                wrong.append(f"{a} is planned faster than {b}, and was not")
    return wrong


def show_case(name: str, args: argparse.Namespace) -> tuple[bool, list[dict[str, Any]]]:
    """Measures and prints one case. Returns true if it held, and its rows."""
    limit, options = CASES[name]
    print(f"\n{name}: {args.workers} workers, {args.micro_batches} micro-batches, limit {limit:.0%}")
    print(f"{'method':<18}{'predicted ms':>13}{'measured ms':>13}{'ratio':>8}"
          f"{'least':>8}{'most':>8}{'others':>8}{'stolen':>8}")
    rows = []
    for method in args.methods.split(","):
        result = median_of(method, args, options)
        rows.append((method, result))
        planned, real = (result[key]["step_time"] * result["unit_ms"] for key in ("predicted", "measured"))
        over = "" if result["ratio"] <= 1 + limit else "  beyond the limit"
        print(f"{method:<18}{planned:>13.1f}{real:>13.1f}{result['ratio']:>8.4f}"
              f"{result['least']:>8.4f}{result['most']:>8.4f}{result['others']:>8.2f}{result['stolen']:>8.3f}{over}",
              flush=True)
    wrong = misplaced(rows)
    print("\n".join(wrong) or "the order by measured time is the order by prediction")
    held = not wrong and all(result["ratio"] <= 1 + limit for _, result in rows)
    return held, [{"case": name, "method": method, **result} for method, result in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, default=32)
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--case", choices=list(CASES), help="only this one")
    parser.add_argument("--json", metavar="FILE", help="all reports, one JSON list")
    args = parser.parse_args()
    held, reports = True, []
    for name in [args.case] if args.case else CASES:
        ok, rows = show_case(name, args)
        held = held and ok
        reports += rows
    if args.json:
        Path(args.json).write_text(json.dumps(reports, indent=1) + "\n")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
