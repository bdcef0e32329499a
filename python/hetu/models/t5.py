"""Blocks of T5. Source: Raffel et al. 2020. Names, shapes and arithmetic are those of Hugging Face's T5Block: before each
part a norm by the root mean square without bias; unscaled scores with a bias by relative position; ReLU. B batch, T
queries, S keys, H width, N heads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hetu import nn, ops
from hetu.functions import constant
from hetu.graph import Value
from hetu.init import normal
from hetu.models.config import check_sizes
from hetu.models.config_file import ModelType


@dataclass
class T5Config:
    """The fields of a T5 `config.json` that affect a block."""

    d_model: int = 768
    d_kv: int = 64
    d_ff: int = 3072
    num_heads: int = 12
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-6

    # The defaults of this class are those of T5-base. The defaults of transformers are those of T5-small. Fields of
    # the whole model are harmless.
    MODEL_TYPES: ClassVar = {"t5": ModelType(
        defaults={"d_model": 512, "d_ff": 2048, "num_heads": 8},
        renamed={"hidden_size": "d_model", "num_attention_heads": "num_heads", "head_dim": "d_kv"},
        restricted={"dense_act_fn": ("relu",), "feed_forward_proj": ("relu",), "is_gated_act": (False,)},
        harmless=frozenset({"classifier_dropout", "initializer_factor", "is_encoder_decoder", "n_positions",
                            "num_decoder_layers", "num_hidden_layers", "num_layers", "tie_word_embeddings", "vocab_size"}))}

    def __post_init__(self) -> None:
        check_sizes(self)


def bucket_of(distance: int, both: bool, buckets: int, farthest: int) -> int:
    """Returns the row of the bias table for a key that is `distance` positions after its query.

    both: keys on either side count, each with half of the rows.
    Half of a side's rows stand for one distance each. The other rows stand for logarithmically longer ranges up to
    `farthest`.
    """
    first = 0
    if both:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(0, -distance)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(farthest / exact)
    return first + min(buckets - 1, exact + int(share * (buckets - exact)))


class T5Attention(nn.Module):
    """Attention to x itself or to `memory` [B, S, H]. With `has_bias`, it owns a table of relative positions."""

    def __init__(self, c: T5Config, is_decoder: bool, has_bias: bool) -> None:
        inner = c.num_heads * c.d_kv
        self.config, self.is_decoder = c, is_decoder
        self.q, self.k, self.v = (nn.Linear(c.d_model, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, c.d_model, bias=False)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(c.relative_attention_num_buckets, c.num_heads)

    def position_bias(self, queries: int, keys: int) -> Value:
        """Returns the bias [1, N, T, S] for the scores of this block and, in T5, of all following blocks."""
        import numpy

        c = self.config
        rows = [[bucket_of(key - query, not self.is_decoder, c.relative_attention_num_buckets,
                           c.relative_attention_max_distance) for key in range(keys)] for query in range(queries)]
        bias = self.relative_attention_bias(constant(numpy.array(rows, numpy.int32)))
        return bias.permute(2, 0, 1).unsqueeze(0)

    def forward(self, x: Value, memory: Value | None = None, bias: Value | None = None) -> Value:
        to = x if memory is None else memory
        query = self.q(x) * math.sqrt(self.config.d_kv)  # the operator divides by it
        context, _ = ops.attention(query, self.k(to), self.v(to), *([] if bias is None else [bias]),
                                   heads=self.config.num_heads, dropout=self.config.dropout_rate,
                                   causal=int(self.is_decoder and memory is None))
        return self.o(context)


class _SelfAttention(nn.Module):
    def __init__(self, c: T5Config, is_decoder: bool, has_bias: bool) -> None:
        self.SelfAttention = T5Attention(c, is_decoder, has_bias)
        self.layer_norm, self.dropout = nn.RMSNorm(c.d_model, c.layer_norm_epsilon), nn.Dropout(c.dropout_rate)

    def forward(self, x: Value, bias: Value | None) -> Value:
        return x + self.dropout(self.SelfAttention(self.layer_norm(x), bias=bias))


class _CrossAttention(nn.Module):
    def __init__(self, c: T5Config) -> None:
        self.EncDecAttention = T5Attention(c, True, False)
        self.layer_norm, self.dropout = nn.RMSNorm(c.d_model, c.layer_norm_epsilon), nn.Dropout(c.dropout_rate)

    def forward(self, x: Value, memory: Value) -> Value:
        return x + self.dropout(self.EncDecAttention(self.layer_norm(x), memory))


class _Dense(nn.Module):
    def __init__(self, c: T5Config) -> None:
        self.wi, self.wo = nn.Linear(c.d_model, c.d_ff, bias=False), nn.Linear(c.d_ff, c.d_model, bias=False)
        self.dropout = nn.Dropout(c.dropout_rate)

    def forward(self, x: Value) -> Value:
        return self.wo(self.dropout(ops.relu(self.wi(x))))


class _FeedForward(nn.Module):
    def __init__(self, c: T5Config) -> None:
        self.DenseReluDense = _Dense(c)
        self.layer_norm, self.dropout = nn.RMSNorm(c.d_model, c.layer_norm_epsilon), nn.Dropout(c.dropout_rate)

    def forward(self, x: Value) -> Value:
        return x + self.dropout(self.DenseReluDense(self.layer_norm(x)))


class T5Block(nn.Module):
    """A T5 block: x [B, T, H] -> [B, T, H]. A decoder's block is causal, and attends to `memory` [B, S, H]. With `has_bias`
    it owns the table of relative positions, like T5's first block, and needs no `bias` [1, N, T, T]."""

    def __init__(self, config: T5Config, is_decoder: bool = False, has_bias: bool = True) -> None:
        self.has_bias, self.is_decoder = has_bias, is_decoder
        self.layer = nn.ModuleList([_SelfAttention(config, is_decoder, has_bias),
                                    *([_CrossAttention(config)] if is_decoder else []), _FeedForward(config)])
        for parameter in self.parameters():
            if len(parameter.shape) > 1:
                parameter.init = normal(config.d_model**-0.5)

    def forward(self, x: Value, memory: Value | None = None, bias: Value | None = None) -> Value:
        if self.has_bias:
            bias = self.layer[0].SelfAttention.position_bias(x.shape[1], x.shape[1])
        x = self.layer[0](x, bias)
        if self.is_decoder:
            x = self.layer[1](x, memory)
        return self.layer[-1](x)


__all__ = ["T5Attention", "T5Block", "T5Config", "bucket_of"]
