"""Modes that the user sets on a model, and settings of PyTorch that a step depends on.

A module's `training` flag and a parameter's `requires_grad` may change between two steps. The shapes and gradients that
cross a boundary depend on them, so all workers need the same flags. The worker that computes a stage decides: it sends the
flags of its stages with each step, and all other workers adopt them. A second copy of a stage on one worker follows the
first copy, because the user's variables refer to the first copy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from hetu.torch.cuts import Stage
from hetu.torch.rows import user_hooks
from hetu.torch.ties import Tie

Flags = dict[str, list[str]]  # by model stage: "1" or "0" per parameter (requires_grad), then per module (training)
_HOOKS = ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
          "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks")


class _Flagged:
    """The modules and parameters of a stage in a fixed order. Shared parameters are repeated."""

    def __init__(self, stage: Stage) -> None:
        self.modules = list(stage.modules())
        self.slots = [(module, name) for module in self.modules for name, one in module._parameters.items()
                      if one is not None]

    def parameters(self) -> Iterator[nn.Parameter]:
        for module, name in self.slots:
            parameter = module._parameters[name]
            assert parameter is not None
            yield parameter

    def read(self) -> list[str]:
        """Returns the flags, one string for requires_grad and one for training."""
        return ["".join("01"[p.requires_grad] for p in self.parameters()), "".join("01"[m.training] for m in self.modules)]

    def set(self, flags: Sequence[str]) -> None:
        """Sets the flags that read() returned on another worker."""
        for parameter, flag in zip(self.parameters(), flags[0], strict=True):
            if parameter.requires_grad != (flag == "1"):
                parameter.requires_grad_(flag == "1")
        for module, flag in zip(self.modules, flags[1], strict=True):
            if module.training != (flag == "1"):  # avoids setting the attribute, which is slow
                module.training = flag == "1"


class Modes:
    """The flags of all stages, and the copies on this worker that follow the user's modules.

    own: the stages of this worker, by placement.
    stage_of: the model stage of each placement.
    """

    def __init__(self, stages: Sequence[Stage], own: Mapping[int, Stage], stage_of: Sequence[int],
                 ties: Sequence[Tie]) -> None:
        self.stages = [_Flagged(stage) for stage in stages]
        self.ties = [_TiedFlag(tie, self.stages) for tie in ties]
        self.held = sorted({stage_of[placement] for placement in own})
        self.copies = [Follower(stages[stage_of[placement]], stage) for placement, stage in own.items()
                       if stage is not stages[stage_of[placement]]]
        self.text = ""  # the flags of all stages in the current step

    def read(self) -> Flags:
        """Returns the flags of this worker's stages, for the other workers of the step."""
        return {str(number): self.stages[number].read() for number in self.held}

    def take(self, workers: Sequence[int], flags: Sequence[Flags]) -> None:
        """Adopts the flags that each worker has sent. Throws ValueError if two workers differ on a stage that both hold."""
        holder: dict[str, int] = {}
        for worker, sent in zip(workers, flags, strict=True):
            for stage, found in sent.items():
                first = holder.setdefault(stage, worker)
                known = flags[workers.index(first)][stage]
                if known != found:
                    raise ValueError(self._difference(int(stage), (first, known), (worker, found)))
        for stage, worker in holder.items():
            if int(stage) not in self.held:
                self.stages[int(stage)].set(flags[workers.index(worker)][stage])
        for tie in self.ties:
            tie.join()
        self.text = "|".join(":".join(of.read()) for of in self.stages)
        for copy in self.copies:
            copy.follow()

    def _difference(self, stage: int, one: tuple[int, Sequence[str]], two: tuple[int, Sequence[str]]) -> str:
        """Returns a text that names the first flag in which two workers differ."""
        of = self.stages[stage]
        for number, what in enumerate(("requires_grad", "training")):
            for at, (a, b) in enumerate(zip(one[1][number], two[1][number], strict=True)):
                if a != b:
                    module, name = of.slots[at] if number == 0 else (of.modules[at], "")
                    place = f"{type(module).__name__}{f' parameter {name}' if name else ''}"
                    return (f"model stage {stage} has {what}={a == '1'} of a {place} on worker {one[0]} and {b == '1'} on "
                            f"worker {two[0]}; both hold a copy of this stage: set it on all workers")
        raise AssertionError(f"flags of model stage {stage} are alike")

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Puts all modules into eval() inside the `with` block, and restores their modes afterwards."""
        modules = [m for of in [*self.stages, *(copy.mine for copy in self.copies)] for m in of.modules]
        with keeping_modes(modules):
            for module in modules:
                module.training = False
            yield


class _TiedFlag:
    """The requires_grad of a parameter that two stages share. If the two copies differ, the one that has changed since the
    last step counts."""

    def __init__(self, tie: Tie, stages: Sequence[_Flagged]) -> None:
        self.slots = [[slot for slot, parameter in zip(stages[stage].slots, stages[stage].parameters(), strict=True)
                       if parameter is copy] for stage, copy in zip(tie.stages, tie.copies, strict=True)]
        self.last = tie.copies[0].requires_grad

    def join(self) -> None:
        """Gives both copies the flag of the copy that has changed."""
        first, second = ([module._parameters[name] for module, name in slots] for slots in self.slots)
        assert first[0] is not None and second[0] is not None
        if first[0].requires_grad != second[0].requires_grad:
            self.last = not self.last
            for parameter in [*first, *second]:
                assert parameter is not None
                parameter.requires_grad_(self.last)
        self.last = first[0].requires_grad


class Follower:
    """A copy of a stage in the same process as the original stage."""

    def __init__(self, original: Stage, copy: Stage) -> None:
        self.original, self.mine = _Flagged(original), _Flagged(copy)
        mine = self.mine
        self.hooks: list[list[Any]] = [[] for _ in mine.slots]  # the user's hooks, by parameter
        self.handles: list[list[RemovableHandle]] = [[] for _ in mine.slots]
        for module, copied in zip(self.original.modules, mine.modules, strict=True):
            for name in _HOOKS:
                setattr(copied, name, getattr(module, name))

    def follow(self) -> None:
        """Adopts the user's changes of the original: flags, hooks, and attributes that are plain values."""
        self.mine.set(self.original.read())
        for module, copy in zip(self.original.modules, self.mine.modules, strict=True):
            for name, value in vars(module).items():
                if value is None or isinstance(value, (bool, int, float, str)):
                    vars(copy)[name] = value
        for at, (parameter, copied) in enumerate(zip(self.original.parameters(), self.mine.parameters(), strict=True)):
            hooks = user_hooks(parameter)
            if hooks != self.hooks[at] and parameter.requires_grad:
                for handle in self.handles[at]:
                    handle.remove()
                self.hooks[at], self.handles[at] = hooks, [copied.register_hook(hook) for hook in hooks]


