"""The batch of one call: its micro-batches, and the properties that workers compare."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree

from hetu.torch.records import hides_tensors
from hetu.torch.values import cut_batch, cut_rows, flatten, rows_of, unflatten

SMALL_BYTES = 1 << 16  # for at most this size, a CRC is faster than sums
COLUMNS = 1024


Part = tuple[int, int] | None  # (number of a pipeline, number of pipelines) if it takes its part of a batch of all pipelines


class Batch:
    """Inputs and target of a call, cut into micro-batches. With `part`, they are those of all pipelines, and the
    micro-batches are those of one of them."""

    def __init__(self, inputs: Any, target: Any, micro_batches: int, part: Part = None) -> None:
        inputs, target = as_tensors(inputs, "inputs"), as_tensors(target, "target")
        self.whole = {"inputs": inputs, "target": target}
        for what, value in self.whole.items():
            _check_lists(value, rows_of(inputs), what)
        inputs, target, self.sizes = own_part(inputs, target, micro_batches, part)
        self.rows, self.own = sum(self.sizes), (inputs, target)
        self.inputs = cut_batch(inputs, self.rows, self.sizes, "inputs")
        self.targets = cut_batch(target, self.rows, self.sizes, "target")
        self.is_own = part is None
        self.tree, self.target_tree = flatten(inputs)[1], flatten(target)[1]

    def target_values(self) -> list[Any]:
        """Returns the target of each micro-batch."""
        return [unflatten(leaves, self.target_tree) for leaves in self.targets]

    def forms(self) -> list[str]:
        """Returns the type and shape of each tensor of the whole batch, and all other values as text, without
        addresses."""
        texts = [signature(leaf, -1) for value in self.whole.values() for leaf in flatten(value)[0]]
        return [re.sub(" at 0x[0-9a-f]+", "", text) for text in texts]

    def checksums(self) -> list[int]:
        """Returns a checksum of each tensor of the whole batch, in the order of forms(); 0 for other values."""
        return [checksum(leaf) if isinstance(leaf, torch.Tensor) else 0
                for value in self.whole.values() for leaf in flatten(value)[0]]

    def identities(self) -> set[int]:
        """Returns the identities of the batch's tensors."""
        return {id(leaf) for value in (*self.whole.values(), *self.own) for leaf in flatten(value)[0]
                if isinstance(leaf, torch.Tensor)}

    def name(self, number: int) -> str:
        """Returns the name of a value, numbered as by forms(): inputs['ids'], or target[1]."""
        found = [what + _pytree.keystr(path) for what, value in self.whole.items()
                 for path, _ in _pytree.tree_flatten_with_path(value)[0]]
        return found[number]


def own_part(inputs: Any, target: Any, micro_batches: int, part: Part) -> tuple[Any, Any, list[int]]:
    """Returns the inputs and the target of a pipeline, and the number of rows of each of its micro-batches. The batch of all
    pipelines is cut into their micro-batches as if one pipeline had all of them, so the number of pipelines doesn't change a
    micro-batch. Throws ValueError if there are fewer samples than micro-batches."""
    inputs, target = as_tensors(inputs, "inputs"), as_tensors(target, "target")
    rows = rows_of(inputs)
    if part is None:
        return inputs, target, cut_rows(rows, micro_batches)
    pipeline, pipelines = part
    if rows < micro_batches * pipelines:
        raise ValueError(f"a batch of {rows} samples for {micro_batches * pipelines} micro-batches of all pipelines; with "
                         f"whole_batches=True, a batch needs a sample for each")
    sizes = cut_rows(rows, micro_batches * pipelines)
    each = [sizes[p * micro_batches:(p + 1) * micro_batches] for p in range(pipelines)]
    own = [unflatten(cut_batch(value, rows, [sum(one) for one in each], what)[pipeline], flatten(value)[1])
           for what, value in (("inputs", inputs), ("target", target))]
    return own[0], own[1], each[pipeline]


