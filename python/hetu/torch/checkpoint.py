"""The bytes of tensors in safetensors files and in checkpoints, read and written by the C++ code of graph checkpoints.

`WeightFiles` reads the sharded files that other programs write. saving.py and loading.py define the contents of a
Pipeline's checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from hetu import _hetu, files

INDEX = "model.safetensors.index.json"
ONE_FILE = "model.safetensors"
MANIFEST = "manifest.json"
_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
          "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
          "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
          "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"}
TYPES = {name: getattr(torch, dtype) for name, dtype in _NAMES.items() if hasattr(torch, dtype)}
_FORMAT_NAMES = {dtype: name for name, dtype in TYPES.items()}


def format_dtype(name: str, tensor: torch.Tensor) -> str:
    """Returns the name that safetensors files give the tensor's dtype. Throws ValueError for a tensor that such a file can't
    hold: another dtype, a sparse tensor, a tensor without memory."""
    if tensor.layout != torch.strided or tensor.is_meta:
        kind = "on the meta device" if tensor.is_meta else str(tensor.layout).removeprefix("torch.")
        raise ValueError(f"'{name}' is {kind}; a checkpoint keeps dense tensors with memory")
    if tensor.dtype not in _FORMAT_NAMES:
        raise ValueError(f"'{name}' is {str(tensor.dtype).removeprefix('torch.')}, which safetensors files do not hold")
    return _FORMAT_NAMES[tensor.dtype]


def dtype_named(folder: Path, name: str, dtype: str) -> torch.dtype:
    """Returns PyTorch's dtype for the name in a file. Throws OSError if this PyTorch doesn't have it."""
    if dtype not in TYPES:
        raise OSError(f"{folder}: '{name}' is {dtype}, which PyTorch {torch.__version__} does not have")
    return TYPES[dtype]


def bytes_of(tensor: torch.Tensor) -> Any:
    """Returns the tensor's bytes as a flat uint8 array: its own memory if it is dense and on the CPU, else a copy."""
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return dense.reshape(-1).view(torch.uint8).numpy()


def read_tensor(source: Any, number: int, dtype: torch.dtype, shape: Iterable[int]) -> torch.Tensor:
    """Reads tensor `number` of a CheckpointReader or SafetensorsFile. Throws OSError if it is damaged."""
    tensor = torch.empty(list(shape), dtype=dtype, device="cpu")
    source.read(number, bytes_of(tensor))
    return tensor


class WeightFiles:
    """The tensors, by name, of a folder with sharded safetensors files and their index, or with one model.safetensors.

    A folder that Pipeline.save() wrote also has a manifest, whose checksums are verified.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checked: Any = None
        self.opened: dict[str, Any] = {}
        if (folder / MANIFEST).is_file():
            self.checked = _hetu.CheckpointReader(str(folder))
            rows = enumerate(self.checked.tensors)
            self.rows = {name: (number, dtype, shape) for number, (name, state, dtype, shape, _) in rows if not state}
            self.files = dict.fromkeys(self.rows, "")
            return
        self.files = _file_by_name(folder)
        for file in sorted(set(self.files.values())):
            if not (folder / file).is_file():
                raise OSError(f"{folder}: {file} is missing, although {INDEX} names it")

    def names(self) -> set[str]:
        """Returns the names of all tensors."""
        return set(self.files)

    def read(self, name: str) -> torch.Tensor:
        """Returns one tensor. Throws OSError if it is damaged, or missing from the file that the index names."""
        source, (number, dtype, shape) = self._row(name)
        return read_tensor(source, number, dtype_named(self.folder, name, dtype), shape)

    def _row(self, name: str) -> tuple[Any, tuple[int, str, list[int]]]:
        if self.checked is not None:
            return self.checked, self.rows[name]
        file = self.files[name]
        if file not in self.opened:
            opened = _hetu.SafetensorsFile(str(self.folder / file))
            self.opened[file] = opened, {row[0]: (n, row[1], row[2]) for n, row in enumerate(opened.tensors)}
        opened, rows = self.opened[file]
        if name not in rows:
            raise OSError(f"{self.folder / file}: '{name}' is missing, although {INDEX} says that this file holds it")
        return opened, rows[name]


def _file_by_name(folder: Path) -> dict[str, str]:
    if (folder / INDEX).is_file():
        try:
            weights = files.read_json(folder / INDEX)["weight_map"]
            if not all(isinstance(file, str) and Path(file).name == file for file in weights.values()):
                raise TypeError("a file that is not in the folder")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise OSError(f"{folder / INDEX}: not an index of sharded safetensors files, or damaged: {error}") from None
        return dict(weights)
    if not (folder / ONE_FILE).is_file():
        raise OSError(f"{folder}: no weights found; expected {INDEX} or {ONE_FILE}")
    return {row[0]: ONE_FILE for row in _hetu.SafetensorsFile(str(folder / ONE_FILE)).tensors}
