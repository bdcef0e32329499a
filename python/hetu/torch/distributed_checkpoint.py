"""Checkpoints of torch.distributed.checkpoint (DCP): `save_dcp`, `load_dcp`.

One folder serves any number of stages and pipelines, and programs that know only the unsplit model. Names are those that a
script without stages gets when it saves {"model": …, "optimizer": …} with the results of get_state_dict() of
torch.distributed.checkpoint.state_dict: `model.NAME`, `optimizer.state.NAME.KEY`, `optimizer.param_groups.N.KEY`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import pickle
import warnings
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from hetu.counted import counted
from hetu.torch.device import optimizer_value
from hetu.torch.loading import refuse_unfit

if TYPE_CHECKING:
    from hetu.torch.pipeline import Pipeline

STATE, GROUPS = ("optimizer", "state"), ("optimizer", "param_groups")


def _dcp() -> Any:
    """Imports DCP on first use, because the import takes a third as long as that of PyTorch."""
    return importlib.import_module("torch.distributed.checkpoint")


def save_dcp(pipe: Pipeline, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer | None = None) -> None:
    """Writes weights, the optimizer's states and options, and the number of steps. Collective: every worker calls it, and
    writes the tensors that it holds the first copy of.

    Several workers need torch's own process group, with the workers' numbers as ranks: call
    torch.distributed.init_process_group("gloo", …) before. Throws RuntimeError without it.
    """
    pipe.state.check_one("save_dcp")
    pipe.state.begin_states()
    _check_group(pipe)
    own: dict[str, Any] = {"steps": pipe.steps}
    if pipe.state.updates is not None:
        own["updates"] = pipe.state.updates
    for names, tensor in pipe.state.own_tensors(first_copies=True):
        own.setdefault("model", {}).update({name: tensor.detach() for name in names})
    if optimizer is not None:
        saved = pipe.state.states_saved_here()
        for tensor, state in optimizer.state.items():
            if id(tensor) in saved and state:
                own.setdefault("optimizer", {}).setdefault("state", {})[saved[id(tensor)]] = dict(state)
        own.setdefault("optimizer", {})["param_groups"] = _groups(pipe, optimizer)
    with _alone_if_so():
        _dcp().save(own, checkpoint_id=folder)


def _groups(pipe: Pipeline, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Returns the options of each parameter group, with the names of its parameters on all workers in the order of the
    model."""
    name_of = {id(tensor): names[0] for names, tensor in pipe.state.own_tensors(first_copies=True)}
    mine = [[name_of[id(p)] for p in group["params"] if id(p) in name_of] for group in optimizer.param_groups]
    told = [json.loads(text) for text in pipe.exchange(json.dumps(mine).encode())]
    for worker, groups in enumerate(told):
        if len(groups) != len(mine):
            raise ValueError(f"save_dcp: the optimizer of worker {worker} has "
                             f"{counted(len(groups), 'group')} of parameters, that of worker {pipe.transport.worker} "
                             f"has {len(mine)}; use the same groups on all workers")
    order = pipe.pieces.order
    return [{**{key: value for key, value in group.items() if key != "params"},
             "params": sorted((name for groups in told for name in groups[n]), key=order.__getitem__)}
            for n, group in enumerate(optimizer.param_groups)]


def load_dcp(pipe: Pipeline, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer | None = None, *,
             strict: bool = True) -> list[str]:
    """Loads a checkpoint of the whole model, saved under any cut. Collective: every worker calls it and reads its part.
    Returns descriptions of what was skipped.

    The optimizer's states return to the parameters that they were saved for.
    strict: parameters and optimizer must match the checkpoint. The checkpoint names no optimizer class, so the options are
    compared. With False, matching parts are loaded, and the rest is described in the result.
    Throws, on all workers and before anything is changed, OSError if the checkpoint can't be read, and ValueError if it
    doesn't fit. The format has no checksums of tensors.
    """
    pipe.state.check_one("load_dcp")
    pipe.state.begin_states()

    found = pipe.state.together(lambda: _Read(pipe, folder, optimizer))
    if strict:
        pipe.state.together(lambda: refuse_unfit(folder, found.skipped), ValueError)
    pipe.state.together(found.read)
    found.apply()
    return found.skipped


