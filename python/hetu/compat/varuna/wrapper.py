"""Varuna's wrapper of a module, on top of hetu.torch.Pipeline."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hetu import _hetu
from hetu.compat.varuna import checkpoint, launched
from hetu.compat.varuna.asked import Asked
from hetu.compat.varuna.placement import default_map, get_varuna_config
from hetu.compat.varuna.saved import Saver
from hetu.compat.varuna.scale import LossScale
from hetu.process import leave
from hetu.torch import Pipeline
from hetu.torch.batches import as_tensors
from hetu.torch.tracing import first_tensor, split_at_cut_points


class Varuna:
    """A module with CutPoints whose forward returns its loss. It is trained by Varuna's schedule with recomputation, which
    is verified before the start.

    model: is called with the values of get_batch_fn as keywords. It returns the loss, a mean over samples, alone or as the
    first value of a tuple.
    stage_to_rank_map: must be stage = rank mod stages, as Varuna's launchers write it. Other placements raise ValueError.
    get_batch_fn(size, device): returns a dict of tensors whose first dimension is the samples, and of values that never
    change.
    batch_size: of all replicas, a multiple of their number. Each replica passes its share to step().
    chunk_size: most samples of a micro-batch. Sizes are as even as possible.
    shared_weights: pairs of names of parameters that become one.
    loss_weight: the weight of a chunk, a function of its batch, such as hetu.torch.token_count(). None: the number of
    samples, which is right for a loss that is a mean over samples. A loss that is a sum needs loss_reduction="sum". Unlike
    with hetu.torch.Pipeline, a wrong weight isn't detected, because the model returns no outputs to compare.
    step_values: 3 for (loss, overflow, norm), 2 for (loss, overflow).
    fp16: forwards compute in float16 by torch.autocast. Gradients are float32, of a scaled loss.
    bf16: forwards compute in bfloat16, whose losses need no scale.
    schedule: another of Hetu's methods with a flush. Options are those of hetu.torch.Pipeline.
    device: the device of this rank, as for hetu.torch.Pipeline, or the number of a GPU. -1: the device of the model's
    parameters. On a machine without a GPU, a number means the CPU.
    local_rank and from_cache have no effect.
    """

    def __init__(self, model: nn.Module, stage_to_rank_map: str, get_batch_fn: Callable[[int, Any], Mapping[str, Any]],
                 batch_size: int, chunk_size: int, fp16: bool = False, local_rank: int = -1, device: Any = -1,
                 shared_weights: Sequence[tuple[str, str]] | None = None, from_cache: bool = True, *, step_values: int = 3,
                 bf16: bool = False, schedule: Any = "varuna", loss_weight: Callable[[Any], Any] | None = None,
                 **options: Any) -> None:
        if fp16 and bf16:
            raise ValueError("fp16 and bf16 are both set; choose one")
        self.dtype = torch.float16 if fp16 else torch.bfloat16 if bf16 else None
        where = _device_of(device)
        self.stages, self.replicas = get_varuna_config(stage_to_rank_map)
        _check_placement(stage_to_rank_map, self.stages, self.replicas)
        if batch_size < 1 or batch_size % self.replicas or chunk_size < 1:
            raise ValueError(f"batch_size {batch_size}, chunk_size {chunk_size}: batch_size counts the samples of all "
                             f"{self.replicas} replicas and must be a multiple of their number; chunk_size must be at least "
                             f"1")
        if step_values not in (2, 3):
            raise ValueError(f"step_values {step_values}: expected 3 for (loss, overflow, norm), or 2 for (loss, overflow)")
        self.rows, self.values = batch_size // self.replicas, step_values
        example = as_tensors(dict(get_batch_fn(1, "cpu")), "get_batch_fn")
        self.names = [name for name, value in example.items() if isinstance(value, torch.Tensor)]
        self.fixed = {name: value for name, value in example.items() if name not in self.names}
        pieces = split_at_cut_points(model, self.names, self.fixed)
        options.setdefault("sums", launched.sums)
        self.pipe = Pipeline(pieces, lambda out, target: first_tensor(out), schedule, math.ceil(self.rows / chunk_size),
                             pipelines=self.replicas, tied=[(one, two) for one, two in shared_weights or ()],
                             loss_weight=loss_weight, device=where, **options)
        self.is_weighted = loss_weight is not None
        self.asked = Asked(self.pipe)
        self.asked.before_step()
        self.optimizer: torch.optim.Optimizer | None = None
        self.scale: LossScale | None = None
        self.saver: Saver | None = None
        self.training = True

    # ---- steps ----

    def step(self, inputs: Mapping[str, Any], clip_grad_max_norm: float | None = None) -> tuple[Any, ...]:
        """Computes the gradients of this replica's share of a batch, summed over replicas and tied parameters.

        Returns the mean loss of all replicas, the overflow flag (a gradient of any worker is infinite or NaN), and the norm
        of all gradients (at most clip_grad_max_norm if given). The caller calls the optimizer's step, unless there is an
        overflow. The script's handler of SIGUSR1 is called at the beginning of a step, of the same step on all ranks.
        """
        if not self.training:
            raise RuntimeError("step() after eval(): call train() first, or evaluate()")
        if self.dtype == torch.float16 and self.scale is None:
            raise RuntimeError("step() before set_optimizer(): float16 needs the loss scale that set_optimizer() makes")
        self.asked.before_step()
        with self._precision():
            tensors = self._tensors(inputs, self.rows)
            loss = self.pipe.step(tensors, self._target(tensors), self.scale.scaler if self.scale else None)
        overflow = self.scale is not None and self.scale.divide()
        total = self.pipe.grad_norm()
        norm = float(total)
        overflow = overflow or not math.isfinite(norm)
        if clip_grad_max_norm is not None and not overflow:
            self.pipe.clip_grads_with_norm_(clip_grad_max_norm, total)
            norm = min(norm, clip_grad_max_norm)
        self.asked.after_step()
        return (loss, overflow, norm) if self.values == 3 else (loss, overflow)

    def evaluate(self, inputs: Mapping[str, Any], batch_size: int | None = None) -> float:
        """Returns the mean loss of all replicas in eval(), without gradients. The number of micro-batches is that of a
        step.

        batch_size: of all replicas, if it differs from that of training.
        """
        if batch_size is not None and batch_size % self.replicas:
            raise ValueError(f"batch_size {batch_size} is not a multiple of {self.replicas} replicas")
        rows = self.rows if batch_size is None else batch_size // self.replicas
        self.asked.before_step()
        with self._precision():
            tensors = self._tensors(inputs, rows)
            return self.pipe.evaluate(tensors, self._target(tensors))

    def _target(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor] | None:
        """Returns the argument of loss_weight. The loss itself is part of the model."""
        return tensors if self.is_weighted else None

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast(self.pipe.device.type, self.dtype) if self.dtype else contextlib.nullcontext()

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Raises RuntimeError, because a worker has only its own stages."""
        raise RuntimeError("a Varuna model has no forward(), because a worker has only its own stages: call step() or "
                           "evaluate()")

    __call__ = forward

    def _tensors(self, inputs: Mapping[str, Any], rows: int) -> dict[str, torch.Tensor]:
        """Returns the tensors of a batch, which are cut. All other values must equal those from the time when the model was
        cut."""
        inputs = as_tensors(dict(inputs), "the batch")
        if set(inputs) != {*self.names, *self.fixed}:
            raise ValueError(f"the batch has {', '.join(sorted(inputs)) or 'no values'}, but get_batch_fn gave "
                             f"{', '.join(sorted([*self.names, *self.fixed]))}; pass a batch with the same names")
        for name, value in self.fixed.items():
            if isinstance(inputs[name], torch.Tensor) or inputs[name] != value:
                raise ValueError(f"'{name}' of the batch is {inputs[name]!r}, but was {value!r} when the model was cut; a "
                                 f"value that changes must be a tensor")
        tensors = {name: inputs[name] for name in self.names}
        lengths = {len(t) for t in tensors.values() if t.dim() > 0} - {1}
        if lengths - {rows} or (rows > 1 and not lengths):
            found = " and ".join(map(str, sorted(lengths))) or "1"
            raise ValueError(f"the tensors of the batch have {found} samples, but this "
                             f"replica's share of batch_size {rows * self.replicas} is {rows}; pass {rows} samples in every "
                             f"tensor")
        return tensors

    # ---- parameters, modes, status ----

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yields the parameters of this worker's stages, for an optimizer."""
        return self.pipe.parameters()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the parameters of this worker's stages with their names in the whole model."""
        return self.pipe.named_parameters()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the state_dict of the whole model. Collective: every worker calls it."""
        return self.pipe.state_dict()

    def set_optimizer(self, optimizer: torch.optim.Optimizer, loss_scale: Any = "dynamic", init_loss_scale: float = 2 ** 20,
                      min_loss_scale: float = 1.0) -> None:
        """Sets the optimizer whose state checkpoints contain. With fp16, losses are scaled.

        loss_scale: a fixed scale, or "dynamic". A dynamic scale starts at init_loss_scale. It is halved after an overflow,
        but not below min_loss_scale, and doubled after 2000 steps without an overflow.
        """
        if loss_scale != "dynamic" and (self.dtype != torch.float16 or not float(loss_scale) > 0):
            raise ValueError(f"loss_scale={loss_scale!r}: expected \"dynamic\", or with fp16 a number above 0; losses are "
                             f"scaled only with fp16")
        own = {id(parameter) for parameter in self.parameters()}
        if any(id(p) not in own for group in optimizer.param_groups for p in group["params"]):
            raise ValueError("the optimizer has parameters that don't belong to this worker's stages: make it of "
                             "parameters() of the Varuna model")
        self.optimizer, self.saver = optimizer, Saver(self.pipe, optimizer)
        if self.dtype == torch.float16:
            fixed = None if loss_scale == "dynamic" else float(loss_scale)
            self.scale = LossScale(self.pipe, optimizer, fixed, init_loss_scale, min_loss_scale)

    def zero_grad(self) -> None:
        """Sets all gradients to None."""
        for parameter in self.parameters():
            parameter.grad = None

    def train(self, mode: bool = True) -> Varuna:
        """Sets the mode of all modules, like nn.Module.train(). step() requires training mode."""
        self.training = mode
        for stage in self.pipe.stages:
            stage.train(mode)
        return self

    def eval(self) -> Varuna:
        """Sets all modules to evaluation mode, like train(False)."""
        return self.train(False)

    def to(self, device: Any) -> Varuna:
        """Returns the model. Throws ValueError for a device other than the one chosen at the start."""
        where = _device_of(device)
        if where is not None and where != self.pipe.device.index and torch.device(where) not in (
                self.pipe.device, torch.device(self.pipe.device.type)):
            raise ValueError(f"to({device!r}): this rank computes on {self.pipe.device}; choose the device with "
                             f"Varuna(..., device=)")
        return self

    def get_loss_scale(self) -> float | None:
        """Returns the factor of the next losses, or None without fp16."""
        return self.scale.value if self.scale else None

    def get_status(self) -> dict[str, int]:
        """Returns this worker's position, the sizes of the job and the number of steps."""
        return {"stage": self.pipe.row, "replica": self.pipe.pipeline, "stages": self.stages, "replicas": self.replicas,
                "micro_batches": self.pipe.micro_batches, "step": self.pipe.steps}

    # ---- checkpoints ----

    def checkpoint(self, global_store: str | os.PathLike[str], step: int | None = None,
                   tempdir: str | os.PathLike[str] | None = None, shard: bool = False,
                   on_demand: bool = False) -> Future[None] | None:
        """Writes GLOBAL_STORE/varuna_ckpt_STEP (hetu.varuna.checkpoint describes its contents). Collective: every worker
        calls it.

        step: None means the number of steps done.
        tempdir: a folder of this machine. The checkpoint is then written there first, and the result is a future that is
        done once this worker's part is in the store. Without it, the checkpoint is complete on return.
        shard: replicas share the work.
        on_demand: the job ends next, so nothing is left to the background.
        """
        folder = checkpoint.folder_of(global_store, self.pipe.steps if step is None else step)
        common = {"scale": self.scale.state_dict() if self.scale else {}}
        local = None if tempdir is None or on_demand else Path(tempdir)
        return self._saver("checkpoint").save(folder, shard, common, local)

    def load_checkpoint(self, global_store: str | os.PathLike[str], iteration: int, check_complete: bool = True) -> None:
        """Loads a checkpoint of any numbers of stages and replicas. Collective: every worker calls it.

        Throws OSError on all workers if it is incomplete, or differs from what was written. Without check_complete, throws
        it only if a needed part is missing.
        """
        saver = self._saver("load_checkpoint")
        folder = checkpoint.folder_of(global_store, iteration)
        common = self.pipe.state.together(lambda: saver.load(folder, check_complete))
        if self.scale and common["scale"]:
            self.scale.load_state_dict(common["scale"])

    def _saver(self, what: str) -> Saver:
        if self.saver is None:
            raise RuntimeError(f"{what} before set_optimizer(): the optimizer's state is part of it")
        return self.saver


def _device_of(device: Any) -> Any:
    """Returns the device for hetu.torch.Pipeline. Scripts pass their local rank. Without a GPU they run on the CPU, and a
    printed line says so."""
    if device is None or device == -1:
        return None
    if isinstance(device, int) and not torch.accelerator.is_available():
        print(f"hetu.varuna: device {device}: no GPU found; tensors are on the CPU", file=sys.stderr)
        return "cpu"
    return device


def _check_placement(stage_to_rank_map: str, stages: int, replicas: int) -> None:
    workers = leave.transport(_hetu.env()["worker"]).workers
    if workers != stages * replicas:
        raise ValueError(f"stage_to_rank_map '{stage_to_rank_map}' names {stages * replicas} ranks, but the job has "
                         f"{workers} workers")
    placed = default_map(stages, replicas)
    if stage_to_rank_map.strip().removesuffix(";") + ";" != placed:
        raise ValueError(f"stage_to_rank_map '{stage_to_rank_map}': rank r must have stage r mod {stages}; use '{placed}'")
