"""Measures memory and time of Pipeline(shard_optimizer=True), compared with the same training with all states on each
worker.

    heturun -w 2 python3 tests/bench/torch_shards.py             # a minute on two quiet cores
    heturun -w 2 python3 tests/bench/torch_shards.py --size 64   # to check that it runs

Every worker is a pipeline of one stage. Both trainings run in one process and take their steps in turn. Prints per step the
time of step(), the time of the optimizer including the sending of weights, and the median of the ratios of the whole step.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

import hetu.torch
from hetu import _hetu

LAYERS, STEPS = 8, 12


class Side:
    """One of the two trainings."""

    def __init__(self, size: int, shard: bool) -> None:
        torch.manual_seed(1)
        layers = [nn.Sequential(nn.Linear(size, size), nn.GELU()) for _ in range(LAYERS)]
        workers = _hetu.env()["workers"]
        self.pipe = hetu.torch.Pipeline(layers, nn.MSELoss(), "1f1b", 2, pipelines=workers, shard_optimizer=shard)
        self.optimizer = torch.optim.AdamW(self.pipe.parameters())
        self.seconds: list[tuple[float, float]] = []

    def step(self, x: torch.Tensor) -> float:
        """Takes a step and returns the loss."""
        begin = time.perf_counter()
        loss = self.pipe.step(x, -x)
        middle = time.perf_counter()
        self.optimizer.step()
        self.seconds.append((middle - begin, time.perf_counter() - middle))
        return float(loss)

    def bytes(self) -> int:
        """Returns the size of the optimizer's states on this worker."""
        return sum(value.nbytes for state in self.optimizer.state.values() for value in state.values())


def main() -> None:
    """Prints one line per training on each worker, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024)
    size = parser.parse_args().size
    torch.set_num_threads(1)
    sides = {"sharded": Side(size, True), "whole": Side(size, False)}
    x = torch.randn(64, size)
    for _ in range(STEPS):
        losses = {side.step(x) for side in sides.values()}
        assert len(losses) == 1, losses
    worker = sides["whole"].pipe.transport.worker
    for name, side in sides.items():
        step, update = (1e3 * statistics.median(column) for column in zip(*side.seconds[1:], strict=True))
        print(f"worker {worker} {name}: {side.bytes() / 2**20:.1f} MiB of states, step() {step:.1f} ms, optimizer "
              f"{update:.1f} ms", flush=True)
    ratios = [sum(a) / sum(b) for a, b in zip(sides["sharded"].seconds[1:], sides["whole"].seconds[1:], strict=True)]
    print(f"worker {worker}: time with shards / without {statistics.median(ratios):.3f}", flush=True)


main()
