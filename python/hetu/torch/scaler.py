"""The scale of losses in float16, one for all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from hetu.torch.pipeline import Pipeline


def scale_of(scaler: Any, pipe: Pipeline) -> float:
    """Returns what a scaler multiplies losses by; 1 without one. Throws ValueError for one that doesn't ask the other
    workers."""
    if scaler is None:
        return 1.0
    if scaler.is_enabled() and getattr(scaler, "_pipe", None) is not pipe:
        raise ValueError("step: a torch.amp.GradScaler sees the gradients of this worker's stages alone, so that one worker "
                         "would update and another one would not. Give a hetu.torch.GradScaler(pipe), made of this Pipeline")
    return float(scaler.scale(torch.ones((), device=pipe.device)))


class GradScaler(torch.amp.GradScaler):
    """As torch.amp.GradScaler, with its options: an infinite gradient on any worker is one on all, so that all skip that
    update, and all go on with the same scale. Every worker calls step() of each optimizer, or unscale_(), and update()."""

    def __init__(self, pipe: Pipeline, **options: Any) -> None:
        super().__init__(pipe.device.type, **options)
        self._pipe = pipe

    def _unscale_grads_(self, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor, found_inf: torch.Tensor,
                        allow_fp16: bool) -> dict[torch.device, torch.Tensor]:
        """What PyTorch calls to look for infinities, whether it divides gradients here or leaves that to the optimizer."""
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        (somewhere,) = self._pipe.sum([sum(float(one) for one in found.values())])
        everywhere = torch.full((), float(somewhere > 0))
        return {device: everywhere.to(device) for device in found} or {self._pipe.device: everywhere.to(self._pipe.device)}

    def found_inf(self, optimizer: torch.optim.Optimizer) -> bool:
        """After unscale_(): whether any worker has found one."""
        return any(bool(one) for one in self._found_inf_per_device(optimizer).values())
