"""Language models on several stages. One uses expressions of values: masks from comparisons, slices, splits, means. The
other uses operators: causal attention with fewer key heads, rotary positions, learned distances, an LSTM, gathered rows, a
smoothed loss. Every step equals one process bit for bit, although bools and constants cross the cuts."""

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
    """Returns the loss of the next word, with a mask of the padding."""
    random = np.random.default_rng(SEED)
    rows = [{"ids": random.integers(0, WORDS, (ROWS, TOKENS + 1), np.int32)} for _ in range(2)]
    ht.new_graph()
    data = ht.data.Batches(rows, ROWS)
    ids, labels = data.ids[:, :-1], data.ids[:, 1:]
    table = ht.parameter("words", [WORDS, WIDTH], ht.graph.normal(0.3))
    places = ht.ops.positions(ids)
    x = ht.ops.embedding(table, ids) + ht.parameter("places", [TOKENS, WIDTH], ht.graph.normal(0.3))
    mask = (places[:, None, :, None] >= places[:, None, None]) & (ids[:, None, None] != 0)  # computed in the first block
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


def short_attention(x, name, bias=None):
    """Returns attention with a window of a causal mask. All heads use one head of keys and values."""
    query, key, value = linear(x, WIDTH + 2 * WIDTH // HEADS, name).split([WIDTH, WIDTH // HEADS, WIDTH // HEADS])
    query, key = ht.ops.rotary(query, heads=HEADS, base=100.0), ht.ops.rotary(key, heads=1, base=100.0)
    masks = [] if bias is None else [bias]
    return ht.ops.attention(query, key, value, *masks, heads=HEADS, kv_heads=1, causal=1, window=5, dropout=0.2,
                            name=name)[0]


def operators():
    """Returns the loss of the second model. Class weights between 0.5 and 2 multiply the losses of words."""
    random = np.random.default_rng(SEED)
    rows = [{"ids": random.integers(0, WORDS, (ROWS, TOKENS + 1)), "order": random.integers(0, TOKENS, (ROWS, TOKENS))}
            for _ in range(2)]
    ht.new_graph()
    data = ht.data.Batches(rows, ROWS)
    ids, labels = data.ids[:, :-1], data.ids[:, 1:]
    table = ht.parameter("words", [WORDS, WIDTH], ht.graph.normal(0.3))
    x = ht.ops.embedding(table, ids)
    far = ht.parameter("far", [1, HEADS, TOKENS, TOKENS], ht.graph.normal(0.5))
    for i, bias in enumerate((None, far)):
        ht.cut()
        x = x + short_attention(rms_norm(x, f"norm{i}"), f"attention{i}", bias)
    ht.cut()
    uniform = ht.graph.uniform(-0.5, 0.5)
    weights = (ht.parameter(f"lstm.{name}", [4 * WIDTH, WIDTH], uniform) for name in ("input", "hidden"))
    y, (_, last) = ht.lstm(x, *weights, name="lstm")
    x = ht.ops.gather(x + y, data.order, axis=1) + last[:, None]
    images = ht.group_norm(x.reshape(ht.BATCH, TOKENS, 4, 4), 4)
    kernel = ht.parameter("conv", [TOKENS, 2, 3, 3], ht.graph.normal(0.3))
    x = x + ht.ops.conv2d(images, kernel, groups=4, padding=2, dilation=2).reshape(ht.BATCH, TOKENS, WIDTH)
    ht.cut()
    logits = ht.ops.linear(rms_norm(x, "norm"), table)
    return ht.models.mean_cross_entropy(logits, labels, "loss", 0.1, np.linspace(0.5, 2, WORDS))


def train(make=model, **more):
    loss = make()
    job = ht.Executor({"train": [loss, ht.optim.AdamW(0.01).minimize(loss)]}, micro_batches=4, threads=1, seed=SEED, **more)
    return job, [step.loss.hex() for step in job.run("train", steps=STEPS)]


def main(make, devices, pipeline):
    job, losses = train(globals()[make], devices=devices, pipeline=pipeline.removesuffix("+"),
                        with_recompute=pipeline.endswith("+"), compare_single=True)
    if job.is_chief:
        print("losses", *losses)


class Stages(unittest.TestCase):
    def test_every_step_is_that_of_one_process(self):
        self.equal(model, ((2, "pipe_1_2", "1f1b"), (2, "pipe_1_2", "zb-v"), (4, "pipe_1_4", "zb-h1")))

    def test_operators_too(self):
        self.equal(operators, ((2, "pipe_1_2", "zb-v"), (4, "pipe_1_4", "1f1b+")))

    def equal(self, make, jobs):
        _, alone = train(make)
        self.assertLess(float.fromhex(alone[-1]), float.fromhex(alone[0]))
        here = str(pathlib.Path(__file__).resolve().parent)
        path = here + os.pathsep + os.environ.get("PYTHONPATH", "")
        for workers, devices, pipeline in jobs:
            with self.subTest(pipeline=pipeline, seed=SEED):
                script = [sys.executable, __file__, make.__name__, devices, pipeline]
                done = subprocess.run([*HETURUN, "-w", str(workers), *script],
                                      capture_output=True, text=True, timeout=MANY_S, env={**os.environ, "PYTHONPATH": path})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("losses " + " ".join(alone), done.stdout)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        main(*sys.argv[1:])
    else:
        unittest.main()