def as_tensors(value: Any, what: str) -> Any:
    """Returns a nesting with tensors in place of NumPy arrays, and dicts in place of other mappings, such as the output of
    a tokenizer of transformers. Throws ValueError for an array that can't become a tensor."""
    leaves, tree = flatten(value)
    return unflatten([_as_tensor(leaf, what) for leaf in leaves], tree)


def _as_tensor(leaf: Any, what: str) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf
    if hides_tensors(leaf):
        kind = type(leaf).__name__
        raise ValueError(f"{what}: a {kind} holds tensors that can't be cut into micro-batches. Give tensors, in a tuple, a "
                         f"dict or a dataclass, and make the {kind} of them inside a module")
    if isinstance(leaf, Mapping):
        return as_tensors(dict(leaf), what)
    if type(leaf).__module__ != "numpy" or not hasattr(leaf, "__array__") or not leaf.shape:
        return leaf
    try:
        return torch.from_numpy(leaf if leaf.flags.writeable else leaf.copy())
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: a NumPy array of {leaf.dtype} can't become a tensor ({error}); give a tensor") from None


def _check_lists(value: Any, rows: int, what: str) -> None:
    """Throws ValueError for a value that has an element for each sample but isn't a tensor, so it can't be cut. Without
    this check, every micro-batch would receive the whole value. A tuple is a structure of several inputs and is checked
    element by element."""
    if isinstance(value, torch.Tensor) or rows == 1:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            _check_lists(item, rows, f"{what}[{key!r}]")
        return
    leaves = flatten(value)[0]
    if isinstance(value, (list, tuple)):
        each = all(isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.shape[0] == rows for leaf in leaves)
        if isinstance(value, list) and len(value) == rows and not each:
            raise ValueError(f"{what}: a list of {rows} elements isn't cut into micro-batches, although there are {rows} "
                             f"samples: give a tensor to have it cut, or a tuple to give all of it to every micro-batch")
        for number, item in enumerate(value):
            _check_lists(item, rows, f"{what}[{number}]")
    elif len(leaves) == 1 and not isinstance(value, (str, bytes)) and hasattr(value, "__len__") and len(value) == rows:
        raise ValueError(f"{what}: a {type(value).__name__} of {rows} elements isn't cut into micro-batches, although there "
                         f"are {rows} samples: give a tensor")


def signature(leaf: Any, cut: int) -> str:
    """Returns the type and shape of a tensor, with -1 for a first dimension of `cut`; other values as text."""
    if isinstance(leaf, torch.Tensor):
        shape = list(leaf.shape)
        if shape and shape[0] == cut:
            shape[0] = -1
        return f"{leaf.dtype}{shape}"
    return repr(leaf)


def kind_of(leaf: Any) -> str:
    """Returns the type and the number of dimensions of a tensor, and the type of another value."""
    return f"{leaf.dtype}/{leaf.dim()}" if isinstance(leaf, torch.Tensor) else type(leaf).__name__


def checksum(tensor: torch.Tensor) -> int:
    """Returns a checksum of a tensor's bytes.

    For a small tensor it is a CRC of the bytes. A larger tensor is read as a table of 8-byte words, and the result is the
    CRC of its row sums and column sums. This checksum changes when samples are swapped. It reads memory twice, and each
    pass is several times as fast as a CRC.
    """
    data = tensor.detach().contiguous()
    if data.storage_offset() * data.element_size() % 8:
        data = data.clone()
    raw = data.view(-1).view(torch.uint8)
    words = 0 if raw.numel() < SMALL_BYTES else raw.numel() // 8 // COLUMNS * COLUMNS
    found = _crc(raw[words * 8:], raw.numel())
    if words:
        table = raw[:words * 8].view(torch.int64).view(-1, COLUMNS)
        found = _crc(table.sum(0), _crc(table.sum(1), found))
    return found


def _crc(data: torch.Tensor, before: int) -> int:
    return zlib.crc32(data.cpu().view(-1).view(torch.uint8).numpy().data, before)

