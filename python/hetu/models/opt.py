"""Layers of OPT. Source: Zhang et al. 2022. Names, shapes and arithmetic are those of Hugging Face's OPTDecoderLayer:
causal attention, and a feed-forward part with ReLU, with a norm before each part (after it in opt-350m). B batch, T tokens,
H width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetu import nn, ops
from hetu.graph import Value
from hetu.init import normal, zeros
from hetu.models.config import check_heads, check_sizes
from hetu.models.config_file import ModelType


@dataclass
class OptConfig:
    """The fields of an OPT `config.json` that affect a layer."""

    hidden_size: int = 768
    ffn_dim: int = 3072
    num_attention_heads: int = 12
    dropout: float = 0.1
    attention_dropout: float = 0.0
    do_layer_norm_before: bool = True
    init_std: float = 0.02

    # Fields of the whole model are harmless, because a layer doesn't use them.
    MODEL_TYPES: ClassVar = {"opt": ModelType(
        restricted={"activation_dropout": (0,), "activation_function": ("relu",), "enable_bias": (True,),
                    "layer_norm_elementwise_affine": (True,)},
        harmless=frozenset({"_remove_final_layer_norm", "layerdrop", "max_position_embeddings", "num_hidden_layers",
                            "tie_word_embeddings", "vocab_size", "word_embed_proj_dim"}))}

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self.hidden_size, self.num_attention_heads, "hidden_size")


class _Attention(nn.Module):
    def __init__(self, c: OptConfig) -> None:
        self.heads, self.dropout = c.num_attention_heads, c.attention_dropout
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (nn.Linear(c.hidden_size, c.hidden_size) for _ in range(4))

    def forward(self, x: Value) -> Value:
        context, _ = ops.attention(self.q_proj(x), self.k_proj(x), self.v_proj(x), heads=self.heads, dropout=self.dropout,
                                   causal=1)
        return self.out_proj(context)


class OptLayer(nn.Module):
    """A decoder layer: x [B, T, H] -> [B, T, H]."""

    def __init__(self, config: OptConfig) -> None:
        c = self.config = config
        self.self_attn = _Attention(c)
        self.self_attn_layer_norm = nn.LayerNorm(c.hidden_size)
        self.fc1, self.fc2 = nn.Linear(c.hidden_size, c.ffn_dim), nn.Linear(c.ffn_dim, c.hidden_size)
        self.final_layer_norm = nn.LayerNorm(c.hidden_size)
        self.dropout = nn.Dropout(c.dropout)
        for name, parameter in self.named_parameters():
            if len(parameter.shape) > 1:
                parameter.init = normal(c.init_std)
            elif name.endswith("bias"):
                parameter.init = zeros()

    def forward(self, x: Value) -> Value:
        first = self.config.do_layer_norm_before
        attended = self.self_attn(self.self_attn_layer_norm(x) if first else x)
        x = x + self.dropout(attended)
        x = x if first else self.self_attn_layer_norm(x)
        narrow = self.fc2(ops.relu(self.fc1(self.final_layer_norm(x) if first else x)))
        x = x + self.dropout(narrow)
        return x if first else self.final_layer_norm(x)


__all__ = ["OptConfig", "OptLayer"]
