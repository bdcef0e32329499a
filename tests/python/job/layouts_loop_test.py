#!/usr/bin/env python3
"""Tests the loop that users write with sums="tree": shuffled epochs whose rows don't fill the last batch, an evaluation of
all rows, and weights have the bits of one worker on every layout."""

from __future__ import annotations

import sys
import unittest
from typing import Any

import numpy as np

import hetu as ht

ROWS, WIDTH, CLASSES, BATCH, STEPS = 53, 6, 3, 12, 20  # BATCH: of all pipelines


def train(pipelines: int, stages: int, micro_batches: int, method: str, **options: Any) -> dict[str, Any]:
    """Trains on threads and returns all that a user sees. micro_batches: per pipeline."""
    draw = np.random.default_rng(3)
    x = draw.standard_normal((ROWS, WIDTH), np.float32)
    ht.graph.new_graph()
    data = ht.data.Arrays(x=x, y=(x[:, 0] > 0) + (x[:, 1] > 0), batch_size=BATCH // pipelines, seed=4)
    value = data.x
    for n in range(7):
        value = ht.ops.relu(ht.ops.linear(value, ht.parameter(f"w{n}", [WIDTH, WIDTH], ht.graph.normal(0.5)), name=f"l{n}"))
        if n % 2:
            value = ht.ops.dropout(value, p=0.1, name=f"d{n}")
        ht.cut()
    scores = ht.ops.linear(value, ht.parameter("v", [CLASSES, WIDTH], ht.graph.normal(0.5)), name="scores")
    loss = ht.models.mean_cross_entropy(scores, data.y, "loss")
    optimizer = ht.optim.Adam(ht.lr.warmup(0.02, 5), clip_norm=1.0).minimize(loss)
    job = ht.Executor({"train": [loss, optimizer], "validate": [loss]}, devices=f"threads:{pipelines}x{stages}",
                      micro_batches=micro_batches, pipeline=method, sums="tree", seed=5, **options)
    seen = [(step.loss, step.gradient_norm) for step in job.run("train", steps=STEPS)]
    return {"steps": seen, "evaluation": job.evaluate(data), "weights": {k: v.tobytes() for k, v in job.weights().items()}}


class Loop(unittest.TestCase):
    def test_every_layout_has_the_bits_of_one_worker(self) -> None:
        alone = {micros: train(1, 1, micros, "gpipe") for micros in (4, 6, 12)}
        for pipelines, stages, micros, method in (
                (1, 4, 4, "1f1b"), (2, 1, 2, "1f1b"), (2, 2, 3, "zb-h1"), (3, 2, 2, "1f1b"), (4, 1, 3, "gpipe"),
                (1, 2, 4, "chimera"), (2, 2, 6, "gems"), (2, 2, 2, "zb-v"), (3, 1, 4, "1f1b"),
                (1, 3, 12, "interleaved-1f1b")):
            with self.subTest(pipelines=pipelines, stages=stages, micros=micros, method=method):
                self.assertEqual(train(pipelines, stages, micros, method), alone[pipelines * micros])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
