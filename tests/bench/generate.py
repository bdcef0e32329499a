#!/usr/bin/env python3
"""Tokens of a GPT with keys and values kept, beside each row computed anew for every token: measured on one thread, and the
factor that operations and bytes let one expect.

usage: tests/bench/generate.py [--length N] [--tokens N] [--only TEXT]

A token costs its operations at this machine's rate of matrix products, or the reading of what it needs (weights, and the
keys and values that are kept) at its rate of products of a matrix and a vector, whichever takes longer. Both rates are
NumPy's, measured in the same run, the second one over as many bytes as the model has, which may lie in a cache or not.
"""

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

sys.path.insert(0, str(ROOT / "tests" / "python"))
from weights_test import HETU, write  # noqa: E402

CONFIGS: dict[str, dict[str, Any]] = {
    "tiny": {"n_embd": 128, "n_layer": 4, "n_head": 4, "vocab_size": 256},
    "small": {"n_embd": 512, "n_layer": 6, "n_head": 8, "vocab_size": 2000},
    "GPT-2": {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257},
}
PROMPT = 5


def median_s(work: Callable[[], object], times: int) -> float:
    """Of `times` runs, after one to warm up."""
    found = []
    for _ in range(times + 1):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found[1:])


def rates(weights: int) -> tuple[float, float]:
    """(operations per second of a matrix product, bytes per second of products with a vector over so many weights)."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((768, 768), np.float32) for _ in range(2))
    rows = random.standard_normal((max(1, weights // 768), 768), np.float32)
    x = random.standard_normal(768, np.float32)
    return 2 * 768**3 / median_s(lambda: a @ b, 20), rows.nbytes / median_s(lambda: rows @ x, 10)


def saved(folder: Path, config: dict[str, Any], length: int) -> int:
    """Saves a model both ways with drawn weights; how many these are."""
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


def expected(config: dict[str, Any], weights: int, length: int) -> float:
    """The factor of a roofline: seconds of a whole row over those of one token."""
    flops, stream = rates(weights)
    layers, width, words = config["n_layer"], config["n_embd"], config["vocab_size"]
    kept = 2 * layers * length * width  # keys and values
    per_token = 2 * (12 * layers * width**2 + words * width) + 2 * kept
    used = 4.0 * (12 * layers * width**2 + words * width)
    whole = max(length * per_token / flops, used / stream)
    one = max(per_token / flops, (used + 4 * kept) / stream)
    print(f"  {weights / 1e6:.1f} M weights; products {flops / 1e9:.0f} GFLOP/s, with a vector {stream / 1e9:.1f} GB/s; "
          f"expected at best: a row {1e3 * whole:.2f} ms, a token {1e3 * one:.2f} ms")
    return whole / one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=128, help="of a row (default %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="that are timed (default %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="models whose name holds TEXT")
    given = parser.parse_args()
    for name, config in CONFIGS.items():
        if given.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            weights = saved(Path(folder), config, given.length)
            generator = ht.models.Generator(f"{folder}/kept", threads=1)
            ids = np.random.default_rng(1).integers(0, config["vocab_size"], (1, PROMPT), np.int32)
            generator(ids, 2)
            began = time.perf_counter()
            generator(ids, given.tokens)
            kept = (time.perf_counter() - began) / (given.tokens + PROMPT - 1)
            anew = ht.load(f"{folder}/anew", threads=1)
            row = np.zeros((1, given.length), np.int32)
            whole = median_s(lambda anew=anew, row=row: anew(ids=row), 10)
        print(f"{name}, rows of {given.length} tokens:")
        best = expected(config, weights, given.length)
        print(f"  measured: a row {1e3 * whole:.2f} ms, a token {1e3 * kept:.2f} ms: {whole / kept:.1f} times faster with "
              f"keys and values kept; expected {best:.1f}", flush=True)


if __name__ == "__main__":
    main()
