"""Hooks of optimizers for Pipeline(shard_optimizer=True): work after step() and in state_dict()."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

NEEDS_ALL = (torch.optim.LBFGS,)  # optimizers that combine the gradients of all of their parameters


class Watcher(Protocol):
    """An object that is notified of optimizers' steps."""

    adopted: weakref.WeakSet[torch.optim.Optimizer]

    def has_parameters_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Returns true if the watcher watches this optimizer's steps."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Runs after each step of the optimizer."""

    def complete(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Completes the state that state_dict() of an optimizer returns."""


_watchers: list[weakref.ref[Any]] = []  # in the order of creation, which is the same on all workers


def watch(watcher: Watcher) -> None:
    """Calls the watcher's after_step() after each step of an optimizer that has parameters of the watcher, while the
    watcher exists."""
    if not _watchers:
        register_optimizer_step_pre_hook(_before)
        register_optimizer_step_post_hook(_after)
    _watchers.append(weakref.ref(watcher))


def _of(optimizer: torch.optim.Optimizer) -> list[Watcher]:
    found = [watcher for watcher in (one() for one in _watchers) if watcher is not None]
    return [watcher for watcher in found if watcher.has_parameters_of(optimizer)]


def _before(optimizer: torch.optim.Optimizer, _given: Any, _named: Any) -> None:
    if isinstance(optimizer, NEEDS_ALL) and _of(optimizer):
        raise ValueError(f"shard_optimizer: {type(optimizer).__name__} combines the gradients of all of its parameters, and "
                         f"a worker has those of its shard only. Use another optimizer, or shard_optimizer=False")


def _after(optimizer: torch.optim.Optimizer, _given: Any, _named: Any) -> None:
    for watcher in _of(optimizer):
        watcher.after_step(optimizer)


def check_state(optimizer: torch.optim.Optimizer) -> None:
    """Throws ValueError if an optimizer has a state that belongs to no parameter, and therefore to no owner."""
    for key in optimizer.state:
        if not isinstance(key, torch.Tensor):
            raise ValueError(f"shard_optimizer: {type(optimizer).__name__} keeps a state for {key!r}, which is not one of "
                             f"its parameters, so the state can't be divided among workers. Use another optimizer, or "
                             f"shard_optimizer=False.")


def complete_states(optimizer: torch.optim.Optimizer, watcher: Watcher) -> None:
    """Registers the watcher to complete all later results of the optimizer's state_dict()."""
    if optimizer in watcher.adopted:
        return
    watcher.adopted.add(optimizer)
    weak = weakref.ref(watcher)

    def complete(one: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        found = weak()
        if found is not None and one in found.adopted:
            found.complete(one, state)

    optimizer.register_state_dict_post_hook(complete)
