"""Generates text with a transformers model that a Pipeline trains, by the model's own generate()."""

from __future__ import annotations

import copy
import io
from typing import Any

import torch
from torch import nn


def generate(pipe: Any, *args: Any, **options: Any) -> torch.Tensor:
    """Returns the result of the unsplit model's generate(*args, **options), on every worker. Collective: every worker calls
    it.

    Worker 0 assembles the whole model on the CPU and generates there, with its random generators. So worker 0's memory must
    hold the model, and all weights are sent once per call. Use it for samples during training. To serve a model, save it
    and load it with transformers.

    Throws ValueError on all workers if the model has no generate(), or if generate() fails.
    """
    state = dict(pipe.state_dict())
    buffers = {pipe.pieces.names[id(buffer)]: buffer.detach().cpu() for stage in pipe.own.values()
               for buffer in stage.buffers()}  # includes those that a state_dict leaves out, such as rotary frequencies
    for text in pipe.exchange(_packed(buffers)):
        state = {**torch.load(io.BytesIO(text), weights_only=True), **state}
    answer: Any = ""
    if pipe.transport.worker == 0:
        try:
            answer = _generated(pipe.pieces.whole, state, args, options)
        except (ValueError, RuntimeError, IndexError, TypeError) as error:
            answer = f"generate: {type(error).__name__}: {' '.join(str(error).split())}"
    answer = torch.load(io.BytesIO(pipe.exchange(_packed(answer))[0]), weights_only=True)
    if isinstance(answer, str):
        raise ValueError(answer)
    return answer  # type: ignore[no-any-return]


def _generated(whole: Any, state: dict[str, torch.Tensor], args: Any, options: Any) -> torch.Tensor:
    if not hasattr(whole, "generate"):
        raise ValueError(f"{type(whole).__name__} has no generate() method; the decoders of transformers have one")
    tensors = [*whole.parameters(), *whole.buffers()]
    model = copy.deepcopy(whole, {id(tensor): tensor for tensor in tensors}).eval()  # the copy gets its tensors below
    for prefix, module in model.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[key] = nn.Parameter(state[_name(prefix, key)], requires_grad=False)
        for key, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[key] = state[_name(prefix, key)]
    with torch.no_grad():
        out = model.generate(*args, **options)
    return out if isinstance(out, torch.Tensor) else out.sequences  # type: ignore[no-any-return]


def _name(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix else key


def _packed(value: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()
