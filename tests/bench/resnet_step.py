#!/usr/bin/env python3
"""Times a ResNet-50 training step, 16 images of 224 x 224, float32: Hetu and torchvision's on PyTorch.

Both run in one process with the same threads, one step of each in turn. Prints medians, spread and the ratio Hetu / PyTorch.

usage: resnet_step.py [--steps N] [--threads N] [--rows 16] [--size 224] [--model resnet50]"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy

import hetu as ht
from turns import compare

CLASSES = 1000


def drawn_batch(rows: int, size: int) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(0)
    return {
        "image": random.standard_normal((rows, 3, size, size), dtype=numpy.float32),
        "label": random.integers(0, CLASSES, rows, dtype=numpy.int32),
    }


def hetu_step(model: str, batch: dict[str, numpy.ndarray], threads: int, dtype: str = "float32",
              **told: Any) -> Callable[[], None]:
    ht.new_graph()
    data = ht.data.Batches([batch], batch_size=len(batch["label"]))
    loss = ht.models.ResNet(model, CLASSES).loss(data)
    train = ht.optim.Momentum(1e-2, l2=1e-4).minimize(loss)
    job = ht.Executor({"train": [loss, train]}, threads=threads, micro_batches=1, dtype=dtype, **told)
    return lambda: job.job.train(job.loader)


def torch_step(model: str, batch: dict[str, numpy.ndarray], threads: int, narrow: bool = False,
               compiled: str | None = None, device: str = "cpu") -> Callable[[], None]:
    """Returns a function that trains one step on PyTorch. narrow: autocast to bfloat16. compiled: torch.compile in that
    mode. The batch is copied to `device`."""
    import torch
    import torchvision

    torch.set_num_threads(threads)
    net = torchvision.models.get_model(model, num_classes=CLASSES).train().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9, weight_decay=1e-4, fused=True)
    image = torch.from_numpy(batch["image"]).to(device, memory_format=torch.channels_last)
    label = torch.from_numpy(batch["label"].astype(numpy.int64)).to(device)

    run = torch.compile(net, mode=compiled) if compiled else net

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=narrow):
            loss = torch.nn.functional.cross_entropy(run(image), label)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--model", default="resnet50")
    args = parser.parse_args()
    batch = drawn_batch(args.rows, args.size)
    ours = hetu_step(args.model, batch, args.threads)
    title = f"{args.model} step, {args.rows} x {args.size}, float32, {args.threads} threads"
    compare(title, ours, lambda: torch_step(args.model, batch, args.threads), args.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
