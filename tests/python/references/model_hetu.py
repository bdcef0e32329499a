"""Results of hetu.models for the cases of model_cases.py."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import hetu as ht
import model_cases as cases
from bert_cases import digest, worst
from hetu import _hetu
from hetu.models.config_file import READERS


def model_of(family: str, config: dict[str, Any]) -> Any:
    """Returns the model of a config.json with this model_type and these fields."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps({"model_type": family, **config}))
        return getattr(ht.models, READERS[family]).from_config(str(file))


def _evaluated(model: Any, given: dict[str, np.ndarray], weights: dict[str, np.ndarray], build: Any) -> dict[str, Any]:
    """Returns the fetches and gradients of the graph that build(values of the inputs) makes, in float32 by the best kernels.
    """
    graph = ht.new_graph()
    values = {n: ht.placeholder(n, str(x.dtype), list(x.shape)) for n, x in given.items()}
    total, more = build(SimpleNamespace(**values))
    graph.builder.differentiate(total.number)
    leaves = {**given, **weights, **more}
    return _hetu.evaluate(graph.builder.finish(), 1, {n: np.asarray(x, np.float64).ravel() for n, x in leaves.items()},
                          "float32", "best")


def logits(model: Any, given: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the flat logits. They are the gradient of a factor that multiplies the logits."""
    def build(batch: Any) -> Any:
        y = model(batch.image if hasattr(batch, "image") else batch.ids[:, :-1])
        factor = ht.parameter("factor", y.shape, ht.init.zeros())
        return (y * factor).sum(), {"factor": np.zeros(y.shape)}

    return _evaluated(model, given, weights, build)["gradients"]["factor"]


def run(name: str) -> dict[str, Any]:
    """Returns results like model_torch.run."""
    family, config = cases.CASES[name]
    model, given = model_of(family, config), cases.inputs(family, config)
    shapes = {n: tuple(p.shape) for n, p in model.named_parameters()}
    weights = cases.weights(shapes)
    found = _evaluated(model, given, weights, lambda batch: (model.loss(batch), {}))
    return {"shapes": {n: list(s) for n, s in shapes.items()}, "loss": found["fetches"]["loss"],
            "logits": logits(model, given, weights), "slopes": {n: digest(n, g) for n, g in found["gradients"].items()}}


def check(test, name, theirs):
    """Compares a case with the results of transformers. Returns the largest difference of a logit, and of a gradient
    relative to its norm."""
    ours = run(name)
    test.assertEqual(ours["shapes"], theirs["shapes"])
    apart = float(np.abs(np.array(ours["logits"]) - np.array(theirs["logits"])).max())
    test.assertLess(apart, 1e-4)
    test.assertLess(abs(ours["loss"] - theirs["loss"]), 1e-5 * abs(theirs["loss"]))
    test.assertEqual(set(ours["slopes"]), set(theirs["slopes"]))
    error, where = worst(ours["slopes"], theirs["slopes"])
    test.assertLess(error, 3e-5, where)  # the gradient of the keys' biases is 0 except for rounding
    return apart, error
