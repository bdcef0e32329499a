"""Small BERTs for comparing with Hugging Face: configurations, weights and batches from seeded NumPy, and digests."""

from __future__ import annotations

from typing import Any

import numpy

SMALL: dict[str, Any] = {
    "vocab_size": 211, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 24, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}
CASES: dict[str, dict[str, Any]] = {
    "gelu_tied": {**SMALL, "hidden_act": "gelu", "tie_word_embeddings": True},
    "gelu_untied": {**SMALL, "hidden_act": "gelu", "tie_word_embeddings": False},
    "relu_untied": {**SMALL, "hidden_act": "relu", "tie_word_embeddings": False},
}
ROWS, LENGTH, STEPS, RATE = 8, 16, 20, 1e-3
PROJECTIONS = 8


def weights(shapes: dict[str, tuple[int, ...]], seed: int = 5) -> dict[str, numpy.ndarray]:
    """Returns seeded weights by name. The scales of norms are near 1."""
    random = numpy.random.default_rng(seed)
    out = {}
    for name in sorted(shapes):
        drawn = random.standard_normal(shapes[name]).astype(numpy.float32)
        scale, shift = (0.1, 1.0) if name.endswith("LayerNorm.weight") else (0.1, 0.0)
        out[name] = (scale * drawn + shift).astype(numpy.float32)
    return out


def batch(vocabulary: int, step: int = 0) -> dict[str, numpy.ndarray]:
    """Returns one batch in which some rows are padded and 15 % of the tokens are masked. The label of unmasked tokens is -1.
    """
    random = numpy.random.default_rng(1000 + step)
    ids = random.integers(5, vocabulary, (ROWS, LENGTH), dtype=numpy.int32)
    lengths = random.integers(LENGTH // 2, LENGTH + 1, ROWS)
    mask = (numpy.arange(LENGTH) < lengths[:, None]).astype(numpy.int32)
    segments = (numpy.arange(LENGTH) >= lengths[:, None] // 2).astype(numpy.int32) * mask
    chosen = (random.random((ROWS, LENGTH)) < 0.15) & (mask == 1)
    chosen[:, 1] = True
    labels = numpy.where(chosen, ids, -1).astype(numpy.int32)
    return {
        "input_ids": numpy.where(chosen, 4, ids * mask).astype(numpy.int32), "input_mask": mask, "segment_ids": segments,
        "masked_lm_labels": labels, "next_sentence_labels": random.integers(0, 2, ROWS, dtype=numpy.int32),
    }


def masked_alone(batch: dict[str, numpy.ndarray], most: int) -> dict[str, numpy.ndarray]:
    """Returns the batch with positions and ids of the masked tokens in place of the labels of all tokens. A row holds at
    most `most` masked tokens; shorter rows end with 0 and -1."""
    labels = batch["masked_lm_labels"]
    positions, ids = numpy.zeros((len(labels), most), numpy.int32), numpy.full((len(labels), most), -1, numpy.int32)
    for row, found in enumerate(map(numpy.flatnonzero, labels >= 0)):
        positions[row, :len(found)], ids[row, :len(found)] = found, labels[row, found]
    others = {name: values for name, values in batch.items() if name != "masked_lm_labels"}
    return {**others, "masked_lm_positions": positions, "masked_lm_ids": ids}


def digest(name: str, tensor: numpy.ndarray) -> dict[str, Any]:
    """Returns the tensor's norm, and its sums under seeded random signs. The root mean square of differences of such sums
    estimates the norm of the difference of two tensors."""
    flat = tensor.astype(numpy.float64).ravel()
    random = numpy.random.default_rng(sum(map(ord, name)))
    signs = [random.integers(0, 2, flat.size) * 2 - 1 for _ in range(PROJECTIONS)]
    return {"norm": float(numpy.linalg.norm(flat)), "sums": [float(flat @ s) for s in signs]}


def rounded(value: Any) -> Any:
    """Returns the value with all floats rounded to nine significant digits, which represent every float32."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


def distance(a: dict[str, Any], b: dict[str, Any]) -> float:
    """Returns the estimated norm of the difference of two digested tensors."""
    return float(numpy.sqrt(numpy.mean((numpy.array(a["sums"]) - numpy.array(b["sums"])) ** 2)))


def worst(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[float, str]:
    """Returns the largest relative error, and the name of its tensor. The error is relative to the larger of the tensor's
    norm and 1e-3 of the global norm, because the gradients of key biases are zero in exact arithmetic."""
    total = numpy.sqrt(sum(d["norm"] ** 2 for d in theirs.values()))
    errors = [(distance(ours[n], d) / max(d["norm"], 1e-3 * total), n) for n, d in theirs.items()]
    return max(errors)
