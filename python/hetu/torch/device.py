"""The device that a worker's stages compute on: the CPU, or any accelerator that PyTorch supports.

This module uses only PyTorch's device-generic functions (torch.accelerator, torch.get_device_module, pinned memory), so a
new kind of accelerator needs no change. Hetu's links read and write host memory. So a message from an accelerator is copied
into pinned host memory before it is sent. A gradient is copied likewise before it is summed over the copies of a stage.
Several workers may share one accelerator. Direct messages between accelerators are not supported yet.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import torch
from torch import nn

from hetu.counted import counted
from hetu.torch.values import flatten, unflatten

Named = Iterable[tuple[str, torch.Tensor]]
CPU = torch.device("cpu")
_BACKWARD = re.compile(r"(\d+)[BW]\d+")  # actions that complete a micro-batch's gradients of parameters


def choose(device: Any, tensors: Named, local_rank: int) -> torch.device:
    """Returns the device that a worker computes on, with an index if it is an accelerator.

    device: a torch.device, its name, or the number of an accelerator. A name without an index, such as "cuda", means the
    accelerator whose number is the local rank. None means the device of the model's parameters.
    tensors: the model's parameters, with their names.
    local_rank: this worker's number among the workers of its host.
    Throws ValueError if there is no such device, or if the parameters are on several devices and `device` is None.
    """
    if device is None:
        return _device_of(tensors)
    here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if here:
        known = f"this machine has {counted(torch.accelerator.device_count(), 'device')} of type '{here.type}', and 'cpu'"
    else:
        known = "this machine has no accelerator that PyTorch knows: pass device='cpu'"
    if isinstance(device, int) and not isinstance(device, bool):
        if here is None:
            raise ValueError(f"device={device}: {known}")
        found = torch.device(here.type, device)
    else:
        try:
            found = torch.device(device)
        except (RuntimeError, TypeError):
            raise ValueError(f"device={device!r} is not a device of PyTorch; {known}") from None
    if found.type == "cpu":
        return CPU
    if here is None or found.type != here.type:
        raise ValueError(f"device={device!r}: {known}")
    count = torch.accelerator.device_count()
    index = local_rank % count if found.index is None else found.index
    if not 0 <= index < count:
        raise ValueError(f"device={device!r}: {known}; leave the number out to choose it by the local rank")
    return torch.device(found.type, index)


def local_rank(worker: int, hosts: Sequence[tuple[str, int]]) -> int:
    """Returns a worker's number among the workers of its host. `hosts` holds (name, number of workers), in the order of
    workers."""
    if "LOCAL_RANK" in os.environ:  # set by torchrun
        return int(os.environ["LOCAL_RANK"])
    for _, count in hosts:
        if worker < count:
            return worker
        worker -= count
    return worker


def _device_of(tensors: Named) -> torch.device:
    """Returns the single device of all tensors that have memory, or the CPU if there are none. Throws ValueError if they
    are on several devices."""
    first: tuple[str, torch.device] | None = None
    for name, tensor in tensors:
        if tensor.is_meta:
            continue
        if first is None:
            first = name, tensor.device
        elif tensor.device != first[1]:
            raise ValueError(f"the model's '{first[0]}' is on {first[1]} and '{name}' on {tensor.device}: move the model to "
                             f"one device, or choose one with device=")
    return first[1] if first else CPU


def optimizer_value(optimizer: torch.optim.Optimizer, parameter: torch.Tensor, key: str, value: Any) -> Any:
    """Returns a copy of an optimizer's value for a parameter, on the device where torch.optim keeps it: the parameter's
    device, except for the count of steps, which most optimizers keep on the CPU."""
    if not isinstance(value, torch.Tensor):
        return value
    counts_there = any(group.get("capturable") or group.get("fused") for group in optimizer.param_groups)
    device = CPU if key == "step" and not counts_there else parameter.device
    return value.to(device, copy=True)


class HostCopy:
    """Memory of a device, and pinned host memory with the same contents for Hetu's links. On the CPU both are the same
    tensor."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.host = memory if memory.device.type == "cpu" else torch.zeros(memory.shape, dtype=memory.dtype, pin_memory=True)

    def read(self) -> None:
        """Starts the copy to the host. wait() must follow before the host copy is used."""
        if self.host is not self.memory:
            self.host.copy_(self.memory, non_blocking=True)

    def write(self) -> None:
        """Starts the copy to the device. wait() must follow before the host copy is changed."""
        if self.host is not self.memory:
            self.memory.copy_(self.host, non_blocking=True)

    def wait(self) -> None:
        """Blocks until the copies are done."""
        wait_for(self.memory.device)


