"""Gradients of embeddings by rows. PyTorch makes a tensor as large as the table for each micro-batch, zeros but for a few
rows, and adds it to .grad; here the rows that a micro-batch has read are summed by themselves and added there. Bit for bit
the same: the kernel that sums is PyTorch's own, on a table of these rows.

Of nn.Embedding itself, not of classes made of it; where a table is another module's, too, has a hook, or fewer rows than a
micro-batch reads, or the module is compiled, PyTorch's way is left as it is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import unserializable_hook

Parts = list[tuple[torch.Tensor, torch.Tensor]]  # ids, and the gradient of what they named


class _Step(threading.local):
    """Rows that backwards of this thread have noted, within collecting()."""

    came: dict[int, tuple[nn.Parameter, int, Parts]] | None = None  # by table


_step = _Step()


class _RowsOf(torch.autograd.Function):
    """Rows of a table, whose gradient is noted and given later."""

    @staticmethod
    def forward(ctx: Any, ids: torch.Tensor, weight: torch.Tensor, padding: int) -> torch.Tensor:
        """As functional.embedding; ids that are `padding` have no gradient."""
        ctx.save_for_backward(ids)
        ctx.weight, ctx.padding = weight, padding
        return nn.functional.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Gives the table's leaf nothing: add() does."""
        ids, = ctx.saved_tensors
        assert _step.came is not None
        _step.came.setdefault(id(ctx.weight), (ctx.weight, ctx.padding, []))[2].append((ids, gradients[0]))
        return None, None, None


class _Meeting:
    """The hook of a table: where another use of it has a gradient in the same backward, rows are added to that one first."""

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
    """What an nn.Embedding of a stage becomes."""

    def _get_name(self) -> str:
        return "Embedding"

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """As nn.Embedding."""
        weight: Any = self.weight
        if (_step.came is None or torch.compiler.is_compiling() or not torch.is_grad_enabled()
                or input.numel() >= weight.shape[0] or not _is_ours(weight)):
            return super().forward(input)
        padding = -1 if self.padding_idx is None else self.padding_idx
        return _RowsOf.apply(input, weight, padding)  # type: ignore[no-untyped-call, no-any-return]


def _is_ours(weight: Any) -> bool:
    """Whether it learns, and nobody else looks at its gradients on their way; a copy of it has no hook of ours."""
    hooks = list((weight._backward_hooks or {}).values())
    return bool(weight.requires_grad and len(hooks) == 1 and isinstance(hooks[0], _Meeting)
                and not weight._post_accumulate_grad_hooks)


def user_hooks(parameter: torch.Tensor) -> list[Any]:
    """Returns the gradient hooks of a parameter that the user has registered, in their order."""
    return [hook for hook in (parameter._backward_hooks or {}).values() if not isinstance(hook, _Meeting)]


def take(stages: Iterable[nn.Module]) -> None:
    """Embeddings of these stages take this way within collecting()."""
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
    """A step whose backwards end with add()."""
    before, _step.came = _step.came, {}
    try:
        yield
    finally:
        _step.came = before


def add() -> None:
    """Behind a backward: what it has found out about rows goes into .grad."""
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
    """The rows that were read, and the sums of their gradients: in the order in which the engine would have added them."""
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
