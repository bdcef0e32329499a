#!/usr/bin/env python3
"""Measures the matrix-product peak of the machine: GFLOP/s of 2048 x 2048 matrices, the better of PyTorch and Hetu per
dtype.

Hetu's products are the two of a training step of one linear layer, including all other work of such a step. Prints a line,
{"gflops": {dtype: …}, "sides": {side: {dtype: …}}}; speed.py reads it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable

import numpy

import hetu as ht
from hetu import _hetu
from turns import timed

SIDE = 2048
FLOPS = 2 * SIDE**3
TIMES, WARM_UP = 12, 2


def hetu_rate(dtype: str) -> float:
    ht.new_graph()
    x = numpy.random.default_rng(0).standard_normal((SIDE, SIDE), numpy.float32)
    data = ht.data.Batches([{"x": x}], batch_size=SIDE)
    weight = ht.parameter("weight", [SIDE, SIDE], ht.init.normal(0.02))
    loss = ht.ops.sum(ht.ops.linear(data.x, weight))
    train = ht.optim.SGD(1e-3).minimize(loss)
    job = ht.Executor({"train": [loss, train]}, micro_batches=1, dtype=dtype)
    return rate(lambda: job.job.train(job.loader), 2)


def torch_rate(dtype: str) -> float:
    import torch

    a, b = (torch.randn(SIDE, SIDE).to(torch.bfloat16 if dtype == "bf16" else torch.float32) for _ in range(2))
    return rate(lambda: a @ b, 1)


def rate(step: Callable[[], object], products: int) -> float:
    times = [timed(step) for _ in range(TIMES)][WARM_UP:]
    return products * FLOPS / statistics.median(times) * 1e-9


def main() -> None:
    dtypes = ["float32"] if _hetu.lacks_for_bfloat16() else ["float32", "bf16"]
    sides = {"Hetu": {dtype: hetu_rate(dtype) for dtype in dtypes}}
    try:
        sides["PyTorch"] = {dtype: torch_rate(dtype) for dtype in dtypes}
    except ImportError:
        pass  # speed.py's page then states that PyTorch is missing
    print(json.dumps({"gflops": {dtype: max(of[dtype] for of in sides.values()) for dtype in dtypes}, "sides": sides}))


if __name__ == "__main__":
    main()
