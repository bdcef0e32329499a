#!/usr/bin/env python3
"""Measures what --sums tree costs beside --sums running: the time of a step, in turn in one process, and the memory.

    python3 tests/bench/sum_order.py [--model base] [--micro-batch 8] [--micro-batches 8] [--pipelines 1] [--rounds 5]
    python3 tests/bench/sum_order.py --smaller [--model base] [--micro-batch 8] [--micro-batches 2] [--rounds 3]
    python3 tests/bench/sum_order.py --accuracy

`--model resnet50` trains ResNet-50 on 224 x 224 images, any other name a BERT on 128 tokens. Pipelines are threads of this
process. --micro-batches are those of all pipelines together. Besides the time of a step, the processor time of this process
is compared, which depends less on other work of the machine.

--smaller: a step of the same samples in micro-batches of 1/2, 1/4, … as many samples, with --sums tree. Trainings whose
micro-batches differ have other bits, so a user who wants to vary them chooses the smallest.

--accuracy: the rounding errors of both orders for random numbers, relative to the sum in float64."""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import hetu as ht
from hetu import _hetu
from hetu.graph import new_graph

TOKENS, IMAGE = 128, 224


def graph_of(model: str, rows: int, pipelines: int) -> tuple[Any, Any, Any]:
    """Returns the graph, the optimizer's settings, and one batch of random data for all pipelines."""
    random = np.random.default_rng(1)
    new_graph()
    optimizer = ht.optim.AdamW(1e-4, weight_decay=0.01, clip_norm=1.0)
    if model == "resnet50":
        batch = {"image": random.random((rows, 3, IMAGE, IMAGE), np.float32),
                 "label": random.integers(0, 1000, rows, np.int32)}
        data = ht.data.Batches([batch], rows // pipelines)
        net = ht.models.ResNet("resnet50")
        handle = optimizer.minimize(net.loss(data))
    else:
        net = ht.models.Bert.from_config(model)
        ids = random.integers(5, 30000, (rows, TOKENS), np.int32)
        batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids),
                 "masked_lm_labels": np.where(random.random(ids.shape) < 0.15, ids, -1).astype(np.int32),
                 "next_sentence_labels": random.integers(0, 2, rows, np.int32)}
        data = ht.data.Batches([batch], rows // pipelines)
        handle = optimizer.minimize(net.pretraining_loss(data))
    return handle.graph.builder.finish(), optimizer.settings(), data


class Pipelines:
    """A job whose workers are threads, one per pipeline."""

    def __init__(self, sums: str, args: argparse.Namespace) -> None:
        graph, settings, data = graph_of(args.model, args.micro_batch * args.micro_batches, args.pipelines)
        micros = args.micro_batches // args.pipelines
        options = {"method": "1f1b", "pipelines": args.pipelines, "stages": 1, "micro_batches": micros,
                   "batch_size": args.micro_batch * micros, "seed": 1, "threads": args.threads, "sums": sums}
        self.jobs = [None] * args.pipelines
        self.loaders = [None] * args.pipelines

        def make(links: Any, i: int) -> None:
            self.jobs[i] = _hetu.Job(graph, settings, _hetu.TrainingOptions(options), links)
            self.loaders[i] = data.loader(args.pipelines, i, list(self.jobs[i].fields))
        self._each([lambda links=links, i=i: make(links, i) for i, links in enumerate(_hetu.thread_links(args.pipelines))])

    def _each(self, calls: list[Any]) -> None:
        with ThreadPoolExecutor(len(calls)) as threads:
            for running in [threads.submit(call) for call in calls]:
                running.result()

    def step(self) -> tuple[float, float]:
        """Returns the seconds of a step, and the processor time of all threads."""
        begin, used = time.perf_counter(), time.process_time()
        both = zip(self.jobs, self.loaders, strict=True)
        self._each([lambda job=job, loader=loader: job.train(loader) for job, loader in both])
        return time.perf_counter() - begin, time.process_time() - used

    @property
    def memory(self) -> str:
        return str(self.jobs[0].memory)


def accuracy() -> None:
    """Prints the root mean square of the rounding errors of both orders."""
    random = np.random.default_rng(1)
    for terms in (4, 8, 16, 64, 256):
        x = random.standard_normal((terms, 100_000)).astype(np.float32)
        exact, running = x.astype(np.float64).sum(0), x[0].copy()
        for row in x[1:]:
            running += row
        tree = x
        while len(tree) > 1:
            tree = tree[0::2] + tree[1::2]
        of = [float(np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2))) for found in (running, tree[0])]
        print(f"{terms} micro-batches: running {of[0]:.2e}, tree {of[1]:.2e}")


def smaller(args: argparse.Namespace) -> None:
    """Prints the time of a step of the same samples in smaller and smaller micro-batches."""
    whole = [1.0, 1.0]
    for part in (1, 2, 4, 8):
        if args.micro_batch % part:
            break
        sizes = argparse.Namespace(**vars(args) | {"micro_batch": args.micro_batch // part,
                                                   "micro_batches": args.micro_batches * part})
        job = Pipelines("tree", sizes)
        job.step()
        times = [job.step() for _ in range(args.rounds)]
        took = [statistics.median(column) for column in zip(*times, strict=True)]
        whole = took if part == 1 else whole
        print(f"{sizes.micro_batches} micro-batches of {sizes.micro_batch}: {took[0]:.3f} s per step, "
              f"{took[0] / whole[0]:.3f} of the time, {took[1] / whole[1]:.3f} of the processor time", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="base")
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--pipelines", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smaller", action="store_true")
    parser.add_argument("--accuracy", action="store_true")
    args = parser.parse_args()
    if args.smaller:
        return smaller(args)
    if args.accuracy:
        return accuracy()
    both = {sums: Pipelines(sums, args) for sums in ("running", "tree")}
    for job in both.values():
        job.step()
    times: dict[str, list[tuple[float, float]]] = {sums: [] for sums in both}
    for turn in range(args.rounds):
        for sums in sorted(both, reverse=turn % 2 == 1):
            times[sums].append(both[sums].step())
    for sums, job in both.items():
        print(f"{sums}: {statistics.median(seconds for seconds, _ in times[sums]):.3f} s per step; {job.memory}")
    for k, what in enumerate(("time", "processor time")):
        ratios = [b[k] / a[k] for a, b in zip(times["running"], times["tree"], strict=True)]
        print(f"{what}, tree / running: median {statistics.median(ratios):.4f}, {min(ratios):.4f} to {max(ratios):.4f}")


if __name__ == "__main__":
    main()
