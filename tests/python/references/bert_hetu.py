"""Hetu's results for the cases of bert_cases.py."""

from __future__ import annotations

from typing import Any

import bert_cases
import hetu as ht


def run(case: dict[str, Any], masked_alone: bool = False) -> dict[str, Any]:
    """Returns the first loss, the gradients of the first step and the losses of 20 AdamW steps, like bert_torch.run. With
    masked_alone, the head computes the masked positions only."""
    batches = [bert_cases.batch(case["vocab_size"], step) for step in range(bert_cases.STEPS)]
    if masked_alone:
        batches = [bert_cases.masked_alone(batch, bert_cases.LENGTH // 2) for batch in batches]
    ht.new_graph()
    data = ht.data.Batches(batches, batch_size=bert_cases.ROWS)
    loss = ht.models.Bert(ht.models.BertConfig(**case)).pretraining_loss(data)
    train = ht.optim.AdamW(bert_cases.RATE, epsilon=1e-7, weight_decay=0.01).minimize(loss)
    job = ht.Executor({"train": [loss, train]})
    state = [(name, array) for name, kind, array, _ in job.job.state() if kind == ""]
    drawn = bert_cases.weights({name: array.shape for name, array in state})
    for name, array in state:
        array[...] = drawn[name]
    losses, gradients = [], {}
    for step in job.run("train", steps=bert_cases.STEPS):
        if not losses:
            gradients = {name: bert_cases.digest(name, array) for name, _, array, _ in job.job.gradients()}
        losses.append(step.loss)
    return {"loss": losses[0], "gradients": gradients, "losses": losses}
