"""Results of torch.nn for the cases of nn_cases.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import nn_cases as cases


def value(array: np.ndarray) -> torch.Tensor:
    """Returns the array as PyTorch requires it: indices in int64."""
    tensor = torch.from_numpy(np.array(array))
    return tensor.long() if tensor.dtype == torch.int32 else tensor.requires_grad_(tensor.dtype == torch.float32)


def run(name: str) -> dict[str, Any]:
    """Returns shapes of the state, the value, gradients of weights and inputs, and buffers after the call."""
    torch.manual_seed(0)
    case = cases.CASES[name]
    module = case.make(torch.nn)
    state = {n: tuple(t.shape) for n, t in module.state_dict().items()}
    drawn = cases.weights({n: tuple(p.shape) for n, p in [*module.named_parameters(), *module.named_buffers()]})
    with torch.no_grad():
        for n, p in [*module.named_parameters(), *module.named_buffers()]:
            p.copy_(torch.from_numpy(drawn[n]))
    inputs = [value(x) for x in case.inputs]
    y = case.call(module, *inputs)
    total = (y * torch.from_numpy(cases.factors(tuple(y.shape)))).sum()
    total.backward()
    slopes = {n: p.grad.numpy() for n, p in module.named_parameters() if case.slopes}
    slopes |= {f"input {i}": x.grad.numpy() for i, x in enumerate(inputs) if case.slopes and x.grad is not None}
    return {"state": {n: list(s) for n, s in state.items()}, "slopes": cases.digests(slopes),
            "total": total.item(), "value": cases.digests({"value": y.detach().numpy()})["value"],
            "buffers": cases.digests({n: b.numpy() for n, b in module.named_buffers()})}


def starts(name: str) -> dict[str, dict[str, float]]:
    """Returns statistics of the initial tensors of a layer."""
    torch.manual_seed(0)
    state = cases.STARTS[name](torch.nn).state_dict()
    return {n: cases.spread(t.numpy()) for n, t in state.items()}
