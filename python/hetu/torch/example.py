"""Cuts a model of any class by an example of its inputs: records its forward and cuts it before the named modules."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from hetu.names import near
from hetu.torch.containers import refuse_hooks
from hetu.torch.cuts import MORE_IN_AT, PiecewiseModel
from hetu.torch.recorded import Recording, pieces_of
from hetu.torch.recording import RecordingError, Subject


def split_by_example(model: nn.Module, at: Sequence[str], example: Any, fixed: Mapping[str, Any] | None = None,
                     output: str = "", advice: str = MORE_IN_AT) -> PiecewiseModel:
    """Returns the pieces of a model. A piece begins before each module in `at`.

    example: inputs as step() receives them, of any size. A dict holds keywords of forward, a tuple positional arguments.
    fixed: further keywords of forward.
    output: the attribute of forward's result that the last piece returns; "" for the whole result.
    advice: what to do to get more pieces, for errors.
    Throws ValueError, which names the module or the line of the user's source.
    """
    owned: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if name:
            owned[name] = module
    for name in at:
        if name not in owned:
            raise ValueError(f"{type(model).__name__} has no module '{name}' to be cut at; {near(name, owned)}")
    entered = {"", *(name[:n] for name in at for n, letter in enumerate(name) if letter == ".")}
    modules = {name: model if not name else owned[name] for name in entered}
    refuse_hooks(modules, type(model).__name__)
    subject = Subject(model, _Call(model, dict(fixed or {}), output), {id(module): module for module in modules.values()},
                      {id(module): name for name, module in owned.items()})
    return PiecewiseModel(model, pieces_of(Recording(subject, at, example, owned)), advice)


class _Call:
    """Calls a model with the inputs of step()."""

    def __init__(self, model: nn.Module, fixed: dict[str, Any], output: str) -> None:
        self.name, self.fixed, self.output = type(model).__name__, fixed, output
        parameters = inspect.signature(model.forward).parameters.values()
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self.keys = [p.name for p in parameters if p.kind in named]
        self.needed = [p.name for p in parameters if p.kind in named and p.default is inspect.Parameter.empty]
        # Transformers' models take **kwargs for flags, which would silently swallow a misspelt input.
        self.any_key = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters) and not hasattr(model, "config")
        if "use_cache" in self.keys:
            self.fixed.setdefault("use_cache", False)

    def __call__(self, model: nn.Module, value: Any) -> Any:
        if isinstance(value, Mapping):
            self._check(value)
            out = model(**{**self.fixed, **value})
        else:
            out = model(*(value if isinstance(value, tuple) and not hasattr(value, "_fields") else (value,)), **self.fixed)
        return getattr(out, self.output) if self.output else out

    def _check(self, value: Mapping[str, Any]) -> None:
        if not self.any_key:
            for key in value:
                if key not in self.keys:
                    raise RecordingError(f"input '{key}': forward of {self.name} takes no such input; "
                                         f"{near(key, self.keys)}")
        if value.get("use_cache"):
            raise RecordingError(f"input 'use_cache=True': {self.name} would keep earlier tokens in a cache, which doesn't "
                                 f"go between stages; remove it")
        for key in self.needed:
            if key not in value and key not in self.fixed:
                raise RecordingError(f"input '{key}' is missing, and forward of {self.name} needs it; given: "
                                     f"{', '.join(value)}")
