"""Hetu's results for the cases of optimizer_cases.py."""

from __future__ import annotations

from typing import Any

import hetu as ht
import optimizer_cases as cases


def rate_of(name: str, base: float) -> Any:
    function, settings = cases.RATES[name]
    return getattr(ht.lr, function)(base, **settings)


def build(optimizer_name: str, rate_name: str, **options: Any) -> ht.Executor:
    """Returns the job with the case's weights."""
    kind, settings, rate = cases.OPTIMIZERS[optimizer_name]
    ht.new_graph()
    data = ht.data.Batches(cases.batches(), batch_size=cases.ROWS)

    def linear(x: ht.Value, name: str) -> ht.Value:
        weight = ht.graph.parameter(f"{name}.weight", list(cases.SHAPES[f"{name}.weight"]), ht.graph.normal(0.1))
        bias = ht.graph.parameter(f"{name}.bias", list(cases.SHAPES[f"{name}.bias"]), ht.graph.constant(0.0), decay=False)
        return ht.ops.linear(x, weight, bias, name=name)

    hidden = ht.ops.tanh(linear(data.x, "fc1"))
    ht.graph.cut()
    loss = ht.models.mean_cross_entropy(linear(hidden, "fc2"), data.label, "label")
    optimizer = getattr(ht.optim, kind)(rate_of(rate_name, rate), **settings)
    job = ht.Executor({"train": [loss, optimizer.minimize(loss)]}, **options)
    drawn = cases.weights()
    for name, state, array, _ in job.job.state():
        if not state:
            array[...] = drawn[name]
    return job


def weights_of(job: ht.Executor) -> dict[str, list[float]]:
    return {name: array.ravel().tolist() for name, state, array, _ in job.job.state() if not state}


def run(optimizer_name: str, rate_name: str) -> dict[str, Any]:
    """Returns losses and rates of every step, and the last weights, like optimizer_torch.run."""
    job = build(optimizer_name, rate_name)
    losses, rates = [], []
    for step in job.run("train", steps=cases.STEPS):
        losses.append(step.loss)
        rates.append(step.learning_rate)
        if job.plateau:
            job.plateau.report(step.loss)
    return {"losses": losses, "rates": rates, "weights": weights_of(job)}