def wait_for(device: torch.device) -> None:
    """Blocks until a device has done the work that this thread has queued."""
    if device.type != "cpu":
        torch.accelerator.current_stream(device).synchronize()


class StageDevice:
    """Moves the inputs of a worker's stages to their device, and the worker's outgoing tensors to host memory. On the CPU
    every function returns its argument."""

    def __init__(self, device: torch.device, row: Sequence[str] = ()) -> None:
        """row: this worker's actions in a step, such as 0B1."""
        self.device = device
        self.is_host = device.type == "cpu"
        self.records = False  # true if the times of instructions are recorded
        self._sums: dict[int, list[HostCopy]] = {}  # by placement
        actions = [match for match in map(_BACKWARD.fullmatch, row) if match]
        self._expected = collections.Counter(int(match[1]) for match in actions)  # B and W actions per step, by placement
        self._backwards: collections.Counter[int] = collections.Counter()  # those of the current step that are done
        if not self.is_host:
            torch.accelerator.set_device_index(device)
            self._module: Any = torch.get_device_module(device)

    # ---- models and batches ----

    def move(self, module: nn.Module) -> None:
        """Moves parameters and buffers to the device. They stay the same objects, so names and ties still find them."""
        with torch.no_grad():
            for inner in module.modules():
                for tensor in [*inner._parameters.values(), *inner._buffers.values()]:
                    if tensor is not None and tensor.device != self.device and not tensor.is_meta:
                        tensor.data = tensor.data.to(self.device)

    @contextlib.contextmanager
    def borrowing(self, *modules: Any) -> Iterator[None]:
        """Moves modules to the device inside the `with` block, and their tensors back afterwards. Other objects are
        ignored."""
        held = [module for module in modules if isinstance(module, nn.Module)]
        before = [(tensor, tensor.device) for module in held for tensor in [*module.parameters(), *module.buffers()]]
        for module in held:
            self.move(module)
        try:
            yield
        finally:
            for tensor, device in before:
                if tensor.device != device:
                    tensor.data = tensor.data.to(device)

    def moved(self, value: Any) -> Any:
        """Returns a nesting with its tensors on the device."""
        leaves, tree = flatten(value)
        return unflatten([leaf.to(self.device) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], tree)

    def like(self, _tensor: torch.Tensor) -> torch.device:
        """Returns the device on which a stage uses a tensor. Tensors of other stages may be elsewhere at the moment."""
        return self.device

    def check(self, leaves: Iterable[Any], what: str) -> None:
        """Throws ValueError if a tensor of the batch is on an accelerator that the stages don't use."""
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.device not in (self.device, CPU):
                hint = ", or choose a device with Pipeline(..., device=)" if self.is_host else ""
                places = "the CPU" if self.is_host else f"the CPU or on {self.device}"
                raise ValueError(f"{what}: a tensor is on {leaf.device}, and this worker's stages are on {self.device}: "
                                 f"give it on {places}{hint}")

    def on_demand(self, batch: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """Returns the micro-batches with leaves that are moved to the device when they are read. A stage reads few of them.
        """
        return batch if self.is_host else [_OnDemand(leaves, self.device) for leaves in batch]

    # ---- a step ----

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Surrounds the instructions of a step. Afterwards the device's random generator has its former state, and the sums
        of gradients are back on the device."""
        if self.is_host:
            yield
            return
        torch.accelerator.set_device_index(self.device)  # a setting of the calling thread
        self._backwards.clear()
        with self.keeping_generator():
            yield
            if self._backwards:
                for copy in (copy for copies in self._sums.values() for copy in copies):
                    copy.write()
                self.synchronize()  # the next step's sums are written to the same host memory

    @contextlib.contextmanager
    def keeping_generator(self) -> Iterator[None]:
        """Restores the state of the device's random generator afterwards."""
        if self.is_host:
            yield
            return
        drawn = self._module.get_rng_state(self.device)
        try:
            yield
        finally:
            self._module.set_rng_state(drawn, self.device)

    def generator_state(self) -> torch.Tensor | None:
        """Returns the state of the device's random generator, or None on the CPU, where the caller handles the generator."""
        return None if self.is_host else self._module.get_rng_state(self.device)

    def seed(self, seed: int) -> None:
        """Seeds the device's random generator. Does nothing on the CPU, where the caller handles the generator."""
        if not self.is_host:
            self._module.manual_seed(seed)

    def synchronize(self) -> None:
        """Blocks until the device has done all work that this worker's stages have queued."""
        wait_for(self.device)

    # ---- through host memory ----

    def to_host(self, message: torch.Tensor) -> torch.Tensor:
        """Returns a dense tensor's memory as bytes on the host. The copy is complete on return."""
        if message.device.type == "cpu":
            return message
        flat = message.reshape(-1).view(torch.uint8)
        host = torch.empty(flat.shape, dtype=torch.uint8, pin_memory=True)
        host.copy_(flat, non_blocking=True)
        self.synchronize()
        return host

    def from_host(self, message: torch.Tensor) -> torch.Tensor:
        """Returns a message's bytes on the device. Later work on the current stream may read them."""
        if self.is_host:
            return message
        return message.pin_memory().to(self.device, non_blocking=True)

    def host_sums(self, placement: int, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the host memory in which a placement's gradients are summed with those of other workers."""
        if self.is_host:
            return list(arrays)
        self._sums[placement] = [HostCopy(memory) for memory in arrays]
        return [copy.host for copy in self._sums[placement]]

    def end(self, kind: str, placement: int) -> None:
        """Ends an instruction. After a placement's last B or W, its gradients are copied to the host, where the plan's
        reductions read them. If times are recorded, it waits for the device, so that the measured time is the device's."""
        if self.is_host:
            return
        if self.records:
            self.synchronize()
        if kind not in "BW":
            return
        self._backwards[placement] += 1
        if self._backwards[placement] == self._expected[placement] and self._sums.get(placement):
            for copy in self._sums[placement]:
                copy.read()
            self.synchronize()


class _OnDemand(Sequence[Any]):
    """The leaves of a micro-batch. Tensors are moved to a device when they are read, and stay there while this object
    exists."""

    def __init__(self, leaves: Sequence[Any], device: torch.device) -> None:
        self.leaves = list(leaves)
        self.device = device

    def __len__(self) -> int:
        return len(self.leaves)

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Any]: ...

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [self[n] for n in range(*at.indices(len(self)))]
        leaf = self.leaves[at]
        if isinstance(leaf, torch.Tensor):
            self.leaves[at] = leaf = leaf.to(self.device, non_blocking=leaf.is_pinned())
        return leaf


def agree(devices: Sequence[str]) -> str:
    """Returns a line that says where all workers compute and how their messages travel, or "" if all are on the CPU.

    devices: the workers' devices, in the order of workers. Throws ValueError if they are of several kinds.
    """
    kinds = [device.partition(":")[0] for device in devices]
    for worker, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ValueError(f"worker 0 computes on {devices[0]} and worker {worker} on {devices[worker]}: give all workers "
                             f"devices of one kind")
    if kinds[0] == "cpu":
        return ""
    places = ", ".join(f"worker {worker} on {device}" for worker, device in enumerate(devices))
    if len(devices) == 1:
        return f"hetu.torch: {places}"
    return f"hetu.torch: {places}; activations and sums of gradients go through pinned host memory"
