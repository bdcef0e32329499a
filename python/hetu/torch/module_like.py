"""The methods that a Pipeline shares with nn.Module: modes, gradients, norms. Each worker handles its own stages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn

from hetu.torch.cuts import Pieces, Stage
from hetu.torch.holding import Holding
from hetu.torch.shards import Shards
from hetu.torch.ties import Tie

Self = TypeVar("Self", bound="ModuleLike")


_NORMS = ("clip_grad_norm_", "clip_grad_norm", "get_total_norm")  # functions of PyTorch, Accelerate and other libraries


def _refuse_norms(reader: FrameType) -> None:
    """Throws ValueError if the frame that reads the parameters of one worker computes their norm."""
    if reader.f_code.co_name in _NORMS:
        raise ValueError(f"{reader.f_code.co_name}(pipe.parameters()): a worker has gradients of its own stages only, or of "
                         f"its shard of them, so that each worker would clip by a norm of its own. Call "
                         f"pipe.clip_grad_norm_(max_norm) on all workers; pipe.grad_norm() returns the norm alone")


class ModuleLike:
    """The part of Pipeline whose names are those of torch.nn.Module."""

    own: dict[int, Stage]
    stages: list[Stage]
    held: Holding
    pieces: Pieces
    ties: list[Tie]
    schedule: Any
    pipeline: int
    averages: Any
    shards: Shards | None
    stage_device: Any
    sum: Callable[[Sequence[float]], list[float]]

    # ---- parameters, buffers, modules ----

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yields the parameters of this worker's stages, for an optimizer. Throws ValueError if clip_grad_norm_() of
        PyTorch or of another library reads them, because their norm isn't the norm of the model."""
        if len(self.schedule.rows) > 1 or self.shards:
            _refuse_norms(sys._getframe(1))
        for stage in self.own.values():
            yield from stage.parameters()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the parameters of this worker's stages with their names in the whole model."""
        for stage in self.own.values():
            yield from self.held.named(stage)

    def buffers(self) -> Iterator[torch.Tensor]:
        """Yields the buffers of this worker's stages."""
        for stage in self.own.values():
            yield from stage.buffers()

    def modules(self) -> Iterator[nn.Module]:
        """Yields the modules of this worker's stages."""
        for stage in self.own.values():
            for piece in stage.pieces:
                yield from piece.modules()

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Sets requires_grad of this worker's parameters. Collective: every worker calls it."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    # ---- modes ----

    @property
    def training(self) -> bool:
        """The mode that train() or eval() has set on the whole model."""
        return self.pieces.whole.training

    def train(self: Self, mode: bool = True) -> Self:
        """Sets the mode of all modules, like torch.nn.Module.train. Collective: every worker calls it. step() computes in
        the modes that are set; evaluate() always computes in eval() mode."""
        for module in [self.pieces.whole, *self.stages, *self.own.values()]:
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Sets all modules to evaluation mode, like torch.nn.Module.eval. Collective: every worker calls it."""
        return self.train(False)

    # ---- gradients ----

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients of this worker's parameters, or sets them to zero. step() replaces gradients, so a training
        loop needs no zero_grad()."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = torch.zeros_like(parameter.grad)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> torch.Tensor:
        """Clips the gradients of the whole model, like torch.nn.utils.clip_grad_norm_. Collective: every worker calls it.
        Returns the norm before clipping."""
        total = self.grad_norm(norm_type, error_if_nonfinite)
        self.clip_grads_with_norm_(max_norm, total)
        return total

    def clip_grads_with_norm_(self, max_norm: float, total: torch.Tensor) -> None:
        """Scales gradients like torch.nn.utils.clip_grads_with_norm_. `total` is the result of grad_norm()."""
        torch.nn.utils.clip_grads_with_norm_(list(self.parameters()), max_norm, total)

    def clip_grad_value_(self, clip_value: float) -> None:
        """Clips the gradient values of the whole model, like torch.nn.utils.clip_grad_value_. Collective: every worker
        calls it."""
        torch.nn.utils.clip_grad_value_(list(self.parameters()), clip_value)

    def grad_norm(self, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> torch.Tensor:
        """Returns the norm of all gradients of the whole model. Every parameter counts once, also a tied one. Collective:
        every worker calls it. Throws RuntimeError on all workers if the norm is not finite and error_if_nonfinite is set."""
        whole = self.pieces.whole.named_parameters(remove_duplicate=False)
        order = {name: n for n, (name, _) in enumerate(whole)}
        norms, there = [0.0] * len(order), [0.0] * len(order)
        narrow = 0.0  # gradients of another dtype than float64
        for name, parameter in self._counted():
            if parameter.grad is not None:
                norms[order[name]] = float(torch.linalg.vector_norm(parameter.grad, norm_type))
                there[order[name]] = 1.0
                narrow += parameter.grad.dtype != torch.float64
        *sums, narrow = self.sum([*norms, *there, narrow])
        own = [norm for norm, is_there in zip(sums[:len(order)], sums[len(order):], strict=True) if is_there]
        if not own:
            return torch.tensor(0.0, device=self.stage_device.device)
        dtype = torch.float32 if narrow else torch.float64
        total = torch.linalg.vector_norm(torch.tensor(own, dtype=dtype, device=self.stage_device.device), norm_type)
        if error_if_nonfinite and not torch.isfinite(total):
            raise RuntimeError(f"the norm of order {norm_type} of the gradients is {float(total)}, and error_if_nonfinite "
                               f"is set. Gradients are not clipped")
        return total

    def _counted(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the parameters whose gradients this worker contributes to a norm. Each parameter counts once: on the
        worker that holds its first copy, or that owns it."""
        seconds = {id(tie.copies[1]) for tie in self.ties}
        for placement, stage in self.own.items():
            is_first = (not self.pipeline or self.averages) and not self.schedule.placements[placement]["replica"]
            for name, parameter in self.held.named(stage):
                if self.shards and self.shards.keeps(parameter):
                    yield self.shards.name_of(parameter, name), parameter
                elif not self.shards and is_first and id(parameter) not in seconds:
                    yield name, parameter

    # ---- operations that are not possible ----

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a Pipeline can't be copied or pickled, since it has links to other workers. For averages of its "
                        "weights take hetu.torch.AveragedModel(pipe); state_dict() returns the weights, and save() keeps a "
                        "checkpoint")

    def __getattr__(self, name: str) -> NoReturn:
        hint = ""
        if hasattr(nn.Module, name):
            hint = (f": a Pipeline is not a torch.nn.Module. Call {name}() on the model before you make the Pipeline, or on "
                    f"the modules of this worker's stages, pipe.modules().")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)
