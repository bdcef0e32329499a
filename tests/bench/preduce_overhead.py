#!/usr/bin/env python3
"""Measures the cost of partial reduce without slow pipelines, compared with an all-reduce of gradients.

BERT-tiny on real kernels, 2 equal pipelines x 2 stages by pipedream. Both run in turn; prints the throughput of each round
and the median of their ratios.

usage: preduce_overhead.py [--rounds 3] [--steps 100] [--batch-size 16]

Exit status 1: partial reduce has less than 0.95 of the all-reduce's throughput."""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN = Path(__file__).resolve().parents[2] / "python" / "train_bert.py"
METHODS = {"all-reduce": [], "partial reduce": ["--preduce"]}
LEAST = 0.95


def throughput(data: Path, words: list[str], steps: int, batch_size: int) -> float:
    """Returns the samples per second of both pipelines, in the seconds that the script's epoch lines report."""
    command = ["heturun", "-w", "4", sys.executable, str(TRAIN), "--data", str(data), "--model", "tiny",
               "--devices", "pipe_2_2", "--pipeline", "pipedream", "--batch-size", str(batch_size),
               "--learning-rate", "1e-4", "--steps", str(steps), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=data)
    seconds = [float(s) for s in re.findall(r"TRAIN .* time (\S+)", done.stdout)]
    if done.returncode != 0 or not seconds:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return 2 * steps * batch_size / sum(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rates: dict[str, list[float]] = {method: [] for method in METHODS}
    with tempfile.TemporaryDirectory(prefix="hetu-overhead-") as folder:
        data = Path(folder) / "data"
        subprocess.run(["hetu", "data", "sample", "--rows", "2000", str(data)], check=True, stdout=subprocess.DEVNULL)
        for _ in range(args.rounds):
            for method, words in METHODS.items():
                rates[method].append(throughput(data, words, args.steps, args.batch_size))
    ratios = [p / a for p, a in zip(rates["partial reduce"], rates["all-reduce"], strict=True)]
    print(f"BERT-tiny, 2 pipelines x 2 stages, pipedream, {args.batch_size} x 128, {args.steps} steps, 1 thread per worker")
    for method, found in rates.items():
        print(f"  {method:15} median {statistics.median(found):7.1f} samples/s, {min(found):.1f} to {max(found):.1f}")
    ratio = statistics.median(ratios)
    print(f"  ratio partial reduce / all-reduce: median {ratio:.3f}, {min(ratios):.3f} to {max(ratios):.3f}, wanted {LEAST}")
    return 0 if ratio >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
