"""How the `config.json` of Llama and of its relatives is read: a table of what differs between their model types."""

from __future__ import annotations

from typing import Any

from hetu.models.config_file import ModelType

FULL, SLIDING = "full_attention", "sliding_attention"

# Fields of LlamaConfig that some model types don't have.
_MULTIPLIERS = {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}
_OWN = {"output_bias", "qk_norm", "offset_norms", "output_norms", "scaled_embeddings", "sliding_rope_theta"}
_WINDOWS = {"sliding_window", "layer_types"}
_ALL = _MULTIPLIERS | _OWN | _WINDOWS | {"attention_bias", "mlp_bias", "final_logit_softcapping"}


def _without(*supported: str) -> frozenset[str]:
    """The fields that a type doesn't have, if it has these."""
    return frozenset(_ALL - set(supported))


def _rope_base(rope: Any, name: str) -> Any:
    """Returns the base in a file's description of rotary positions, or None. Raises ValueError where it asks for more."""
    if not rope:
        return None
    if not isinstance(rope, dict):
        raise ValueError(f"{name} is {rope!r}, expected an object")
    kind = rope.get("rope_type", rope.get("type"))
    if kind not in (None, "default"):
        raise ValueError(f"{name} has rotary positions of the type '{kind}', which Hetu does not compute; expected "
                         "'default'")
    neutral = {"rope_type": kind, "type": rope.get("type"), "rope_theta": rope.get("rope_theta"),
               "partial_rotary_factor": 1}
    for key, value in rope.items():
        if value is not None and (key not in neutral or value != neutral[key]):
            raise ValueError(f"{name} has {key} = {value!r}, which Hetu does not compute for "
                             f"{'the type default' if kind else 'rotary positions without a rope_type'}")
    return rope.get("rope_theta")


def _rope(given: dict[str, Any]) -> dict[str, Any]:
    """Takes rope_theta from rope_scaling, or rope_parameters as newer files call it."""
    old, new = given.pop("rope_scaling", None), given.pop("rope_parameters", None)
    if old and new and old != new:
        raise ValueError("rope_scaling and rope_parameters are both given and differ")
    base = _rope_base(old or new, "rope_scaling" if old else "rope_parameters")
    return {} if base is None else {"rope_theta": base}


def _qwen(given: dict[str, Any]) -> dict[str, Any]:
    """Qwen: layers from max_window_layers on slide, if use_sliding_window and unless layer_types says which."""
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
    """Old files say gelu and mean its approximation by tanh, which transformers computes for them."""
    if given.get("hidden_act") == "gelu":
        given["hidden_act"] = "gelu_pytorch_tanh"
    return _rope(given)


def _gemma3(given: dict[str, Any]) -> dict[str, Any]:
    """Every sliding_window_pattern-th layer sees all tokens; the others have a base of rotary positions of their own."""
    scaling, named = given.pop("rope_scaling", None), given.pop("rope_parameters", None) or {}
    if not isinstance(named, dict) or set(named) - {FULL, SLIDING}:
        raise ValueError(f"rope_parameters is {named!r}, expected an object with {FULL} and {SLIDING}")
    if named.get(FULL) and scaling and named[FULL] != scaling:
        raise ValueError("rope_scaling and rope_parameters are both given and differ")
    meant = {"hidden_act": given.pop("hidden_activation")}
    if not named.get(FULL):
        named = {**named, FULL: scaling}
    theta, local = given.pop("rope_theta", None), given.pop("rope_local_base_freq", None)
    for kind, name, own, default in ((FULL, "rope_theta", theta, 1e6), (SLIDING, "sliding_rope_theta", local, 1e4)):
        base = _rope_base(named.get(kind), "rope_scaling" if named.get(kind) is scaling else f"rope_parameters of {kind}")
        meant[name] = base if base is not None else own if own is not None else default
    pattern, layers = given.pop("sliding_window_pattern", None), given.get("num_hidden_layers")
    if given.get("layer_types") is None and type(layers) is int:
        every = 6 if pattern is None else pattern
        if type(every) is not int or every < 1:
            raise ValueError(f"sliding_window_pattern is {pattern!r}, expected a whole number of at least 1")
        given["layer_types"] = [SLIDING if (i + 1) % every else FULL for i in range(layers)]
    scalar = given.pop("query_pre_attn_scalar", None)
    if isinstance(scalar, bool) or not isinstance(scalar, int | float) or scalar <= 0:
        raise ValueError(f"query_pre_attn_scalar is {scalar!r}, expected a number above 0")
    return {**meant, "attention_multiplier": float(scalar) ** -0.5}


_SAME = frozenset({"is_decoder"})  # harmless: these models are decoders anyway

_QWEN: dict[str, Any] = {"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32, "sliding_window": 4096,
                         "max_position_embeddings": 32768, "num_hidden_layers": 32, "num_attention_heads": 32}

MODEL_TYPES = {
    # pretraining_tp splits products, which changes rounding only.
    "llama": ModelType(absent=_without("attention_bias", "mlp_bias"), translate=_rope, harmless=_SAME | {"pretraining_tp"}),
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
