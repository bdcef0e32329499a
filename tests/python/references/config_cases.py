"""Small models of every model type that Hetu reads, for tests that change their `config.json` field by field."""

from __future__ import annotations

from typing import Any

import bert_cases
import model_cases

_SMALL: dict[str, Any] = {"vocab_size": 37, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2,
                          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16}
# Fields that the changes start from, by model type.
BASES: dict[str, dict[str, Any]] = {
    "bert": {**bert_cases.SMALL, "vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 1, "intermediate_size": 32},
    "gemma": {**_SMALL, "head_dim": 8},
    "gemma3_text": {**_SMALL, "head_dim": 8, "sliding_window": 4, "sliding_window_pattern": 2},
    "gpt2": {"vocab_size": 37, "n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 3, "resid_pdrop": 0.0,
             "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "granite": dict(_SMALL),
    "llama": dict(_SMALL),
    "mistral": {**_SMALL, "sliding_window": 4},
    "qwen2": dict(_SMALL),
    "qwen3": {**_SMALL, "head_dim": 8},
    "vit": {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32, "image_size": 12,
            "patch_size": 4, "num_channels": 2},
}

_LAYERS = ["full_attention", "sliding_attention"]
# Changes that are applied to every type, in addition to the fields of its class in transformers.
CHANGES: list[dict[str, Any]] = [
    {"attention_bias": True}, {"attention_multiplier": 0.5}, {"attn_logit_softcapping": 0.5}, {"embedding_multiplier": 2.0},
    {"final_logit_softcapping": 0.5}, {"head_dim": 12}, {"hidden_activation": "relu"}, {"hidden_activation": None},
    {"id2label": {"0": "a", "1": "b", "2": "c"}}, {"is_decoder": True}, {"layer_types": _LAYERS},
    {"layer_types": _LAYERS, "sliding_window": 3, "use_sliding_window": True}, {"logits_scaling": 2.0},
    {"max_window_layers": 0, "sliding_window": 3, "use_sliding_window": True}, {"mlp_bias": True}, {"n_ctx": 9},
    {"num_key_value_heads": None}, {"num_labels": 3}, {"partial_rotary_factor": 0.5},
    {"position_embedding_type": "relative_key"}, {"query_pre_attn_scalar": 2}, {"residual_multiplier": 0.5},
    {"rope_local_base_freq": 3.0}, {"rope_theta": 3.0},
    {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    *({"rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": high,
                        "original_max_position_embeddings": trained}} for high, trained in ((4.0, 4), (3.0, 16))),
    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}},
    {"rope_scaling": {"factor": 4.0}}, {"rope_scaling": {"type": "linear", "factor": 4.0}}, {"rope_scaling": None},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 3.0}},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 3.0, "partial_rotary_factor": 0.5}},
    {"rope_parameters": {name: {"rope_type": "default", "rope_theta": base}
                         for name, base in zip(_LAYERS, (3.0, 30.0), strict=True)}},
    {"scale_attn_by_inverse_layer_idx": True}, {"scale_attn_weights": False}, {"sliding_window": 3},
    {"sliding_window": None}, {"sliding_window_pattern": 3}, {"use_bidirectional_attention": True}, {"qkv_bias": False},
    {"tie_word_embeddings": True}, {"tie_word_embeddings": False}, {"image_size": [12, 12]}, {"patch_size": [6, 6]},
]


def inputs(model_type: str) -> dict[str, Any]:
    """Returns the fields of a batch."""
    if model_type == "bert":
        return bert_cases.batch(BASES["bert"]["vocab_size"])
    return model_cases.inputs(model_type, {**BASES[model_type], "num_labels": 2})
