"""Small models that continue rows of tokens, in Hetu and in transformers."""

from __future__ import annotations

from typing import Any

import numpy as np

import model_cases

TOKENS, PROMPT, ROWS = 64, 5, 2
_LONG = {"gpt": {"n_positions": 80}, "llama": {"max_position_embeddings": 80}, "mistral": {"max_position_embeddings": 80},
         "gemma3": {"max_position_embeddings": 80}}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    name: (model_cases.CASES[name][0], {**model_cases.CASES[name][1], **longer}) for name, longer in _LONG.items()}


def prompt() -> np.ndarray:
    """Returns int32 [ROWS, PROMPT]."""
    return np.random.default_rng(model_cases.SEED + 1).integers(0, model_cases.WORDS, (ROWS, PROMPT), np.int32)
