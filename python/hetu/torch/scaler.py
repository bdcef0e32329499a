"""The scale of losses in float16, the same on all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from hetu.torch.pipeline import Pipeline


def scale_of(scaler: Any, pipe: Pipeline) -> float:
    """Returns a scaler's factor of the loss, or 1 without a scaler. Throws ValueError for a scaler that doesn't communicate
    with the other workers."""
    if scaler is None:
        return 1.0
    if scaler.is_enabled() and getattr(scaler, "_pipe", None) is not pipe:
        raise ValueError("step: a torch.amp.GradScaler checks only the gradients of this worker's stages, so one worker "
                         "could update its weights while another skips. Pass a hetu.torch.GradScaler(pipe) made of this "
                         "Pipeline.")
    return float(scaler.scale(torch.ones((), device=pipe.device)))


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler for a Pipeline, with the same options. An infinite gradient on any worker makes all workers skip
    the update, and all continue with the same scale. Collective: every worker calls step() or unscale_() for each
    optimizer, and update()."""

    def __init__(self, pipe: Pipeline, **options: Any) -> None:
        super().__init__(pipe.device.type, **options)
        self._pipe = pipe

    def _unscale_grads_(self, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor, found_inf: torch.Tensor,
                        allow_fp16: bool) -> dict[torch.device, torch.Tensor]:
        """Combines the infinities found on all workers. PyTorch calls it to check gradients, both when it unscales them
        itself and when the optimizer does."""
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        (somewhere,) = self._pipe.sum([sum(float(one) for one in found.values())])
        everywhere = torch.full((), float(somewhere > 0))
        return {device: everywhere.to(device) for device in found} or {self._pipe.device: everywhere.to(self._pipe.device)}

    def found_inf(self, optimizer: torch.optim.Optimizer) -> bool:
        """Returns true if any worker has found an infinite gradient. Call it after unscale_()."""
        return any(bool(one) for one in self._found_inf_per_device(optimizer).values())
