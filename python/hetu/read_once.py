"""Objects whose settings an Executor reads once. Later changes are refused, because they would have no effect."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from hetu.place import refuse


class ReadOnce:
    """The base class of such objects. After mark_read(), arguments of the constructor can't be set."""

    _unread: Sequence[str] = ()  # arguments of the constructor that are not attributes, so setting them has no effect

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._unread or (self.__dict__.get("_is_read") and name in self._arguments()):
            refuse(f"{type(self).__name__}.{name} can't be changed, because it is read only once; make new data with this "
                   f"{name}, and a new graph and Executor")
        super().__setattr__(name, value)

    def _arguments(self) -> set[str]:
        """Returns the names of the constructor's arguments, except those of the user's own subclasses."""
        ours = (kind for kind in type(self).__mro__ if kind.__module__.startswith("hetu.") and "__init__" in vars(kind))
        return {name for kind in ours for name in inspect.signature(vars(kind)["__init__"]).parameters}

    def mark_read(self) -> None:
        """Refuses later changes of the constructor's arguments: an Executor has read them."""
        self.__dict__["_is_read"] = True
