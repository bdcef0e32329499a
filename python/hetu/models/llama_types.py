"""The rules for `config.json` files of Llama and its relatives: a table of the differences between model types."""

from __future__ import annotations

from typing import Any

from hetu.models.config_file import ModelType

FULL, SLIDING = "full_attention", "sliding_attention"

# Fields of LlamaConfig that some model types don't have.
_MULTIPLIERS = {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}
_OWN = {"output_bias", "qk_norm", "offset_norms", "output_norms", "scaled_embeddings", "sliding_rope_theta",
        "rope_factor", "rope_low", "rope_high", "rope_trained"}
_WINDOWS = {"sliding_window", "layer_types"}
_ALL = _MULTIPLIERS | _OWN | _WINDOWS | {"attention_bias", "mlp_bias", "final_logit_softcapping"}


def _without(*supported: str) -> frozenset[str]:
    """Returns the fields that a type without other than these `supported` fields doesn't have."""
    return frozenset(_ALL - set(supported))


_WHOLE = ("partial_rotary_factor", 1)  # allowed in every file

# The scalings of rotary positions that Hetu computes: their numbers in a file -> fields of LlamaConfig.
_SCALINGS = {
    "default": {},
    "linear": {"factor": "rope_factor"},
    "llama3": {"factor": "rope_factor", "low_freq_factor": "rope_low", "high_freq_factor": "rope_high",
               "original_max_position_embeddings": "rope_trained"},
}


def _rotary(rope: Any, name: str) -> dict[str, Any]:
    """Returns the fields of LlamaConfig that describe a file's rotary positions. Raises ValueError for positions that Hetu
    doesn't compute."""
    if not rope:
        return {}
    if not isinstance(rope, dict):
        raise ValueError(f"{name} is {rope!r}, expected an object")
    kind = rope.get("rope_type", rope.get("type"))
    scaling = _SCALINGS.get("default" if kind is None else str(kind))
    if scaling is None:
        raise ValueError(f"{name} has rotary positions of the type {kind!r}, which Hetu does not compute; expected one of "
                         f"{', '.join(_SCALINGS)}")
    meant = {"rope_theta": rope["rope_theta"]} if rope.get("rope_theta") is not None else {}
    for key, value in rope.items():
        if key in scaling:
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ValueError(f"{name} has {key} = {value!r}, expected a number above 0")
            meant[scaling[key]] = value
        elif value is not None and key not in ("rope_type", "type", "rope_theta") and (key, value) != _WHOLE:
            raise ValueError(f"{name} has {key} = {value!r}, which Hetu does not compute for "
                             f"{'rotary positions without a rope_type' if kind is None else f'the type {kind!r}'}")
    for key, own in scaling.items():
        if own not in meant:
            raise ValueError(f"{name} has rotary positions of the type {kind!r}, but no {key}")
    return meant


def _rope(given: dict[str, Any]) -> dict[str, Any]:
    """Reads rope_scaling, or rope_parameters, its name in newer files."""
    old, new = given.pop("rope_scaling", None), given.pop("rope_parameters", None)
    if old and new and old != new:
        raise ValueError("rope_scaling and rope_parameters are both given and differ")
    return _rotary(old or new, "rope_scaling" if old else "rope_parameters")


def _qwen(given: dict[str, Any]) -> dict[str, Any]:
    """Reads Qwen's fields: layers from max_window_layers on slide if use_sliding_window is set, unless layer_types defines
    the sliding layers."""
    meant = _rope(given)
    uses, first = given.pop("use_sliding_window", None) or False, given.pop("max_window_layers", 28)
    layers = given.get("num_hidden_layers")
    if not isinstance(uses, bool):
        raise ValueError(f"use_sliding_window is {uses!r}, expected bool")
    if not uses:
        given["sliding_window"] = None
    if given.get("layer_types") is None and given["sliding_window"] is not None:
        if type(first) is not int or type(layers) is not int:
            raise ValueError(f"max_window_layers is {first!r} and num_hidden_layers {layers!r}, expected int")
        given["layer_types"] = [SLIDING if i >= first else FULL for i in range(layers)]
    return meant


def _gemma(given: dict[str, Any]) -> dict[str, Any]:
    """Reads Gemma's fields. Old files contain gelu but mean its approximation by tanh, which transformers computes for
    them."""
    if given.get("hidden_act") == "gelu":
        given["hidden_act"] = "gelu_pytorch_tanh"
    return _rope(given)


