"""Initial values of a model's parameters and buffers from files of other libraries.

Names are those of Hugging Face and torchvision. Names in a file may lack the first part, or have an additional first part:
`embeddings.…` of a BertModel is `bert.embeddings.…` of a model with a head.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hetu import _hetu, keywords
from hetu.arithmetic import kind_of
from hetu.graph import GraphBuilder, Value, current
from hetu.notice import notice
from hetu.place import placed


@dataclass
class Loaded:
    """The result of load_weights, by name."""

    source: str
    taken: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # parameters and buffers that keep their own initial values
    extra: list[str] = field(default_factory=list)  # tensors of the file that the model does not use
    tied: list[str] = field(default_factory=list)  # tensors under a further name of a tied parameter

    def __str__(self) -> str:
        whole = len(self.taken) + len(self.missing)
        text = f"{self.source}: {len(self.taken)} of the model's {whole} tensors taken"
        text += f"; not in the file, so initialized: {', '.join(self.missing)}" if self.missing else ""
        return text + (f"; not used from the file: {', '.join(self.extra)}" if self.extra else "")


@dataclass
class _Tensor:
    name: str
    shape: list[int]
    is_weight: bool  # its dtype is one that can be read
    read: Callable[[], Any]

    def is_computed(self) -> bool:
        """Returns true for a buffer of old files that models compute themselves: the causal masks of GPT-2, which are [1,
        1, N, N], and frequencies of rotary positions. (A layer called `attn` may have a bias with one axis.)"""
        return self.name.endswith((".attn.masked_bias", ".rotary_emb.inv_freq")) or (
            self.name.endswith(".attn.bias") and len(self.shape) == 4)


def _of_file(path: str) -> list[_Tensor]:
    reader = _hetu.WeightReader(path)
    return [_Tensor(name, list(shape), is_weight, partial(reader.read, number))
            for number, (name, shape, is_weight) in enumerate(reader.entries)]


def _of_arrays(arrays: Mapping[str, Any], graph: GraphBuilder) -> list[_Tensor]:
    import numpy as np  # imported late: NumPy takes half of a worker's start

    out = []
    for name, array in arrays.items():
        given = np.asarray(array)
        if given.dtype.kind not in "fiu":
            graph.refuse(f"load_weights: '{name}' is {given.dtype}; expected floats, or whole numbers for counts")
        out.append(_Tensor(name, list(given.shape), True, partial(np.ravel, np.asarray(given, np.float32))))
    return out


def _names(tensors: Sequence[_Tensor], leaves: Mapping[str, Value]) -> list[str]:
    """Returns the name of each tensor in the model: its name in the file, or that name with one first part added or
    removed, whichever rule matches most tensors."""
    firsts = sorted({name.split(".")[0] for name in leaves if "." in name})
    ways: list[Callable[[str], str]] = [lambda name, first=first: f"{first}.{name}" for first in firsts]  # type: ignore[misc]
    ways.append(lambda name: name.partition(".")[2])
    best = max(ways, key=lambda way: sum(way(t.name) in leaves for t in tensors if t.name not in leaves))
    return [t.name if t.name in leaves or best(t.name) not in leaves else best(t.name) for t in tensors]


def _any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _some(names: Sequence[str]) -> str:
    """Returns the first few names, for messages."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


