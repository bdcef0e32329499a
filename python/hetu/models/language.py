"""What models of the next token share: how they start, their loss."""

from __future__ import annotations

from typing import Any

from hetu import nn
from hetu.graph import Value, current, cut
from hetu.init import Init, zeros
from hetu.models.losses import mean_cross_entropy


def start_weights(model: nn.Module, weight: Init, but: dict[str, Init] | None = None) -> None:
    """Weights of two axes or more start as `weight` says, biases at 0; those whose names end as a key of `but` says, so."""
    for name, parameter in model.named_parameters():
        if len(parameter.shape) > 1:
            parameter.init = weight
        elif name.endswith("bias"):
            parameter.init = zeros()
        for end, init in (but or {}).items():
            if name.endswith(end):
                parameter.init = init


class LanguageModel(nn.Module):
    """A model that gives logits of the next token at every place: [B, T, V] of ids int32 [B, T]. Cut-points stand after the
    embeddings and after each layer: layers + 2 blocks."""

    positions = 0  # the longest row; 0: any

    def embed(self, ids: Value) -> Value:
        """[B, T, H]."""
        raise NotImplementedError

    def layers(self) -> nn.ModuleList:
        """In order."""
        raise NotImplementedError

    def head(self, x: Value) -> Value:
        """[B, T, V]."""
        raise NotImplementedError

    def forward(self, ids: Value) -> Value:
        if len(ids.shape) != 2 or ids.dtype != "int32":
            current().refuse(f"{type(self).__name__}: ids are int32 [B, T], got {ids!r}")
        if self.positions and ids.shape[1] > self.positions:
            current().refuse(f"{type(self).__name__}: the data has {ids.shape[1]} tokens per row, the model "
                             f"{self.positions} positions")
        x = self.embed(ids)
        for layer in self.layers():
            cut()
            x = layer(x)
        cut()
        return self.head(x)

    def loss(self, batch: Any) -> Value:
        """Mean cross-entropy of each next token over the step, a scalar. `batch` gives ids int32 [B, T + 1]: a data object
        of hetu.data, or any object with this attribute."""
        loss = mean_cross_entropy(self(batch.ids[:, :-1]), batch.ids[:, 1:], "next")
        current().fetch("loss", loss)
        return loss


