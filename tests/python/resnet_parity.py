"""Hetu's ResNets live beside torchvision's: from torchvision's starting weights, through a file of theirs, at full size."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy
import torch

import resnet_cases as cases
import resnet_hetu
import resnet_torch

FULL: dict[str, tuple[str, str, int, int, int]] = {
    "resnet18_cifar": ("resnet18", "cifar", 100, 16, 32),
    "resnet18_imagenet": ("resnet18", "imagenet", 1000, 4, 224),
    "resnet50_imagenet": ("resnet50", "imagenet", 1000, 4, 224),
}
DTYPES = {"float32": "F32", "int64": "I64"}


def write(path: Path, tensors: dict[str, numpy.ndarray]) -> None:
    """A safetensors file: the length of its header, the header, the data."""
    header, at = {}, 0
    for name, array in tensors.items():
        end = at + array.nbytes
        header[name] = {"dtype": DTYPES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in tensors.values()))


def read(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """(dtype, shape, bytes) by name."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {
        name: (e["dtype"], e["shape"], data[start + e["data_offsets"][0]:start + e["data_offsets"][1]])
        for name, e in header.items()
    }


def check() -> bool:
    """Whether weights go in and out bitwise, losses agree within 1e-5, statistics and logits within 1e-4."""
    print(f"{'model':18} {'loss, Hetu':>12} {'torchvision':>12} {'statistics':>11} {'logits':>9}  weights in and out  where")
    good = True
    for name, case in FULL.items():
        torch.manual_seed(0)
        model = resnet_torch.model_of(*case[:3])
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours, saved = Path(folder) / "theirs", Path(folder) / "ours", Path(folder) / "saved"
            write(theirs, {n: t.numpy() for n, t in model.state_dict().items()})
            subprocess.run(["hetu", "checkpoint", "import", theirs, "-o", saved], check=True, capture_output=True)
            subprocess.run(["hetu", "checkpoint", "export", saved, "-o", ours], check=True, capture_output=True)
            bitwise = read(theirs) == read(ours)
            a, b = resnet_hetu.run(case, weights=saved), resnet_torch.run(case, model)
        apart, where = cases.furthest(a["statistics"], b["statistics"])
        logits = max(abs(x - y) for x, y in zip(a["logits"], b["logits"], strict=True))
        good &= bitwise and abs(a["loss"] - b["loss"]) < 1e-5 * b["loss"] and apart < 1e-4 and logits < 1e-4
        print(f"{name:18} {a['loss']:12.7f} {b['loss']:12.7f} {apart:11.2e} {logits:9.2e}  "
              f"{'bitwise' if bitwise else 'DIFFERENT':18}  {where}")
    return good
