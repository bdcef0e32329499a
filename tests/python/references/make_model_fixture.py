#!/usr/bin/env python3
"""Writes tests/fixtures/models.json: results of transformers for the cases of model_cases.py and generate_cases.py. The
tests don't need transformers."""

import json
from pathlib import Path

import generate_cases
import model_cases as cases
import model_torch
from bert_cases import rounded


def main() -> None:
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(rounded(model_torch.run(name)))}" for name in cases.CASES)
    generated = {name: model_torch.generate(family, config, generate_cases.prompt(), generate_cases.TOKENS)
                 for name, (family, config) in generate_cases.CASES.items()}
    path = Path(__file__).resolve().parents[2] / "fixtures" / "models.json"
    path.write_text(f'{{"versions": {json.dumps(model_torch.versions())}, "cases": {{\n{rows}\n}}, '
                    f'"generated": {json.dumps(generated)}}}\n')
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
