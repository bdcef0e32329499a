#!/usr/bin/env python3
"""Times training of ResNet-50 on images of 224 x 224 in two stages on two cores, and in one process on one core.

One thread per worker, float32, the same batch. Both run in turn; prints medians, spread and the speedup.

usage: resnet_pipeline.py [--rounds N] [--steps N] [--rows 32] [--micro-batches 16] [--size 224] [--method 1f1b]"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

from pipeline_step import HERE, step_times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--micro-batches", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--method", default="1f1b")
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

    def times(stages: int) -> list[float]:
        sizes = (stages, args.steps, args.rows, args.micro_batches, args.size)
        worker = [sys.executable, str(HERE / "resnet_hetu.py"), args.method, *map(str, sizes)]
        # One process on one core: a second core would only run the system's own work.
        return step_times(["heturun", "-w", "2", *worker] if stages == 2 else ["taskset", "-c", "0", *worker])

    both: dict[int, list[float]] = {2: [], 1: []}
    for _ in range(args.rounds):
        for stages, seconds in both.items():
            seconds += times(stages)
    print(f"resnet50, {args.method}, {args.micro_batches} micro-batches, {args.rows} x {args.size}, 1 thread per worker")
    for stages, seconds in both.items():
        name = "2 stages, 2 cores" if stages == 2 else "1 process, 1 core"
        print(f"  {name} median {statistics.median(seconds):6.3f} s, {min(seconds):.3f} to {max(seconds):.3f}")
    print(f"  two stages are {statistics.median(both[1]) / statistics.median(both[2]):.3f} times as fast")
    return 0


if __name__ == "__main__":
    sys.exit(main())