class _Read:
    """This worker's part of a checkpoint. `skipped` describes the differences between the checkpoint and the model or
    optimizer."""

    def __init__(self, pipe: Pipeline, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer | None) -> None:
        self.pipe, self.folder, self.optimizer = pipe, folder, optimizer
        self.skipped: list[str] = []
        self.reader = _dcp().FileSystemReader(folder)
        try:
            metadata = self.reader.read_metadata()
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise OSError(f"{folder}: not a complete checkpoint of torch.distributed.checkpoint: {error}") from None
        self.known = metadata.state_dict_metadata
        self.paths = {tuple(path): name for name, path in (metadata.planner_data or {}).items()}
        self.wanted: dict[str, Any] = {}
        self.weights: list[tuple[torch.Tensor, str]] = []
        self.states: dict[str, list[tuple[torch.Tensor, str]]] = {}
        self.options: dict[str, tuple[int, str]] = {}
        self._find_weights()
        if optimizer is not None:
            self._find_optimizer(optimizer)
        self.wanted.update({name: None for name in ("steps", "updates") if name in self.known})

    def _find_weights(self) -> None:
        saved = {name.removeprefix("model.") for name in self.known if name.startswith("model.")}
        missing, unexpected = self.pipe.state.compare_names(saved)
        if missing:
            self.skipped.append(f"the checkpoint has no 'model.{missing[0]}', which the model has")
        if unexpected:
            self.skipped.append(f"the checkpoint has 'model.{unexpected[0]}', which the model does not have")
        for names, tensor in self.pipe.state.own_tensors(first_copies=False):
            name = next((f"model.{name}" for name in names if name in saved), None)
            if name is None:
                continue
            size = getattr(self.known[name], "size", None)
            if size != tensor.shape:
                self.skipped.append(f"'{name}' is {list(size or ())} in the checkpoint and {list(tensor.shape)} here")
                continue
            self.weights.append((tensor, name))
            self.wanted[name] = torch.empty_like(tensor, device="cpu")

    def _find_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        options = {flat: (path[2], str(path[3])) for path, flat in self.paths.items()
                   if path[:2] == GROUPS and len(path) == 4}
        difference = _difference(optimizer, options.values())
        if difference:
            self.skipped.append(difference)
            return
        self.options = {flat: at for flat, at in options.items() if at[1] != "params"}
        self.wanted.update(dict.fromkeys(self.options))
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for known, tensor in self.pipe.state.own_tensors(first_copies=False):
            for path, flat in self.paths.items():
                is_state = path[:3] == (*STATE, known[0]) and len(path) == 4
                if is_state and id(tensor) in held and self.pipe.state.keeps_state(tensor):
                    self._want_state(flat, tensor, str(path[3]))

    def _want_state(self, flat: str, tensor: torch.Tensor, key: str) -> None:
        found = self.known[flat]
        is_tensor = hasattr(found, "properties")
        self.wanted[flat] = torch.empty(found.size, dtype=found.properties.dtype) if is_tensor else None
        self.states.setdefault(flat, []).append((tensor, key))

    def read(self) -> None:
        """Reads the parts that were found. Throws OSError if they are damaged."""
        try:
            _load_alone(self.wanted, self.reader)
        except Exception as error:  # torch.load raises many kinds of errors for a damaged file
            raise OSError(f"{self.folder}: cannot be read: {type(error).__name__}: "
                          f"{' '.join(str(error).split())[:300]}") from None
        for name in ("steps", "updates"):
            number = self.wanted.get(name, 0)
            if not isinstance(number, int) or number < 0:
                raise OSError(f"{self.folder}: its number of {name} is {number!r}; expected a whole number")

    def apply(self) -> None:
        """Copies the values that were read into the model and the optimizer."""
        with torch.no_grad():
            for tensor, name in self.weights:
                tensor.copy_(self.wanted[name])
        if self.optimizer is not None:
            self.pipe.state.adopt(self.optimizer)
            for flat, places in self.states.items():
                for tensor, key in places:
                    self.optimizer.state[tensor][key] = optimizer_value(self.optimizer, tensor, key, self.wanted[flat])
            for flat, (at, key) in self.options.items():
                self.optimizer.param_groups[at][key] = self.wanted[flat]
        if "steps" in self.wanted:
            self.pipe.state.steps, self.pipe.state.updates = self.wanted["steps"], self.wanted.get("updates")


# Options that learning-rate schedulers add to parameter groups.
_OF_SCHEDULERS = {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr"}


def _difference(optimizer: torch.optim.Optimizer, options: Collection[tuple[int, str]]) -> str:
    """Returns a description of how the optimizer differs from the saved one, or "".

    The format names no class, so the options are compared. An option may be new in another version of PyTorch; then only
    one side has it. Two optimizers of different classes lack options on both sides.
    """
    if not options:
        return "the checkpoint has no optimizer state"
    groups = {at for at, _ in options}
    if len(groups) != len(optimizer.param_groups):
        return (f"the checkpoint's optimizer has {counted(len(groups), 'group')} of parameters, "
                f"this one {len(optimizer.param_groups)}")
    for at, group in enumerate(optimizer.param_groups):
        saved = {key for number, key in options if number == at} - {"params"} - _OF_SCHEDULERS
        here = set(group) - {"params", "param_names"} - _OF_SCHEDULERS
        if saved - here and here - saved:
            return (f"the checkpoint's optimizer has the option '{min(saved - here)}', and {type(optimizer).__name__} has "
                    f"'{min(here - saved)}' instead: the optimizers are of different classes")
    return ""


def _load_alone(wanted: dict[str, Any], reader: Any) -> None:
    """Reads the parts that this worker needs, without the other workers."""
    dcp = _dcp()
    with _alone_if_so():
        if "no_dist" in inspect.signature(dcp.load).parameters:
            dcp.load(wanted, storage_reader=reader, no_dist=True)
        else:  # PyTorch 2.6, where only the older function reads without a group
            dcp.load_state_dict(wanted, storage_reader=reader, no_dist=True)


@contextlib.contextmanager
def _alone_if_so() -> Iterator[None]:
    """Suppresses DCP's warnings about working without a process group, which is intended here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        warnings.filterwarnings("ignore", "`load_state_dict` is deprecated", FutureWarning)
        yield


def _check_group(pipe: Pipeline) -> None:
    """Checks that torch's process group matches the workers: DCP writes the data of all ranks by one plan, which it makes
    over that group. Throws RuntimeError."""
    workers = pipe.transport.workers
    if workers == 1 and not distributed.is_initialized():
        return
    if not distributed.is_initialized() or distributed.get_world_size() != workers:
        raise RuntimeError(f"save_dcp: torch.distributed.checkpoint needs a torch process group of all {workers} workers. "
                           f"Call torch.distributed.init_process_group('gloo', rank=, world_size=) first, or use save().")
    if distributed.get_rank() != pipe.transport.worker:
        raise RuntimeError(f"save_dcp: rank {distributed.get_rank()} of torch's process group is worker "
                           f"{pipe.transport.worker}; the two numbers must be equal")
