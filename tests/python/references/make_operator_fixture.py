#!/usr/bin/env python3
"""Writes tests/fixtures/operators.json: results of PyTorch for the cases of operator_cases.py. The tests don't need PyTorch.

Cases that are already in the file keep the results of the PyTorch version that made them, unless you name them:
make_operator_fixture.py [CASE ...]"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

import operator_cases as cases
import operator_torch


def digits(array: np.ndarray) -> list[float]:
    """Returns the flat values with all digits that float32 needs. Infinities and NaNs are written as Python's json writes
    them."""
    return [float(f"{x:.8g}") for x in array.astype(np.float64).ravel()]


def main() -> None:
    path = Path(__file__).resolve().parents[2] / "fixtures" / "operators.json"
    standing = json.loads(path.read_text())
    versions = dict.fromkeys([*standing["versions"]["torch"].split(", "), str(torch.__version__)])
    rows = []
    for name, case in cases.cases().items():
        if name in standing["cases"] and name not in sys.argv[1:]:
            rows.append(f"{json.dumps(name)}: {json.dumps(standing['cases'][name], separators=(',', ':'))}")
            continue
        found = operator_torch.run(case)
        kept = {"shape": list(found["value"].shape), "value": digits(found["value"]),
                "slopes": [digits(slope) for slope in found["slopes"]]}
        rows.append(f"{json.dumps(name)}: {json.dumps(kept, separators=(',', ':'))}")
    joined = ",\n".join(rows)
    path.write_text(f'{{"versions": {json.dumps({"torch": ", ".join(versions)})}, "cases": {{\n{joined}\n}}}}\n')
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
