#!/usr/bin/env python3
"""Times a BERT-base training step, 8 rows x 128 tokens, in bf16 and in float32.

Both run in one process with the same threads, one step of each in turn. Prints medians, spread, the ratio, and the planned
memory of each.

usage: bert_dtypes.py [--steps N] [--threads N] [--rows 8] [--length 128]"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

import numpy

from bert_step import drawn_batch, hetu_job
from hetu import _hetu
from turns import compare


def hetu_step(batch: dict[str, numpy.ndarray], threads: int, dtype: str) -> Callable[[], None]:
    job = hetu_job(batch, threads, dtype)
    print(f"{dtype}: {job.job.memory}")
    return lambda: job.job.train(job.loader)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    args = parser.parse_args()
    if lacks := _hetu.lacks_for_bfloat16():
        print(f"BERT-base step in bf16: not timed, this processor has no {lacks}")
        return 0
    batch = drawn_batch(args.rows, args.length)
    compare(f"BERT-base step, {args.rows} x {args.length}, bf16 / float32, {args.threads} threads",
            hetu_step(batch, args.threads, "bf16"), lambda: hetu_step(batch, args.threads, "float32"), args.steps,
            names=("bf16", "float32"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