class _Loading:
    """Assigns the tensors of one source to the parameters and buffers of one graph."""

    def __init__(self, graph: GraphBuilder, source: str, missing: Sequence[str], extra: Sequence[str]) -> None:
        self.graph, self.may_miss, self.may_have = graph, missing, extra
        self.leaves = {**graph.parameters, **graph.buffers}
        known = {other: self.leaves[name] for other, name in graph.tied.items() if name in self.leaves}
        self.named = {**known, **self.leaves}  # by every name, including further names of tied parameters
        self.values: dict[str, tuple[_Tensor, Any]] = {}
        self.computed: list[str] = []  # tensors that may be ignored without `extra`
        self.done = Loaded(source)

    def take(self, tensors: Sequence[_Tensor]) -> None:
        for tensor, found in zip(tensors, _names(tensors, self.named), strict=True):
            leaf = self.named.get(found)
            name = found if found in self.leaves else self.graph.tied.get(found, found)
            if leaf is None:
                self.done.extra.append(tensor.name)
                if tensor.is_computed():
                    self.computed.append(tensor.name)
            elif leaf.shape == tensor.shape:
                self._take(name, tensor)
                if name != found:
                    self.done.tied.append(tensor.name)
            elif _any(name, self.may_miss):  # for example a head with other classes
                self.done.extra.append(tensor.name)
            else:
                self.graph.refuse(f"{self.done.source}: '{tensor.name}' is {tensor.shape}, but the model's '{name}' is "
                                  f"{leaf.shape}; missing=['{name}'] initializes it instead")

    def _take(self, name: str, tensor: _Tensor) -> None:
        values = tensor.read()
        if name in self.values:
            other, first = self.values[name]
            if first.tobytes() != values.tobytes():
                self.graph.refuse(f"{self.done.source}: tensors '{other.name}' and '{tensor.name}' are both the model's "
                                  f"'{name}', but differ")
            return
        self.values[name] = tensor, values
        self.done.taken.append(name)

    def check(self) -> None:
        self.done.extra = list(dict.fromkeys(self.done.extra))  # two tensors of a file may be one parameter
        self.done.missing = [name for name in self.leaves if name not in self.values]
        for names, allowed, says, keyword in (
            (self.done.missing, self.may_miss, "has no tensor for the model's", "missing"),
            (self.done.extra, [*self.may_have, *self.may_miss, *self.computed], "has tensors beyond the model's:", "extra"),
        ):
            left = [name for name in names if not _any(name, allowed)]
            if left:
                self.graph.refuse(f"{self.done.source}: {says} {_some(left)}; {keyword}=['{left[0]}'], a list of names and "
                                  "patterns, allows that")

    def give(self) -> None:
        for name, (_, values) in self.values.items():
            self.graph.start_from(self.leaves[name], values)


@placed()
def load_weights(source: Any, missing: str | Sequence[str] = (), extra: str | Sequence[str] = ()) -> Loaded:
    """Initializes the parameters and buffers of the current graph from a file. Worker 0 prints a summary. Call it after the
    model has been called, and before an Executor is created.

    source: a safetensors file, the files that a `model.safetensors.index.json` names, a folder of either, or a dict of
    arrays by name.
    missing: names and patterns (`classifier.*`) of tensors that keep their own initial values if the file lacks them or has
    them in another shape.
    extra: names and patterns of tensors that the file may contain in addition, in any dtype.
    A tied weight may be in the file under any of its names in the model, if its values are the same everywhere. No other
    tensors count as tied, whatever their values.
    """
    graph = current()
    known: Any = (str, os.PathLike, Mapping)
    if not isinstance(source, known):
        got = kind_of(source).split(",")[0]
        graph.refuse(f"load_weights: expected a safetensors file or folder, or a dict of arrays, got {got}")
    listed = [[given] if isinstance(given, str) else list(given) for given in (missing, extra)]
    arrays = isinstance(source, Mapping)
    place = "load_weights" if arrays else os.path.expanduser(source)
    loading = _Loading(graph, str(place), *listed)
    if not loading.leaves:
        graph.refuse(f"{loading.done.source}: the graph has no parameters yet; call the model first")
    if graph.taken:
        graph.refuse(f"{loading.done.source}: an Executor already uses the graph; load weights before you create it")
    loading.take(_of_arrays(source, graph) if arrays else _of_file(str(place)))
    loading.check()
    loading.give()
    notice(loading.done)
    return loading.done


__all__ = ["Loaded", "load_weights"]


keywords.check_module(__name__, "hetu")
