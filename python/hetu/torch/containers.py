"""Rejects cuts in a container whose own code would be lost: a Pipeline calls the pieces and never the container itself."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

_HOOKS = {"_forward_pre_hooks": "forward pre-hook", "_forward_hooks": "forward hook",
          "_backward_pre_hooks": "backward pre-hook", "_backward_hooks": "backward hook"}


def refuse_own_forward(model: nn.Module) -> None:
    """Throws ValueError for an nn.Sequential or nn.ModuleList that does more than call its children one after the other."""
    kind = nn.Sequential if isinstance(model, nn.Sequential) else nn.ModuleList
    name = type(model).__name__
    for method in ("forward", "__call__"):
        if method in vars(model) or getattr(type(model), method) is not getattr(kind, method):
            raise ValueError(f"{name} has its own {method}(), which would not run if the model were cut between its "
                             f"children. Give hetu.torch.split(model, at=[...], example=inputs), or [model] as one piece")
    own = [*(n for n, p in model._parameters.items() if p is not None), *(n for n, b in model._buffers.items()
                                                                         if b is not None)]
    if own:
        raise ValueError(f"{name} has its own parameter or buffer '{own[0]}', which would be in no stage; move it into a "
                         f"child")
    refuse_hooks({"": model}, name)


def refuse_hooks(modules: Mapping[str, nn.Module], model: str) -> None:
    """Throws ValueError if a module that is cut inside has hooks. `modules` maps names in the model to modules; the model
    itself has the name ""."""
    for name, module in modules.items():
        for attribute, kind in _HOOKS.items():
            if getattr(module, attribute, None):
                where = f"module '{name}' of {model}" if name else model
                raise ValueError(f"{where} has a {kind}, which would not run, since the module is cut inside. Remove the "
                                 f"hook, register it at a module without cuts, or put its code into forward()")
