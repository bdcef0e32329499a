"""Parameters that two stages share. Each stage has a copy, and the plan sums the gradients of both. A parameter object that
two modules share is detected automatically. Two parameters that are to become one are declared by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from hetu.torch.cuts import Pieces, Stage


class Tie:
    """One shared parameter: the lower and the higher stage that hold it, and the copy in each."""

    def __init__(self, names: tuple[str, str], stages: tuple[int, int], copies: tuple[nn.Parameter, nn.Parameter]) -> None:
        self.names = names
        self.stages = stages
        self.copies = copies


def join(pieces: Pieces, declared: Sequence[tuple[str, str]]) -> None:
    """Merges each declared pair into one parameter, before the model is cut. Throws ValueError if a name doesn't exist, or
    if two parameters have different shapes or values."""
    by_name = dict(pieces.whole.named_parameters(remove_duplicate=False))
    for one, two in declared:
        for name in (one, two):
            if name not in by_name:
                raise ValueError(f"tied: the model has no parameter '{name}'")
        first, second = by_name[one], by_name[two]
        if first is second:
            continue
        if first.shape != second.shape:
            raise ValueError(f"tied: '{one}' has the shape {list(first.shape)} and '{two}' {list(second.shape)}; only "
                             "parameters of equal shape can be tied")
        if not (first.is_meta or second.is_meta or torch.equal(first, second)):
            raise ValueError(f"tied: '{one}' and '{two}' begin with different values; copy one into the other first")
        # Traced pieces hold a parameter that forward names directly in modules of their own.
        for module in (m for part in (pieces.whole, *pieces.pieces) for m in part.modules()):
            for key, parameter in module._parameters.items():
                if parameter is second:
                    module._parameters[key] = first
        for name, parameter in by_name.items():
            if parameter is second:
                by_name[name] = first
                pieces.also.setdefault(id(first), []).append(name)
        pieces.names.pop(id(second), None)


def cut(pieces: Pieces, stages: Sequence[Stage]) -> list[Tie]:
    """Creates a copy of each shared parameter for the higher of its two stages. A parameter object that two modules share
    needs no declaration. Throws ValueError if more than two stages share a parameter."""
    holders: dict[int, list[int]] = {}
    parameters: dict[int, nn.Parameter] = {}
    for number, stage in enumerate(stages):
        for parameter in stage.parameters():
            holders.setdefault(id(parameter), []).append(number)
            parameters[id(parameter)] = parameter
    ties = []
    for key, found in holders.items():
        if len(found) < 2:
            continue
        names = [pieces.names[key], *pieces.also.get(key, [])]
        where = " and ".join(map(str, found))
        if len(found) > 2:
            raise ValueError(f"parameter '{names[0]}' is used on model stages {where}, and at most two stages can share "
                             f"one. Cut the model elsewhere")
        copy = nn.Parameter(parameters[key].detach().clone(), requires_grad=parameters[key].requires_grad)
        for module in stages[found[1]].modules():
            for name, held in module._parameters.items():
                if held is parameters[key]:
                    module._parameters[name] = copy
        pieces.names[id(copy)] = names[-1]
        ties.append(Tie((names[0], names[-1]), (found[0], found[1]), (parameters[key], copy)))
    _refuse_shared_modules(stages)
    return ties


def check_placements(ties: Sequence[Tie], placements: Sequence[Mapping[str, Any]]) -> None:
    """Throws ValueError if a stage with a shared parameter is on one worker more than once. The sum would not include the
    gradients of its further copies there."""
    seen: set[tuple[int, int]] = set()
    for placement in placements:
        stage, worker = placement["model_stage"], placement["workers"][0]
        tie = next((tie for tie in ties if stage in tie.stages), None)
        if tie and (stage, worker) in seen:
            raise ValueError(f"parameter '{tie.names[0]}' is used on model stages {tie.stages[0]} and {tie.stages[1]}, and "
                             f"stage {stage} is on worker {worker} of a pipeline more than once. Choose a schedule with one "
                             f"copy of a stage per worker, or an even number of workers.")
        seen.add((stage, worker))


def _refuse_shared_modules(stages: Sequence[Stage]) -> None:
    """Throws ValueError for a module object that is on two stages, because both copies of its parameters would need the
    same attribute."""
    seen: dict[int, int] = {}
    for number, stage in enumerate(stages):
        for module in stage.modules():
            if seen.setdefault(id(module), number) != number and _has_tensors(module):
                raise ValueError(f"one {type(module).__name__} is used on model stages {seen[id(module)]} and {number}: "
                                 f"give each stage "
                                 f"a module of its own, and tie their parameters")


def _has_tensors(module: Any) -> bool:
    return any(p is not None for p in [*module._parameters.values(), *module._buffers.values()])
