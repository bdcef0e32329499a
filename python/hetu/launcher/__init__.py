"""SD-PIPE's older launcher, under the name that scripts import. The code is in hetu.compat.launcher."""

from __future__ import annotations

from hetu.compat.launcher import launch

__all__ = ["launch"]
