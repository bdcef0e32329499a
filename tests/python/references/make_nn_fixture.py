#!/usr/bin/env python3
"""Writes tests/fixtures/nn.json: results of torch.nn for the cases of nn_cases.py, and statistics of initial weights. The
tests don't need PyTorch."""

import json
from pathlib import Path

import torch

import nn_cases as cases
import nn_torch
from bert_cases import rounded


def main() -> None:
    def lines(found: dict) -> str:
        return ",\n".join(f"{json.dumps(name)}: {json.dumps(rounded(kept))}" for name, kept in found.items())

    ran, starts = {n: nn_torch.run(n) for n in cases.CASES}, {n: nn_torch.starts(n) for n in cases.STARTS}
    path = Path(__file__).resolve().parents[2] / "fixtures" / "nn.json"
    path.write_text(f'{{"versions": {json.dumps({"torch": torch.__version__})}, "cases": {{\n{lines(ran)}\n}}, '
                    f'"starts": {{\n{lines(starts)}\n}}}}\n')
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
