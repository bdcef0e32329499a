"""The models of docs/examples in PyTorch, with the same names."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import example_cases
import nn_cases


class _Skip(nn.Module):
    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.skip = nn.Identity() if stride == 1 else nn.Conv2d(channels, out, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.skip(x))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, unseen = self.ln_1(x), torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = x + self.attn(y, y, y, attn_mask=unseen)[0]
        return x + self.mlp(self.ln_2(x))


class _Gpt(nn.Module):
    def __init__(self, words: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def _loss(name: str, batch: dict[str, np.ndarray]) -> tuple[nn.Module, Any]:
    """Returns the model and a function that computes its loss of the batch."""
    given = {n: torch.from_numpy(x.astype(np.float64 if x.dtype == np.float32 else np.int64)) for n, x in batch.items()}
    if name == "gpt":
        model: nn.Module = _Gpt(256, 32, 64, 4, 6)
        ids = given["ids"]
        return model, lambda: functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    if name == "cnn":
        end = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3))
        model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), _Skip(16, 16), _Skip(16, 32, 2), _Skip(32, 32), end)
        return model, lambda: functional.cross_entropy(model(given["image"]), given["label"])
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    return model, lambda: functional.cross_entropy(model(given["x"]), given["label"])


def run(name: str, batch: dict[str, np.ndarray]) -> dict[str, Any]:
    """Returns results in float64 on the same batch, like example_cases.run."""
    model, loss_of = _loss(name, batch)
    model.double()
    drawn = example_cases.weights({n: tuple(p.shape) for n, p in model.named_parameters()})
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(torch.from_numpy(drawn[n]))
    loss = loss_of()
    loss.backward()
    return {"loss": loss.item(), "slopes": nn_cases.digests({n: p.grad.numpy() for n, p in model.named_parameters()})}
