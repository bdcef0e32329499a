"""Computes gradients of embeddings only for the rows that were read.

For each micro-batch, PyTorch creates a gradient as large as the table, which is zero except for a few rows, and adds it to
.grad. This module sums only the rows that a micro-batch has read, and adds them to .grad. The result is the same bit for
bit: PyTorch's own kernel sums, on a table of these rows.

It applies to nn.Embedding itself, not to subclasses, and not with max_norm, scale_grad_by_freq or sparse. PyTorch's own
code runs in the following cases: another module uses the table; the table has a hook; a micro-batch reads as many rows as
the table has, or more; the module is compiled.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import unserializable_hook

Parts = list[tuple[torch.Tensor, torch.Tensor]]  # ids, and the gradients of their rows


class _Step(threading.local):
    """Rows that backwards of this thread have collected, within collecting()."""

    came: dict[int, tuple[nn.Parameter, int, Parts]] | None = None  # by table


_step = _Step()


class _RowsOf(torch.autograd.Function):
    """Rows of a table, whose gradient is collected and added later."""

    @staticmethod
    def forward(ctx: Any, ids: torch.Tensor, weight: torch.Tensor, padding: int) -> torch.Tensor:
        """Returns the rows like functional.embedding. Ids equal to `padding` have no gradient."""
        ctx.save_for_backward(ids)
        ctx.weight, ctx.padding = weight, padding
        return nn.functional.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Collects the gradients and returns none for the table. add() adds them."""
        ids, = ctx.saved_tensors
        assert _step.came is not None
        _step.came.setdefault(id(ctx.weight), (ctx.weight, ctx.padding, []))[2].append((ids, gradients[0]))
        return None, None, None


class _Meeting:
    """The hook of a table. If another use of the table has a gradient in the same backward, the collected rows are added to
    it first."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.key = id(weight)

    def __call__(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        noted = _step.came.pop(self.key, None) if gradient is not None and _step.came else None
        if noted is None:
            return gradient
        assert gradient is not None
        whole = gradient.clone()
        for part in noted[2]:
            whole.index_add_(0, *_sum([part], noted[1]))
        return whole


class _Embedding(nn.Embedding):
    """The class that replaces nn.Embedding in a stage."""

    def _get_name(self) -> str:
        return "Embedding"

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Returns the rows of `input`, like nn.Embedding."""
        weight: Any = self.weight
        if (_step.came is None or torch.compiler.is_compiling() or not torch.is_grad_enabled()
                or input.numel() >= weight.shape[0] or not _is_ours(weight)):
            return super().forward(input)
        padding = -1 if self.padding_idx is None else self.padding_idx
        return _RowsOf.apply(input, weight, padding)  # type: ignore[no-untyped-call, no-any-return]


def _is_ours(weight: Any) -> bool:
    """Returns true if the table is trained and has no gradient hooks except ours. A copy of the table has no hook of ours.
    """
    hooks = list((weight._backward_hooks or {}).values())
    return bool(weight.requires_grad and len(hooks) == 1 and isinstance(hooks[0], _Meeting)
                and not weight._post_accumulate_grad_hooks)


def user_hooks(parameter: torch.Tensor) -> list[Any]:
    """Returns the gradient hooks of a parameter that the user has registered, in their order."""
    return [hook for hook in (parameter._backward_hooks or {}).values() if not isinstance(hook, _Meeting)]


def take(stages: Iterable[nn.Module]) -> None:
    """Replaces the class of the embeddings of these stages, so that they collect rows within collecting()."""
    for stage in stages:
        uses: dict[int, int] = {}
        for _, parameter in stage.named_parameters(remove_duplicate=False):
            uses[id(parameter)] = uses.get(id(parameter), 0) + 1
        for module in stage.modules():
            if (type(module) is nn.Embedding and uses.get(id(module.weight)) == 1
                    and module.max_norm is None and not module.scale_grad_by_freq and not module.sparse):
                module.__class__ = _Embedding
                if module.weight.requires_grad:
                    module.weight.register_hook(unserializable_hook(_Meeting(module.weight)))


@contextlib.contextmanager
def collecting() -> Iterator[None]:
    """Collects rows inside the `with` block. Each backward inside must be followed by add()."""
    before, _step.came = _step.came, {}
    try:
        yield
    finally:
        _step.came = before


def add() -> None:
    """Adds the rows that a backward has collected to .grad."""
    if not _step.came:
        return
    for weight, padding, parts in _step.came.values():
        with torch.no_grad():
            _add(weight, padding, parts)
    _step.came.clear()


def _add(weight: nn.Parameter, padding: int, parts: Parts) -> None:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    weight.grad.index_add_(0, *_sum(parts, padding))


def _sum(parts: Parts, padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the rows that were read, and the sums of their gradients, added in the same order as in autograd."""
    touched, places = torch.unique(torch.cat([ids.reshape(-1) for ids, _ in parts]), return_inverse=True)
    first = int(torch.searchsorted(touched, padding))
    without = first if first < len(touched) and int(touched[first]) == padding else -1
    at, total = 0, None
    for ids, gradient in parts:
        own = torch.ops.aten.embedding_dense_backward(gradient.reshape(ids.numel(), -1), places[at:at + ids.numel()],
                                                      len(touched), without, False)
        total = own if total is None else total.add_(own)
        at += ids.numel()
    assert total is not None
    return touched, total
