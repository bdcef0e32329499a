"""Undoes the side effects of a forward. Hetu determines shapes by a forward on tensors without elements, which plain
PyTorch does not run.

It restores what forwards and hooks commonly write: attributes of modules, of their classes and of objects that they refer
to; lists, dicts and sets; variables of enclosing functions; global variables that a forward or a hook names; and the state
of random generators. It does not undo output to files and to the terminal, nor changes by C extensions.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

_DEPTH = 6  # largest distance of a restored object from a module
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_FOREIGN = frozenset(sys.stdlib_module_names) - {"__main__"} | {"torch", "numpy", "hetu", "transformers", "torchvision"}


@contextlib.contextmanager
def undisturbed(modules: Iterable[nn.Module], function: Any = None, compiled: bool = False) -> Iterator[None]:
    """Undoes afterwards the changes that the forwards of these modules, and `function`, make inside the `with` block. With
    `compiled`, functions of torch.compile run compiled and not eagerly."""
    seen = _Seen([inner for module in modules for inner in module.modules()])
    seen.look(function, _DEPTH)
    numbers = random.getstate()
    numpy = sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy else None
    eagerly = not compiled and "torch._dynamo" in sys.modules  # its import takes seconds
    stance = torch.compiler.set_stance("force_eager") if eagerly else contextlib.nullcontext()
    try:
        with torch.random.fork_rng(devices=[]), stance:
            yield
    finally:
        random.setstate(numbers)
        if numpy:
            numpy.random.set_state(drawn)
        seen.restore()


class _Seen:
    """Objects whose contents may change, with the functions that restore them."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.known: dict[int, Any] = {id(module): module for module in modules}  # kept alive, so that no id() is reused
        self.undo: list[Callable[[], None]] = []
        for module in modules:
            self._module(module, _DEPTH)

    def look(self, one: Any, depth: int) -> None:
        """Saves the contents of an object, and of the objects that it refers to."""
        if depth < 0 or isinstance(one, (*_PLAIN, type, types.ModuleType, torch.Tensor)) or id(one) in self.known:
            return
        self.known[id(one)] = one
        if isinstance(one, dict):
            self._mapping(one, depth)
        elif isinstance(one, (list, collections.deque)):
            self._sequence(one, depth)
        elif isinstance(one, set):
            self.undo.append(functools.partial(_put_back_set, one, set(one)))
        elif isinstance(one, (tuple, frozenset)):
            self._each(one, depth)
        elif isinstance(one, types.MethodType):
            self._each((one.__self__, one.__func__), depth)
        elif isinstance(one, functools.partial):
            self._each((one.func, one.args, one.keywords), depth)
        elif isinstance(one, types.FunctionType):
            self._function(one, depth)
        elif isinstance(one, nn.Module):
            self._module(one, depth)
        elif hasattr(one, "__dict__") and not _is_foreign(type(one).__module__):
            self._mapping(vars(one), depth)
            self._class(type(one), depth)
            self.look(vars(type(one)).get("__call__"), depth)

    def restore(self) -> None:
        """Restores everything that has changed."""
        for undo in self.undo:
            undo()

    def _module(self, one: nn.Module, depth: int) -> None:
        self._mapping(vars(one), depth)
        self._class(type(one), depth)
        self.look(type(one).forward, depth)

    def _class(self, one: type, depth: int) -> None:
        """Saves the attributes of a class and of its base classes."""
        for base in one.__mro__:
            if _is_foreign(base.__module__) or id(base) in self.known:
                continue
            self.known[id(base)] = base
            for name, value in vars(base).items():
                if isinstance(value, (*_PLAIN, list, dict, set, collections.deque)) and not name.startswith("__"):
                    self.undo.append(functools.partial(_put_back_attribute, base, name, value))
                    self.look(value, depth - 1)

    def _each(self, values: Iterable[Any], depth: int) -> None:
        for value in values:
            self.look(value, depth - 1)

    def _mapping(self, one: Any, depth: int) -> None:
        self.undo.append(functools.partial(_put_back_dict, one, dict(one)))
        self._each(list(one.values()), depth)

    def _sequence(self, one: Any, depth: int) -> None:
        self.undo.append(functools.partial(_put_back_sequence, one, list(one)))
        self._each(list(one), depth)

    def _function(self, one: types.FunctionType, depth: int) -> None:
        for cell in one.__closure__ or ():
            with contextlib.suppress(ValueError):  # a variable that has no value yet
                self.undo.append(functools.partial(_put_back_cell, cell, cell.cell_contents))
                self.look(cell.cell_contents, depth - 1)
        self._each((one.__defaults__, one.__kwdefaults__), depth)
        if _is_foreign(one.__module__ or ""):
            return
        self.look(one.__dict__, depth - 1)
        for name in _names_of(one.__code__):
            if name in one.__globals__:
                value = one.__globals__[name]
                if not isinstance(value, (types.ModuleType, type, types.FunctionType)):
                    self.undo.append(functools.partial(_put_back_global, one.__globals__, name, value))
                self.look(value, depth - 1)


def _is_foreign(module: str) -> bool:
    """Returns true if a library defines the object. Such objects are not examined."""
    return module.partition(".")[0] in _FOREIGN


def _names_of(code: types.CodeType) -> set[str]:
    """Returns the global names that a function and its inner functions use."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_of(constant)
    return names


def _put_back_dict(one: dict[Any, Any], before: dict[Any, Any]) -> None:
    if len(one) != len(before) or any(a is not b or one[a] is not before[b] for a, b in zip(one, before, strict=True)):
        one.clear()
        one.update(before)


def _put_back_sequence(one: Any, before: list[Any]) -> None:
    if len(one) != len(before) or any(a is not b for a, b in zip(one, before, strict=True)):
        one.clear()
        one.extend(before)


def _put_back_set(one: set[Any], before: set[Any]) -> None:
    if one != before:
        one.clear()
        one.update(before)


def _put_back_cell(cell: types.CellType, before: Any) -> None:
    if cell.cell_contents is not before:
        cell.cell_contents = before


def _put_back_attribute(one: type, name: str, before: Any) -> None:
    if vars(one).get(name) is not before:
        setattr(one, name, before)


def _put_back_global(names: dict[str, Any], name: str, before: Any) -> None:
    if names.get(name) is not before:
        names[name] = before
