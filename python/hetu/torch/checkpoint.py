"""Checkpoints of a Pipeline: one safetensors file per worker, and an index that says where each name of the whole model is.

A folder is complete once its index stands, which is written last and renamed into place. Names are those of the unsplit
model, so that any cut and number of pipelines reads it, and so do tools that know sharded safetensors.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

INDEX = "model.safetensors.index.json"
_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def write_part(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """One safetensors file, written beside and renamed. Throws ValueError for types that the format has not."""
    header: dict[str, Any] = {}
    at = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise ValueError(f"'{name}' is {tensor.dtype}, which safetensors files do not hold")
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    beside = path.with_name(path.name + ".part")
    with open(beside, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(_bytes(tensor))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def write_index(folder: Path, parts: Mapping[str, list[str]], metadata: Mapping[str, Any]) -> None:
    """The index, from the names in each file; with it the checkpoint is complete."""
    weights = {name: file for file, names in parts.items() for name in names}
    beside = folder / (INDEX + ".part")
    beside.write_text(json.dumps({"metadata": dict(metadata), "weight_map": weights}, indent=1, sort_keys=True))
    os.replace(beside, folder / INDEX)


def remove_others(folder: Path, files: set[str]) -> None:
    """Parts of earlier checkpoints, which the index no longer names."""
    for part in folder.glob("step*-worker*.safetensors*"):
        if part.name not in files:
            part.unlink(missing_ok=True)


def read_index(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """(file by name, metadata). Throws OSError, naming what is missing: the index, or a worker's file."""
    if not (folder / INDEX).is_file():
        raise OSError(f"{folder}: no complete checkpoint: {INDEX} is not there")
    index = json.loads((folder / INDEX).read_text())
    for file in sorted(set(index["weight_map"].values())):
        if not (folder / file).is_file():
            raise OSError(f"{folder}: {file} is not there, a worker's part of the checkpoint")
    return index["weight_map"], index["metadata"]


def files_of(folder: Path) -> dict[str, str]:
    """File by name, of a checkpoint of any program that writes sharded safetensors, or one model.safetensors. Throws
    OSError."""
    if (folder / INDEX).is_file():
        return read_index(folder)[0]
    one = "model.safetensors"
    if not (folder / one).is_file():
        raise OSError(f"{folder}: neither {INDEX} nor {one} is there")
    with open(folder / one, "rb") as file:
        return {name: one for name in _header(file)[0] if name != "__metadata__"}


def read_tensors(path: Path, names: set[str]) -> dict[str, torch.Tensor]:
    """Those tensors of a file, of which no more is read. Throws OSError where it does not hold them whole."""
    with open(path, "rb") as file:
        header, begins = _header(file)
        out = {}
        for name in sorted(names):
            if name not in header:
                raise OSError(f"{path}: '{name}' is not in it, though the index says so")
            begin, end = header[name]["data_offsets"]
            file.seek(begins + begin)
            data = bytearray(file.read(end - begin))
            if len(data) != end - begin:
                raise OSError(f"{path}: ends in the middle of '{name}'")
            dtype, shape = _TYPES[header[name]["dtype"]], header[name]["shape"]
            out[name] = torch.frombuffer(data, dtype=dtype).view(shape) if data else torch.empty(shape, dtype=dtype)
    return out


def _header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Of a safetensors file: what it holds, and where its tensors begin."""
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)), 8 + length
    except (struct.error, ValueError, MemoryError, OverflowError):
        raise OSError(f"{file.name}: it does not begin as a safetensors file does") from None


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
