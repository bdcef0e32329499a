"""The optimizers of a Pipeline by name, with the properties that all workers together define: parameter groups by name, and
options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch

from hetu.counted import counted
from hetu.torch.plain_values import Encoder, dumps
from hetu.torch.state import PipelineState

Optimizers: TypeAlias = torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | Mapping[str, torch.optim.Optimizer] | None
Described = dict[str, dict[str, Any]]  # by optimizer: {"class": text, "groups": [{"params": names, "options": encoded}]}


def by_name(optimizers: Optimizers) -> dict[str, torch.optim.Optimizer]:
    """Returns the optimizers by their names in a checkpoint: "" for a single one, the index in a list, or the key of a
    dict. Throws ValueError for anything else."""
    if optimizers is None:
        return {}
    if isinstance(optimizers, Mapping):
        named: dict[str, Any] = dict(optimizers)
    elif isinstance(optimizers, (list, tuple)):
        named = {str(n): one for n, one in enumerate(optimizers)}
    else:
        named = {"": optimizers}
    for name, one in named.items():
        if not isinstance(name, str) or (not name and isinstance(optimizers, Mapping)) or "/" in name:
            raise ValueError(f"optimizer name {name!r}: expected text without '/'")
        if not all(hasattr(one, part) for part in ("param_groups", "state_dict", "load_state_dict")):
            raise ValueError(f"{label(name)}: expected a torch.optim.Optimizer, a list of them or a dict of them by name, "
                             f"got {type(one).__name__}")
    return named


def label(name: str) -> str:
    """Returns the optimizer's name for error messages."""
    return f"optimizer {name!r}" if name else "optimizer"


def prefix_of(name: str) -> str:
    """Returns the prefix of a state's name in a checkpoint: "muon/" gives "muon/momentum_buffer". A single optimizer has no
    prefix, which gives "exp_avg"."""
    return f"{name}/" if name else ""


def class_of(optimizer: Any) -> str:
    """Returns the name of the optimizer's class in a checkpoint."""
    return type(optimizer).__name__


def describe(pipe: PipelineState, optimizers: Mapping[str, torch.optim.Optimizer]) -> Described:
    """Returns the class, groups and options of this worker's optimizers. Throws ValueError for a parameter that doesn't
    belong to the worker's stages, because its state would be lost."""
    names = {id(tensor): known[0] for known, tensor in pipe.own_tensors(first_copies=False)}
    out: Described = {}
    for name, one in optimizers.items():
        groups = []
        for number, group in enumerate(one.param_groups):
            for parameter in group["params"]:
                if id(parameter) not in names:
                    raise ValueError(f"{label(name)}: a parameter of shape {list(parameter.shape)} in its group {number} is "
                                     f"not a parameter of this worker's stages, so a checkpoint can't name it; give the "
                                     f"optimizer parameters of pipe.parameters()")
            options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
            encoder = Encoder(f"group {number} of the {label(name)}", _refuse_large)
            groups.append({"params": [names[id(parameter)] for parameter in group["params"]],
                           "options": encoder.encode(options)})
        out[name] = {"class": class_of(one), "groups": groups}
    return out


def _refuse_large(path: str, tensor: torch.Tensor) -> None:
    raise ValueError(f"optimizer: the option '{path}' is a tensor of shape {list(tensor.shape)}; a checkpoint keeps numbers "
                     f"as options")


def merged(pipe: PipelineState, texts: Sequence[str]) -> Described:
    """Merges the descriptions from all workers into one. Throws ValueError if they don't fit together: a different class,
    different groups, or different options of one group."""
    order = pipe.held.pieces.order
    out: Described = {}
    first: dict[str, int] = {}
    for worker, text in enumerate(texts):
        for name, one in json.loads(text).items():
            if name not in out:
                out[name], first[name] = one, worker
                continue
            known, what = out[name], f"the {label(name)} of worker {worker}"
            if one["class"] != known["class"] or len(one["groups"]) != len(known["groups"]):
                raise ValueError(f"{what} is {one['class']} with {counted(len(one['groups']), 'group')}, that of worker "
                                 f"{first[name]} is {known['class']} with {len(known['groups'])}: make the same optimizer "
                                 f"on all workers")
            for number, (group, other) in enumerate(zip(known["groups"], one["groups"], strict=True)):
                if dumps(group["options"]) != dumps(other["options"]):
                    raise ValueError(f"{what} has different options in group {number} than that of worker {first[name]}: "
                                     f"make the same optimizer on all workers")
                group["params"] += other["params"]
    for one in out.values():
        for group in one["groups"]:
            group["params"] = sorted(set(group["params"]), key=lambda n: order.get(n, len(order)))
    return out
