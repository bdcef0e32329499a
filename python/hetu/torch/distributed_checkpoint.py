"""Checkpoints of torch.distributed.checkpoint (DCP): `save_dcp`, `load_dcp`. One folder for any number of stages and
pipelines, and for programs that know the unsplit model alone.

Names are those of a script without stages that saves {"model": …, "optimizer": …} of what get_state_dict() of
torch.distributed.checkpoint.state_dict gives: `model.NAME`, `optimizer.state.NAME.KEY`, `optimizer.param_groups.N.KEY`."""

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

from hetu.torch.device import optimizer_value

if TYPE_CHECKING:
    from hetu.torch.pipeline import Pipeline

STATE, GROUPS = ("optimizer", "state"), ("optimizer", "param_groups")


def _dcp() -> Any:
    """Imported where it is used: that takes as long as a third of PyTorch."""
    return importlib.import_module("torch.distributed.checkpoint")


def save_dcp(pipe: Pipeline, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer | None = None) -> None:
    """Writes weights, the optimizer's states and options and the number of steps; every worker calls it, and writes what it
    has the first copy of. Several workers need torch's own group, with their numbers as ranks:
    torch.distributed.init_process_group("gloo", …) before it. Throws RuntimeError without one."""
    pipe.check_one("save_dcp")
    pipe.begin_states()
    _check_group(pipe)
    own: dict[str, Any] = {"steps": pipe.steps}
    for names, tensor in pipe.own_tensors(first_copies=True):
        own.setdefault("model", {}).update({name: tensor.detach() for name in names})
    if optimizer is not None:
        saved = pipe.states_saved_here()
        for tensor, state in optimizer.state.items():
            if id(tensor) in saved and state:
                own.setdefault("optimizer", {}).setdefault("state", {})[saved[id(tensor)]] = dict(state)
        own.setdefault("optimizer", {})["param_groups"] = _groups(pipe, optimizer)
    with _alone_if_so():
        _dcp().save(own, checkpoint_id=folder)


