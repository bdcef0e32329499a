"""Results of hetu.nn for the cases of nn_cases.py."""

from __future__ import annotations

from typing import Any

import numpy as np

import hetu as ht
import nn_cases as cases
from bert_cases import distance, worst
from hetu import _hetu, nn

BOUND = 1e-5


def _inputs(case: cases.Case, fed: bool) -> list[ht.Value]:
    """Returns the inputs as values: fed along the batch, or with fed=False float32 inputs as parameters, which have
    gradients."""
    return [ht.placeholder(f"input {i}", str(x.dtype), [ht.BATCH if fed else len(x), *x.shape[1:]])
            if fed or x.dtype != np.float32 else ht.parameter(f"input {i}", list(x.shape), ht.init.zeros())
            for i, x in enumerate(case.inputs)]


def run(name: str, fed: bool, kernels: str) -> dict[str, Any]:
    """Returns results like nn_torch.run. Fed inputs have no gradients."""
    case = cases.CASES[name]
    graph = ht.new_graph()
    module = case.make(nn)
    y = case.call(module, *_inputs(case, fed))
    shape = tuple(len(case.inputs[0]) if size == ht.BATCH else size for size in y.shape)
    factor = ht.placeholder("factor", "float32", list(y.shape))
    graph.fetch("total", (y * factor).sum())
    if case.slopes and not fed:  # the value is the gradient of a factor that multiplies it
        graph.builder.differentiate((y * (factor + ht.parameter("value", list(shape), ht.init.zeros()))).sum().number)
    elif case.slopes:
        graph.builder.differentiate((y * factor).sum().number)
    leaves = [*module.named_parameters(), *module.named_buffers()]
    given = cases.weights({n: tuple(leaf.shape) for n, leaf in leaves})
    given |= {"factor": cases.factors(shape), **{f"input {i}": x for i, x in enumerate(case.inputs)}}
    given |= {} if fed or not case.slopes else {"value": np.zeros(shape, np.float32)}
    found = _hetu.evaluate(graph.builder.finish(), len(case.inputs[0]) if fed else 1,
                           {n: np.asarray(x, np.float64).ravel() for n, x in given.items()}, "float32", kernels)
    slopes = found["gradients"]
    value = slopes.pop("value", None)
    return {"state": {n: list(leaf.shape) for n, leaf in leaves}, "slopes": cases.digests(slopes),
            "value": None if value is None else cases.digests({"value": value})["value"],
            "total": found["fetches"]["total"], "buffers": cases.digests(found["buffers"])}


def starts(name: str) -> dict[str, dict[str, float]]:
    """Returns statistics of the initial tensors of a layer, as a worker initializes them."""
    ht.new_graph()
    module = cases.STARTS[name](nn)
    leaves = [*module.named_parameters(), *module.named_buffers()]
    data = ht.data.Batches([{"x": np.ones((1, 1), np.float32)}], 1)
    module._give_names()
    total: Any = data.x.sum()
    for _, leaf in leaves:
        if isinstance(leaf, nn.Parameter):
            total = total + leaf.sum()
    job = ht.Executor({"train": [total, ht.optim.SGD(0.0).minimize(total)]})
    state = {n: np.array(array) for n, kind, array, _ in job.job.state() if kind == ""}
    return {n: cases.spread(state[n]) for n, leaf in leaves if isinstance(leaf, nn.Parameter)}


def check(test, name, theirs):
    """Compares a case with the results of torch.nn."""
    for fed in (False, True):
        for kernels in ("reference", "best"):
            with test.subTest(name, fed=fed, kernels=kernels, seed=cases.SEED):
                ours = run(name, fed, kernels)
                tied = {n for n, _ in theirs["state"].items()} - set(ours["state"])
                test.assertLessEqual({n: theirs["state"][n] for n in theirs["state"] if n not in tied}.items(),
                                     ours["state"].items())
                test.assertEqual(tied, {"3.weight"} if name == "tied" else set())
                slopes = {n: d for n, d in theirs["slopes"].items() if not (fed and n.startswith("input"))}
                test.assertEqual(set(ours["slopes"]), set(slopes))
                if slopes:
                    apart = worst(ours["slopes"], slopes)
                    test.assertLess(apart[0], BOUND, apart[1])
                for buffer, kept in theirs["buffers"].items():
                    test.assertLess(distance(ours["buffers"][buffer], kept), BOUND * max(1, kept["norm"]), buffer)
                if ours["value"] is not None:
                    test.assertLess(distance(ours["value"], theirs["value"]), BOUND * theirs["value"]["norm"])
                test.assertLess(abs(ours["total"] - theirs["total"]), 1e-5 * max(1, abs(ours["total"])))
