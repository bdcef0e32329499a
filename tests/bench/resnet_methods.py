#!/usr/bin/env python3
"""Times pipedream and gpipe on the same two stages of ResNet-50, images of 224 x 224, float32, one thread per worker.

Micro-batches have the same size. Both run in turn; prints medians, spread and the speedup of pipedream.

usage: resnet_methods.py [--rounds N] [--steps N] [--rows 16] [--micro-batches 4] [--size 224]"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

from pipeline_step import HERE, step_times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--size", type=int, default=224)
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sizes = [str(n) for n in (2, args.steps, args.rows, args.micro_batches, args.size)]
    seconds: dict[str, list[float]] = {"gpipe": [], "pipedream": []}
    for _ in range(args.rounds):
        for method, found in seconds.items():
            found += step_times(["heturun", "-w", "2", sys.executable, str(HERE / "resnet_hetu.py"), method, *sizes])
    print(f"resnet50, 2 stages, micro-batches of {args.rows // args.micro_batches} x {args.size}, 1 thread per worker; "
          f"seconds per {args.micro_batches} micro-batches")
    for method, found in seconds.items():
        print(f"  {method:9} median {statistics.median(found):6.3f} s, {min(found):.3f} to {max(found):.3f}")
    middle = {method: statistics.median(found) for method, found in seconds.items()}
    print(f"  pipedream has {middle['gpipe'] / middle['pipedream']:.3f} times gpipe's throughput")
    return 0


if __name__ == "__main__":
    sys.exit(main())
