"""`import varuna` from this tree: hetu.varuna under the name that scripts for Varuna know. Not installed, so that it never
hides another package."""

from hetu.varuna import CutPoint, Profiler, Varuna, get_this_rank_config_varuna, get_varuna_config

__all__ = ["CutPoint", "Profiler", "Varuna", "get_this_rank_config_varuna", "get_varuna_config"]
