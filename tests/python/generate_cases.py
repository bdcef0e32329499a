"""Small models that go on with rows of tokens, here and in transformers."""

from __future__ import annotations

from typing import Any

import numpy as np

import model_cases

TOKENS, PROMPT, ROWS = 64, 5, 2
_LONG = {"gpt": {"n_positions": 80}, "llama": {"max_position_embeddings": 80}}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    family: (family, {**model_cases.CASES[family][1], **longer}) for family, longer in _LONG.items()}


def prompt() -> np.ndarray:
    """int32 [ROWS, PROMPT]."""
    return np.random.default_rng(model_cases.SEED + 1).integers(0, model_cases.WORDS, (ROWS, PROMPT), np.int32)
