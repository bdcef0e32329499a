"""The scale of losses in float16, the same on all workers."""

from __future__ import annotations

from typing import Any

import torch

from hetu.torch.pipeline import Pipeline


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
