"""Runs modules that need values, such as a mixture of experts, when only the shapes of their outputs are needed.

PyTorch's fake tensors have shapes but no elements. A module that branches on elements, or whose inner shapes depend on
them, fails with fake tensors. The innermost such module then runs once on made-up numbers. Every worker makes up the same
numbers, so all find the same shapes without a message, even a worker that doesn't hold the module's parameters. A value
that crosses a boundary must have the same shape for all inputs. The first real micro-batch checks this (functions.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from hetu.torch.values import flatten, unflatten


def data_dependent() -> tuple[type[Exception], ...]:
    """Returns the errors of fake tensors that lack an element. Call it in an `except` clause, which Python evaluates only
    after an error: the import takes as long as that of torch."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException, GuardOnDataDependentSymNode


@contextmanager
def values_where_needed() -> Iterator[None]:
    """Repeats the call of a module that fails for lack of values with made-up values, inside the `with` block and on this
    thread."""
    original, thread = nn.Module.__call__, threading.get_ident()

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if thread != threading.get_ident():
            return original(module, *args, **kwargs)
        return call_with_values(original, module, args, kwargs)

    nn.Module.__call__ = call  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]


def call_with_values(original: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Calls a module, with made-up values if it fails without values. `original` is nn.Module.__call__."""
    try:
        return original(module, *args, **kwargs)
    except data_dependent():
        return run_on_made_up_values(module, args, kwargs)


def run_on_made_up_values(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Calls a module with numbers in place of tensors without elements, and returns its output without elements. Parameters
    without memory are zeros, for which Linux allocates a single page. Buffers and random state are not changed."""
    leaves, tree = flatten((args, kwargs))
    fakes = [t for t in [*leaves, *module.parameters(), *module.buffers()] if isinstance(t, FakeTensor)]
    mode = fakes[0].fake_mode
    with _disable_current_modes(), torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.default_generator.manual_seed(0)  # torch.manual_seed would seed all accelerators too
        made = [_made_up(leaf) if isinstance(leaf, FakeTensor) else leaf for leaf in leaves]
        tensors = {name: torch.zeros(tensor.shape, dtype=tensor.dtype).requires_grad_(tensor.requires_grad)
                   for name, tensor in [*module.named_parameters(remove_duplicate=False),
                                        *module.named_buffers(remove_duplicate=False)]}
        given, keywords = unflatten(made, tree)
        out = torch.func.functional_call(module, tensors, given, keywords, tie_weights=False)
        same = {id(real): fake for real, fake in zip(made, leaves, strict=True)}
        out_leaves, out_tree = flatten(out)
        outputs = []
        for leaf in out_leaves:
            if not isinstance(leaf, torch.Tensor):
                outputs.append(leaf)
                continue
            if id(leaf) not in same:
                same[id(leaf)] = _like(leaf, made, leaves, mode)
            outputs.append(same[id(leaf)])
    return unflatten(outputs, out_tree)


def _like(real: torch.Tensor, made: list[Any], given: list[Any], mode: FakeTensorMode) -> torch.Tensor:
    """Returns an output without elements. Its gradients go to the same inputs as those of the real output."""
    inputs = [n for n, leaf in enumerate(made) if isinstance(given[n], FakeTensor) and leaf.requires_grad]
    read: list[Any] = []
    if real.requires_grad and inputs:
        read = list(torch.autograd.grad(real.sum(), [made[n] for n in inputs], retain_graph=True, allow_unused=True))
    with mode:
        fake = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=_device(given))
        for n, gradient in zip(inputs, read, strict=False):
            if gradient is not None:
                fake = fake + given[n].sum().to(fake.dtype)
    return fake if fake.requires_grad else fake.requires_grad_(real.requires_grad)


def _device(given: list[Any]) -> torch.device:
    return next((leaf.device for leaf in given if isinstance(leaf, FakeTensor)), torch.device("cpu"))


def _made_up(fake: torch.Tensor) -> torch.Tensor:
    """Returns numbers of the same form: small random numbers, zeros for integers (a valid index), True for booleans."""
    if fake.dtype.is_floating_point:
        return torch.randn(fake.shape).to(fake.dtype).requires_grad_(fake.requires_grad)
    return (torch.ones if fake.dtype == torch.bool else torch.zeros)(fake.shape, dtype=fake.dtype)
