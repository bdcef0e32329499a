"""Models without memory: each worker allocates only the parameters of its own stages."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hetu.torch import checkpoint
from hetu.torch.absent import AbsentParameter
from hetu.torch.cuts import Pieces, Stage
from hetu.torch.functions import seed_of
from hetu.torch.ties import Tie

BEFORE = -1  # the step number in the seeds of initial values: before the first step


@contextlib.contextmanager
def empty() -> Iterator[None]:
    """Creates modules without parameter memory inside the `with` block: parameters have shapes and dtypes only. Buffers are
    created as usual.

    A Pipeline fills the parameters of its own stages. It takes their values from a checkpoint if there is one. Otherwise it
    calls each module's reset_parameters(), or _init_weights() of a model of transformers. The seed depends on the module's
    position in the model, so the values are the same under every cut. They differ from those of a model that was created
    whole.
    """
    register = nn.Module.register_parameter

    def without_memory(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        register(module, name, parameter)
        if parameter is not None and not parameter.is_meta:
            like = torch.empty_like(parameter, device="meta")
            module._parameters[name] = nn.Parameter(like, requires_grad=parameter.requires_grad)

    nn.Module.register_parameter = without_memory  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def fill(pieces: Pieces, stages: list[Stage], own: Iterable[Stage], ties: list[Tie], seed: int) -> None:
    """Gives memory and values to parameters of `own` stages that have none. Throws ValueError, which names the parameter,
    if nothing defines its initial value. Throws OSError if the model's checkpoint lacks it."""
    drawn = torch.get_rng_state()
    try:
        for stage in own:
            _fill_stage(pieces, stages, stage, ties, seed)
    finally:
        torch.set_rng_state(drawn)


def _fill_stage(pieces: Pieces, stages: list[Stage], stage: Stage, ties: list[Tie], seed: int) -> None:
    missing = [p for p in stage.parameters() if p.is_meta]
    if not missing:
        return
    for parameter in missing:
        if isinstance(parameter, AbsentParameter):
            raise ValueError(f"an earlier Pipeline of this model has left '{parameter.absent_name}' to another worker, and "
                             f"this one needs it here. Make the model anew for each Pipeline")
    if pieces.weights is not None:
        values = _read(pieces, missing, ties)
    else:
        # The first stage's module defines the initial value of a tied parameter.
        values = {id(tie.copies[1]): _first_copy(pieces, stages, tie, seed) for tie in ties
                  if any(p is tie.copies[1] for p in missing)}
    for parameter in missing:
        torch.utils.swap_tensors(parameter, _with_memory(parameter))
    if pieces.weights is None:
        for number, piece in enumerate(stage.pieces):
            _reset(pieces, piece, stage.first_piece + number, {id(p) for p in missing} - set(values), seed)
    with torch.no_grad():
        for parameter in missing:
            if id(parameter) in values:
                parameter.copy_(values[id(parameter)])


def _with_memory(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(torch.empty_like(parameter, device="cpu"), requires_grad=parameter.requires_grad)


def _reset(pieces: Pieces, piece: nn.Module, number: int, wanted: set[int], seed: int) -> None:
    """Initializes the parameters in `wanted` of one piece: children before their parents, as constructors do."""
    told: set[int] = set()
    modules = list(piece.named_modules())
    for place in reversed(range(len(modules))):
        module = modules[place][1]
        here = {id(p) for p in module.parameters()} & wanted
        way = _way(pieces.whole, module)
        if here and way is not None:
            torch.default_generator.manual_seed(seed_of(seed, BEFORE, number, place))
            with torch.no_grad():
                way()
            told |= here
    for name, module in modules:
        for key, parameter in module._parameters.items():
            if parameter is not None and id(parameter) in wanted - told:
                raise ValueError(f"'{pieces.names[id(parameter)]}' of a model made in empty() has no value: "
                                 f"{type(module).__name__}{f' ({name})' if name else ''} has no reset_parameters(); define "
                                 f"it, or load '{key}' from a checkpoint")


def _way(whole: Any, module: nn.Module) -> Any:
    """Returns the function that initializes a module, or None."""
    if hasattr(whole, "_init_weights"):  # transformers: chooses by the module's class
        return lambda: whole._init_weights(module)
    return getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)


def _first_copy(pieces: Pieces, stages: list[Stage], tie: Tie, seed: int) -> torch.Tensor:
    """Returns the initial value of the first of two tied parameters, computed on this worker if its stage is elsewhere."""
    first = tie.copies[0]
    if not first.is_meta:
        return first
    stage = stages[tie.stages[0]]
    for number, piece in enumerate(stage.pieces):
        if not any(p is first for p in piece.parameters()):
            continue
        names = [name for name, p in piece.named_parameters() if p is first]
        alike = copy.deepcopy(piece)
        made = dict(alike.named_parameters())
        for parameter in made.values():
            torch.utils.swap_tensors(parameter, _with_memory(parameter))
        for known, parameter in zip(piece.parameters(), alike.parameters(), strict=True):
            pieces.names[id(parameter)] = pieces.names[id(known)]
        _reset(pieces, alike, stage.first_piece + number, {id(p) for p in made.values()}, seed)
        for parameter in made.values():
            del pieces.names[id(parameter)]
        return made[names[0]]
    raise AssertionError(f"'{tie.names[0]}' is on no stage")


def names_in_files(whole: nn.Module, name: str) -> tuple[str, str]:
    """Returns the names that a tensor of a transformers model may have in its files. Files of a model without a head lack
    the prefix."""
    return name, name.removeprefix(getattr(whole, "base_model_prefix", "") + ".")


def _read(pieces: Pieces, missing: Iterable[nn.Parameter], ties: Iterable[Tie]) -> dict[int, torch.Tensor]:
    """Returns the values of these parameters from the model's checkpoint. Reads nothing else of it."""
    assert pieces.weights is not None
    folder = Path(pieces.weights)
    weights = checkpoint.WeightFiles(folder)
    known = weights.names()
    also = {id(copy): tie.names for tie in ties for copy in tie.copies}
    found: dict[int, str] = {}
    for parameter in missing:
        names = [pieces.names[id(parameter)], *pieces.also.get(id(parameter), []), *also.get(id(parameter), ())]
        there = next((one for name in names for one in names_in_files(pieces.whole, name) if one in known), None)
        if there is None:
            raise OSError(f"{folder}: the checkpoint has no '{names[0]}'")
        found[id(parameter)] = there
    tensors = {name: weights.read(name) for name in sorted(set(found.values()), key=lambda n: weights.files[n])}
    for parameter in missing:
        if tensors[found[id(parameter)]].shape != parameter.shape:
            raise OSError(f"{folder}: '{found[id(parameter)]}' is {list(tensors[found[id(parameter)]].shape)}, and "
                          f"{list(parameter.shape)} in the model")
    return {key: tensors[name] for key, name in found.items()}
