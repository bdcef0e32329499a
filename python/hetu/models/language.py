"""The common part of next-token models: initial weights, cache, attention, loss."""

from __future__ import annotations

from typing import Any

from hetu import nn, ops
from hetu.arithmetic import kind_of
from hetu.functions import concat, constant
from hetu.graph import Value, current, cut
from hetu.init import Init, zeros
from hetu.models.losses import mean_cross_entropy


def start_weights(model: nn.Module, weight: Init, but: dict[str, Init] | None = None) -> None:
    """Sets initializers: `weight` for weights of two axes or more, zeros for biases. `but` maps ends of names to other
    initializers."""
    for name, parameter in model.named_parameters():
        if len(parameter.shape) > 1:
            parameter.init = weight
        elif name.endswith("bias"):
            parameter.init = zeros()
        for end, init in (but or {}).items():
            if name.endswith(end):
                parameter.init = init


class Cache:
    """The tokens before, as known to a layer's attention, while N tokens per row are computed at a time.

    places: int32 [B, N], the positions of the new tokens.
    seen: int32 [B, length + N], 1 for entries that hold tokens, else 0. The new tokens come last.
    keys, values: [B, length, ...], for `length` cached entries.
    """

    def __init__(self, places: Value, seen: Value, keys: Value, values: Value) -> None:
        self.places, self.seen, self.keys, self.values = places, seen, keys, values
        self.new: tuple[Value, Value] | None = None

    def extend(self, key: Value, value: Value) -> tuple[Value, Value]:
        """Returns keys and values extended by those of the new tokens, which are stored as `new`."""
        self.new = key, value
        return concat([self.keys, key], 1), concat([self.values, value], 1)

    def seen_within(self, window: int) -> Value:
        """Returns the attention mask: `seen`, or with a window bool [B, N, length + N] for the last `window` tokens of each
        new token. The operator's own window counts entries of the cache, which may have a gap before the new tokens."""
        import numpy as np  # imported late: NumPy takes half of a worker's start

        length = self.keys.shape[1]
        if not window or window >= length + self.places.shape[1]:
            return self.seen
        first = (self.places - window).unsqueeze(2)  # the last token outside the window, [B, N, 1]
        cached = constant(np.arange(length, dtype=np.int32).reshape(1, 1, length)) > first
        return concat([cached, self.places.unsqueeze(1) > first], 2) & (self.seen > 0).unsqueeze(1)


def attend(query: Value, key: Value, value: Value, cache: Cache | None, window: int = 0, **attrs: Any) -> Value:
    """Returns causal attention over all tokens of a row, or from new tokens to the cached ones. window: a token attends to
    the last `window` tokens, including itself; 0: to all."""
    if cache is None:
        return ops.attention(query, key, value, causal=1, window=window, **attrs)[0]
    several = int(query.shape[1] > 1)  # a single token attends to all others, which has a simpler kernel
    keys, values = cache.extend(key, value)
    return ops.attention(query, keys, values, cache.seen_within(window), causal=several, **attrs)[0]


class LanguageModel(nn.Module):
    """A model that returns logits of the next token at every position: [B, T, V] for ids int32 [B, T]. Cut-points are after
    the embeddings and after each layer: layers + 2 blocks."""

    positions = 0  # the longest row; 0: any length

    def embed(self, ids: Value, places: Value | None = None) -> Value:
        """Returns the embeddings [B, T, H]. `places` None means positions from 0."""
        raise NotImplementedError

    def cached(self) -> int:
        """Returns the width of a layer's keys, which is also that of its values."""
        raise NotImplementedError

    def layers(self) -> nn.ModuleList:
        """Returns the layers in order."""
        raise NotImplementedError

    def head(self, x: Value) -> Value:
        """Returns the logits [B, T, V]."""
        raise NotImplementedError

    def forward(self, ids: Value) -> Value:
        if len(ids.shape) != 2 or ids.dtype != "int32":
            current().refuse(f"{type(self).__name__}: ids must be int32 [B, T], got {kind_of(ids)}")
        if self.positions and ids.shape[1] > self.positions:
            current().refuse(f"{type(self).__name__}: the data has {ids.shape[1]} tokens per row, but the model only "
                             f"{self.positions} positions")
        x = self.embed(ids)
        for layer in self.layers():
            cut()
            x = layer(x)
        cut()
        return self.head(x)

    def step(self, ids: Value, caches: list[Cache]) -> Value:
        """Returns logits [B, N, V] of N new tokens per row, ids int32 [B, N], which follow the cached tokens. `caches`
        holds one cache per layer."""
        x = self.embed(ids, caches[0].places)
        for layer, cache in zip(self.layers(), caches, strict=True):
            x = layer(x, cache)
        return self.head(x)

    def loss(self, batch: Any) -> Value:
        """Returns the mean cross-entropy of each next token over the step, a scalar. `batch` provides ids int32 [B, T + 1]:
        a data object of hetu.data, or any object with this attribute."""
        loss = mean_cross_entropy(self(batch.ids[:, :-1]), batch.ids[:, 1:], "next")
        current().fetch("loss", loss)
        return loss


