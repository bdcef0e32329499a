"""Results of Hugging Face's BertForPreTraining on PyTorch for the cases of bert_cases.py."""

from __future__ import annotations

from typing import Any

import numpy
import torch
import transformers

import bert_cases

# Hugging Face's model has this parameter under two names. Hetu's has it under the first.
SAME = {"cls.predictions.decoder.bias": "cls.predictions.bias"}


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": numpy.__version__}


def model_of(case: dict[str, Any], attention: str = "eager") -> Any:
    """Returns the model with the case's weights."""
    config = transformers.BertConfig(**case, attn_implementation=attention)
    model = transformers.BertForPreTraining(config)
    named = dict(model.named_parameters())
    drawn = bert_cases.weights({SAME.get(n, n): tuple(p.shape) for n, p in named.items()})
    with torch.no_grad():
        for name, p in named.items():
            p.copy_(torch.from_numpy(drawn[SAME.get(name, name)]))
    return model.train()


def loss_of(model: Any, batch: dict[str, numpy.ndarray]) -> Any:
    tensors = {k: torch.from_numpy(v.astype(numpy.int64)) for k, v in batch.items()}
    labels = tensors["masked_lm_labels"]
    return model(
        input_ids=tensors["input_ids"], attention_mask=tensors["input_mask"], token_type_ids=tensors["segment_ids"],
        labels=torch.where(labels < 0, -100, labels), next_sentence_label=tensors["next_sentence_labels"],
    ).loss


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Returns the first loss, the gradients of the first step and the losses of 20 AdamW steps."""
    model = model_of(case)
    loss = loss_of(model, bert_cases.batch(case["vocab_size"]))
    loss.backward()
    gradients = {
        SAME.get(n, n): bert_cases.digest(SAME.get(n, n), p.grad.numpy())
        for n, p in model.named_parameters()
        if p.grad is not None  # without tied weights, a bias under the older name exists but is unused
    }
    decay = [p for n, p in model.named_parameters() if not (n.endswith("bias") or "LayerNorm" in n)]
    plain = [p for n, p in model.named_parameters() if n.endswith("bias") or "LayerNorm" in n]
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=bert_cases.RATE, eps=1e-7)
    losses = []
    for step in range(bert_cases.STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, bert_cases.batch(case["vocab_size"], step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": losses[0], "gradients": gradients, "losses": losses}
