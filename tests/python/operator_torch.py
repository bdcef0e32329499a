"""PyTorch on the cases of operator_cases.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

import operator_cases as cases


class Functions:
    """The functions of a case, by the names that both sides have."""

    concat, stack = staticmethod(torch.cat), staticmethod(torch.stack)
    silu, gelu, softplus = map(staticmethod, (functional.silu, functional.gelu, functional.softplus))
    leaky_relu = staticmethod(functional.leaky_relu)
    split = staticmethod(lambda x, sizes, axis: torch.split(x, sizes, axis))
    gelu_tanh = staticmethod(lambda x: functional.gelu(x, approximate="tanh"))

    def __getattr__(self, op: str) -> Any:
        return getattr(torch, op)

    def where(self, condition: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
        return torch.where(condition, a, b)

    def pad(self, x: torch.Tensor, widths: Sequence[tuple[int, int]], value: float) -> torch.Tensor:
        return functional.pad(x, [n for pair in reversed(widths) for n in pair], value=value)

    def mean(self, x: torch.Tensor, axes: Sequence[int], keep: bool) -> torch.Tensor:
        return torch.mean(x, axes, keepdim=keep)

    def var(self, x: torch.Tensor, axes: Sequence[int], keep: bool) -> torch.Tensor:
        return torch.var(x, axes, correction=0, keepdim=keep)

    def var1(self, x: torch.Tensor, axes: Sequence[int], keep: bool) -> torch.Tensor:
        return torch.var(x, axes, correction=1, keepdim=keep)

    def sum(self, x: torch.Tensor, axes: Sequence[int], keep: bool) -> torch.Tensor:
        return torch.sum(x, axes, keepdim=keep)

    mse, l1, bce = map(staticmethod, (functional.mse_loss, functional.l1_loss, functional.binary_cross_entropy_with_logits))
    huber = staticmethod(lambda x, target, delta: functional.huber_loss(x, target, delta=delta))

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, weight.shape, weight, eps=1e-6)

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, heads: int) -> torch.Tensor:
        split = [x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v)]
        mask = mask if mask.dim() == 2 else mask.unsqueeze(1)
        return functional.scaled_dot_product_attention(*split, attn_mask=mask).transpose(1, 2).flatten(2)

    def top_k(self, x: torch.Tensor, k: int) -> torch.Tensor:
        values, places = torch.topk(x, k)
        return torch.cat([values, places.float()], -1)


def run(case: cases.Case) -> dict[str, Any]:
    """The value, and the slopes of the inputs that are float32; all in float32."""
    inputs = [torch.from_numpy(array.copy()) for array in case.inputs]
    for i, x in enumerate(inputs):
        x.requires_grad_(case.slopes and x.dtype == torch.float32 and i >= case.fed)
    y = case.function(Functions(), *inputs).float()
    slopes = []
    if case.slopes:
        y.backward(torch.from_numpy(cases.weights(tuple(y.shape))))
        slopes = [x.grad.numpy() for x in inputs if x.requires_grad]
    return {"value": y.detach().numpy(), "slopes": slopes}