def _gemma3(given: dict[str, Any]) -> dict[str, Any]:
    """Reads Gemma 3's fields. Every sliding_window_pattern-th layer attends to all tokens. The others have their own base
    of rotary positions."""
    scaling, named = given.pop("rope_scaling", None), given.pop("rope_parameters", None) or {}
    if not isinstance(named, dict) or set(named) - {FULL, SLIDING}:
        raise ValueError(f"rope_parameters is {named!r}, expected an object with {FULL} and {SLIDING}")
    if named.get(FULL) and scaling and named[FULL] != scaling:
        raise ValueError("rope_scaling and rope_parameters are both given and differ")
    if isinstance(scaling, dict) and "rope_type" not in scaling and scaling.get("type") not in (None, "default"):
        raise ValueError(f"rope_scaling has type = {scaling['type']!r}, which transformers ignores here; expected rope_type")
    full = _rotary(named.get(FULL) or scaling, f"rope_parameters of {FULL}" if named.get(FULL) else "rope_scaling")
    sliding = _rotary(named.get(SLIDING), f"rope_parameters of {SLIDING}")
    if set(sliding) - {"rope_theta"}:
        raise ValueError(f"rope_parameters of {SLIDING} are scaled, which Hetu does not compute")
    theta, local = given.pop("rope_theta", None), given.pop("rope_local_base_freq", None)
    meant = {"hidden_act": given.pop("hidden_activation"), "rope_theta": 1e6 if theta is None else theta, **full,
             "sliding_rope_theta": sliding.get("rope_theta", 1e4 if local is None else local)}
    pattern, layers = given.pop("sliding_window_pattern", None), given.get("num_hidden_layers")
    if given.get("layer_types") is None and type(layers) is int:
        every = 6 if pattern is None else pattern
        if type(every) is not int or every < 1:
            raise ValueError(f"sliding_window_pattern is {pattern!r}, expected a whole number >= 1")
        given["layer_types"] = [SLIDING if (i + 1) % every else FULL for i in range(layers)]
    scalar = given.pop("query_pre_attn_scalar", None)
    if isinstance(scalar, bool) or not isinstance(scalar, int | float) or scalar <= 0:
        raise ValueError(f"query_pre_attn_scalar is {scalar!r}, expected a number above 0")
    return {**meant, "attention_multiplier": float(scalar) ** -0.5}


_SAME = frozenset({"is_decoder"})  # harmless, because these models are always decoders

_QWEN: dict[str, Any] = {"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32, "sliding_window": 4096,
                         "max_position_embeddings": 32768, "num_hidden_layers": 32, "num_attention_heads": 32}

MODEL_TYPES = {
    # pretraining_tp splits products, which only changes rounding. max_sequence_length occurs in the first files.
    "llama": ModelType(absent=_without("attention_bias", "mlp_bias"), translate=_rope,
                       harmless=_SAME | {"max_sequence_length", "pretraining_tp"}),
    "mistral": ModelType(
        absent=_without("sliding_window"), translate=_rope, harmless=_SAME,
        defaults={"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 4096 * 32,
                  "sliding_window": 4096}),
    "qwen2": ModelType(
        absent=_without(*_WINDOWS), defaults=_QWEN, translate=_qwen, harmless=_SAME,
        always={"attention_bias": True, "output_bias": False}, restricted={"use_mrope": (False,)}),
    "qwen3": ModelType(
        absent=_without("attention_bias", *_WINDOWS), defaults={**_QWEN, "head_dim": 128},
        translate=_qwen, harmless=_SAME, always={"qk_norm": True}),
    "gemma": ModelType(
        absent=_without("attention_bias"), translate=_gemma, harmless=_SAME,
        restricted={"hidden_activation": ("gelu_pytorch_tanh",)},
        defaults={"vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
                  "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
                  "max_position_embeddings": 8192, "tie_word_embeddings": True},
        always={"offset_norms": True, "scaled_embeddings": True}),
    "gemma3_text": ModelType(
        absent=_without("attention_bias", "final_logit_softcapping", *_WINDOWS) | {"hidden_act"},
        translate=_gemma3, restricted={"attn_logit_softcapping": ()},
        harmless=_SAME | {"_sliding_window_pattern"},
        defaults={"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
                  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
                  "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "query_pre_attn_scalar": 256,
                  "sliding_window": 4096},
        always={"offset_norms": True, "output_norms": True, "qk_norm": True, "scaled_embeddings": True}),
    "granite": ModelType(
        absent=_without("attention_bias", "mlp_bias", *_MULTIPLIERS), translate=_rope, harmless=_SAME,
        defaults={"attention_multiplier": 1.0}),
}
