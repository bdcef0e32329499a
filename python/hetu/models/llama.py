"""Llama and its relatives: RMS norms, rotary positions, gated MLPs, heads that share keys and values.

Sources: Touvron et al. 2023. Names, shapes, initial weights and arithmetic are those of Hugging Face's LlamaForCausalLM,
MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, GemmaForCausalLM, Gemma3ForCausalLM (text only) and
GraniteForCausalLM. llama_types.py lists their differences. B batch, T tokens, H width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hetu import nn, ops
from hetu.functions import rms_norm
from hetu.graph import Value
from hetu.init import normal, zeros
from hetu.models.config import ACTIVATIONS, check_activation, check_heads, check_sizes, read
from hetu.models.language import Cache, LanguageModel, attend, start_weights
from hetu.models.llama_types import FULL, MODEL_TYPES, SLIDING


@dataclass
class LlamaConfig:
    """The fields of a Llama `config.json`, and additional fields of its relatives.

    num_key_value_heads: 0 means the number of heads.
    head_dim: 0 means hidden_size divided by the number of heads.
    layer_types: a layer of the type `sliding_attention` attends to the last `sliding_window` tokens. Empty: every layer
    does if sliding_window is set.
    attention_multiplier: factor of query times key. None: one over the root of head_dim.
    residual_multiplier, embedding_multiplier: factors of each residual, and of the embeddings.
    logits_scaling, final_logit_softcapping: divisor and bound of the logits.
    """

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 0
    head_dim: int = 0
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    attention_bias: bool = False
    mlp_bias: bool = False
    attention_dropout: float = 0.0
    tie_word_embeddings: bool = False
    sliding_window: int = 0
    layer_types: list[str] = field(default_factory=list)
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    attention_multiplier: float | None = None
    logits_scaling: float = 1.0
    final_logit_softcapping: float | None = None
    rope_factor: float = 1.0  # see the operator `rotary`, also for rope_trained, rope_low and rope_high
    rope_trained: int = 0
    rope_low: float = 0.0
    rope_high: float = 0.0
    sliding_rope_theta: float | None = None  # of sliding layers, whose positions are not scaled; None: as for other layers
    output_bias: bool | None = None  # of the attention's output; None: attention_bias
    qk_norm: bool = False  # a norm of each head's query and key
    offset_norms: bool = False  # norms multiply by 1 + weight
    output_norms: bool = False  # additional norms after attention and after the MLP
    scaled_embeddings: bool = False  # by the root of hidden_size

    MODEL_TYPES: ClassVar = MODEL_TYPES

    def __post_init__(self) -> None:
        check_sizes(self, ("num_key_value_heads", "head_dim", "sliding_window", "rope_trained"))
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        if not self.head_dim:
            check_heads(self.hidden_size, self.num_attention_heads, "hidden_size")
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(f"num_key_value_heads {self.num_key_value_heads} does not divide {self.num_attention_heads} "
                             "heads")
        check_activation(self.hidden_act, "hidden_act")
        self._check_layer_types()
        for name in ("logits_scaling", "final_logit_softcapping", "attention_multiplier"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0, got {value}")

    def _check_layer_types(self) -> None:
        if not self.layer_types:
            return
        strange = [name for name in self.layer_types if name not in (FULL, SLIDING)]
        if strange:
            raise ValueError(f"layer_types names '{strange[0]}'; known: {FULL}, {SLIDING}")
        if len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(f"layer_types names {len(self.layer_types)} layers, but num_hidden_layers is "
                             f"{self.num_hidden_layers}")
        if SLIDING in self.layer_types and not self.sliding_window:
            raise ValueError(f"layer_types names a {SLIDING}, but sliding_window is not set")

    def slides(self, layer: int) -> bool:
        """Returns true if a layer attends only to the last sliding_window tokens."""
        return self.sliding_window > 0 and (not self.layer_types or self.layer_types[layer] == SLIDING)


CONFIGS: dict[str, dict[str, Any]] = {
    "7b": {},
    "tiny": {"vocab_size": 256, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128},
}


class _OffsetNorm(nn.RMSNorm):
    """An RMS norm that multiplies by 1 + weight, as in Gemma."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps)
        self.weight = nn.Parameter([width], zeros(), decay=False)

    def forward(self, x: Value) -> Value:
        return rms_norm(x, self.weight + 1.0, self.eps)


def _norm(c: LlamaConfig, width: int) -> nn.RMSNorm:
    return _OffsetNorm(width, c.rms_norm_eps) if c.offset_norms else nn.RMSNorm(width, c.rms_norm_eps)


def _scaled(x: Value, factor: float) -> Value:
    return x if factor == 1.0 else x * factor


