"""Varuna's interface on top of `hetu.torch`: CutPoint, Varuna, Profiler, and the two functions that read a
stage_to_rank_map. Classes that wrap modules need PyTorch. AutoConfig and the two commands don't need it.

    from hetu.varuna import CutPoint, Varuna

    model = Varuna(model, "0,2;1,3;", get_batch, batch_size=64, chunk_size=8)
    optimizer = torch.optim.AdamW(model.parameters())
    model.set_optimizer(optimizer)
    loss, overflow, norm = model.step(get_batch(32, "cpu"))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hetu.compat.varuna.placement import get_this_rank_config_varuna, get_varuna_config

if TYPE_CHECKING:
    from hetu.compat.varuna.auto_config import AutoConfig
    from hetu.compat.varuna.profiler import Profiler
    from hetu.compat.varuna.wrapper import Varuna
    from hetu.torch import CutPoint

# Imported on first use, for PyTorch, or because a command is a module of this package that runs by itself.
_ON_USE = {"AutoConfig": "hetu.compat.varuna.auto_config", "CutPoint": "hetu.torch",
           "Profiler": "hetu.compat.varuna.profiler", "Varuna": "hetu.compat.varuna.wrapper"}


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        raise AttributeError(f"module 'hetu.varuna' has no attribute '{name}'")
    if name != "AutoConfig":
        importlib.import_module("hetu.torch")  # says how to install PyTorch where it's missing
    return getattr(importlib.import_module(_ON_USE[name]), name)


__all__ = ["AutoConfig", "CutPoint", "Profiler", "Varuna", "get_this_rank_config_varuna", "get_varuna_config"]
