"""Small GPT-2s, Llamas and ViTs for comparing with Hugging Face's transformers: configurations, weights and inputs from
seeded NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SEED = 20261125
ROWS, TOKENS, WORDS = 2, 9, 37
_GPT: dict[str, Any] = {"vocab_size": WORDS, "n_positions": 16, "n_embd": 24, "n_layer": 3, "n_head": 3, "resid_pdrop": 0.0,
                        "embd_pdrop": 0.0, "attn_pdrop": 0.0}
_LLAMA: dict[str, Any] = {"vocab_size": WORDS, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
                          "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 16}
_VIT: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40,
                        "image_size": 12, "patch_size": 4, "num_channels": 2, "num_labels": 7}
# Name of the case: family, configuration.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt": ("gpt", _GPT),
    "gpt, untied": ("gpt", {**_GPT, "tie_word_embeddings": False, "n_inner": 31, "activation_function": "gelu",
                            "layer_norm_epsilon": 1e-3}),
    "llama": ("llama", _LLAMA),
    "llama, tied": ("llama", {**_LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 6, "rms_norm_eps": 1e-2,
                              "rope_theta": 50.0}),
    "llama, biases": ("llama", {**_LLAMA, "attention_bias": True, "mlp_bias": True, "head_dim": 6,
                                "num_key_value_heads": 1}),
    "vit": ("vit", _VIT),
    "vit, relu": ("vit", {**_VIT, "qkv_bias": False, "hidden_act": "relu", "layer_norm_eps": 1e-3}),
}


def inputs(family: str, config: dict[str, Any]) -> dict[str, np.ndarray]:
    """ids of TOKENS + 1 words, or image and label."""
    random = np.random.default_rng(SEED)
    if family != "vit":
        return {"ids": random.integers(0, config["vocab_size"], (ROWS, TOKENS + 1), np.int32)}
    size = config["image_size"]
    return {"image": random.standard_normal((ROWS, config["num_channels"], size, size)).astype(np.float32),
            "label": random.integers(0, config["num_labels"], ROWS, np.int32)}


def weights(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """By name; what norms multiply by is near 1."""
    out = {}
    for name, shape in shapes.items():
        drawn = 0.2 * np.random.default_rng([SEED, *map(ord, name)]).standard_normal(shape)
        out[name] = np.asarray(drawn + (len(shape) == 1 and name.endswith("weight")), np.float32)
    return out