def _groups(pipe: Pipeline, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The options of each group with the names of its parameters on all workers, in the order of the model."""
    name_of = {id(tensor): names[0] for names, tensor in pipe.own_tensors(first_copies=True)}
    mine = [[name_of[id(p)] for p in group["params"] if id(p) in name_of] for group in optimizer.param_groups]
    told = [json.loads(text) for text in pipe.exchange(json.dumps(mine).encode())]
    for worker, groups in enumerate(told):
        if len(groups) != len(mine):
            raise ValueError(f"save_dcp: the optimizer of worker {worker} has {len(groups)} group(s) of parameters, that of "
                             f"worker {pipe.transport.worker} {len(mine)}")
    order = pipe.pieces.order
    return [{**{key: value for key, value in group.items() if key != "params"},
             "params": sorted((name for groups in told for name in groups[n]), key=order.__getitem__)}
            for n, group in enumerate(optimizer.param_groups)]


def load_dcp(pipe: Pipeline, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer | None = None, *,
             strict: bool = True) -> list[str]:
    """Continues from one, of whatever cut or of the whole model; every worker calls it, and reads its part. What the
    optimizer keeps of a parameter comes back where it was saved.

    strict: parameters and optimizer must be those of the checkpoint, which names no class of an optimizer: its options are
    compared. With False what fits is loaded, and what doesn't is returned as text.
    Throws OSError on all workers, before anything is changed, if it can't be read or doesn't fit. The format has no
    checksums of tensors."""
    pipe.check_one("load_dcp")
    pipe.begin_states()

    def read() -> _Read:
        found = _Read(pipe, folder, optimizer)
        if strict and found.skipped:
            raise OSError(f"{folder}: {'; '.join(found.skipped)}. With strict=False what fits is loaded")
        found.read()
        return found

    found = pipe.together(read)
    found.apply()
    return found.skipped


class _Read:
    """This worker's part of a checkpoint. `skipped` says what it and the model or the optimizer don't have in common."""

    def __init__(self, pipe: Pipeline, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer | None) -> None:
        self.pipe, self.folder, self.optimizer = pipe, folder, optimizer
        self.skipped: list[str] = []
        self.reader = _dcp().FileSystemReader(folder)
        try:
            metadata = self.reader.read_metadata()
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise OSError(f"{folder}: no complete checkpoint of torch.distributed.checkpoint: {error}") from None
        self.known = metadata.state_dict_metadata
        self.paths = {tuple(path): name for name, path in (metadata.planner_data or {}).items()}
        self.wanted: dict[str, Any] = {}
        self.weights: list[tuple[torch.Tensor, str]] = []
        self.states: dict[str, list[tuple[torch.Tensor, str]]] = {}
        self.options: dict[str, tuple[int, str]] = {}
        self._find_weights()
        if optimizer is not None:
            self._find_optimizer(optimizer)
        if "steps" in self.known:
            self.wanted["steps"] = None

    def _find_weights(self) -> None:
        saved = {name.removeprefix("model.") for name in self.known if name.startswith("model.")}
        missing, unexpected = self.pipe.compare_names(saved)
        if missing:
            self.skipped.append(f"the checkpoint has no 'model.{missing[0]}', which the model has")
        if unexpected:
            self.skipped.append(f"the checkpoint has 'model.{unexpected[0]}', which the model does not have")
        for names, tensor in self.pipe.own_tensors(first_copies=False):
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
        for known, tensor in self.pipe.own_tensors(first_copies=False):
            for path, flat in self.paths.items():
                is_state = path[:3] == (*STATE, known[0]) and len(path) == 4
                if is_state and id(tensor) in held and self.pipe.keeps_state(tensor):
                    self._want_state(flat, tensor, str(path[3]))

    def _want_state(self, flat: str, tensor: torch.Tensor, key: str) -> None:
        found = self.known[flat]
        is_tensor = hasattr(found, "properties")
        self.wanted[flat] = torch.empty(found.size, dtype=found.properties.dtype) if is_tensor else None
        self.states.setdefault(flat, []).append((tensor, key))

    def read(self) -> None:
        """Reads what was found. Throws OSError where it is damaged."""
        try:
            _load_alone(self.wanted, self.reader)
        except Exception as error:  # of whatever kind torch.load meets in a damaged file
            raise OSError(f"{self.folder}: cannot be read: {type(error).__name__}: "
                          f"{' '.join(str(error).split())[:300]}") from None
        steps = self.wanted.get("steps", 0)
        if not isinstance(steps, int) or steps < 0:
            raise OSError(f"{self.folder}: its number of steps is {steps!r}; expected a whole number")

    def apply(self) -> None:
        """Changes the model and the optimizer."""
        with torch.no_grad():
            for tensor, name in self.weights:
                tensor.copy_(self.wanted[name])
        if self.optimizer is not None:
            self.pipe.adopt(self.optimizer)
            for flat, places in self.states.items():
                for tensor, key in places:
                    self.optimizer.state[tensor][key] = optimizer_value(self.optimizer, tensor, key, self.wanted[flat])
            for flat, (at, key) in self.options.items():
                self.optimizer.param_groups[at][key] = self.wanted[flat]
        self.pipe.steps = self.wanted.get("steps", self.pipe.steps)


# Options that learning rate schedulers add to groups.
_OF_SCHEDULERS = {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr"}


def _difference(optimizer: torch.optim.Optimizer, options: Collection[tuple[int, str]]) -> str:
    """Returns how the optimizer is not the saved one, or "". The format has no class: the options tell. An option may be
    new in another version of PyTorch, so that only one side has it; two optimizers of different kinds lack some on both
    sides."""
    if not options:
        return "the checkpoint has no state of an optimizer"
    groups = {at for at, _ in options}
    if len(groups) != len(optimizer.param_groups):
        return f"the checkpoint's optimizer has {len(groups)} group(s) of parameters, this one {len(optimizer.param_groups)}"
    for at, group in enumerate(optimizer.param_groups):
        saved = {key for number, key in options if number == at} - {"params"} - _OF_SCHEDULERS
        here = set(group) - {"params", "param_names"} - _OF_SCHEDULERS
        if saved - here and here - saved:
            return (f"the checkpoint's optimizer has the option '{min(saved - here)}', and {type(optimizer).__name__} has "
                    f"'{min(here - saved)}': it is of another class")
    return ""


def _load_alone(wanted: dict[str, Any], reader: Any) -> None:
    """Reads what this worker wants, without the other workers."""
    dcp = _dcp()
    with _alone_if_so():
        if "no_dist" in inspect.signature(dcp.load).parameters:
            dcp.load(wanted, storage_reader=reader, no_dist=True)
        else:  # PyTorch 2.6, where only the function before it reads alone
            dcp.load_state_dict(wanted, storage_reader=reader, no_dist=True)


@contextlib.contextmanager
def _alone_if_so() -> Iterator[None]:
    """Without DCP's word that it works without a group, which is meant so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        warnings.filterwarnings("ignore", "`load_state_dict` is deprecated", FutureWarning)
        yield


def _check_group(pipe: Pipeline) -> None:
    """DCP writes what all ranks have by one plan, which it makes over torch's group."""
    workers = pipe.transport.workers
    if workers == 1 and not distributed.is_initialized():
        return
    if not distributed.is_initialized() or distributed.get_world_size() != workers:
        raise RuntimeError(f"save_dcp: torch.distributed.checkpoint plans over torch's own group of the {workers} workers: "
                           f"call torch.distributed.init_process_group('gloo', rank=, world_size=) before it, or save()")
    if distributed.get_rank() != pipe.transport.worker:
        raise RuntimeError(f"save_dcp: rank {distributed.get_rank()} of torch's group is worker {pipe.transport.worker}")
