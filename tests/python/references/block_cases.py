"""Small blocks of T5 and OPT: inputs and weights by name, for both hetu.models and transformers."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

B, T, S = 2, 9, 5
T5 = {"d_model": 12, "d_kv": 5, "d_ff": 16, "num_heads": 3, "relative_attention_num_buckets": 8,
      "relative_attention_max_distance": 7, "dropout_rate": 0.0}
OPT = {"hidden_size": 12, "ffn_dim": 20, "num_attention_heads": 3, "dropout": 0.0}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "t5 encoder": ("t5", {**T5, "is_decoder": False}),
    "t5 decoder": ("t5", {**T5, "is_decoder": True}),
    "opt": ("opt", {**OPT, "do_layer_norm_before": True}),
    "opt, norms behind": ("opt", {**OPT, "do_layer_norm_before": False}),
}


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Returns normal numbers that depend on the name and shape only. Weights of norms are around 1."""
    x = np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape).astype(np.float32)
    return x * 0.1 + 1 if "norm.weight" in name else x * (0.5 if len(shape) > 1 else 0.1)


def width(config: dict[str, Any]) -> int:
    return int(config.get("d_model") or config["hidden_size"])


def inputs(name: str) -> dict[str, np.ndarray]:
    """Returns x, the factor of the output, and the memory of a decoder with cross attention."""
    h = width(CASES[name][1])
    made = {"x": drawn("x", (B, T, h)), "factor": drawn("factor", (B, T, h))}
    if CASES[name][1].get("is_decoder"):
        made["memory"] = drawn("memory", (B, S, h))
    return made


__all__ = ["CASES", "drawn", "inputs", "width"]
