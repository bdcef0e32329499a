"""SIGUSR1: save a checkpoint and end in order. `heturun` hands the signal to all workers; they stop after the same step."""

from __future__ import annotations

import signal
from types import FrameType

_asked = False


def _note(number: int, frame: FrameType | None) -> None:
    global _asked
    _asked = True


def watch() -> None:
    """From here on SIGUSR1 is noted instead of ending the process. Main thread only, as Python has it."""
    signal.signal(signal.SIGUSR1, _note)


def asked() -> bool:
    """Whether SIGUSR1 came since watch()."""
    return _asked
