#!/usr/bin/env python3
"""Writes tests/fixtures/optimizers.json: results of PyTorch for the cases of optimizer_cases.py. The tests don't need
PyTorch."""

import json
from pathlib import Path
from typing import Any

import torch

import optimizer_cases as cases
import optimizer_torch
from bert_cases import rounded


def kept(name: str, run: dict[str, Any]) -> dict[str, Any]:
    """Returns every seventh loss, and the weights of an optimizer's case or the rates of a rate's case."""
    part = {"rates": run["rates"]} if name.startswith("rate_") else {"weights": run["weights"]}
    return {"losses": run["losses"][:: cases.EVERY], **part}


def main() -> None:
    found = {name: rounded(kept(name, optimizer_torch.run(*case))) for name, case in cases.CASES.items()}
    path = Path(__file__).resolve().parents[2] / "fixtures" / "optimizers.json"
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    path.write_text(f'{{"versions": {json.dumps({"torch": torch.__version__})}, "cases": {{\n{rows}\n}}}}\n')
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
