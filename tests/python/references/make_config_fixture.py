#!/usr/bin/env python3
"""Writes tests/fixtures/configs.json: transformers' losses of small models, each with one field of its `config.json` changed
(config_cases.py). The changes cover every field of the model type's class in transformers."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import bert_torch
import config_cases as cases
import model_cases
import model_torch


def changed(name: str, value: Any) -> list[Any]:
    """Returns other values of a field."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return sorted({2 * value, max(1, value // 2)} - {value})
    if isinstance(value, float):
        return [2 * value + 0.125]
    if isinstance(value, str):
        return ["relu", "gelu_new", "silu"] if "act" in name else ["other"]
    return [] if value is not None else [True, 3, 0.5]


def changes_of(model_type: str) -> list[dict[str, Any]]:
    config = transformers.AutoConfig.for_model(model_type, **cases.BASES[model_type])
    out = list(cases.CHANGES)
    for name, value in sorted(config.to_dict().items()):
        # Dropout is random, and dtype is the type of stored weights.
        if "drop" not in name and name not in ("dtype", "model_type", "transformers_version"):
            out += [{name: other} for other in changed(name, value)]
    for own, field in type(config).attribute_map.items():
        out += [{own: other} for other in changed(own, getattr(config, field))]
    return out


def model_of(folder: str, model_type: str, fields: dict[str, Any]) -> Any:
    """Returns the model that transformers builds from a config.json with these fields."""
    Path(folder, "config.json").write_text(json.dumps({"model_type": model_type, **fields}))
    config = transformers.AutoConfig.from_pretrained(folder, attn_implementation="eager")
    kind = {"vit": transformers.AutoModelForImageClassification, "bert": transformers.AutoModelForPreTraining}.get(
        model_type, transformers.AutoModelForCausalLM)
    return kind.from_config(config).eval()


def loss_of(model: Any, model_type: str) -> float:
    """Returns the loss with weights drawn by name."""
    given = cases.inputs(model_type)
    if model_type == "bert":
        named = dict(model.named_parameters())
        same = bert_torch.SAME
        drawn = model_cases.weights({same.get(n, n): tuple(p.shape) for n, p in named.items()})
        for name, p in named.items():
            p.copy_(torch.from_numpy(drawn[same.get(name, name)]))
        return bert_torch.loss_of(model, given).item()
    model_torch.draw_into(model)
    if model_type == "vit":
        logits, labels = model(torch.from_numpy(given["image"])).logits, torch.from_numpy(given["label"]).long()
    else:
        ids = torch.from_numpy(given["ids"]).long()
        logits, labels = model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten()
    return torch.nn.functional.cross_entropy(logits, labels).item()


def rows_of(model_type: str) -> tuple[dict[str, Any], list[list[Any]]]:
    """Returns the base file as transformers saves it, and pairs [changes, loss]. Also prints how many changes affect the
    loss."""
    rows, base = [], cases.BASES[model_type]
    for change in [{}, *changes_of(model_type)]:
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            try:
                model = model_of(folder, model_type, {**base, **change})
                loss = loss_of(model, model_type)
            except Exception as error:  # transformers itself can't compute this
                print(f"{model_type} {change}: {type(error).__name__}: {str(error).splitlines()[:1]}", file=sys.stderr)
                continue
            if not change:
                model.config.save_pretrained(folder)
                saved = json.loads(Path(folder, "config.json").read_text())
            if np.isfinite(loss) and [change, round(loss, 7)] not in rows:
                rows.append([change, round(loss, 7)])
    print(f"{model_type}: {len(rows)} files, {sum(abs(loss - rows[0][1]) > 1e-5 for _, loss in rows)} with another loss")
    return saved, rows


def main() -> None:
    transformers.logging.set_verbosity_error()
    found = {model_type: rows_of(model_type) for model_type in cases.BASES}
    path = Path(__file__).resolve().parents[2] / "fixtures" / "configs.json"
    types = ",\n".join(f'{json.dumps(name)}: {{"saved": {json.dumps(saved)}, "rows": [\n'
                       + ",\n".join(map(json.dumps, rows)) + "]}" for name, (saved, rows) in found.items())
    path.write_text(f'{{"versions": {json.dumps(model_torch.versions())}, "types": {{\n{types}\n}}}}\n')
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
