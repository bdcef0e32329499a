"""Attention and Transformer layers. Constructors, names of parameters and initial weights are those of torch.nn.

The batch is always the first axis. Bool masks are PyTorch's: true where a query must NOT attend to a key. A float32
attn_mask is added to the scores. B batch, T queries, S keys, E width.
"""

from __future__ import annotations

import copy
import math
from typing import Any

from hetu import ops
from hetu.arithmetic import kind_of
from hetu.functions import where
from hetu.graph import Value, current
from hetu.init import xavier_uniform, zeros
from hetu.nn.activations import activation as named_activation
from hetu.nn.layers import Dropout, LayerNorm, Linear, check_last, check_sizes
from hetu.nn.module import Module, ModuleList, Parameter


def _mask(query: Value, key: Value, padding: Value | None, hidden: Value | None) -> list[Value]:
    """Combines PyTorch's key_padding_mask and attn_mask into the operator's mask: bool (true = attend) or float (added to
    the scores). Returns [] if both are None."""
    for name, given, added in (("key_padding_mask", padding, ()), ("attn_mask", hidden, ("float32",))):
        if given is not None and not (isinstance(given, Value) and given.dtype in ("bool", *added)):
            current().refuse(f"nn.MultiheadAttention: {name} must be a bool value, true where a key is masked"
                             f"{', or a float32 one that is added to the scores' if added else ''}; got "
                             f"{kind_of(given)}")
    if padding is not None and padding.shape != key.shape[:2]:
        current().refuse(f"nn.MultiheadAttention: key_padding_mask must be [B, S] to fit key {key!r}, got {padding!r}")
    if padding is None:
        return [] if hidden is None else [~hidden if hidden.dtype == "bool" else hidden]
    if hidden is not None and hidden.dtype != "bool":
        return [where(padding[:, None], -math.inf, hidden)]
    if hidden is None:  # the same for every query
        rows = query.shape[1]
        hidden = ops.constant(shape=[rows, 1], dtype="bool", data="00" * rows)
    return [~(padding[:, None] | hidden)]


