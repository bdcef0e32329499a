"""Rejects parameters that a stage or a loss uses without owning them. No optimizer of a Pipeline holds them, so they would
never be trained, and their gradients would be those of a single worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn


def check_loss(loss: Any, model: nn.Module) -> None:
    """Throws ValueError for a loss module with parameters of its own that require gradients."""
    if not isinstance(loss, nn.Module):
        return
    own = {id(parameter) for parameter in model.parameters()}
    names = [name for name, p in loss.named_parameters() if p.requires_grad and id(p) not in own]
    if names:
        shown = ", ".join(names[:3] + ["…"] * (len(names) > 3))
        raise ValueError(f"the loss {type(loss).__name__} has parameters ({shown}), which belong to no stage and would not "
                         f"be trained. {_ADVICE}")


def check_stage(stage: int, module: nn.Module, roots: Iterable[torch.Tensor], inputs: set[int],
                names: Mapping[int, str]) -> None:
    """Throws ValueError if the outputs of a stage depend on a leaf that is neither one of its parameters nor an input.

    inputs: the identities of the inputs.
    names: the model's parameters, from identity to name.
    """
    known = inputs | {id(p) for p in module.parameters()}
    for leaf in _leaves(roots):
        if id(leaf) in known:
            continue
        if id(leaf) in names:
            raise ValueError(f"model stage {stage} or the loss uses '{names[id(leaf)]}', a parameter of another stage: "
                             f"register it in the modules of both stages and pass tied=, or cut the model so that one stage "
                             f"has both uses")
        raise ValueError(f"model stage {stage} or the loss uses a tensor of shape {list(leaf.shape)} that requires "
                         f"gradients but isn't a parameter of the model, so it would not be trained. {_ADVICE}")


_ADVICE = ("Make them part of the model: its last piece can compute the loss from a target among the inputs, with "
           "loss=lambda output, target: output. Or call requires_grad_(False) if they are to stay fixed.")


def _leaves(roots: Iterable[torch.Tensor]) -> Iterable[torch.Tensor]:
    """Yields the leaf tensors of the autograd graph of these roots."""
    todo = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(todo)
    while todo:
        node = todo.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            yield variable
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                todo.append(below)
