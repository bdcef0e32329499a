"""Encodes states of optimizers, schedulers and similar objects as strict JSON, and decodes them with the same types and
bits.

Text, bools, numbers, None, lists, and dicts with text as keys are JSON. Everything else is an object with one key that
begins with "$": {"$tuple": [1, 2]}, {"$float": "inf"}, {"$tensor": …}. A large tensor is not part of the JSON: a function
stores it, and {"$stored": KEY} stands in its place.
"""

from __future__ import annotations

import collections
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from hetu.torch import checkpoint

Store = Callable[[str, torch.Tensor], None]
INLINE = 16  # most elements of a tensor that is written into the JSON


def dumps(value: Any) -> str:
    """Returns JSON that is identical for equal values. Throws ValueError for numbers that JSON doesn't have."""
    return json.dumps(value, allow_nan=False, sort_keys=True)


class Encoder:
    """Encodes the state of one object.

    what: the name of the object in errors.
    store: stores a large tensor.
    stages: the shapes of this worker's parameters by name, or None. A dict that contains tensors under these names is this
    worker's part of a larger dict.
    store_part: stores such a tensor; its arguments are name, path of the dict, and tensor.
    """

    def __init__(self, what: str, store: Store, stages: dict[str, torch.Size] | None = None,
                 store_part: Callable[[str, str, torch.Tensor], None] | None = None) -> None:
        self.what, self.store, self.stages, self.store_part = what, store, stages, store_part

    def encode(self, value: Any, path: str = "") -> Any:
        """Returns a value that JSON can hold. Throws ValueError, which names the path, for a value of an unsupported type.
        """
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return value if -2**63 <= value < 2**63 else {"$int": str(value)}
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
        if isinstance(value, bytes):
            return {"$bytes": value.hex()}
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if type(value) is list:
            return self._items(value, path)
        if type(value) is tuple:
            return {"$tuple": self._items(value, path)}
        if type(value) is dict or (type(value) is collections.OrderedDict and self._parts(value)):
            return self._dict(value, path)
        if type(value) in (collections.OrderedDict, collections.Counter):
            return {"$ordered" if type(value) is collections.OrderedDict else "$counter": self._pairs(value, path)}
        if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            return self.encode(value.item(), path)
        where = f" at {path}" if path else ""
        raise ValueError(f"{self.what}: its state holds a {type(value).__name__}{where}; a checkpoint keeps numbers, text, "
                         f"tensors, and lists, tuples and dicts of them")

    def _items(self, values: Iterable[Any], path: str) -> list[Any]:
        return [self.encode(value, _below(path, n)) for n, value in enumerate(values)]

    def _pairs(self, value: dict[Any, Any], path: str) -> list[Any]:
        for key in value:
            if not isinstance(key, (str, int)):
                raise ValueError(f"{self.what}: its state has a {type(key).__name__} as key{f' at {path}' if path else ''}; "
                                 f"a checkpoint keeps text and whole numbers as keys")
        return [[key, self.encode(item, _below(path, key))] for key, item in value.items()]

    def _dict(self, value: dict[Any, Any], path: str) -> Any:
        own = self._parts(value)
        if own or (not value and self.stages is not None):
            assert self.store_part is not None
            for key in own:
                self.store_part(key, path, value[key])
            rest = {key: item for key, item in value.items() if key not in own}
            return {"$stages": path, "rest": self._dict(rest, path) if rest else {}}
        pairs = self._pairs(value, path)
        is_plain = all(isinstance(key, str) and not key.startswith("$") for key in value)
        return {key: item for key, item in pairs} if is_plain else {"$dict": pairs}

    def _parts(self, value: dict[Any, Any]) -> list[str]:
        if self.stages is None:
            return []
        return [key for key, item in value.items() if isinstance(item, torch.Tensor) and self.stages.get(key) == item.shape]

    def _tensor(self, value: torch.Tensor, path: str) -> Any:
        dtype = checkpoint.format_dtype(f"{self.what}/{path}", value)
        if value.numel() > INLINE:
            self.store(path, value)
            return {"$stored": path}
        return {"$tensor": {"dtype": dtype, "shape": list(value.shape), "hex": checkpoint.bytes_of(value).tobytes().hex()}}


def decode(value: Any, stored: Callable[[str], torch.Tensor],
           part: Callable[[str], dict[str, torch.Tensor]] | None = None) -> Any:
    """Decodes the result of Encoder.encode().

    stored: returns a stored tensor.
    part: returns this worker's part of a dict by parameter name.
    Throws ValueError for a value that no Encoder writes.
    """

    def below(item: Any) -> Any:
        return decode(item, stored, part)

    if isinstance(value, list):
        return [below(item) for item in value]
    if not isinstance(value, dict):
        return value
    tags = [key for key in value if key.startswith("$")]
    if not tags:
        return {key: below(item) for key, item in value.items()}
    held = value[tags[0]]
    if tags[0] == "$stages" and part is not None:
        return {**part(held), **below(value["rest"])}
    readers: dict[str, Callable[[], Any]] = {
        "$tuple": lambda: tuple(below(held)), "$int": lambda: int(held), "$float": lambda: float(held),
        "$bytes": lambda: bytes.fromhex(held), "$dict": lambda: {key: below(item) for key, item in held},
        "$ordered": lambda: collections.OrderedDict((key, below(item)) for key, item in held),
        "$counter": lambda: collections.Counter({key: below(item) for key, item in held}),
        "$tensor": lambda: _tensor_of(held), "$stored": lambda: stored(held)}
    if tags[0] not in readers or len(value) > 1:
        raise ValueError(f"{json.dumps(value)[:80]} is not a value of a checkpoint")
    return readers[tags[0]]()


def _tensor_of(held: Any) -> torch.Tensor:
    data = bytearray(bytes.fromhex(held["hex"]))
    dtype, shape = checkpoint.TYPES[held["dtype"]], held["shape"]
    if not data:
        return torch.empty(shape, dtype=dtype, device="cpu")
    return torch.frombuffer(data, dtype=torch.uint8).clone().view(dtype).view(shape)


def _below(path: str, key: Any) -> str:
    return f"{path}/{key}" if path else str(key)
