#!/usr/bin/env python3
"""Times a BERT-base training step, 8 rows x 128 tokens, float32: Hetu and Hugging Face's BERT on PyTorch.

Both run in one process with the same threads, one step of each in turn. Prints medians, spread and the ratio Hetu / PyTorch.
PyTorch's head computes all positions, as users run it, or the masked ones only.

usage: bert_step.py [--steps N] [--threads N] [--rows 8] [--length 128]"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

import hetu as ht
from turns import compare

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "references"))
from bert_cases import masked_alone  # noqa: E402

VOCABULARY = 30522
BASE: dict[str, Any] = {"vocab_size": VOCABULARY, "max_position_embeddings": 128, "hidden_act": "relu",
                        "tie_word_embeddings": False}
LARGE = {**BASE, "hidden_act": "gelu", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
         "intermediate_size": 4096}


def drawn_batch(rows: int, length: int) -> dict[str, numpy.ndarray]:
    """Returns a batch of full rows, 15 % masked."""
    random = numpy.random.default_rng(0)
    ids = random.integers(5, VOCABULARY, (rows, length), dtype=numpy.int32)
    masked = random.random((rows, length)) < 0.15
    return {
        "input_ids": ids, "input_mask": numpy.ones_like(ids), "segment_ids": numpy.zeros_like(ids),
        "masked_lm_labels": numpy.where(masked, ids, -1).astype(numpy.int32),
        "next_sentence_labels": random.integers(0, 2, rows, dtype=numpy.int32),
    }


def sizes(batch: dict[str, numpy.ndarray], model: dict[str, Any] = BASE) -> dict[str, Any]:
    return {**model, "max_position_embeddings": max(128, batch["input_ids"].shape[1])}


def hetu_job(batch: dict[str, numpy.ndarray], threads: int, dtype: str = "float32", fuse: str = "on",
             model: dict[str, Any] = BASE, **told: Any) -> ht.Executor:
    ht.new_graph()
    most = int((batch["masked_lm_labels"] >= 0).sum(1).max())
    data = ht.data.Batches([masked_alone(batch, most)], batch_size=len(batch["input_ids"]))
    loss = ht.models.Bert(ht.models.BertConfig(**sizes(batch, model))).pretraining_loss(data)
    train = ht.optim.AdamW(1e-5).minimize(loss)
    return ht.Executor({"train": [loss, train]}, threads=threads, micro_batches=1, dtype=dtype, fuse=fuse, **told)


def hetu_step(batch: dict[str, numpy.ndarray], threads: int, dtype: str = "float32", **told: Any) -> Callable[[], None]:
    job = hetu_job(batch, threads, dtype, **told)
    return lambda: job.job.train(job.loader)


def torch_step(batch: dict[str, numpy.ndarray], threads: int, masked_only: bool, narrow: bool = False,
               compiled: str | None = None, model_sizes: dict[str, Any] = BASE, device: str = "cpu") -> Callable[[], None]:
    """Returns a function that trains one step on PyTorch. With masked_only, the head gets the masked positions only, like
    Hetu's; otherwise all, like transformers' model. narrow: autocast to bfloat16. compiled: torch.compile in that mode. The
    batch is copied to `device`."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    config = transformers.BertConfig(**sizes(batch, model_sizes), attn_implementation="sdpa")
    model: Any = transformers.BertForPreTraining(config).train().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    tensors = {k: torch.from_numpy(v.astype(numpy.int64)).to(device) for k, v in batch.items()}
    labels = torch.where(tensors["masked_lm_labels"] < 0, -100, tensors["masked_lm_labels"])

    given = {"input_ids": tensors["input_ids"], "attention_mask": tensors["input_mask"],
             "token_type_ids": tensors["segment_ids"]}
    entropy = torch.nn.functional.cross_entropy
    masked = (labels >= 0).nonzero(as_tuple=True)
    found = labels[masked]

    def loss_of_masked() -> Any:
        rows, pooled = model.bert(**given)[:2]
        words = model.cls.predictions(rows[masked])
        order = model.cls.seq_relationship(pooled)
        return entropy(words, found) + entropy(order, tensors["next_sentence_labels"])

    def loss_of_all() -> Any:
        return model(**given, labels=labels, next_sentence_label=tensors["next_sentence_labels"]).loss

    loss_of = loss_of_masked if masked_only else loss_of_all
    if compiled:
        loss_of = torch.compile(loss_of, mode=compiled)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=narrow):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    args = parser.parse_args()
    batch = drawn_batch(args.rows, args.length)
    ours = hetu_step(batch, args.threads)
    title = f"BERT-base step, {args.rows} x {args.length}, float32, {args.threads} threads"
    for masked_only, of in ((False, "of all positions"), (True, "of the masked positions alone")):
        compare(f"{title}, PyTorch's logits {of}", ours,
                lambda alone=masked_only: torch_step(batch, args.threads, alone), args.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
