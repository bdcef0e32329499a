"""Small GPT-2s, Llamas and their relatives, and ViTs for comparisons with Hugging Face's transformers.

Each case has the fields of its `config.json`, and weights and inputs from seeded NumPy."""

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
_SMALL: dict[str, Any] = {"vocab_size": WORDS, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
                          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16}
# Cases by name: (model_type, the other fields of its config.json). pad_token_id is null, because Gemma's is 0 by default,
# and transformers then excludes lookups of token 0 from the gradient.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt": ("gpt2", _GPT),
    "gpt, untied": ("gpt2", {**_GPT, "tie_word_embeddings": False, "n_inner": 31, "activation_function": "gelu",
                            "layer_norm_epsilon": 1e-3}),
    "llama": ("llama", _LLAMA),
    "llama, tied": ("llama", {**_LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 6, "rms_norm_eps": 1e-2,
                              "rope_theta": 50.0}),
    "llama, biases": ("llama", {**_LLAMA, "attention_bias": True, "mlp_bias": True, "head_dim": 6,
                                "num_key_value_heads": 1}),
    "llama, scaled": ("llama", {**_SMALL, "head_dim": 8, "rope_scaling": {
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0,
        "original_max_position_embeddings": 16}, "rope_theta": 20.0}),
    "gpt, scores": ("gpt2", {**_GPT, "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True,
                             "reorder_and_upcast_attn": True}),
    "mistral": ("mistral", {**_SMALL, "sliding_window": 4, "rope_theta": 100.0}),
    "mistral, all": ("mistral", {**_SMALL, "sliding_window": None, "head_dim": 8}),
    "qwen2": ("qwen2", {**_SMALL, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}),
    "qwen3": ("qwen3", {**_SMALL, "head_dim": 8, "tie_word_embeddings": True, "sliding_window": 3}),
    "gemma": ("gemma", {**_SMALL, "pad_token_id": None, "head_dim": 8, "hidden_act": "gelu"}),
    "gemma3": ("gemma3_text", {**_SMALL, "pad_token_id": None, "head_dim": 8, "sliding_window": 4,
                               "sliding_window_pattern": 2, "rope_theta": 500.0, "rope_local_base_freq": 20.0,
                               "query_pre_attn_scalar": 10, "final_logit_softcapping": 5.0}),
    "granite": ("granite", {**_SMALL, "attention_bias": True, "embedding_multiplier": 3.0, "residual_multiplier": 0.4,
                            "attention_multiplier": 0.3, "logits_scaling": 2.0}),
    "vit": ("vit", _VIT),
    "vit, relu": ("vit", {**_VIT, "qkv_bias": False, "hidden_act": "relu", "layer_norm_eps": 1e-3}),
}


def inputs(family: str, config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Returns ids of TOKENS + 1 words, or image and label."""
    random = np.random.default_rng(SEED)
    if family != "vit":
        return {"ids": random.integers(0, config["vocab_size"], (ROWS, TOKENS + 1), np.int32)}
    size = config["image_size"]
    return {"image": random.standard_normal((ROWS, config["num_channels"], size, size)).astype(np.float32),
            "label": random.integers(0, config["num_labels"], ROWS, np.int32)}


def weights(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Returns weights by name. Scales of norms are near 1."""
    out = {}
    for name, shape in shapes.items():
        drawn = 0.2 * np.random.default_rng([SEED, *map(ord, name)]).standard_normal(shape)
        out[name] = np.asarray(drawn + (len(shape) == 1 and name.endswith("weight")), np.float32)
    return out
