"""Buffers of a worker's stages, such as running statistics: their names, and one value for all copies of a stage.

With pipelines=2 or a bidirectional schedule, each copy of a stage changes its buffers by its own micro-batches. The first
copy, in the first pipeline, has the buffers of the model: state_dict() and checkpoints save these. All other copies take
them over before each step and evaluation, as torch's DistributedDataParallel does by default.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from hetu.counted import counted
from hetu.torch.cuts import Pieces, Stage


@dataclasses.dataclass
class _Slot:
    """A place that holds a buffer, and the tensor that was there when all copies were last equal."""

    module: nn.Module
    key: str
    name: str
    is_copied: bool  # another worker or placement holds a copy
    is_first: bool
    tensor: torch.Tensor
    state: tuple[int, int] = (-1, -1)

    def now(self) -> torch.Tensor | None:
        """Returns the tensor that is in this place. A module may have replaced the original one."""
        return self.module._buffers.get(self.key)

    def has_changed(self) -> bool:
        """Returns true if the buffer has changed since all copies were last equal."""
        tensor = self.now()
        return tensor is not None and (tensor is not self.tensor or _state_of(tensor) != self.state)

    def note(self) -> None:
        """Notes that all copies are equal."""
        tensor = self.now()
        if tensor is not None:
            self.tensor, self.state = tensor, _state_of(tensor)

    def take(self, value: torch.Tensor) -> None:
        """Stores the first copy's value."""
        tensor = self.now()
        if tensor is None or tensor.shape != value.shape or tensor.dtype != value.dtype:
            self.module._buffers[self.key] = value
        else:
            with torch.no_grad():
                tensor.copy_(value)


class Buffers:
    """The buffers of one worker's stages.

    copies: the number of copies of each model stage, over all pipelines that sum gradients.
    warns: true on the worker that warns, once, if copies of a buffer differ after a step.
    """

    def __init__(self, pieces: Pieces, own: Mapping[int, Stage], placements: Sequence[Mapping[str, Any]],
                 copies: Sequence[int], pipeline: int, warns: bool) -> None:
        self.pieces, self.warns = pieces, warns
        self.slots = [_Slot(module, key, pieces.names[id(tensor)], copies[placements[number]["model_stage"]] > 1,
                            pipeline == 0 and placements[number]["replica"] == 0, tensor)
                      for number, stage in own.items() for module in stage.modules()
                      for key, tensor in module._buffers.items() if tensor is not None]

    def rename(self) -> None:
        """Gives a tensor that a module put in place of a buffer the buffer's name."""
        for slot in self.slots:
            tensor = slot.now()
            if tensor is not None and self.pieces.names.get(id(tensor)) != slot.name:
                self.pieces.names[id(tensor)] = slot.name

    def changed(self) -> list[tuple[str, int]]:
        """Returns the names of the buffers that have several copies and that may have changed since all copies were equal.
        A checksum of the contents is added; it is 0 for a buffer that isn't floating-point."""
        return sorted({(slot.name, _state_of(tensor)[1]) for slot in self.slots
                       if slot.is_copied and slot.has_changed() and (tensor := slot.now()) is not None})

    def join(self, changed: Sequence[Sequence[tuple[str, int]]], exchange: Callable[[bytes], Sequence[bytes]]) -> None:
        """Gives all copies the buffers of the first copy. Collective: every worker of the step calls it.

        changed: each worker's changed().
        Throws ValueError if a copy has changed a buffer that the first copy has not.
        """
        if not any(changed):
            return
        if self.warns:
            self._warn_of_copies(changed)
        mine = {slot.name: slot.now() for slot in self.slots if slot.is_copied and slot.is_first and slot.has_changed()}
        out = io.BytesIO()
        torch.save({name: tensor.detach().cpu() for name, tensor in mine.items() if tensor is not None}, out)
        found: dict[str, torch.Tensor] = {}
        for text in exchange(out.getvalue()):
            found.update(torch.load(io.BytesIO(text), weights_only=True))
        for slot in self.slots:
            if not slot.is_copied:
                continue
            if slot.name in found and not slot.is_first:
                slot.take(found[slot.name])
            elif slot.name not in found and slot.has_changed():
                raise ValueError(f"buffer '{slot.name}' has changed on a copy of its stage, but not on the first copy, "
                                 f"which holds the model's buffers: choose a schedule that gives each copy micro-batches")
            slot.note()
        self.rename()

    def _warn_of_copies(self, changed: Sequence[Sequence[tuple[str, int]]]) -> None:
        """Warns if a step has given the copies of a buffer different contents."""
        contents: dict[str, set[int]] = {}
        for sent in changed:
            for name, checksum in sent:
                contents.setdefault(name, set()).add(checksum)
        apart = [name for name in contents if len(contents[name]) > 1]
        modules = sorted({name.rpartition(".")[0] for name in apart})
        if not modules:
            return
        self.warns = False
        kind = self._kind_of(modules[0])
        norm = "use GroupNorm or LayerNorm, " if issubclass(kind, nn.modules.batchnorm._NormBase) else ""
        more = f" and {counted(len(modules) - 1, 'more module')}" if len(modules) > 1 else ""
        name = next(name for name in apart if name.rpartition(".")[0] == modules[0])
        warnings.warn(f"'{modules[0]}' ({kind.__name__}){more}: each copy of a stage changes buffers such as '{name}' by "
                      f"its own micro-batches only. The first copy's are used and saved, as under DistributedDataParallel. "
                      f"If this matters, {norm}call eval() on the module, or train with one copy of each stage. See "
                      f"'Buffers' in docs/pytorch.md.", stacklevel=6)  # the script's line that calls step()

    def _kind_of(self, name: str) -> type[nn.Module]:
        """Returns the class of a module of the model. A Pipe of PyTorch has no such module in other workers' stages."""
        own = [slot.module for slot in self.slots if slot.name.rpartition(".")[0] == name]
        try:
            return type(own[0] if own else self.pieces.whole.get_submodule(name))
        except AttributeError:
            return nn.Module


def _state_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns numbers that change with the contents. The version counter misses changes that batch norm's kernels make in
    place, so floating-point tensors also get a checksum."""
    version = -1 if tensor.is_inference() else tensor._version
    if not tensor.is_floating_point() or not tensor.numel():
        return version, 0
    return version, zlib.crc32(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())


@contextlib.contextmanager
def with_buffers(module: torch.nn.Module, values: Sequence[torch.Tensor]) -> Iterator[None]:
    """Puts other tensors in place of a module's buffers. The original tensors keep their values, so autograd graphs that
    saved them stay valid."""
    own = dict(zip([id(buffer) for buffer in module.buffers()], values, strict=True))
    swapped = [(inner, name, buffer) for inner in module.modules() for name, buffer in inner._buffers.items()
               if buffer is not None]
    try:
        for inner, name, buffer in swapped:
            inner._buffers[name] = own[id(buffer)]
        yield
    finally:
        for inner, name, buffer in swapped:
            inner._buffers[name] = buffer
