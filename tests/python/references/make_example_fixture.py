#!/usr/bin/env python3
"""Writes tests/fixtures/examples.json: PyTorch's losses and gradients in float64 for the models of docs/examples. The tests
don't need PyTorch."""

import json
from pathlib import Path

import torch

import example_cases
import example_torch
from bert_cases import rounded


def main() -> None:
    found = {name: example_torch.run(name, example_cases.run(name)["batch"]) for name in example_cases.LINES}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(rounded(kept))}" for name, kept in found.items())
    path = Path(__file__).resolve().parents[2] / "fixtures" / "examples.json"
    path.write_text(f'{{"versions": {json.dumps({"torch": torch.__version__})}, "cases": {{\n{rows}\n}}}}\n')
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
