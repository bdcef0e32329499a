"""A language model written with what values do by themselves (masks of comparisons, slices, splits, means) on several
stages: every step equals one process bit for bit, though bools and constants cross the cuts."""

import os
import pathlib
import subprocess
import sys
import unittest

import numpy as np

import hetu as ht
from train_cases import HETURUN, MANY_S

TOKENS, WIDTH, HEADS, WORDS, ROWS, STEPS = 8, 16, 2, 19, 8, 4
SEED = 11


def linear(x, out, name):
    weight = ht.parameter(f"{name}.weight", [out, x.shape[-1]], ht.graph.normal(0.2))
    return ht.ops.linear(x, weight, ht.parameter(f"{name}.bias", [out], ht.graph.constant(0.0)), name=name)


def rms_norm(x, name):
    return ht.rms_norm(x, ht.parameter(name, [WIDTH], ht.graph.constant(1.0)))


def attention(x, mask, name):
    query, key, value = (part.reshape(ht.BATCH, TOKENS, HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)
                         for part in linear(x, 3 * WIDTH, name).split(3))
    scores = query @ key.swapaxes(-1, -2) / (WIDTH // HEADS) ** 0.5
    context = ht.ops.softmax(ht.where(mask, scores, -1e9)) @ value
    return context.permute(0, 2, 1, 3).reshape(ht.BATCH, TOKENS, WIDTH)


def model():
    """The loss of the next word, a mask of what is padded included."""
    random = np.random.default_rng(SEED)
    rows = [{"ids": random.integers(0, WORDS, (ROWS, TOKENS + 1), np.int32)} for _ in range(2)]
    ht.new_graph()
    data = ht.data.Batches(rows, ROWS)
    ids, labels = data.ids[:, :-1], data.ids[:, 1:]
    table = ht.parameter("words", [WORDS, WIDTH], ht.graph.normal(0.3))
    places = ht.ops.positions(ids)
    x = ht.ops.embedding(table, ids) + ht.parameter("places", [TOKENS, WIDTH], ht.graph.normal(0.3))
    mask = (places[:, None, :, None] >= places[:, None, None]) & (ids[:, None, None] != 0)  # made in the first block
    steep = ht.constant(np.linspace(0.9, 1.1, WIDTH), "steep")
    for i in range(3):
        ht.cut()
        x = x + attention(rms_norm(x, f"norm{i}") * steep, mask, f"attention{i}")
        gate, up = linear(x, 4 * WIDTH, f"up{i}").split(2)
        x = x + linear(ht.ops.silu(gate) * up, WIDTH, f"down{i}")
    ht.cut()
    logits = ht.ops.linear(rms_norm(x, "norm").reshape(-TOKENS, WIDTH), table)
    picked = ht.where(ht.ops.positions(logits) == labels.reshape(-TOKENS, 1), logits, 0.0).sum(-1)
    return ht.step_mean(logits.logsumexp(-1) - picked, name="loss")


def train(**more):
    loss = model()
    job = ht.Executor({"train": [loss, ht.optim.AdamW(0.01).minimize(loss)]}, micro_batches=4, threads=1, seed=SEED, **more)
    return job, [step.loss.hex() for step in job.run("train", steps=STEPS)]


def main(devices, pipeline):
    job, losses = train(devices=devices, pipeline=pipeline, compare_single=True)
    if job.is_chief:
        print("losses", *losses)


class Stages(unittest.TestCase):
    def test_every_step_is_that_of_one_process(self):
        _, alone = train()
        self.assertLess(float.fromhex(alone[-1]), float.fromhex(alone[0]))
        here = str(pathlib.Path(__file__).resolve().parent)
        path = here + os.pathsep + os.environ.get("PYTHONPATH", "")
        for workers, devices, pipeline in ((2, "pipe_1_2", "1f1b"), (2, "pipe_1_2", "zb-v"), (4, "pipe_1_4", "zb-h1")):
            with self.subTest(pipeline=pipeline, seed=SEED):
                done = subprocess.run([*HETURUN, "-w", str(workers), sys.executable, __file__, devices, pipeline],
                                      capture_output=True, text=True, timeout=MANY_S, env={**os.environ, "PYTHONPATH": path})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("losses " + " ".join(alone), done.stdout)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(*sys.argv[1:])
    else:
        unittest.main()