@contextlib.contextmanager
def keeping_modes(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Restores the `training` flag of each module afterwards."""
    before = [module.training for module in modules]
    try:
        yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training


# ---- settings of PyTorch ----

def check_gradients_enabled() -> None:
    """Throws RuntimeError if a step could not compute gradients."""
    if torch.is_inference_mode_enabled():
        raise RuntimeError("step() is called inside torch.inference_mode(), where no gradients are computed; leave it, or "
                           "call evaluate()")
    if not torch.is_grad_enabled():
        raise RuntimeError("step() is called inside torch.no_grad(), where no gradients are computed; leave it, or call "
                           "evaluate()")


def autocast_devices() -> list[str]:
    """Returns the device types for which the script has turned torch.autocast on."""
    # PyTorch 2.6 throws if there is none
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    types = ["cpu"] if device is None else ["cpu", device.type]
    return [one for one in types if torch.is_autocast_enabled(one)]


@contextlib.contextmanager
def without_autocast(devices: Sequence[str]) -> Iterator[None]:
    """Turns autocast off inside the `with` block, for these device types."""
    with contextlib.ExitStack() as stack:
        for device in devices:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def settings() -> str:
    """Returns the settings of PyTorch that affect the results of a stage, as text. All workers of a step must have the same
    settings."""
    found = [f"autocast {one} {str(torch.get_autocast_dtype(one)).removeprefix('torch.')}"
             f"{'' if torch.is_autocast_cache_enabled() else ' uncached'}" for one in autocast_devices()]
    found.append(f"default dtype {str(torch.get_default_dtype()).removeprefix('torch.')}")
    if torch.are_deterministic_algorithms_enabled():
        found.append("deterministic algorithms")
    return ", ".join(found)