class MultiheadAttention(Module):
    """Multi-head attention: query [B, T, E], key and value [B, S, E] -> (output [B, T, E], weights [B, T, S] or None). The
    weights are the mean over heads before dropout, and have no gradient. in_proj_weight [3 E, E] holds the three
    projections."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 batch_first: bool = True) -> None:
        check_sizes("MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            current().refuse(f"nn.MultiheadAttention: embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        if not batch_first:
            current().refuse("nn.MultiheadAttention: the batch is always the first axis; leave batch_first out")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.in_proj_weight = Parameter([3 * embed_dim, embed_dim], xavier_uniform())
        self.in_proj_bias = Parameter([3 * embed_dim], zeros(), decay=False) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        if self.out_proj.bias is not None:
            self.out_proj.bias.init = zeros()

    def _projections(self, *inputs: Value) -> list[Value]:
        """Returns the projections of query, key and value. If all three are the same value, computes them in one product."""
        weight: Any = self.in_proj_weight
        bias: Any = self.in_proj_bias
        if all(x is inputs[0] for x in inputs):
            return ops.linear(inputs[0], weight, *([] if bias is None else [bias])).split(3)
        parts = zip(inputs, weight.split(3, 0), [[]] * 3 if bias is None else [[b] for b in bias.split(3)], strict=True)
        return [ops.linear(x, w, *b) for x, w, b in parts]

    def forward(self, query: Value, key: Value, value: Value, key_padding_mask: Value | None = None,
                need_weights: bool = True, attn_mask: Value | None = None,
                is_causal: bool = False) -> tuple[Value, Value | None]:
        """Returns the output, and the weights if `need_weights`.

        key_padding_mask: bool [B, S], true where a key is masked out.
        attn_mask: bool [T, S] or [B, T, S], true where a key is masked out; or float32, added to the scores.
        is_causal: a query attends to no later key.
        """
        for x in (query, key, value):
            check_last("MultiheadAttention", x, self.embed_dim, "embed_dim")
        mask = _mask(query, key, key_padding_mask, attn_mask)
        context, weights = ops.attention(*self._projections(query, key, value), *mask, heads=self.num_heads,
                                         dropout=self.dropout, causal=int(is_causal))
        return self.out_proj(context), weights.mean(1) if need_weights else None

    def describe(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, dropout={self.dropout}"


class _TransformerLayer(Module):
    """The common part of both layers: two linear layers with an activation between them."""

    def __init__(self, d_model: int, dim_feedforward: int, dropout: float, activation: Any) -> None:
        self.linear1, self.dropout, self.linear2 = (Linear(d_model, dim_feedforward), Dropout(dropout),
                                                    Linear(dim_feedforward, d_model))
        self.activation = named_activation(type(self).__name__, activation)

    def _feed_forward(self, x: Value) -> Value:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _add(self, x: Value, norm: Module, dropout: Module, inner: Any) -> Value:
        """Returns the sum of x and the result of a part, with the norm before or after."""
        if self.norm_first:
            return x + dropout(inner(norm(x)))
        return norm(x + dropout(inner(x)))


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward part, each added to its input (Vaswani et al. 2017): [B, T, d_model] -> [B, T,
    d_model]."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
                 layer_norm_eps: float = 1e-5, batch_first: bool = True, norm_first: bool = False) -> None:
        self.norm_first = norm_first
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first)
        super().__init__(d_model, dim_feedforward, dropout, activation)
        self.norm1, self.norm2 = (LayerNorm(d_model, layer_norm_eps) for _ in range(2))
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)

    def forward(self, src: Value, src_mask: Value | None = None, src_key_padding_mask: Value | None = None,
                is_causal: bool = False) -> Value:
        def attend(x: Value) -> Value:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal)[0]

        x = self._add(src, self.norm1, self.dropout1, attend)
        return self._add(x, self.norm2, self.dropout2, self._feed_forward)


class TransformerDecoderLayer(_TransformerLayer):
    """An encoder layer with additional attention to `memory` [B, S, d_model] between its parts."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
                 layer_norm_eps: float = 1e-5, batch_first: bool = True, norm_first: bool = False) -> None:
        self.norm_first = norm_first
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first)
        super().__init__(d_model, dim_feedforward, dropout, activation)
        self.norm1, self.norm2, self.norm3 = (LayerNorm(d_model, layer_norm_eps) for _ in range(3))
        self.dropout1, self.dropout2, self.dropout3 = (Dropout(dropout) for _ in range(3))

    def forward(self, tgt: Value, memory: Value, tgt_mask: Value | None = None, memory_mask: Value | None = None,
                tgt_key_padding_mask: Value | None = None, memory_key_padding_mask: Value | None = None,
                tgt_is_causal: bool = False) -> Value:
        def attend(x: Value) -> Value:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, tgt_is_causal)[0]

        def look(x: Value) -> Value:
            return self.multihead_attn(x, memory, memory, memory_key_padding_mask, False, memory_mask)[0]

        x = self._add(tgt, self.norm1, self.dropout1, attend)
        x = self._add(x, self.norm2, self.dropout2, look)
        return self._add(x, self.norm3, self.dropout3, self._feed_forward)


class _Stack(Module):
    """num_layers copies of a layer, each with its own weights. With `cuts`, there is a cut-point before each layer except
    the first."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None, cuts: bool = False) -> None:
        check_sizes(type(self).__name__, num_layers=num_layers)
        self.layers = ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        self.norm, self.cuts = norm, cuts

    def forward(self, x: Value, *inputs: Any, **named: Any) -> Value:
        for number, layer in enumerate(self.layers):
            if self.cuts and number:
                current().builder.cut()
            x = layer(x, *inputs, **named)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """A stack of TransformerEncoderLayers, called like a single layer."""


class TransformerDecoder(_Stack):
    """A stack of TransformerDecoderLayers, called like a single layer."""
