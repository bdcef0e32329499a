"""Checkpoints of torch.distributed.checkpoint (DCP): `save_dcp`, `load_dcp`. One folder for any number of stages and
pipelines, and for programs that know the unsplit model alone.

Names are those of a script without stages that saves {"model": …, "optimizer": …} of what get_state_dict() of
torch.distributed.checkpoint.state_dict gives: `model.NAME`, `optimizer.state.NAME.KEY`, `optimizer.param_groups.N.KEY`."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

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
    _check_group(pipe)
    own: dict[str, Any] = {"steps": pipe.steps}
    for names, tensor in pipe.own_tensors(first_copies=True):
        own.setdefault("model", {}).update({name: tensor.detach() for name in names})
        if optimizer is not None and optimizer.state.get(tensor):
            own.setdefault("optimizer", {}).setdefault("state", {})[names[0]] = dict(optimizer.state[tensor])
    if optimizer is not None:
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


def load_dcp(pipe: Pipeline, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer | None = None) -> None:
    """Goes on from one, of whatever cut or of the whole model; every worker calls it, and reads its part. What the optimizer
    keeps of a parameter comes back where it was saved. Throws OSError on all workers where one lacks something."""
    pipe.check_one("load_dcp")
    pipe.together(lambda: _load(pipe, folder, optimizer))


def _load(pipe: Pipeline, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer | None) -> None:
    reader = _dcp().FileSystemReader(folder)
    try:
        metadata = reader.read_metadata()
    except (OSError, EOFError) as error:
        raise OSError(f"{folder}: no complete checkpoint of torch.distributed.checkpoint: {error}") from None
    paths = {tuple(path): name for name, path in (metadata.planner_data or {}).items()}
    known = metadata.state_dict_metadata
    wanted: dict[str, Any] = {}
    states: dict[str, tuple[torch.Tensor, str]] = {}
    for names, tensor in pipe.own_tensors(first_copies=False):
        name = f"model.{names[0]}"
        if name not in known:
            raise OSError(f"{folder}: the checkpoint has no '{name}'")
        size = getattr(known[name], "size", None)
        if size != tensor.shape:
            raise OSError(f"{folder}: '{name}' is {list(size or ())} in the checkpoint and {list(tensor.shape)} here")
        wanted[name] = torch.empty_like(tensor)
        for path, flat in paths.items() if optimizer is not None else ():
            if path[:3] == (*STATE, names[0]) and len(path) == 4:
                states[flat] = (tensor, str(path[3]))
                found = known[flat]
                wanted[flat] = (torch.empty(found.size, dtype=found.properties.dtype)
                                if hasattr(found, "properties") else None)
    options = {flat: (path[2], path[3]) for path, flat in paths.items()
               if optimizer is not None and path[:2] == GROUPS and path[3:] != ("params",)}
    groups = {at for at, _ in options.values()}
    if optimizer is not None and groups and len(groups) != len(optimizer.param_groups):
        raise OSError(f"{folder}: the checkpoint's optimizer has {len(groups)} group(s) of parameters, this one "
                      f"{len(optimizer.param_groups)}")
    wanted.update(dict.fromkeys([*options, *(["steps"] if "steps" in known else [])]))
    with _alone_if_so():
        _dcp().load(wanted, storage_reader=reader, no_dist=True)
    with torch.no_grad():
        for names, tensor in pipe.own_tensors(first_copies=False):
            tensor.copy_(wanted[f"model.{names[0]}"])
    for flat, (tensor, key) in states.items():
        assert optimizer is not None
        optimizer.state[tensor][key] = wanted[flat]
    for flat, (at, key) in options.items():
        assert optimizer is not None
        optimizer.param_groups[at][key] = wanted[flat]
    pipe.steps = wanted.get("steps", pipe.steps)


@contextlib.contextmanager
def _alone_if_so() -> Iterator[None]:
    """Without DCP's word that it works without a group, which is meant so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
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
