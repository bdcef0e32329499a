#!/usr/bin/env python3
"""Writes tests/fixtures/resnet_gradients.json: digests of torchvision's gradients in float64 for the cases of
resnet_cases.py, and the errors of its gradients in float32. The tests don't need it."""

import json
from pathlib import Path
from typing import Any

import torch

import resnet_cases as cases
import resnet_torch
from bert_cases import rounded

CASES = ("resnet18_cifar", "resnet18_imagenet", "resnet50_imagenet")


def main() -> None:
    lines = [f'"versions": {json.dumps(resnet_torch.versions())}']
    for name in CASES:
        case = cases.CASES[name]
        weights, batch = cases.weights(resnet_torch.parameters(*case[:3])), cases.batch(case)
        exact, single = (resnet_torch.gradients(case, weights, batch, kind) for kind in (torch.float64, torch.float32))
        found: dict[str, Any] = rounded(cases.digests(exact))
        for tensor, d in found.items():
            d["float32"] = float(f"{cases.relative(single[tensor], exact[tensor]):.3g}")
        rows = ",\n".join(f' "{n}": {json.dumps(d)}' for n, d in found.items())
        lines.append(f'"{name}": {{\n{rows}\n}}')
    path = Path(__file__).resolve().parents[2] / "fixtures" / "resnet_gradients.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
