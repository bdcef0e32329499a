"""Results of transformers for the cases of model_cases.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers

import model_cases as cases
from bert_cases import digest

_IN_FILES = {"vit.layers.": "vit.encoder.layer.", "attention.q_proj": "attention.attention.query",
             "attention.k_proj": "attention.attention.key", "attention.v_proj": "attention.attention.value",
             "attention.o_proj": "attention.output.dense", "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "transformers": transformers.__version__}


def model_of(family: str, config: dict[str, Any]) -> Any:
    """Returns a model of this configuration with the initial weights of transformers."""
    made = transformers.AutoConfig.for_model(family, **config, attn_implementation="eager")
    kind = transformers.AutoModelForImageClassification if family == "vit" else transformers.AutoModelForCausalLM
    return kind.from_config(made)


def _named(model: Any) -> dict[str, torch.Tensor]:
    """Returns parameters by their names in files. For ViT, transformers 5 uses other names in memory."""
    out = {}
    for name, p in model.named_parameters():
        for now, there in _IN_FILES.items() if name.startswith("vit.") else ():
            name = name.replace(now, there)
        out[name] = p
    return out


def draw_into(model: Any) -> dict[str, np.ndarray]:
    """Sets the model's parameters to seeded values, and returns the values."""
    parameters = _named(model)
    drawn = cases.weights({n: tuple(p.shape) for n, p in parameters.items()})
    with torch.no_grad():
        for n, p in parameters.items():
            p.copy_(torch.from_numpy(drawn[n]))
    return drawn


def state(model: Any) -> dict[str, np.ndarray]:
    """Returns the model's parameters by their names in files."""
    return {n: p.detach().numpy() for n, p in _named(model).items()}


def run(name: str) -> dict[str, Any]:
    """Returns shapes of the parameters, logits, loss and gradients."""
    family, config = cases.CASES[name]
    model = model_of(family, config).eval()
    draw_into(model)
    given = {n: torch.from_numpy(x) for n, x in cases.inputs(family, config).items()}
    if family == "vit":
        logits = model(given["image"]).logits
        loss = torch.nn.functional.cross_entropy(logits, given["label"].long())
    else:
        ids = given["ids"].long()
        logits = model(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    named = _named(model)
    return {"shapes": {n: list(p.shape) for n, p in named.items()}, "loss": loss.item(),
            "logits": np.round(logits.detach().numpy().astype(np.float64), 7).ravel().tolist(),
            "slopes": {n: digest(n, p.grad.numpy()) for n, p in named.items()}}


def generate(family: str, config: dict[str, Any], prompt: np.ndarray, tokens: int) -> list[list[int]]:
    """Returns rows of greedily generated tokens, including the prompt. No token ends a row."""
    model = model_of(family, config).eval()
    draw_into(model)
    ids = torch.from_numpy(prompt).long()
    with torch.no_grad():
        for _ in range(tokens):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    return ids.tolist()


def save(name: str, folder: str, shard: str = "1GB") -> None:
    """Saves the case's model with its seeded weights by save_pretrained, in files of at most this size."""
    family, config = cases.CASES[name]
    model = model_of(family, config)
    draw_into(model)
    model.save_pretrained(folder, max_shard_size=shard)
