#!/usr/bin/env python3
"""Writes tests/fixtures/bert.json: results of Hugging Face's BERT on PyTorch for the cases of bert_cases.py.

Needs torch and transformers (any versions; the file names those it was made with). The tests need neither."""

import json
from pathlib import Path

import bert_cases
import bert_torch


def main() -> None:
    cases = {name: bert_cases.rounded(bert_torch.run(case)) for name, case in bert_cases.CASES.items()}
    path = Path(__file__).resolve().parents[2] / "fixtures" / "bert.json"
    path.write_text(json.dumps({"versions": bert_torch.versions(), "cases": cases}, indent=0) + "\n")
    print(f"{path}: {path.stat().st_size} bytes, {bert_torch.versions()}")


if __name__ == "__main__":
    main()
