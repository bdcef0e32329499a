"""Hooks of optimizers for Pipeline(shard_optimizer=True): what happens after step() and in state_dict()."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

NEEDS_ALL = (torch.optim.LBFGS,)  # optimizers that combine the gradients of all of their parameters


class Watcher(Protocol):
    """An object that is told of the steps of optimizers."""

    adopted: weakref.WeakSet[torch.optim.Optimizer]

    def has_parameters_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Returns whether the optimizer's steps are watched."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Is called after each step."""

    def complete(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Completes what state_dict() of an optimizer returns."""


_watchers: list[weakref.ref[Any]] = []  # in the order in which they were made, which is the same on all workers


def watch(watcher: Watcher) -> None:
    """Calls after_step() of the watcher after each step of an optimizer that has parameters of it, as long as it exists."""
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
    """Throws ValueError for an optimizer with a state that belongs to no parameter, so that nobody owns it."""
    for key in optimizer.state:
        if not isinstance(key, torch.Tensor):
            raise ValueError(f"shard_optimizer: {type(optimizer).__name__} keeps a state for {key!r}, which is none of its "
                             f"parameters, so it can't be divided among workers. Use another optimizer, or "
                             f"shard_optimizer=False")


def complete_states(optimizer: torch.optim.Optimizer, watcher: Watcher) -> None:
    """Lets the watcher complete what state_dict() of an optimizer returns, from here on."""
    if optimizer in watcher.adopted:
        return
    watcher.adopted.add(optimizer)
    weak = weakref.ref(watcher)

    def complete(one: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        found = weak()
        if found is not None and one in found.adopted:
            found.complete(one, state)

    optimizer.register_state_dict_post_hook(complete)
