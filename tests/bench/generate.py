#!/usr/bin/env python3
"""Times tokens of a GPT with cached keys and values, and with each row computed again for every token.

The test measures on one thread, and compares with the factor that operations, bytes and the cost of a call predict.

usage: tests/bench/generate.py [--length N] [--tokens N] [--rounds N] [--only TEXT]

A call costs a fixed time, plus the larger of two times: its operations at this machine's rate of matrix products, and the
bytes that it reads (weights, and cached keys and values) at the machine's rate of matrix-vector products:

  expected = (fixed + work of a row) / (fixed + work of a token)

Both rates are NumPy's, the second one over as many bytes as the model has, which may or may not fit in a cache. The fixed
time is that of a token of a model with equally many layers, heads and positions, whose heads have width one and whose
vocabulary has four words: the same operators, with almost nothing to compute. All measurements run in turn, round by round.
They count CPU seconds of one thread, so that other programs disturb less. Figures are medians."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.setdefault("HETU_BUILD_DIR", str(ROOT / "build"))

import numpy as np  # noqa: E402

import hetu as ht  # noqa: E402

sys.path.insert(0, str(ROOT / "tests" / "python" / "small_jobs"))
from weight_files import HETU, write  # noqa: E402

CONFIGS: dict[str, dict[str, Any]] = {
    "tiny": {"n_embd": 128, "n_layer": 4, "n_head": 4, "vocab_size": 256},
    "small": {"n_embd": 512, "n_layer": 6, "n_head": 8, "vocab_size": 2000},
    "GPT-2": {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257},
}
PROMPT = 5


def median_s(work: Callable[[], object], times: int) -> float:
    """Returns the median CPU time of `times` runs, after one warm-up run."""
    found = []
    for _ in range(times + 1):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return statistics.median(found[1:])


def rates(weights: int) -> tuple[Callable[[], object], Callable[[], object], float, float]:
    """Returns (a matrix product, products with a vector over `weights` weights, operations of the first, bytes of the
    second)."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((768, 768), np.float32) for _ in range(2))
    rows = random.standard_normal((max(1, weights // 768), 768), np.float32)
    x = random.standard_normal(768, np.float32)
    return lambda: a @ b, lambda: rows @ x, 2 * 768**3, float(rows.nbytes)


def saved(folder: Path, config: dict[str, Any], length: int) -> int:
    """Saves a model with seeded weights in both forms. Returns the number of weights."""
    model = ht.models.Gpt(ht.models.GptConfig(**config, n_positions=length, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    random = np.random.default_rng(0)
    weights = {n: 0.05 * random.standard_normal(tuple(p.shape)) for n, p in model.named_parameters()}
    write(folder / "w.safetensors", weights)
    subprocess.run([HETU, "checkpoint", "import", f"{folder}/w.safetensors", "-o", f"{folder}/ckpt"], check=True,
                   capture_output=True)
    ht.models.save_generator(f"{folder}/kept", model, f"{folder}/ckpt", length=length)
    ht.new_graph()
    ids = ht.placeholder("ids", "int32", [ht.BATCH, length])
    ht.save(f"{folder}/anew", [model(ids)], f"{folder}/ckpt", rows=1)
    return sum(w.size for w in weights.values())


def tokens_of(folder: str, config: dict[str, Any], tokens: int) -> Callable[[], object]:
    """Returns a function that generates up to `tokens` tokens, including the prompt."""
    generator = ht.models.Generator(folder, threads=1)
    ids = np.random.default_rng(1).integers(0, config["vocab_size"], (1, PROMPT), np.int32)
    return lambda: generator(ids, tokens - PROMPT + 1)


def work_s(config: dict[str, Any], length: int, flops: float, stream: float) -> tuple[float, float]:
    """Returns the seconds of a whole row and of one token, by operations and bytes at these rates per second."""
    layers, width, words = config["n_layer"], config["n_embd"], config["vocab_size"]
    kept = 2 * layers * length * width  # keys and values
    per_token = 2 * (12 * layers * width**2 + words * width) + 2 * kept
    used = 4.0 * (12 * layers * width**2 + words * width)
    return max(length * per_token / flops, used / stream), max(per_token / flops, (used + 4 * kept) / stream)


def compare(name: str, config: dict[str, Any], length: int, tokens: int, rounds: int) -> None:
    """Measures one model, and prints the result next to the expected factor."""
    bare = {**config, "n_embd": config["n_head"], "vocab_size": 4}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as nearly:
        weights = saved(Path(folder), config, length)
        saved(Path(nearly), bare, length)
        anew = ht.load(f"{folder}/anew", threads=1)
        row = np.zeros((1, length), np.int32)
        product, stream, operations, size = rates(weights)
        works = [product, stream, lambda: anew(ids=row), tokens_of(f"{folder}/kept", config, tokens),
                 tokens_of(f"{nearly}/kept", bare, tokens)]
        found: list[list[float]] = [[] for _ in works]
        for _ in range(rounds):
            for work, times in zip(works, found, strict=True):
                times.append(median_s(work, 3))
    products, vectors, whole, kept, fixed = (statistics.median(times) for times in found)
    kept, fixed = kept / tokens, fixed / tokens
    row_s, token_s = work_s(config, length, operations / products, size / vectors)
    best = (fixed + row_s) / (fixed + token_s)
    print(f"{name}, {weights / 1e6:.1f} M weights, rows of {length} tokens, medians of {rounds} rounds:\n"
          f"  products {operations / products / 1e9:.0f} GFLOP/s, with a vector {size / vectors / 1e9:.1f} GB/s, a call "
          f"{1e3 * fixed:.3f} ms\n"
          f"  expected: a row {1e3 * (fixed + row_s):.3f} ms, a token {1e3 * (fixed + token_s):.3f} ms: {best:.1f} times "
          f"faster with keys and values kept\n"
          f"  measured: a row {1e3 * whole:.3f} ms, a token {1e3 * kept:.3f} ms: {whole / kept:.1f} times; of what is "
          f"expected {whole / kept / best:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=128, help="of a row (default %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="that are timed (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="(default %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="models whose name holds TEXT")
    given = parser.parse_args()
    for name, config in CONFIGS.items():
        if given.only in name:
            compare(name, config, given.length, given.tokens, given.rounds)


if __name__ == "__main__":
    main()
