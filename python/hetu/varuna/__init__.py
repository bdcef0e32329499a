"""Varuna's interface, under the name that scripts import. The code is in hetu.compat.varuna."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetu.compat import varuna

if TYPE_CHECKING:
    from hetu.compat.varuna import AutoConfig, CutPoint, Profiler, Varuna, get_this_rank_config_varuna, get_varuna_config


def __getattr__(name: str) -> Any:
    return getattr(varuna, name)


__all__ = ["AutoConfig", "CutPoint", "Profiler", "Varuna", "get_this_rank_config_varuna", "get_varuna_config"]
