#!/usr/bin/env python3
"""Times a training step of BERT-base cut into two stages, 1F1B, float32, one thread per worker: Hetu under heturun beside
torch.distributed.pipelining over gloo. Both sides run in turn; prints medians, spread and the ratio ours / theirs.

usage: pipeline_step.py [--rounds N] [--steps N] [--rows 16] [--micro-batches 8] [--torch PYTHON]

--torch names a Python that has torch and transformers (default: this one).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def step_times(command: list[str]) -> list[float]:
    """Seconds per step that a worker printed, as the line {"steps": [...]}."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        at = line.find('{"steps"')
        if at >= 0:
            return list(json.loads(line[at:])["steps"])
    raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--torch", default=sys.executable)
    args = parser.parse_args()
    sizes = [str(args.steps), str(args.rows), str(args.micro_batches)]
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    ours = ["heturun", "-w", "2", sys.executable, str(HERE / "pipeline_hetu.py"), "1f1b", "--steps", sizes[0], "--rows",
            sizes[1], "--micro-batches", sizes[2]]
    theirs = [args.torch, str(HERE / "pipeline_torch.py"), *sizes]
    have = subprocess.run([args.torch, "-c", "import torch, transformers"], capture_output=True, check=False).returncode == 0
    if not have:
        print("pipeline_step: torch and transformers are not installed here; only Hetu is timed", file=sys.stderr)
    a: list[float] = []
    b: list[float] = []
    for _ in range(args.rounds):
        a += step_times(ours)
        b += step_times(theirs) if have else []
    print(f"BERT-base, 2 stages, 1f1b, {args.micro_batches} micro-batches, {args.rows} x 128, float32, 1 thread per worker")
    for name, times in (("Hetu", a), ("torch over gloo", b)):
        if times:
            print(f"  {name:16} median {statistics.median(times):6.3f} s, {min(times):.3f} to {max(times):.3f}")
    if b:
        print(f"  ratio Hetu / torch: {statistics.median(a) / statistics.median(b):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
