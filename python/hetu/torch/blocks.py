"""Where blocks stand in models of transformers and torchvision: pieces that compute the whole one after the other.

A piece gives what the next one needs: hidden states, and with them what comes from the batch (masks), which goes nowhere,
since every worker has the batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hetu.torch import checkpoint
from hetu.torch.cuts import Pieces, PiecewiseModel
from hetu.torch.empty import empty


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
    """Pieces of a model of transformers or torchvision: its embedding, each of its blocks, its head. The inputs of step()
    are a dict as forward takes it: input_ids; attention_mask of BERT, Llama (padding on the right) and T5; token_type_ids of
    BERT; decoder_input_ids of T5; pixel_values of ViT; for a ResNet the images themselves. The output that the loss is
    given is the logits. Throws ValueError for a class that is not in the table."""
    for names, pieces in _TABLE:
        if type(model).__name__ in names:
            config: Any = getattr(model, "config", None)  # torchvision's have none
            if config is None:
                return PiecewiseModel(model, pieces(model))
            if config._attn_implementation != "sdpa":
                raise ValueError(f"{type(model).__name__} with attn_implementation '{config._attn_implementation}': "
                                 f"its blocks "
                                 f"are split with 'sdpa', whose masks they make themselves")
            config.use_cache = False
            return PiecewiseModel(model, pieces(model))
    raise ValueError(f"hetu.torch.blocks knows no {type(model).__name__}; {_known()}; give others as a list of modules")


def from_pretrained(folder: str | os.PathLike[str]) -> PiecewiseModel:
    """The pieces of a model that save_pretrained() has written as safetensors, or a download of one: the class by its
    config.json, without memory; a Pipeline reads the parameters of its own stages. Throws OSError: no such folder, a
    worker's part is not there; ValueError: a class that is not in the table."""
    import transformers

    place = Path(folder)
    if not (place / "config.json").is_file():
        raise OSError(f"{place}: config.json is not there: a folder of save_pretrained() is wanted")
    config = transformers.AutoConfig.from_pretrained(place)
    names = list(config.architectures or [])
    known = [name for name in names if any(name in of for of, _ in _TABLE)]
    if not known:
        raise ValueError(f"{place}: config.json names {names or 'no architecture'}; {_known()}")
    checkpoint.WeightFiles(place)
    with empty():
        whole = getattr(transformers, known[0])(config)
    return PiecewiseModel(whole, split(whole).pieces, place)


def pieces_of(model: Any) -> Iterator[nn.Module]:
    """The pieces that a Pipeline cuts a model into, in order: those that seed_of numbers."""
    yield from Pieces(model).pieces


def _known() -> str:
    return "it knows " + ", ".join(name for names, _ in _TABLE for name in names)


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


def _llama_embed(value: dict[str, Any], words: nn.Module, rotary: nn.Module) -> dict[str, Any]:
    ids, mask = value["input_ids"], value.get("attention_mask")
    hidden = words(ids)
    places = torch.arange(ids.shape[-1], device=ids.device)
    if mask is not None:
        mask = mask[:, None, None, :].bool() & (places[:, None] >= places)
    return {"hidden": hidden, "mask": mask, "rotary": rotary(hidden, position_ids=places[None])}


def _llama_layer(value: dict[str, Any], layer: nn.Module) -> dict[str, Any]:
    out = layer(value["hidden"], attention_mask=value["mask"], position_embeddings=value["rotary"])
    return {**value, "hidden": _of_hidden(out)}


def _llama_pieces(model: Any) -> list[nn.Module]:
    llama = model.model
    return [_Piece(_llama_embed, llama.embed_tokens, llama.rotary_emb),
            *(_Piece(_llama_layer, layer) for layer in llama.layers),
            _Piece(lambda value, norm, head: head(norm(value["hidden"])), llama.norm, model.lm_head)]


def _t5_embed(value: dict[str, Any], words: nn.Module, drop: nn.Module) -> dict[str, Any]:
    """Both embeddings, so that one stage has the table; the decoder's goes to where the decoder begins."""
    return {"hidden": drop(words(value["input_ids"])), "decoder": words(value["decoder_input_ids"]),
            "mask": value.get("attention_mask"), "bias": None, "cross_bias": None, "encoded": None}


def _t5_encode(value: dict[str, Any], block: nn.Module) -> dict[str, Any]:
    mask = value["mask"]
    if mask is not None:
        mask = mask[:, None, None, :].bool().expand(-1, -1, mask.shape[-1], -1)
    out = block(value["hidden"], mask, value["bias"])
    return {**value, "hidden": out[0], "bias": out[1]}


def _t5_turn(value: dict[str, Any], norm: nn.Module, drop: nn.Module, drop_decoder: nn.Module) -> dict[str, Any]:
    """The encoder's end and the decoder's beginning."""
    return {**value, "encoded": drop(norm(value["hidden"])), "hidden": drop_decoder(value["decoder"]), "decoder": None,
            "bias": None}


def _t5_decode(value: dict[str, Any], block: nn.Module) -> dict[str, Any]:
    hidden, mask = value["hidden"], value["mask"]
    length = hidden.shape[1]
    if mask is not None:
        mask = mask[:, None, None, :].bool().expand(-1, -1, length, -1)
    causal = torch.ones(length, length, dtype=torch.bool, device=hidden.device).tril()[None, None]
    out = block(hidden, causal, value["bias"], value["encoded"], mask, value["cross_bias"])
    return {**value, "hidden": out[0], "bias": out[1], "cross_bias": out[2]}


def _t5_pieces(model: Any) -> list[nn.Module]:
    encoder, decoder = model.encoder, model.decoder
    scale = model.model_dim**-0.5 if getattr(model.config, "scale_decoder_outputs", model.config.tie_word_embeddings) else 1
    head = _Piece(lambda value, norm, drop, head: head(drop(norm(value["hidden"])) * scale),
                  decoder.final_layer_norm, decoder.dropout, model.lm_head)
    turn = _Piece(_t5_turn, encoder.final_layer_norm, encoder.dropout, decoder.dropout)
    return [_Piece(_t5_embed, model.shared, encoder.dropout), *(_Piece(_t5_encode, block) for block in encoder.block), turn,
            *(_Piece(_t5_decode, block) for block in decoder.block), head]


def _vit_pieces(model: Any) -> list[nn.Module]:
    vit = model.vit
    layers = vit.layers if hasattr(vit, "layers") else vit.encoder.layer  # until transformers 4
    return [_Piece(lambda value, embed: embed(value["pixel_values"]), vit.embeddings),
            *(_Piece(lambda hidden, layer: _of_hidden(layer(hidden)), layer) for layer in layers),
            _Piece(lambda hidden, norm, head: head(norm(hidden)[:, 0, :]), vit.layernorm, model.classifier)]


def _resnet_pieces(model: Any) -> list[nn.Module]:
    blocks = [block for layer in (model.layer1, model.layer2, model.layer3, model.layer4) for block in layer]
    return [nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool), *blocks,
            _Piece(lambda images, pool, head: head(torch.flatten(pool(images), 1)), model.avgpool, model.fc)]


_TABLE: tuple[tuple[tuple[str, ...], Callable[[Any], list[nn.Module]]], ...] = (
    (("BertForMaskedLM", "BertForSequenceClassification"), _bert_pieces),
    (("GPT2LMHeadModel",), _gpt_pieces),
    (("LlamaForCausalLM",), _llama_pieces),
    (("T5ForConditionalGeneration",), _t5_pieces),
    (("ViTForImageClassification",), _vit_pieces),
    (("ResNet",), _resnet_pieces),
)
