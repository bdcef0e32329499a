"""Cuts known models of transformers and torchvision at their blocks: an embedding, each block, a head.

_TABLE lists the modules at which the pieces of each class begin. The forward is the model's own, recorded for the inputs
that it receives (recording.py). So masks, positions and other inputs work as they do in the unsplit model.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hetu import _hetu
from hetu.names import near
from hetu.torch import checkpoint
from hetu.torch.cuts import Pieces, PiecewiseModel
from hetu.torch.empty import empty, names_in_files
from hetu.torch.example import split_by_example

_FINER = "cut inside of the blocks by hetu.torch.split(model, at=[...], example=inputs)"  # for a model of too few blocks
_DECODER = ("model.layers.*", "model.norm")
# Class name -> the modules at which pieces begin. ".*" stands for each child. "a|b" stands for the first name
# that exists.
_TABLE: dict[str, tuple[str, ...]] = {
    "BertForMaskedLM": ("bert.encoder.layer.*", "cls"),
    "BertForSequenceClassification": ("bert.encoder.layer.*", "bert.pooler"),
    "RobertaForMaskedLM": ("roberta.encoder.layer.*", "lm_head"),
    "RobertaForSequenceClassification": ("roberta.encoder.layer.*", "classifier"),
    "DistilBertForMaskedLM": ("distilbert.transformer.layer.*", "vocab_transform"),
    "DistilBertForSequenceClassification": ("distilbert.transformer.layer.*", "pre_classifier"),
    "GPT2LMHeadModel": ("transformer.h.*", "transformer.ln_f"),
    "LlamaForCausalLM": _DECODER,
    "MistralForCausalLM": _DECODER,
    "MixtralForCausalLM": _DECODER,
    "Qwen2ForCausalLM": _DECODER,
    "Qwen3ForCausalLM": _DECODER,
    "GemmaForCausalLM": _DECODER,
    "Gemma2ForCausalLM": _DECODER,
    "Gemma3ForCausalLM": _DECODER,
    "T5ForConditionalGeneration": ("encoder.block.*", "encoder.final_layer_norm", "decoder.block.*",
                                   "decoder.final_layer_norm"),
    "WhisperForConditionalGeneration": ("model.encoder.layers.*", "model.encoder.layer_norm", "model.decoder.layers.*",
                                        "model.decoder.layer_norm"),
    "ViTForImageClassification": ("vit.layers.*|vit.encoder.layer.*", "vit.layernorm"),
    "ResNet": ("layer1.*", "layer2.*", "layer3.*", "layer4.*", "avgpool"),
}


def split(model: nn.Module) -> PiecewiseModel:
    """Returns the pieces of a model of transformers or torchvision: its embedding, each of its blocks, its head.

    The inputs of step() are a dict of what the model's forward takes (input_ids, attention_mask, position_ids,
    token_type_ids, decoder_input_ids, pixel_values, input_features, ...). For a ResNet they are the images. The first step
    rejects a key that forward does not take. The loss receives the logits. Throws ValueError for an unknown class.
    """
    name = type(model).__name__
    if name not in _TABLE:
        raise ValueError(f"hetu.torch.blocks has no {name}; {near(name, _TABLE)} Split other models with "
                         f"hetu.torch.split(model, at=[...], example=inputs)")
    config: Any = getattr(model, "config", None)  # torchvision's models have no config
    if config is None:
        return split_by_example(model, modules_at(model, _TABLE[name]), torch.empty(2, 3, 64, 64, dtype=_dtype(model)),
                                advice=_FINER)
    return split_by_example(model, modules_at(model, _TABLE[name]), _example(model, config), output="logits", advice=_FINER)


def from_pretrained(folder: str | os.PathLike[str]) -> PiecewiseModel:
    """Returns the pieces of a model in `folder`, which save_pretrained() wrote as safetensors or which was downloaded in
    that form.

    config.json names the class. The model has no memory: a Pipeline reads the parameters of its own stages. Warns about
    tensors in the folder that the model does not have. Throws OSError if the folder or a file that a worker needs is
    missing, and ValueError for an unknown class.
    """
    import transformers

    place = Path(folder)
    if not (place / "config.json").is_file():
        raise OSError(f"{place}: config.json not found; expected a folder that save_pretrained() has written")
    config = transformers.AutoConfig.from_pretrained(place)
    names = list(config.architectures or [])
    known = [name for name in names if name in _TABLE]
    if not known:
        raise ValueError(f"{place}: config.json names {names or 'no architecture'}; hetu.torch.blocks has "
                         f"{', '.join(_TABLE)}")
    weights = checkpoint.WeightFiles(place)
    with empty():
        whole = getattr(transformers, known[0])(config)
    _warn_of_surplus(whole, weights)
    return PiecewiseModel(whole, split(whole).pieces, _FINER, place)


def _warn_of_surplus(whole: Any, weights: checkpoint.WeightFiles) -> None:
    """Warns on worker 0 about tensors in the files that the model does not have, as transformers does. The model's class
    may list name patterns of tensors that are left out on purpose."""
    known = {one for name in whole.state_dict() for one in names_in_files(whole, name)}
    ignored = whole._keys_to_ignore_on_load_unexpected or ()
    surplus = sorted(name for name in weights.names() - known if not any(re.search(one, name) for one in ignored))
    if surplus and _hetu.env()["worker"] == 0:
        more = f" and {len(surplus) - 5} more" if len(surplus) > 5 else ""
        shown = ", ".join(map(repr, surplus[:5])) + more
        warnings.warn(f"{weights.folder}: ignored tensors that {type(whole).__name__} does not have: {shown}. Check that "
                      f"the folder belongs to this model.", stacklevel=3)


def pieces_of(model: Any) -> Iterator[nn.Module]:
    """Yields the pieces that a Pipeline cuts a model into, in the order in which seed_of numbers them."""
    yield from Pieces(model).pieces


def modules_at(model: nn.Module, patterns: tuple[str, ...]) -> list[str]:
    """Returns the names of modules. 'h.*' stands for each child of h; 'a|b' stands for the first of the two that exists."""
    known = {name for name, _ in model.named_modules()}
    found = []
    for pattern in patterns:
        one = next((way for way in pattern.split("|") if way.removesuffix(".*") in known), pattern.split("|")[0])
        name = one.removesuffix(".*")
        found += [f"{name}.{child}" for child, _ in model.get_submodule(name).named_children()] if name != one else [name]
    return found


def _dtype(model: nn.Module) -> torch.dtype:
    return next(parameter.dtype for parameter in model.parameters())


def _example(model: Any, config: Any) -> dict[str, torch.Tensor]:
    """Returns the smallest inputs that a model accepts. Only their names, shapes and dtypes matter."""
    dtype = _dtype(model)
    ids = torch.zeros(2, 4, dtype=torch.long)
    if model.main_input_name == "pixel_values":
        size = config.image_size
        height, width = size if isinstance(size, (tuple, list)) else (size, size)
        return {"pixel_values": torch.empty(2, config.num_channels, height, width, dtype=dtype)}
    if model.main_input_name == "input_features":
        return {"input_features": torch.empty(2, config.num_mel_bins, 2 * config.max_source_positions, dtype=dtype),
                "decoder_input_ids": ids}
    return {"input_ids": ids, "decoder_input_ids": ids} if config.is_encoder_decoder else {"input_ids": ids}
