"""Configurations of models: by name, or from a Hugging Face `config.json` (config_file.py has the rules)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from hetu.models.config_file import in_folder, load, values_of
from hetu.place import placed

C = TypeVar("C")
# Activation functions as named in config.json -> operators of hetu.ops.
ACTIVATIONS = {"gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
               "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}


@placed()
def read(kind: type[C], name: str, configs: Mapping[str, dict[str, Any]], changes: Mapping[str, Any]) -> C:
    """Returns a configuration by its name in `configs`, or from a `config.json` or a folder that contains one. `changes`
    replace single fields. Raises ValueError for an unknown name or missing file, for a file that values_of() rejects, and
    for an unknown field in `changes`."""
    path = None
    if name in configs:
        values = dict(configs[name])
    else:
        path = in_folder(name)
        if not path.is_file():
            raise ValueError(f"model '{name}' is neither one of {', '.join(configs)} nor a JSON file")
        values = values_of(kind, load(path), str(path))
    unknown = sorted(set(changes) - {f.name for f in fields(kind)})  # type: ignore[arg-type]
    if unknown:
        raise ValueError(f"{kind.__name__} has no {', '.join(unknown)}; it has "
                         f"{', '.join(f.name for f in fields(kind))}")  # type: ignore[arg-type]
    try:
        return kind(**{**values, **changes})
    except ValueError as error:
        raise ValueError(f"{path}: {error}" if path else str(error)) from None


def check_sizes(config: Any, may_be_0: tuple[str, ...] = ()) -> None:
    """Raises ValueError for an integer field below 1, or below 0 for fields in `may_be_0`."""
    for f in fields(config):
        least = 0 if f.name in may_be_0 else 1
        if type(f.default) is int and getattr(config, f.name) < least:
            raise ValueError(f"{f.name} must be >= {least}, got {getattr(config, f.name)}")


def check_activation(name: str, field: str) -> None:
    """Raises ValueError for an unknown activation function."""
    if name not in ACTIVATIONS:
        raise ValueError(f"{field} '{name}' is not known; known: {', '.join(ACTIVATIONS)}")


def check_heads(width: int, heads: int, of: str) -> None:
    """Raises ValueError if the number of heads does not divide the width."""
    if width % heads:
        raise ValueError(f"{of} {width} is not divisible by {heads} attention heads")
