"""Varuna's wrapper of a module, over hetu.torch.Pipeline."""

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
from hetu.process import leave
from hetu.torch import Pipeline
from hetu.torch.batches import as_tensors
from hetu.torch.tracing import first_tensor, split_at_cut_points
from hetu.varuna import checkpoint
from hetu.varuna.asked import Asked
from hetu.varuna.placement import default_map, get_varuna_config
from hetu.varuna.saved import Saver
from hetu.varuna.scale import LossScale


class Varuna:
    """A module with CutPoints whose forward gives its loss, trained by Varuna's schedule with recompute, proved before the
    start.

    model: called with what get_batch_fn gives, by keywords; gives the loss, a mean over samples, alone or first of a tuple.
    stage_to_rank_map: stage = rank mod stages, as the launchers of Varuna write it; another placement is refused.
    get_batch_fn(size, device): a dict of tensors whose first dimension are the samples, and of values that never change.
    batch_size: of all replicas, a multiple of their number; each gives step() its share.
    chunk_size: samples of a micro-batch at most, as even as they come out.
    shared_weights: pairs of names of parameters that are one.
    loss_weight: how much a chunk counts, a function of its batch, such as hetu.torch.token_count(); None: as much as it has
    samples, because the loss is a mean over samples. A loss that is a sum takes loss_reduction="sum". Unlike with
    hetu.torch.Pipeline, a wrong weight isn't noticed, because the model gives no outputs to compare.
    step_values: 3 for (loss, overflow, norm), 2 for (loss, overflow).
    fp16: forwards compute in float16 by torch.autocast, gradients in float32, of a loss that is scaled; bf16: in bfloat16,
    whose losses need no scale.
    schedule: another of Hetu's methods with a flush; options are those of hetu.torch.Pipeline.
    device: where this rank computes, as for hetu.torch.Pipeline, or the number of a GPU; -1: where the model's parameters
    are. A number means the CPU on a machine without a GPU. local_rank and from_cache change nothing."""

    def __init__(self, model: nn.Module, stage_to_rank_map: str, get_batch_fn: Callable[[int, Any], Mapping[str, Any]],
                 batch_size: int, chunk_size: int, fp16: bool = False, local_rank: int = -1, device: Any = -1,
                 shared_weights: Sequence[tuple[str, str]] | None = None, from_cache: bool = True, *, step_values: int = 3,
                 bf16: bool = False, schedule: Any = "varuna", loss_weight: Callable[[Any], Any] | None = None,
                 **options: Any) -> None:
        if fp16 and bf16:
            raise ValueError("fp16 and bf16: one of them")
        self.dtype = torch.float16 if fp16 else torch.bfloat16 if bf16 else None
        where = _device_of(device)
        self.stages, self.replicas = get_varuna_config(stage_to_rank_map)
        _check_placement(stage_to_rank_map, self.stages, self.replicas)
        if batch_size < 1 or batch_size % self.replicas or chunk_size < 1:
            raise ValueError(f"batch_size {batch_size}, chunk_size {chunk_size}: the batch is of all {self.replicas} "
                             f"replicas, so a multiple of their number, and a chunk has a sample at least")
        if step_values not in (2, 3):
            raise ValueError(f"step_values {step_values}: 3 for (loss, overflow, norm), 2 for (loss, overflow)")
        self.rows, self.values = batch_size // self.replicas, step_values
        example = as_tensors(dict(get_batch_fn(1, "cpu")), "get_batch_fn")
        self.names = [name for name, value in example.items() if isinstance(value, torch.Tensor)]
        self.fixed = {name: value for name, value in example.items() if name not in self.names}
        pieces = split_at_cut_points(model, self.names, self.fixed)
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
        """The gradients of this replica's share of a batch, summed over replicas and tied parameters. Returns the mean loss
        of all replicas, whether a gradient anywhere is infinite or no number, and the norm of all gradients (the greatest
        one allowed, where it was clipped). The optimizer's step is the caller's, if not overflow. A handler of SIGUSR1 that
        the script has is called at the beginning of a step, on all ranks of the same one."""
        if not self.training:
            raise RuntimeError("step() after eval(): call train() first, or evaluate()")
        if self.dtype == torch.float16 and self.scale is None:
            raise RuntimeError("step() before set_optimizer(): float16 needs the scale of its losses")
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
        """The mean loss of all replicas in eval(), without gradients; cut into as many micro-batches as a step. batch_size:
        of all replicas, if it is not that of training."""
        if batch_size is not None and batch_size % self.replicas:
            raise ValueError(f"batch_size {batch_size} is no multiple of {self.replicas} replicas")
        rows = self.rows if batch_size is None else batch_size // self.replicas
        self.asked.before_step()
        with self._precision():
            tensors = self._tensors(inputs, rows)
            return self.pipe.evaluate(tensors, self._target(tensors))

    def _target(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor] | None:
        """Returns what loss_weight is given. The loss itself is part of the model."""
        return tensors if self.is_weighted else None

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast(self.pipe.device.type, self.dtype) if self.dtype else contextlib.nullcontext()

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """There is none: raises."""
        raise RuntimeError("a Varuna model has no forward, for a worker has only its stages: call step() or evaluate()")

    __call__ = forward

    def _tensors(self, inputs: Mapping[str, Any], rows: int) -> dict[str, torch.Tensor]:
        """What of a batch is cut; the rest is what it was when the model was cut."""
        inputs = as_tensors(dict(inputs), "the batch")
        if set(inputs) != {*self.names, *self.fixed}:
            raise ValueError(f"a batch of {sorted(inputs)}; get_batch_fn gave {sorted([*self.names, *self.fixed])}")
        for name, value in self.fixed.items():
            if isinstance(inputs[name], torch.Tensor) or inputs[name] != value:
                raise ValueError(f"'{name}' of the batch is {inputs[name]!r}, and was {value!r} when the model was cut; "
                                 f"what changes is a tensor")
        tensors = {name: inputs[name] for name in self.names}
        lengths = {len(t) for t in tensors.values() if t.dim() > 0} - {1}
        if lengths - {rows} or (rows > 1 and not lengths):
            raise ValueError(f"a batch of {sorted(lengths) or 1} samples; this replica's share is {rows}")
        return tensors

    # ---- what it holds ----

    def parameters(self) -> Iterator[nn.Parameter]:
        """Of this worker's stages, for an optimizer."""
        return self.pipe.parameters()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The same with their names in the whole model."""
        return self.pipe.named_parameters()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """That of the whole model; every worker calls it."""
        return self.pipe.state_dict()

    def set_optimizer(self, optimizer: torch.optim.Optimizer, loss_scale: Any = "dynamic", init_loss_scale: float = 2 ** 20,
                      min_loss_scale: float = 1.0) -> None:
        """The one whose state checkpoints hold. With fp16 losses are scaled: by `loss_scale`, or, "dynamic", by
        init_loss_scale first, half as much after an overflow, min_loss_scale at least, and twice as much after 2000 steps
        without one."""
        if loss_scale != "dynamic" and (self.dtype != torch.float16 or not float(loss_scale) > 0):
            raise ValueError(f"loss_scale={loss_scale!r}: \"dynamic\" or a number above 0, with fp16 alone: nothing else "
                             f"is scaled")
        own = {id(parameter) for parameter in self.parameters()}
        if any(id(p) not in own for group in optimizer.param_groups for p in group["params"]):
            raise ValueError("the optimizer has parameters that are none of this worker's stages: make it of parameters() "
                             "of the Varuna model")
        self.optimizer, self.saver = optimizer, Saver(self.pipe, optimizer)
        if self.dtype == torch.float16:
            fixed = None if loss_scale == "dynamic" else float(loss_scale)
            self.scale = LossScale(self.pipe, optimizer, fixed, init_loss_scale, min_loss_scale)

    def zero_grad(self) -> None:
        """Gradients are None."""
        for parameter in self.parameters():
            parameter.grad = None

    def train(self, mode: bool = True) -> Varuna:
        """Sets the mode of all modules, as nn.Module.train() does. step() may be called in training mode only."""
        self.training = mode
        for stage in self.pipe.stages:
            stage.train(mode)
        return self

    def eval(self) -> Varuna:
        """As train(False)."""
        return self.train(False)

    def to(self, device: Any) -> Varuna:
        """Returns itself. Throws ValueError for a device other than the one that was chosen at the start."""
        where = _device_of(device)
        if where is not None and where != self.pipe.device.index and torch.device(where) not in (
                self.pipe.device, torch.device(self.pipe.device.type)):
            raise ValueError(f"to({device!r}): this rank computes on {self.pipe.device}; choose the device with "
                             f"Varuna(..., device=)")
        return self

    def get_loss_scale(self) -> float | None:
        """What the next losses are multiplied with; None without fp16."""
        return self.scale.value if self.scale else None

    def get_status(self) -> dict[str, int]:
        """Where this worker stands."""
        return {"stage": self.pipe.row, "replica": self.pipe.pipeline, "stages": self.stages, "replicas": self.replicas,
                "micro_batches": self.pipe.micro_batches, "step": self.pipe.steps}

    # ---- checkpoints ----

    def checkpoint(self, global_store: str | os.PathLike[str], step: int | None = None,
                   tempdir: str | os.PathLike[str] | None = None, shard: bool = False,
                   on_demand: bool = False) -> Future[None] | None:
        """Writes GLOBAL_STORE/varuna_ckpt_STEP (hetu.varuna.checkpoint says what is in it); every worker calls it. `step`
        None: the steps done. Complete when it returns; with `tempdir`, a folder of this machine, it is written there, and
        a future is returned that is done once this worker's part is in the store. shard: replicas share the work.
        on_demand: the job ends next, so that nothing is left to the background."""
        folder = checkpoint.folder_of(global_store, self.pipe.steps if step is None else step)
        common = {"scale": self.scale.state_dict() if self.scale else {}}
        local = None if tempdir is None or on_demand else Path(tempdir)
        return self._saver("checkpoint").save(folder, shard, common, local)

    def load_checkpoint(self, global_store: str | os.PathLike[str], iteration: int, check_complete: bool = True) -> None:
        """Goes on from one, of any numbers of stages and replicas; every worker calls it. Throws OSError on all where it is
        not complete, or not what was written; without check_complete only where a part that is needed is missing."""
        saver = self._saver("load_checkpoint")
        folder = checkpoint.folder_of(global_store, iteration)
        common = self.pipe.together(lambda: saver.load(folder, check_complete))
        if self.scale and common["scale"]:
            self.scale.load_state_dict(common["scale"])

    def _saver(self, what: str) -> Saver:
        if self.saver is None:
            raise RuntimeError(f"{what} before set_optimizer(): the optimizer's state is part of it")
        return self.saver


def _device_of(device: Any) -> Any:
    """Returns what hetu.torch.Pipeline takes for a device. Scripts pass their local rank. Without a GPU they run on the CPU,
    and a line says so."""
    if device is None or device == -1:
        return None
    if isinstance(device, int) and not torch.accelerator.is_available():
        print(f"hetu.varuna: device {device}: there is no GPU here, tensors are on the CPU", file=sys.stderr)
        return "cpu"
    return device


def _check_placement(stage_to_rank_map: str, stages: int, replicas: int) -> None:
    workers = leave.transport(_hetu.env()["worker"]).workers
    if workers != stages * replicas:
        raise ValueError(f"stage_to_rank_map '{stage_to_rank_map}' is of {stages * replicas} ranks, and {workers} workers "
                         f"run")
    placed = default_map(stages, replicas)
    if stage_to_rank_map.strip().removesuffix(";") + ";" != placed:
        raise ValueError(f"stage_to_rank_map '{stage_to_rank_map}': rank r has stage r mod {stages}: say '{placed}'")
