"""PyTorch's results for the cases of operator_cases.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

import operator_cases as cases


class Functions:
    """The functions of a case, by the names that both sides use."""

    concat, stack = staticmethod(torch.cat), staticmethod(torch.stack)
    silu, gelu, softplus = map(staticmethod, (functional.silu, functional.gelu, functional.softplus))
    leaky_relu = staticmethod(functional.leaky_relu)
    split = staticmethod(lambda x, sizes, axis: torch.split(x, sizes, axis))
    linear = staticmethod(functional.linear)
    softmax = staticmethod(lambda x: torch.softmax(x, -1))
    layer_norm = staticmethod(lambda x, w, b: functional.layer_norm(x, w.shape, w, b))
    max_pool2d = staticmethod(lambda x, kernel, stride, padding: functional.max_pool2d(x, kernel, stride, padding))
    global_avg_pool = staticmethod(lambda x: x.mean((2, 3)))
    embedding = staticmethod(lambda table, ids: functional.embedding(ids.long(), table))
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

    mse, l1, conv2d = map(staticmethod, (functional.mse_loss, functional.l1_loss, functional.conv2d))
    conv_transpose2d, group_norm = staticmethod(functional.conv_transpose2d), staticmethod(functional.group_norm)
    huber = staticmethod(lambda x, target, delta: functional.huber_loss(x, target, delta=delta))

    def bce(self, x: torch.Tensor, target: torch.Tensor, weight: list[float] | None = None) -> torch.Tensor:
        of = None if weight is None else torch.tensor(weight)
        return functional.binary_cross_entropy_with_logits(x, target, pos_weight=of)

    def kl(self, log_p: torch.Tensor, target: torch.Tensor, logarithms: bool = False) -> torch.Tensor:
        return functional.kl_div(log_p, target, reduction="batchmean", log_target=logarithms)

    def cross_entropy(self, x: torch.Tensor, labels: torch.Tensor, smoothing: float,
                      weight: list[float] | None) -> torch.Tensor:
        of = None if weight is None else torch.tensor(weight)
        return functional.cross_entropy(x, labels.long(), of, ignore_index=-1, label_smoothing=smoothing)

    def avg_pool2d(self, x: torch.Tensor, kernel: int, stride: int, padding: int, count: int) -> torch.Tensor:
        return functional.avg_pool2d(x, kernel, stride, padding, count_include_pad=bool(count))

    def resize(self, x: torch.Tensor, height: int, width: int, linear: int, align: int) -> torch.Tensor:
        mode = {"mode": "bilinear", "align_corners": bool(align)} if linear else {"mode": "nearest"}
        return functional.interpolate(x, (height, width), **mode)

    def instance_norm(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.instance_norm(x, weight=weight, bias=bias)

    def lstm(self, x: torch.Tensor, w: torch.Tensor, u: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        state = more[2:] or [torch.zeros(len(x), u.shape[1])] * 2
        y, h, c = torch._VF.lstm(x, [s[None] for s in state], [w, u, *more[:2]], bool(more), 1, 0.0, True, False, True)
        return torch.cat([y, h[0][:, None], c[0][:, None]], 1)

    def gru(self, x: torch.Tensor, w: torch.Tensor, u: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        state = more[2] if more else torch.zeros(len(x), u.shape[1])
        y, h = torch._VF.gru(x, state[None], [w, u, *more[:2]], bool(more), 1, 0.0, True, False, True)
        return torch.cat([y, h[0][:, None]], 1)

    def gather(self, x: torch.Tensor, ids: torch.Tensor, axis: int) -> torch.Tensor:
        return x[ids] if axis == 0 else torch.stack([rows[of] for rows, of in zip(x, ids, strict=True)])

    def scatter_add(self, ids: torch.Tensor, x: torch.Tensor, axis: int, size: int) -> torch.Tensor:
        if axis == 0:
            return torch.zeros(size, *x.shape[2:]).index_add(0, ids.flatten(), x.flatten(0, 1))
        return torch.stack([torch.zeros(size, *x.shape[2:]).index_add(0, of, rows)
                            for rows, of in zip(x, ids, strict=True)])

    def one_hot(self, ids: torch.Tensor, classes: int) -> torch.Tensor:
        return functional.one_hot(ids.long(), classes)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, weight.shape, weight, eps=1e-6)

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, heads: int,
                  kv_heads: int = 0, causal: int = 0, window: int = 0) -> torch.Tensor:
        split = [x.unflatten(-1, (n, -1)).transpose(1, 2) for x, n in ((q, heads), (k, kv_heads or heads),
                                                                       (v, kv_heads or heads))]
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)
        ahead = torch.arange(k.shape[1]) - (torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1])
        seen = torch.ones_like(ahead, dtype=torch.bool)
        if causal:
            seen &= ahead <= 0
        if window:
            seen &= ahead.abs() < window
        if mask is None:
            mask = seen
        elif mask.dtype == torch.bool:
            mask = mask & seen
        else:
            mask = mask.masked_fill(~seen, -float("inf"))
        out = functional.scaled_dot_product_attention(*split, attn_mask=mask, enable_gqa=True)
        return out.transpose(1, 2).flatten(2)

    def rotary(self, x: torch.Tensor, positions: torch.Tensor | None, heads: int, base: float, rotated: int,
               interleaved: int) -> torch.Tensor:
        parts = x.unflatten(-1, (heads, -1))
        rotated = rotated or parts.shape[-1]
        turned, rest = parts[..., :rotated], parts[..., rotated:]
        at = torch.arange(x.shape[1])[None] if positions is None else positions
        angle = at[..., None, None] * base ** (-torch.arange(0, rotated, 2, dtype=torch.float64) / rotated)
        if interleaved:  # complex numbers, as in Llama's own code
            turned = torch.view_as_real(torch.view_as_complex(turned.double().unflatten(-1, (-1, 2)))
                                        * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
        else:  # as in Hugging Face's
            first, second = turned.double().chunk(2, -1)
            turned = (turned * torch.cat([angle, angle], -1).cos()
                      + torch.cat([-second, first], -1) * torch.cat([angle, angle], -1).sin())
        return torch.cat([turned.float(), rest], -1).flatten(2)

    def top_k(self, x: torch.Tensor, k: int) -> torch.Tensor:
        values, places = torch.topk(x, k)
        return torch.cat([values, places.float()], -1)


def run(case: cases.Case) -> dict[str, Any]:
    """Returns the value and the gradients of the float32 inputs, all in float32."""
    inputs = [torch.from_numpy(array.copy()) for array in case.inputs]
    for i, x in enumerate(inputs):
        x.requires_grad_(case.slopes and x.dtype == torch.float32 and i >= case.fed)
    slopes = []
    with torch.backends.mkldnn.flags(enabled=False):  # its convolutions round more than sums of products
        y = case.function(Functions(), *inputs).float()
        if case.slopes:
            y.backward(torch.from_numpy(cases.weights(tuple(y.shape))))
    if case.slopes:
        slopes = [x.grad.numpy() for x in inputs if x.requires_grad]
    return {"value": y.detach().numpy(), "slopes": slopes}
