"""Where blocks stand in models of transformers: pieces of BERT and GPT-2, which compute the whole one after the other.

A piece gives what the next one needs: hidden states, and with them what comes from the batch (masks), which goes nowhere,
since every worker has the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from hetu.torch.cuts import Pieces, PiecewiseModel


class _Piece(nn.Module):
    """A function of a value and of modules of the model."""

    def __init__(self, function: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(modules)

    def forward(self, value: Any) -> Any:
        """What the function makes of it."""
        return self.function(value, *self.parts)


def split(model: nn.Module) -> PiecewiseModel:
    """Pieces of a model of transformers: its embedding, each of its blocks, its head. The inputs of step() are a dict of
    input_ids and, of BERT, attention_mask and token_type_ids; the output that the loss is given is the logits. Throws
    ValueError for a class that is not in the table."""
    for names, pieces in _TABLE:
        if type(model).__name__ in names:
            config: Any = model.config
            if config._attn_implementation != "sdpa":
                raise ValueError(f"{type(model).__name__} with attn_implementation '{config._attn_implementation}': "
                                 f"its blocks "
                                 f"are split with 'sdpa', whose masks they make themselves")
            config.use_cache = False
            return PiecewiseModel(model, pieces(model))
    known = ", ".join(name for names, _ in _TABLE for name in names)
    raise ValueError(f"hetu.torch.blocks knows no {type(model).__name__}; it knows {known}; give others as a list of "
                     f"modules")


def pieces_of(model: Any) -> Iterator[nn.Module]:
    """The pieces that a Pipeline cuts a model into, in order: those that seed_of numbers."""
    yield from Pieces(model).pieces


def _mask(value: dict[str, Any]) -> Any:
    """True where a token may be read, for all heads: [batch, 1, length, length]; None without a mask."""
    mask = value.get("attention_mask")
    return None if mask is None else mask[:, None, None, :].bool().expand(-1, -1, mask.shape[-1], -1)


def _of_hidden(out: Any) -> Any:
    return out[0] if isinstance(out, tuple) else out


def _bert_embed(value: dict[str, Any], embeddings: nn.Module) -> dict[str, Any]:
    hidden = embeddings(input_ids=value["input_ids"], token_type_ids=value.get("token_type_ids"))
    return {"hidden": hidden, "attention_mask": value.get("attention_mask")}


def _bert_layer(value: dict[str, Any], layer: nn.Module) -> dict[str, Any]:
    return {**value, "hidden": _of_hidden(layer(value["hidden"], _mask(value)))}


def _bert_pieces(model: Any) -> list[nn.Module]:
    bert = model.bert
    if type(model).__name__ == "BertForSequenceClassification":
        head = _Piece(lambda v, pooler, dropout, classifier: classifier(dropout(pooler(v["hidden"]))),
                      bert.pooler, model.dropout, model.classifier)
    else:
        head = _Piece(lambda v, cls: cls(v["hidden"]), model.cls)
    return [_Piece(_bert_embed, bert.embeddings), *(_Piece(_bert_layer, layer) for layer in bert.encoder.layer), head]


def _gpt_embed(value: dict[str, Any], words: nn.Module, places: nn.Module, drop: nn.Module) -> Any:
    ids = value["input_ids"]
    return drop(words(ids) + places(torch.arange(ids.shape[-1], device=ids.device)))


def _gpt_pieces(model: Any) -> list[nn.Module]:
    gpt = model.transformer
    return [_Piece(_gpt_embed, gpt.wte, gpt.wpe, gpt.drop),
            *(_Piece(lambda hidden, block: _of_hidden(block(hidden)), block) for block in gpt.h),
            _Piece(lambda hidden, norm, head: head(norm(hidden)), gpt.ln_f, model.lm_head)]


_TABLE: tuple[tuple[tuple[str, ...], Callable[[Any], list[nn.Module]]], ...] = (
    (("BertForMaskedLM", "BertForSequenceClassification"), _bert_pieces),
    (("GPT2LMHeadModel",), _gpt_pieces),
)
