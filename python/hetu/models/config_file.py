"""Reads a Hugging Face `config.json`.

The file determines what a model computes, so no field of it is dropped silently. Its `model_type` selects a `ModelType`,
which puts every field into one of these classes:

- supported: a field of Hetu's configuration class that models of this type have,
- renamed or translated to such fields (`hidden_size` of GPT-2, `rope_parameters`, `id2label` of ViT),
- restricted: Hetu computes only some of its values, and rejects the others by name,
- harmless: it changes neither logits nor loss (token numbers, settings of generation, bookkeeping).

Any other field is rejected by name, because it could change the arithmetic. A null means "not set".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from hetu import files
from hetu.place import path_of

# Model type -> the class of hetu.models that reads it.
READERS = {
    "bert": "Bert", "gemma": "Llama", "gemma3_text": "Llama", "gpt2": "Gpt", "granite": "Llama", "llama": "Llama",
    "mistral": "Llama", "opt": "OptLayer", "qwen2": "Llama", "qwen3": "Llama", "t5": "T5Block", "vit": "ViT",
}

# Fields of every model type that change neither logits nor loss. chunk_size_feed_forward splits a product by rows.
HARMLESS = frozenset("""
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path _num_labels architectures
    attn_implementation bad_words_ids begin_suppress_tokens bos_token_id cache_implementation chunk_size_feed_forward
    decoder_start_token_id diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size eos_token_id
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing
    id2label label2id language length_penalty max_length min_length model_type name_or_path no_repeat_ngram_size
    num_beam_groups num_beams num_labels num_return_sequences output_attentions output_hidden_states output_past
    output_scores pad_token_id prefix problem_type remove_invalid_values repetition_penalty return_dict
    return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss
    tie_last_hidden_states tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p
    unsloth_fixed unsloth_version use_bfloat16 use_cache xla_device
""".split())

# Fields of every model type that change the computation unless they have one of these values.
RESTRICTED: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,), "cross_attention_hidden_size": (), "is_decoder": (False,),
    "is_encoder_decoder": (False,), "partial_rotary_factor": (1,), "per_layer_config": ({},),
    "position_embedding_type": ("absolute",), "pruned_heads": ({},), "quantization_config": (),
    "tie_encoder_decoder": (False,), "use_bidirectional_attention": (False,),
}


@dataclass(frozen=True)
class ModelType:
    """The rules for the fields of a `config.json` of one `model_type`. Names are those of the file unless stated otherwise.
    """

    absent: frozenset[str] = frozenset()  # fields of the configuration class that models of this type don't have
    defaults: Mapping[str, Any] = field(default_factory=dict)  # value of a missing field, if it is not the class's default
    always: Mapping[str, Any] = field(default_factory=dict)  # fields of the class that this type determines
    renamed: Mapping[str, str] = field(default_factory=dict)  # other name in files -> the class's field
    restricted: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # field -> values that Hetu computes
    harmless: frozenset[str] = frozenset()
    # Removes fields from a file's fields (with defaults), and returns their meaning as the class's fields. Raises
    # ValueError.
    translate: Callable[[dict[str, Any]], dict[str, Any]] | None = None


def load(path: Path) -> dict[str, Any]:
    """Returns the object of a JSON file in UTF-8, UTF-16 or UTF-32. Raises ValueError with the file's name."""
    loaded = files.read_json(path, most=64 << 20)  # published files have a few thousand bytes
    if not isinstance(loaded, dict):
        raise ValueError(f"{path}: holds no JSON object with a model's configuration")
    return loaded


def in_folder(name: str) -> Path:
    """Returns the path of a configuration: the file itself, or the `config.json` of a folder."""
    path = Path(path_of(name))
    return path / "config.json" if path.is_dir() else path


def model_type_of(loaded: Mapping[str, Any], known: Mapping[str, Any], path: str) -> str:
    """Returns the file's model type, or the first known type if the file contains none. Raises ValueError for an unknown
    type."""
    found = loaded.get("model_type")
    if found is None:
        return next(iter(known))
    if isinstance(found, str) and found in known:
        return found
    if isinstance(found, str) and found in READERS:
        raise ValueError(f"{path}: model_type is '{found}', which hetu.models.{READERS[found]} reads; expected here: "
                         f"{', '.join(known)}")
    raise ValueError(f"{path}: model_type {found!r} is not supported; Hetu reads {', '.join(READERS)}")


def values_of(kind: type, loaded: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the fields of a configuration class from the contents of a file.

    The class lists its model types as `MODEL_TYPES`. Raises ValueError, one line with the file's name, for an unsupported
    model type, for unknown fields, for values of a wrong type, and for values that Hetu doesn't compute.
    """
    known: Mapping[str, ModelType] = kind.MODEL_TYPES  # type: ignore[attr-defined]
    name = model_type_of(loaded, known, path)
    model = known[name]
    types = get_type_hints(kind)
    try:
        given = {**model.defaults, **_renamed(loaded, model.renamed)}
        meant = model.translate(given) if model.translate else {}
        own = _sorted_out(kind, model, name, given)
        return {**own, **{key: _typed(key, value, types[key]) for key, value in meant.items()}, **model.always}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _renamed(loaded: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    given = dict(loaded)
    for other, own in renamed.items():
        value = given.pop(other, None)
        if value is None:
            continue
        if given.get(own) not in (None, value):
            raise ValueError(f"{other} is {value!r}, but {own}, another name of it, is {given[own]!r}")
        given[own] = value
    return given


def _sorted_out(kind: type, model: ModelType, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    own = {f.name: f for f in fields(kind)}
    supported = set(own) - model.absent - set(model.always)
    restricted = {**RESTRICTED, **model.restricted}
    types = get_type_hints(kind)
    out, unknown = {}, []
    for key, value in given.items():
        if value is None:
            continue
        if key in supported:
            out[key] = _typed(key, value, types[key])
        elif key in restricted and key not in model.harmless:
            if value not in restricted[key]:
                only = " or ".join(["null", *map(json.dumps, restricted[key])])
                raise ValueError(f"{key} is {_shown(value)}, which Hetu does not compute for model_type '{name}'; expected "
                                 f"{only}")
        elif key in own and value == default_of(own[key]):  # the model has the same default
            continue
        elif key not in HARMLESS and key not in model.harmless:
            unknown.append(key)
    if unknown:
        some = ", ".join(f"{key} = {_shown(given[key])}" for key in unknown[:4])
        more = f" and {len(unknown) - 4} more" if len(unknown) > 4 else ""
        raise ValueError(f"fields of model_type '{name}' that Hetu does not know, and that could change what the model "
                         f"computes: {some}{more}. Remove them from the file if they do not")
    return out


def default_of(of: Any) -> Any:
    """Returns the default of a dataclass field."""
    return of.default if of.default is not MISSING else of.default_factory()


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _typed(name: str, value: Any, hint: Any) -> Any:
    """Returns the value if it has the type of its field. Integers become floats where a float is expected."""
    wanted = next(t for t in get_args(hint) if t is not type(None)) if isinstance(hint, UnionType) else hint
    if wanted is float and type(value) is int:
        value = float(value)
    if get_args(wanted):  # list[str]
        if not isinstance(value, list) or any(not isinstance(item, get_args(wanted)) for item in value):
            raise ValueError(f"{name} is {_shown(value)}, expected a list of {get_args(wanted)[0].__name__}")
    elif type(value) is not wanted:
        raise ValueError(f"{name} is {value!r}, expected {wanted.__name__}")
    return value
