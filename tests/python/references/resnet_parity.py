"""Hetu's ResNets compared with an installed torchvision at full size. They use torchvision's initial weights, read from its
file."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy
import torch

import hetu as ht
import resnet_cases as cases
import resnet_hetu
import resnet_torch

FULL: dict[str, cases.Case] = {
    "resnet18_cifar": ("resnet18", "cifar", 100, 16, 32),
    "resnet18_imagenet": ("resnet18", "imagenet", 1000, 4, 224),
    "resnet50_imagenet": ("resnet50", "imagenet", 1000, 4, 224),
}
DTYPES = {"float32": "F32", "int64": "I64"}
DRAWS = 9  # draws of weights and images; in each, chance decides whether some ReLU's input falls on the other side of 0


def write(path: Path, tensors: dict[str, numpy.ndarray]) -> None:
    """Writes a safetensors file: the length of its header, the header, the data."""
    header, at = {}, 0
    for name, array in tensors.items():
        end = at + array.nbytes
        header[name] = {"dtype": DTYPES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in tensors.values()))


def read(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Returns (dtype, shape, bytes) by name."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {
        name: (e["dtype"], e["shape"], data[start + e["data_offsets"][0]:start + e["data_offsets"][1]])
        for name, e in header.items()
    }


def check() -> bool:
    """Returns true if weights are read and written bitwise, losses agree within 1e-5, and statistics and logits within 1e-4.
    """
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


def hetu_gradients(case: cases.Case, weights: cases.Arrays, batch: cases.Arrays) -> cases.Arrays:
    ht.new_graph()
    data = ht.data.Batches([batch], batch_size=case[3])
    loss = ht.models.ResNet(case[0], case[2], case[1]).loss(data)
    job = ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)]})
    state = {n: array for n, kind, array, _ in job.job.state() if kind == ""}
    for name, drawn in weights.items():
        state[name][...] = drawn
    list(job.run("train", steps=1))
    return {n: array.reshape(weights[n].shape) for n, _, array, _ in job.job.gradients()}


def check_gradients() -> bool:
    """Returns true if the errors of float32 gradients are at most twice those of PyTorch's. The error is that of the worst
    tensor against float64, as the median over the draws. PyTorch uses the same layout of images, because with NCHW its
    convolutions add in shorter runs."""
    print(f"\n{'float32 gradients':18} {'Hetu':>9} {'PyTorch, channels last':>23} {'NCHW':>9}  medians of {DRAWS} draws")
    good = True
    for name, case in cases.CASES.items():
        found: dict[str, list[float]] = {"hetu": [], "last": [], "first": []}
        for draw in range(DRAWS):
            batch = {k: v for k, v in cases.batch(case, seed=200 + draw).items() if k != "masks"}
            weights = cases.weights(resnet_torch.parameters(*case[:3]), seed=100 + draw)
            exact = resnet_torch.gradients(case, weights, batch, torch.float64)
            for kind, gradients in {
                "hetu": hetu_gradients(case, weights, batch),
                "last": resnet_torch.gradients(case, weights, batch, torch.float32, torch.channels_last),
                "first": resnet_torch.gradients(case, weights, batch, torch.float32),
            }.items():
                found[kind].append(max(cases.relative(gradients[n], exact[n]) for n in exact))
        hetu, last, first = (statistics.median(errors) for errors in found.values())
        print(f"{name:18} {hetu:9.2e} {last:23.2e} {first:9.2e}")
        good &= hetu <= 2 * last
    return good
