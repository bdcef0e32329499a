"""Varuna's scale of losses in float16: fixed, or halved after an overflow and doubled after a period without one."""

from __future__ import annotations

from typing import Any

import torch

from hetu.torch import GradScaler, Pipeline

WINDOW = 2000  # steps without an overflow after which the scale doubles


class LossScale:
    """The loss scale, which is equal on all workers."""

    def __init__(self, pipe: Pipeline, optimizer: torch.optim.Optimizer, fixed: float | None, first: float,
                 least: float) -> None:
        if not 0 < least <= first:
            raise ValueError(f"init_loss_scale {first}, min_loss_scale {least}: both must be above 0, and min_loss_scale "
                             f"must not exceed init_loss_scale")
        self.optimizer, self.fixed, self.least = optimizer, fixed, least
        self.scaler = GradScaler(pipe, init_scale=first if fixed is None else fixed, growth_interval=WINDOW)

    @property
    def value(self) -> float:
        """The factor of the next losses."""
        return float(self.scaler.get_scale())

    def divide(self) -> bool:
        """Divides gradients by the scale, then updates the scale. Returns true if a gradient of any worker is infinite or
        NaN."""
        self.scaler.unscale_(self.optimizer)
        overflow = self.scaler.found_inf(self.optimizer)
        if self.fixed is not None:
            self.scaler.update(self.fixed)
        else:
            self.scaler.update()
            if self.value < self.least:
                self.scaler.update(self.least)
        return overflow

    def state_dict(self) -> dict[str, Any]:
        """Returns the scale and the steps since the last overflow."""
        return dict(self.scaler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the scale and the steps since the last overflow."""
        self.scaler.load_state_dict(state)
