"""Results of Hetu's ResNets for the cases of resnet_cases.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hetu as ht
import resnet_cases as cases


def shapes(name: str, stem: str = "imagenet", classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Returns names and shapes of parameters and buffers."""
    ht.new_graph()
    logits = ht.models.ResNet(name, classes, stem).logits(ht.placeholder("image", "float32", [ht.BATCH, 3, 64, 64]))
    ht.graph.current().fetch("logits", ht.ops.sum(logits))  # values that no fetch needs are left out of the graph
    graph = ht.graph.current().builder.finish()
    return {name: tuple(shape) for name, shape in [*graph.parameters, *graph.buffers]}


def run(case: cases.Case, weights: Path | None = None) -> dict[str, Any]:
    """Returns the loss of one training batch, then running statistics and probed logits in evaluation, like
    resnet_torch.run. Weights come from a checkpoint or from the case. The update changes nothing, because its rate is 0."""
    name, stem, classes, rows, _ = case
    ht.new_graph()
    data = ht.data.Batches([cases.batch(case)], batch_size=rows)
    logits = ht.models.ResNet(name, classes, stem).logits(data.image)
    loss = ht.models.mean_cross_entropy(logits, data.label, "label")
    masks = [ht.ops.select(data.masks, axis=1, index=k) for k in range(cases.PROBES)]
    probes = [ht.ops.sum(ht.ops.mul(logits, mask), name=f"probe{k}") for k, mask in enumerate(masks)]
    job = ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)], "validate": [loss, *probes]})
    parameters = {n for n, _ in job.graph.parameters}
    state = {n: array for n, kind, array, _ in job.job.state() if kind == ""}
    if weights is None:
        for parameter, drawn in cases.weights({n: state[n].shape for n in parameters}).items():
            state[parameter][...] = drawn
    (trained,) = job.run("train", steps=1, checkpoint=str(weights) if weights else None, resume=weights is not None)
    statistics = {n: array.copy() for n, array in state.items() if n not in parameters}
    (seen,) = job.run("validate", steps=1)
    return {
        "loss": trained.loss, "eval_loss": seen.loss, "statistics": cases.digests(statistics),
        "logits": [seen.scalars[f"probe{k}"] for k in range(cases.PROBES)],
    }
