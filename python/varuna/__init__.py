"""Provides hetu.varuna as `import varuna` for scripts for Varuna, in the source tree only. It isn't installed, so that it
never hides another package."""

from hetu.compat.varuna import CutPoint, Profiler, Varuna, get_this_rank_config_varuna, get_varuna_config

__all__ = ["CutPoint", "Profiler", "Varuna", "get_this_rank_config_varuna", "get_varuna_config"]
