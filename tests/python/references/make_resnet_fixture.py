#!/usr/bin/env python3
"""Writes tests/fixtures/resnet.json: results of torchvision for the cases of resnet_cases.py. The tests don't need it."""

import json
from pathlib import Path

import resnet_cases as cases
import resnet_torch
from bert_cases import rounded


def main() -> None:
    lines = [f'"versions": {json.dumps(resnet_torch.versions())}']
    lines += [f'"shapes {n}": "{cases.table(resnet_torch.shapes(n))}"' for n in cases.MODELS]
    for name, case in cases.CASES.items():
        found = rounded(resnet_torch.run(case))
        tensors = ",\n".join(f'  "{n}": {json.dumps(d)}' for n, d in found.pop("statistics").items())
        rest = ",\n".join(f' "{k}": {json.dumps(v)}' for k, v in found.items())
        lines.append(f'"{name}": {{\n{rest},\n "statistics": {{\n{tensors}\n }}}}')
    path = Path(__file__).resolve().parents[2] / "fixtures" / "resnet.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
