"""Checks the version of PyTorch at import, before anything else of PyTorch is used."""

from __future__ import annotations

import re
import warnings

import torch

from hetu import _hetu

OLDEST = (2, 6)
NEWEST_TESTED = (2, 15)


def check(version: str, worker: int) -> None:
    """Throws ImportError for a version that is too old. Warns once per job about a version that is newer than the tested
    ones."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        raise ImportError(f"hetu.torch needs PyTorch {_text(OLDEST)} or newer, and this one says version {version!r}")
    number = int(found[1]), int(found[2])
    if number < OLDEST:
        raise ImportError(f"hetu.torch needs PyTorch {_text(OLDEST)} or newer, found {version}; pip install "
                          f"'torch>={_text(OLDEST)}'")
    if number > NEWEST_TESTED and worker <= 0:
        warnings.warn(f"hetu.torch is tested with PyTorch {_text(OLDEST)} to {_text(NEWEST_TESTED)}, and this is {version}",
                      stacklevel=2)


def _text(number: tuple[int, int]) -> str:
    return f"{number[0]}.{number[1]}"


check(torch.__version__, _hetu.env()["worker"])
