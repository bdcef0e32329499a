"""Pieces that a user has written by hand, for a model that keeps its names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from hetu.torch.cuts import PiecewiseModel


class ModelPieces(PiecewiseModel):
    """A model, and hand-written modules that compute the same result one after the other. Pass it to a Pipeline.

    The first piece receives the batch, and each further piece receives the output of the piece before. The loss receives
    the output of the last piece. Pieces hold modules or parameters of `model` itself, so state_dict() and checkpoints have
    the model's names.

    Throws ValueError if a piece is not a module, if a piece holds a tensor that isn't the model's, or if a tensor of the
    model is in no piece.
    """

    def __init__(self, model: nn.Module, pieces: Sequence[nn.Module]) -> None:
        super().__init__(model, pieces, "give more pieces")
        name = type(model).__name__
        known = {id(tensor) for _, tensor in _tensors(model)}
        held = set()
        for number, piece in enumerate(self.pieces):
            if not isinstance(piece, nn.Module):
                raise ValueError(f"piece {number} of {name} is not an nn.Module but {type(piece).__name__}")
            for key, tensor in _tensors(piece):
                if id(tensor) not in known:
                    raise ValueError(f"piece {number} ({type(piece).__name__}) of {name} has '{key}', which is not a tensor "
                                     f"of the model. Pieces hold the model's own modules, not copies")
                held.add(id(tensor))
        for key, tensor in _tensors(model):
            if id(tensor) not in held:
                raise ValueError(f"'{key}' of {name} is in no piece, so it would be neither trained nor saved. Let a piece "
                                 f"hold its module")


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)