class _Attention(nn.Module):
    def __init__(self, c: LlamaConfig, layer: int) -> None:
        self.config = c
        self.window = c.sliding_window if c.slides(layer) else 0
        self.turns: dict[str, Any] = {"base": c.rope_theta, "factor": c.rope_factor, "trained": c.rope_trained,
                                      "low": c.rope_low, "high": c.rope_high}
        if c.slides(layer) and c.sliding_rope_theta is not None:
            self.turns = {"base": c.sliding_rope_theta}
        for name, heads in (("q_proj", c.num_attention_heads), ("k_proj", c.num_key_value_heads),
                            ("v_proj", c.num_key_value_heads)):
            setattr(self, name, nn.Linear(c.hidden_size, heads * c.head_dim, c.attention_bias))
        self.o_proj = nn.Linear(c.num_attention_heads * c.head_dim, c.hidden_size,
                                c.attention_bias if c.output_bias is None else c.output_bias)
        if c.qk_norm:
            self.q_norm, self.k_norm = _norm(c, c.head_dim), _norm(c, c.head_dim)

    def forward(self, x: Value, cache: Cache | None = None) -> Value:
        c, places = self.config, [] if cache is None else [cache.places]
        query, key = self.q_proj(x), self.k_proj(x)
        if c.qk_norm:
            query, key = self._each_head(query, self.q_norm), self._each_head(key, self.k_norm)
        query = ops.rotary(query, *places, heads=c.num_attention_heads, **self.turns)
        key = ops.rotary(key, *places, heads=c.num_key_value_heads, **self.turns)
        if c.attention_multiplier is not None:  # the operator divides by the root of head_dim
            query = _scaled(query, c.attention_multiplier * math.sqrt(c.head_dim))
        return self.o_proj(attend(query, key, self.v_proj(x), cache, self.window, heads=c.num_attention_heads,
                                  kv_heads=c.num_key_value_heads, dropout=c.attention_dropout))

    def _each_head(self, x: Value, norm: nn.RMSNorm) -> Value:
        batch, tokens, width = x.shape
        d = self.config.head_dim
        return norm(x.reshape(batch, tokens, width // d, d)).reshape(batch, tokens, width)


class _Mlp(nn.Module):
    def __init__(self, c: LlamaConfig) -> None:
        self.gate_proj, self.up_proj = (nn.Linear(c.hidden_size, c.intermediate_size, c.mlp_bias) for _ in range(2))
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, c.mlp_bias)
        self.act = getattr(ops, ACTIVATIONS[c.hidden_act])

    def forward(self, x: Value) -> Value:
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class _Block(nn.Module):
    """Attention and MLP, each after a norm. With output_norms, transformers names the MLP's norm pre_feedforward_layernorm,
    and the norm after attention post_attention_layernorm."""

    def __init__(self, c: LlamaConfig, layer: int) -> None:
        self.config = c
        self.self_attn, self.mlp = _Attention(c, layer), _Mlp(c)
        self.input_layernorm, self.post_attention_layernorm = _norm(c, c.hidden_size), _norm(c, c.hidden_size)
        if c.output_norms:
            self.pre_feedforward_layernorm = _norm(c, c.hidden_size)
            self.post_feedforward_layernorm = _norm(c, c.hidden_size)

    def forward(self, x: Value, cache: Cache | None = None) -> Value:
        factor = self.config.residual_multiplier
        attended = self.self_attn(self.input_layernorm(x), cache)
        if self.config.output_norms:
            x = x + _scaled(self.post_attention_layernorm(attended), factor)
            return x + _scaled(self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x))), factor)
        x = x + _scaled(attended, factor)
        return x + _scaled(self.mlp(self.post_attention_layernorm(x)), factor)


class Llama(LanguageModel):
    """A Llama or one of its relatives. Its head has its own table unless the configuration ties it to the embeddings."""

    def __init__(self, config: LlamaConfig) -> None:
        c = self.config = config
        self.positions = c.max_position_embeddings
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(c.vocab_size, c.hidden_size),
            "layers": nn.ModuleList(_Block(c, i) for i in range(c.num_hidden_layers)),
            "norm": _norm(c, c.hidden_size),
        })
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        if c.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        start_weights(self, normal(c.initializer_range))

    @classmethod
    def from_config(cls, name: str, **changes: Any) -> Llama:
        """Creates a model from `7b`, `tiny`, or the path of a `config.json` of model_type llama, mistral, qwen2, qwen3,
        gemma, gemma3_text or granite. `changes` replace single fields."""
        return cls(read(LlamaConfig, name, CONFIGS, changes))

    def embed(self, ids: Value, places: Value | None = None) -> Value:
        c = self.config
        return _scaled(self.model.embed_tokens(ids),
                       c.embedding_multiplier * (math.sqrt(c.hidden_size) if c.scaled_embeddings else 1.0))

    def cached(self) -> int:
        return self.config.num_key_value_heads * self.config.head_dim

    def layers(self) -> nn.ModuleList:
        return self.model.layers

    def head(self, x: Value) -> Value:
        most = self.config.final_logit_softcapping
        logits = _scaled(self.lm_head(self.model.norm(x)), 1 / self.config.logits_scaling)
        return logits if most is None else ops.tanh(logits * (1 / most)) * most


__all__ = ["CONFIGS", "Llama", "LlamaConfig"]
