"""Llama: RMS norms, rotary positions, gated SiLU, heads that share keys and values.

Source: Touvron et al. 2023; names, shapes, starting weights and arithmetic as in Hugging Face's LlamaForCausalLM.
B batch, T tokens, H width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hetu import nn, ops
from hetu.graph import Value
from hetu.init import normal
from hetu.models.config import ACTIVATIONS, check_activation, check_heads, check_sizes, read
from hetu.models.language import Cache, LanguageModel, attend, start_weights


@dataclass
class LlamaConfig:
    """Fields of a Llama `config.json`. num_key_value_heads 0: as many as heads; head_dim 0: hidden_size over the heads."""

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

    def __post_init__(self) -> None:
        check_sizes(self, ("num_key_value_heads", "head_dim"))
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        if not self.head_dim:
            check_heads(self.hidden_size, self.num_attention_heads, "hidden_size")
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(f"num_key_value_heads {self.num_key_value_heads} does not divide {self.num_attention_heads} "
                             "heads")
        check_activation(self.hidden_act, "hidden_act")

    @staticmethod
    def spelled(loaded: dict[str, Any], path: str) -> dict[str, Any]:
        """The fields of a JSON file, of which newer ones have the base of rotary positions in rope_parameters. Throws
        ValueError where positions are scaled."""
        rope = loaded.get("rope_parameters") or loaded.get("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise ValueError(f"{path}: rotary positions of the type '{kind}' are scaled; known: default")
        return {**loaded, "rope_theta": rope.get("rope_theta", loaded.get("rope_theta"))}


CONFIGS: dict[str, dict[str, Any]] = {
    "7b": {},
    "tiny": {"vocab_size": 256, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128},
}


class _Attention(nn.Module):
    def __init__(self, c: LlamaConfig) -> None:
        self.config = c
        for name, heads in (("q_proj", c.num_attention_heads), ("k_proj", c.num_key_value_heads),
                            ("v_proj", c.num_key_value_heads)):
            setattr(self, name, nn.Linear(c.hidden_size, heads * c.head_dim, c.attention_bias))
        self.o_proj = nn.Linear(c.num_attention_heads * c.head_dim, c.hidden_size, c.attention_bias)

    def forward(self, x: Value, cache: Cache | None = None) -> Value:
        c, places = self.config, [] if cache is None else [cache.places]
        query = ops.rotary(self.q_proj(x), *places, heads=c.num_attention_heads, base=c.rope_theta)
        key = ops.rotary(self.k_proj(x), *places, heads=c.num_key_value_heads, base=c.rope_theta)
        return self.o_proj(attend(query, key, self.v_proj(x), cache, heads=c.num_attention_heads,
                                  kv_heads=c.num_key_value_heads, dropout=c.attention_dropout))


class _Mlp(nn.Module):
    def __init__(self, c: LlamaConfig) -> None:
        self.gate_proj, self.up_proj = (nn.Linear(c.hidden_size, c.intermediate_size, c.mlp_bias) for _ in range(2))
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, c.mlp_bias)
        self.act = getattr(ops, ACTIVATIONS[c.hidden_act])

    def forward(self, x: Value) -> Value:
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class _Block(nn.Module):
    def __init__(self, c: LlamaConfig) -> None:
        self.self_attn, self.mlp = _Attention(c), _Mlp(c)
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(c.hidden_size, c.rms_norm_eps) for _ in range(2))

    def forward(self, x: Value, cache: Cache | None = None) -> Value:
        x = x + self.self_attn(self.input_layernorm(x), cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(LanguageModel):
    """A Llama, whose head has a table of its own unless the configuration ties them."""

    def __init__(self, config: LlamaConfig) -> None:
        c = self.config = config
        self.positions = c.max_position_embeddings
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(c.vocab_size, c.hidden_size),
            "layers": nn.ModuleList(_Block(c) for _ in range(c.num_hidden_layers)),
            "norm": nn.RMSNorm(c.hidden_size, c.rms_norm_eps),
        })
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        if c.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        start_weights(self, normal(c.initializer_range))

    @classmethod
    def from_config(cls, name: str, **changes: Any) -> Llama:
        """`7b`, `tiny`, or the path of a Hugging Face style JSON file; `changes` replace single fields."""
        return cls(read(LlamaConfig, name, CONFIGS, changes))

    def embed(self, ids: Value, places: Value | None = None) -> Value:
        return self.model.embed_tokens(ids)

    def cached(self) -> int:
        return self.config.num_key_value_heads * self.config.head_dim

    def layers(self) -> nn.ModuleList:
        return self.model.layers

    def head(self, x: Value) -> Value:
        return self.lm_head(self.model.norm(x))


__all__ = ["CONFIGS", "Llama", "LlamaConfig"]
