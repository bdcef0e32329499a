"""Pipelines that make their own updates and then average weights in groups: partial reduce and AD-PSGD.

The coordinator chooses the groups, in C++ (pipeline/groups). This module defines which tensors of a module are averaged,
and when.
"""

from __future__ import annotations

import json
import math
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from hetu import _hetu, options
from hetu.averaging import Averaging
from hetu.torch.cuts import Stage
from hetu.torch.device import HostCopy
from hetu.torch.ties import Tie

Named = tuple[str, torch.Tensor]


class Averages:
    """This worker's part of the averaging. It moves the worker's parameters into one contiguous memory, which is averaged
    as a whole."""

    def __init__(self, how: Averaging | str, transport: Any, pipelines: int) -> None:
        how = Averaging(how) if isinstance(how, str) else how
        if not isinstance(how, Averaging):
            raise ValueError(f"averaging={how!r}: expected a hetu.averaging.Averaging, or the name of its method")
        options.check("averaging", how.settings())
        if pipelines < 2:
            raise ValueError(f"averaging: {how.method} averages the weights of several pipelines, but there is only 1; use "
                             f"pipelines=2 or more, or remove averaging=")
        self.how, self.transport, self.pipelines = how, transport, pipelines
        self.link: Any = None  # to the coordinator
        self.weights = HostCopy(torch.zeros(0))  # the memory of this worker's parameters
        self.parts: list[tuple[str, torch.nn.Parameter, torch.Tensor]] = []
        self.running = self.stepped = False
        self.thread = 0

    def take(self, stages: Sequence[Stage], named: Sequence[tuple[str, torch.nn.Parameter]],
             placements: Sequence[dict[str, Any]], ties: Sequence[Tie]) -> None:
        """Takes over the parameters of this worker's stages.

        Throws ValueError if a parameter is not float32. Throws ValueError if several workers of a pipeline hold the same
        stage or parameter, because each of them would average with a different group.
        """
        worker_of: dict[int, list[int]] = {}
        for placement in placements:
            held = worker_of.setdefault(placement["model_stage"], placement["workers"])
            if held != placement["workers"]:
                raise ValueError(f"averaging: model stage {placement['model_stage']} is on workers {held[0]} and "
                                 f"{placement['workers'][0]} of a pipeline, which would average with different groups: "
                                 f"choose a schedule with one copy of each stage, such as 1f1b or zb-v")
        for tie in ties:
            first, second = (worker_of[stage][0] for stage in tie.stages)
            if first != second:
                raise ValueError(f"averaging: '{tie.names[0]}' and '{tie.names[1]}' are one parameter on workers {first} "
                                 f"and {second} of a pipeline, which would average with different groups: untie them, or "
                                 f"choose a schedule that has both stages on one worker, such as zb-v")
        for name, parameter in named:
            if parameter.dtype != torch.float32:
                raise ValueError(f"averaging: '{name}' is {str(parameter.dtype).removeprefix('torch.')}; only float32 "
                                 f"parameters can be averaged")
        device = named[0][1].device if named else torch.device("cpu")
        flat = torch.empty(sum(parameter.numel() for _, parameter in named), device=device)
        self.weights = HostCopy(flat)
        at = 0
        for name, parameter in named:
            view = flat[at:at + parameter.numel()].view(parameter.shape)
            view.copy_(parameter.detach())
            parameter.data = view
            self.parts.append((name, parameter, view))
            at += parameter.numel()
        self.stages = stages
        self.link = _hetu.ModuleAverage(self.how.settings(), self.transport, self.pipelines)

    # ---- a run ----

    def run(self, pipe: Any, updates: int, optimizer: torch.optim.Optimizer) -> Iterator[int]:
        """Implements Pipeline.run()."""
        if self.running:
            raise RuntimeError("run: the previous run has not ended: it is in progress, or its loop was left early, and the "
                               "other pipelines are still in it")
        if updates < 1:
            raise ValueError(f"run: updates must be at least 1, got {updates}")
        pipe.exchange(b"")
        first, done = pipe.steps, 0
        self._to_host()
        self.link.begin_run(first, updates, self.weights.host.numpy())
        self.running, self.thread, pipe.under_way = True, threading.get_ident(), "a run"
        # The averager works in the background while this worker computes. updated() hands over the weights after an update;
        # computed(), at the end of the next step's backward, brings in the finished mean (end_step).
        while not self.link.ends_after(done):
            self.stepped = False
            yield pipe.steps
            if not self.stepped:
                raise RuntimeError("run: an iteration ended without step(); each iteration must call step() once")
            self._check_memory()
            done += 1
            self._to_host()
            self.link.updated()
            self._to_device()
        self._become_one(pipe, optimizer)
        pipe.steps = first + math.floor(self.link.mean([float(done)])[0])
        self.running, pipe.under_way = False, ""

    def begin_step(self, scaler: Any) -> None:
        """Throws an error if a step isn't allowed at this point."""
        if scaler is not None:
            raise ValueError("averaging: step() takes no scaler, because pipelines would skip different updates; use "
                             "bfloat16, which needs no scaling")
        if not self.running or self.stepped:
            raise RuntimeError(f"step: with averaging ({self.how.method}), call step() once per iteration of `for step in "
                               f"pipe.run(updates, optimizer)`")
        if threading.get_ident() != self.thread:
            raise RuntimeError("step: all steps of a run must be taken by the thread that started the run")

    def end_step(self) -> None:
        """Ends a step once its gradients are complete: takes in the mean that was started after the previous update.
        Afterwards the optimizer may change the weights."""
        self.link.computed()
        self._to_device()
        self.stepped = True

    def _to_host(self) -> None:
        """Gives the averager the current weights."""
        self.weights.read()
        self.weights.wait()

    def _to_device(self) -> None:
        """Copies back the weights as the averager left them."""
        self.weights.write()
        self.weights.wait()

    def check_one(self, what: str) -> None:
        """Throws RuntimeError if the pipelines have different weights, as during a run."""
        if self.running:
            raise RuntimeError(f"{what}: during a run each pipeline has its own weights; call it after the run")

    def _check_memory(self) -> None:
        for name, parameter, view in self.parts:
            if parameter.data_ptr() != view.data_ptr():
                raise RuntimeError(f"averaging: the memory of '{name}' was replaced (.data, .to()); change its values in "
                                   f"place")

    # ---- its end ----

    def _become_one(self, pipe: Any, optimizer: torch.optim.Optimizer) -> None:
        """Replaces weights, optimizer states and buffers by their means over the pipelines.

        Integers become the mean, rounded down. Non-numeric values stay as they are, and so do buffers that are equal on all
        pipelines.
        """
        arrays: list[Named] = []
        numbers: list[tuple[str, torch.Tensor | None, float, Callable[[float], None]]] = []
        for name, parameter, _ in self.parts:
            state = optimizer.state.get(parameter, {})
            for key in sorted(state):
                _sort(f"{name}/{key}", state[key], arrays, numbers, _setter(state, key))
        buffers = [(f"buffer {n}", b) for n, b in enumerate(b for stage in self.stages for b in stage.buffers())]
        mine = {"states": [[name, list(t.shape)] for name, t in arrays] + [name for name, *_ in numbers],
                "buffers": [_digest(b) for _, b in buffers]}
        texts = [json.loads(text) for text in pipe.exchange(json.dumps(mine).encode())]
        copies = texts[pipe.row::len(texts) // self.pipelines]
        for pipeline, other in enumerate(copies):
            if other["states"] != copies[0]["states"]:
                raise ValueError(f"averaging: the optimizer of pipeline {pipeline} has different states than that of "
                                 f"pipeline 0: give all pipelines the same optimizer for the same parameters")
        for at, (name, buffer) in enumerate(buffers):
            if len({one["buffers"][at] for one in copies}) > 1:
                _sort(name, buffer, arrays, numbers, None)
        held = [tensor.contiguous().cpu() for _, tensor in arrays]  # the tensor itself if it is contiguous and on the CPU
        self.link.end_run([tensor.numpy() for tensor in held])
        self._to_device()
        for (_, tensor), made in zip(arrays, held, strict=True):
            if made is not tensor:
                tensor.copy_(made)
        values = [value for _, _, value, _ in numbers]
        means = self.link.mean([*values, *(float(value != math.floor(value)) for value in values)])
        for (_, _, _, put), mean, broken in zip(numbers, means[:len(values)], means[len(values):], strict=True):
            put(mean if broken else math.floor(mean))


def _setter(state: dict[str, Any], key: str) -> Callable[[float], None]:
    def put(value: float) -> None:
        state[key] = type(state[key])(value)
    return put


def _sort(name: str, value: Any, arrays: list[Named],
          numbers: list[tuple[str, torch.Tensor | None, float, Callable[[float], None]]],
          put: Callable[[float], None] | None) -> None:
    """Sorts a value into `arrays` (float32 tensors, which are averaged as a whole) or `numbers` (single numbers). Other
    values are ignored."""
    if isinstance(value, torch.Tensor):
        tensor = value.detach()
        if tensor.dtype == torch.float32 and tensor.dim() > 0:
            arrays.append((name, tensor))
        elif tensor.dtype != torch.bool and not tensor.is_complex():
            flat = tensor.view(-1)
            for at in range(flat.numel()):
                numbers.append((f"{name}[{at}]", tensor, float(flat[at]), _filler(flat, at)))
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and put is not None:
        numbers.append((name, None, float(value), put))


def _filler(flat: torch.Tensor, at: int) -> Callable[[float], None]:
    def put(value: float) -> None:
        flat[at] = value
    return put


def _digest(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
