"""Cuts a module into pieces, the smallest parts of stages, and groups pieces into stages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from hetu.counted import counted
from hetu.torch.absent import absent, absent_buffer
from hetu.torch.containers import refuse_own_forward

MORE_IN_AT = "name more modules in at= of hetu.torch.split()"  # advice for a model with too few pieces


class CutPoint(nn.Module):
    """A place where a module may be cut. It returns its input. Use it once, on all values that pass from the part before to
    the part after."""

    def forward(self, value: Any) -> Any:
        """Returns `value`."""
        return value


class Stage(nn.Module):
    """A run of consecutive pieces. Each piece receives the output of the piece before."""

    def __init__(self, pieces: Sequence[nn.Module], first_piece: int) -> None:
        super().__init__()
        self.pieces = nn.ModuleList(pieces)
        self.first_piece = first_piece
        self.before: Callable[[int], None] = lambda piece: None  # called before each piece, with its number

    def forward(self, value: Any) -> Any:
        """Returns the output of the last piece."""
        for number, piece in enumerate(self.pieces):
            self.before(self.first_piece + number)
            value = piece(value)
        return value


class Pieces:
    """The pieces of a model, and the names of their tensors in the whole model."""

    def __init__(self, model: Any) -> None:
        self.whole, self.pieces = _pieces(model)
        self.weights = model.weights if isinstance(model, PiecewiseModel) else None
        self.advice = model.advice if isinstance(model, PiecewiseModel) else _advice_for(model)
        self.names: dict[int, str] = {}  # by identity of a parameter or buffer
        self.also: dict[int, list[str]] = {}  # further names of the same tensor, as in a state_dict
        for name, tensor in [*self.whole.named_parameters(remove_duplicate=False),
                             *self.whole.named_buffers(remove_duplicate=False)]:
            if id(tensor) in self.names:
                self.also.setdefault(id(tensor), []).append(name)
            else:
                self.names[id(tensor)] = name
        self.order = {name: n for n, name in enumerate(self.whole.state_dict(keep_vars=True))}

    def check_count(self, stages: int) -> None:
        """Throws ValueError if there are fewer pieces than model stages."""
        count = len(self.pieces)
        if count < stages:
            raise ValueError(f"the model has {counted(count, 'piece')} for {counted(stages, 'model stage')}: "
                             f"{counted(count - 1, 'cut')}, where {stages - 1} are needed. To get more, {self.advice}. "
                             f"Otherwise start fewer workers, or choose a schedule with fewer model stages per worker")

    def cut(self, stages: int, first_pieces: Sequence[int] | None) -> list[int]:
        """Returns the first piece of each stage: as given, or as even as possible such that every stage has parameters."""
        self.check_count(stages)
        count = len(self.pieces)
        if first_pieces is None:
            return even_cut([next(piece.parameters(), None) is not None for piece in self.pieces], stages,
                            [type(piece).__name__ for piece in self.pieces])
        first = list(first_pieces)
        if len(first) != stages or first[0] != 0 or any(a >= b for a, b in zip(first, [*first[1:], count], strict=True)):
            raise ValueError(f"first_pieces {first}: expected {stages} ascending numbers below {count}, one for each model "
                             f"stage, the first of them 0")
        return first

    def stages(self, first: Sequence[int]) -> list[Stage]:
        """Returns the stages that begin with these pieces."""
        ends = [*first[1:], len(self.pieces)]
        return [Stage(self.pieces[a:b], a) for a, b in zip(first, ends, strict=True)]


def _advice_for(model: Any) -> str:
    """Returns what to do to get more pieces of a sequence of modules."""
    has_cut_points = isinstance(model, nn.Module) and any(isinstance(child, CutPoint) for child in model.children())
    return "add CutPoints" if has_cut_points else "divide it into more modules"


def even_cut(has_parameters: Sequence[bool], stages: int, kinds: Sequence[str]) -> list[int]:
    """Returns the first piece of each stage.

    Stages differ by at most one piece, unless a stage would have no parameters. In that case the longest stage is as short
    as possible with parameters in each stage (dynamic programming over stages and pieces). Warns if there are fewer pieces
    with parameters than stages, because an optimizer rejects an empty list.
    """
    count = len(has_parameters)
    first = [s * count // stages for s in range(stages)]
    empty = [s for s, (a, b) in enumerate(zip(first, [*first[1:], count], strict=True)) if not any(has_parameters[a:b])]
    if not empty or not any(has_parameters):
        return first
    if sum(has_parameters) < stages:
        names = ", ".join(kinds[first[empty[0]]:[*first[1:], count][empty[0]]])
        warnings.warn(f"model stage {empty[0]} ({names}) has no parameters: {sum(has_parameters)} of {count} pieces have "
                      f"parameters, for {stages} model stages. torch.optim rejects the empty parameter list of its worker; "
                      f"use fewer workers, or fewer model stages per worker.",
                      stacklevel=4)
        return first
    # Dynamic programming. (stages, pieces) -> (the longest stage, the sum of squared lengths, the cut). The sum of squares
    # prefers even lengths among cuts with the same longest stage.
    best: dict[tuple[int, int], tuple[int, int, list[int]]] = {(0, 0): (0, 0, [])}
    for stage in range(1, stages + 1):
        for end in range(stage, count + 1):
            options = [(max(best[stage - 1, a][0], end - a), best[stage - 1, a][1] + (end - a) ** 2,
                        [*best[stage - 1, a][2], a])
                       for a in range(stage - 1, end) if (stage - 1, a) in best and any(has_parameters[a:end])]
            if options:
                best[stage, end] = min(options)
    return best[stages, count][2]


def _pieces(model: Any) -> tuple[nn.Module, list[nn.Module]]:
    if isinstance(model, (list, tuple)):
        for number, piece in enumerate(model):
            if not isinstance(piece, nn.Module):
                raise ValueError(f"piece {number} of the model is not an nn.Module but {type(piece).__name__}; wrap it in "
                                 f"one")
        model = nn.Sequential(*model)
    if isinstance(model, PiecewiseModel):
        return model.whole, list(model.pieces)
    if isinstance(model, (nn.Sequential, nn.ModuleList)):
        refuse_own_forward(model)
    else:
        raise ValueError(f"{type(model).__name__} is neither an nn.Sequential nor a list of modules. Give a list of modules "
                         f"that follow each other, or hetu.torch.split(model, at=[...], example=inputs).")
    if not any(isinstance(child, CutPoint) for child in model):
        pieces = list(model)
    else:
        pieces, run = [], []
        for child in [*model, CutPoint()]:
            if not isinstance(child, CutPoint):
                run.append(child)
                continue
            if not run:
                raise ValueError("a CutPoint stands at an end of the model or directly after another one; remove it")
            pieces.append(run[0] if len(run) == 1 else nn.Sequential(*run))
            run = []
    for piece in pieces:
        _refuse_inner(piece)
    return model, pieces


def _refuse_inner(piece: nn.Module) -> None:
    for name, inner in piece.named_modules():
        if isinstance(inner, CutPoint):
            raise ValueError(f"CutPoint '{name}' is inside a {type(piece).__name__}, where other values may bypass it; put "
                             f"CutPoints between the children of the outermost nn.Sequential")


class PiecewiseModel:
    """A model of any class, and the modules that compute the same result one after the other (hetu.torch.blocks)."""

    def __init__(self, whole: nn.Module, pieces: Sequence[nn.Module], advice: str, weights: Path | None = None) -> None:
        self.whole = whole
        self.pieces = list(pieces)
        self.advice = advice  # what to do to get more pieces, for errors
        self.weights = weights  # a folder with the initial values of parameters without memory


def model_with_loss(model: Any) -> Any:
    """Returns the model that defines its own loss."""
    if isinstance(model, PiecewiseModel):
        return model.whole
    raise ValueError(f"Pipeline without a loss: a {type(model).__name__} does not define one. Pass a function of the output "
                     f"and the target; only models of hetu.torch.blocks define their own loss.")


def forget(stages: Sequence[Stage], kept: Sequence[Stage], names: Mapping[int, str]) -> None:
    """Frees the memory of all stages except `kept`. The shapes and dtypes of their tensors remain. `names` has the tensors'
    names in the model, by identity."""
    own = {id(module) for stage in kept for module in stage.modules()}
    tensors = {id(tensor) for stage in kept for tensor in [*stage.parameters(), *stage.buffers()]}
    for stage in stages:
        if stage in kept:
            continue
        for module in stage.modules():
            if id(module) in own:
                continue
            for key, parameter in list(module._parameters.items()):
                if parameter is not None and id(parameter) not in tensors:
                    module._parameters[key] = absent(parameter, names.get(id(parameter), key))
            for key, buffer in list(module._buffers.items()):
                if buffer is not None:
                    module._buffers[key] = absent_buffer(buffer, names.get(id(buffer), key))
