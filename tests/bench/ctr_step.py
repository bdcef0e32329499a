#!/usr/bin/env python3
"""Times steps of train_ctr.py with a table of a million rows: gradients by rows and dense gradients, in turn.

usage: tests/bench/ctr_step.py CLICKS [--steps N] [--turns N] [options of train_ctr.py]

CLICKS is a folder written by `hetu data sample --kind criteo`."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = 1_000_000  # of 26 columns together


def seconds(clicks: str, steps: int, options: list[str]) -> list[float]:
    """Returns the seconds of each step of one run, except the first three."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        words = [sys.executable, str(ROOT / "python" / "train_ctr.py"), "--data", str(Path(clicks).resolve() / "train"),
                 "--hash-size", str(-(-ROWS // 26)), "--pipeline", "gpipe", "--micro-batches", "1", "--steps", str(steps),
                 "--log", str(log), "--points-every", "0", *options]
        subprocess.run(words, check=True, capture_output=True, cwd=folder)
        return [json.loads(line)["seconds"] for line in log.read_text().splitlines()][3:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clicks", metavar="CLICKS")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--turns", type=int, default=2)
    given, options = parser.parse_known_args()
    ways = {"by rows": [], "dense": ["--dense-tables"]}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(given.turns):
        for name, more in ways.items():
            found[name] += seconds(given.clicks, given.steps, [*more, *options])
    for name, all_ in found.items():
        middle = 1000 * statistics.median(all_)
        print(f"{name}: {middle:.1f} ms per step, median of {len(all_)} ({1000 * min(all_):.1f} to {1000 * max(all_):.1f})")


if __name__ == "__main__":
    main()
