"""Provides hetu.varuna as `import varuna` for scripts for Varuna, in the source tree only. It isn't installed, so that it
never hides another package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetu.compat import varuna as _varuna

if TYPE_CHECKING:
    from hetu.compat.varuna import CutPoint, Profiler, Varuna, get_this_rank_config_varuna, get_varuna_config

__all__ = ["CutPoint", "Profiler", "Varuna", "get_this_rank_config_varuna", "get_varuna_config"]


def __getattr__(name: str) -> Any:
    """Imports a name on first use: the launcher `varuna.run_varuna` runs where PyTorch isn't installed."""
    if name not in __all__:
        raise AttributeError(f"module 'varuna' has no attribute '{name}'")
    return getattr(_varuna, name)
