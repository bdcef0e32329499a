#!/usr/bin/env python3
"""Compares predicted and measured steps, one property of a plan at a time.

The cases are small plans in threads, as in tests/executor/rehearse/rehearse_test.cpp, and two with 8 processes and 5 ms
forwards. The median ratio of --attempts rehearsals of each is at most 1.05.

usage: rehearsed_cases.py [--attempts 5]

Kernels wait, so a machine needs few cores. Other load lengthens steps. If a figure is beyond the limit under such load, its
line says so. Exit status 1: a figure beyond its limit; 77: all figures beyond their limits are from a busy machine."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rehearsed_methods import median

LIMIT = 1.05
OVER = "beyond the limit"
OTHERS, STOLEN = 0.2, 0.03  # of a core: beyond these the machine is busy
THREE = "--stages 3 --micro-batches 4"
TWO_BY_TWO = "--stages 2 --micro-batches 3 --pipelines 2"
CASES: dict[str, tuple[int, str]] = {  # processes, 0 for threads
    "gpipe": (0, f"gpipe {THREE}"),
    "1f1b": (0, "1f1b --stages 4 --micro-batches 6"),
    "long messages": (0, f"1f1b {THREE} --payload 300000"),
    "no payload": (0, f"1f1b {THREE} --payload 0"),
    "latency": (0, f"1f1b {THREE} --latency 0.7"),
    "slow worker": (0, f"1f1b {THREE} --speed 1,0.5,1"),
    "all-reduce and update": (0, f"1f1b {TWO_BY_TWO} --allreduce 3 --update 1"),
    "scalars": (0, "{folder}/scalars.csv --pipelines 2 --costs {folder}/scalars.json"),
    "jitter": (0, f"gpipe {THREE} --pipelines 2 --jitter 0.5 --seed 7"),
    "slow pipeline, pauses": (0, "1f1b --stages 2 --micro-batches 4 --pipelines 2 --slow pipeline=1,factor=2 --hetero 1.5"),
    "gpipe in 8 processes": (8, "gpipe --stages 8 --micro-batches 16 --time-unit 5ms"),
    "1f1b in 8 processes": (8, "1f1b --stages 8 --micro-batches 16 --time-unit 5ms"),
}


def write_scalars(folder: Path) -> None:
    """Writes a plan that no method has: a sum of scalars before the updates, which takes as long as four forwards."""
    words = "hetu schedule 1f1b --stages 2 --micro-batches 3 --pipelines 2 --lowered --format csv".split()
    plan = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    (folder / "scalars.csv").write_text(re.sub(r"(?=\dUPDATE)", "REDUCE_SCALARS,", plan))
    stage = {"forward": 10, "input_grad": 10, "weight_grad": 10}
    (folder / "scalars.json").write_text(json.dumps({"unit": "ms", "stages": [stage] * 2, "reduce_scalars": 40}))


def verdict(result: dict[str, Any]) -> str:
    """Returns "" within the limit, and otherwise the text to print."""
    if result["ratio"] <= LIMIT:
        return ""
    busy = result["others"] > OTHERS or result["stolen"] > STOLEN
    return f"{OVER}, and the machine is busy with other work" if busy else OVER


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=5)
    args = parser.parse_args()
    print(f"{'case':<24}{'ratio':>8}{'least':>8}{'most':>8}{'others':>8}{'stolen':>8}   limit {LIMIT}")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        write_scalars(Path(folder))
        for name, (workers, words) in CASES.items():
            result = median(workers, words.format(folder=folder).split(), args.attempts)
            found.append(verdict(result))
            print(f"{name:<24}{result['ratio']:>8.4f}{result['least']:>8.4f}{result['most']:>8.4f}{result['others']:>8.2f}"
                  f"{result['stolen']:>8.3f}   {found[-1]}", flush=True)
    return 1 if OVER in found else 77 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
