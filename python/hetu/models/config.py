"""Configurations of models: by name, or the fields of a Hugging Face `config.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from hetu.place import placed

C = TypeVar("C")
# Functions of hidden layers, as config.json calls them: operators of hetu.ops.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "silu": "silu"}


def _known_values(kind: type, loaded: Any, path: str) -> dict[str, Any]:
    """The fields of a dataclass that a JSON file gives, with the types of their defaults; null is the default."""
    if not isinstance(loaded, dict):
        raise ValueError(f"{path}: holds no JSON object with a model's configuration")
    if hasattr(kind, "spelled"):
        loaded = kind.spelled(loaded, path)
    values = {}
    for f in fields(kind):
        if loaded.get(f.name) is None:
            continue
        value, wanted = loaded[f.name], type(f.default)
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            raise ValueError(f"{path}: {f.name} is {value!r}, expected {wanted.__name__}, such as {f.default!r}")
        values[f.name] = value
    return values


@placed()
def read(kind: type[C], name: str, configs: Mapping[str, dict[str, Any]], changes: Mapping[str, Any]) -> C:
    """A configuration that is known by name, or the path of a JSON file; `changes` replace single fields."""
    if name in configs:
        values = dict(configs[name])
    else:
        path = Path(name)
        if not path.is_file():
            raise ValueError(f"model '{name}' is neither one of {', '.join(configs)} nor a JSON file")
        try:
            loaded = json.loads(path.read_text())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
        values = _known_values(kind, loaded, str(path))
    unknown = sorted(set(changes) - {f.name for f in fields(kind)})  # type: ignore[arg-type]
    if unknown:
        raise ValueError(f"{kind.__name__} has no {', '.join(unknown)}; it has "
                         f"{', '.join(f.name for f in fields(kind))}")  # type: ignore[arg-type]
    return kind(**{**values, **changes})


def check_sizes(config: Any, may_be_0: tuple[str, ...] = ()) -> None:
    """Refuses a whole number below 1 where the default is one."""
    for f in fields(config):
        least = 0 if f.name in may_be_0 else 1
        if type(f.default) is int and getattr(config, f.name) < least:
            raise ValueError(f"{f.name} must be >= {least}, got {getattr(config, f.name)}")


def check_activation(name: str, field: str) -> None:
    """Refuses a function that hidden layers have not."""
    if name not in ACTIVATIONS:
        raise ValueError(f"{field} '{name}' is not known; known: {', '.join(ACTIVATIONS)}")


def check_heads(width: int, heads: int, of: str) -> None:
    """Refuses heads that do not divide the width."""
    if width % heads:
        raise ValueError(f"{of} {width} is not divided by {heads} attention heads")
