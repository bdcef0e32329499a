"""SIGUSR1 in scripts of Varuna's: their handler saves and ends. It may come in the middle of a step, and at other moments on
other ranks; a handler that saves is called between two steps, on all ranks between the same two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from hetu.torch import Pipeline


class Asked:
    """The script's handler of SIGUSR1, kept back."""

    def __init__(self, pipe: Pipeline) -> None:
        self.pipe = pipe
        self.handler: Callable[[int, Any], Any] | None = None
        self.came = self.due = False

    def before_step(self) -> None:
        """Calls the handler where a signal came to any rank before the last step's end. From here on one that the script has
        installed is kept back."""
        if self.due and self.handler is not None:
            self.due = False
            self.handler(signal.SIGUSR1, None)
        if threading.current_thread() is not threading.main_thread():
            return  # which alone may say who takes a signal
        found = signal.getsignal(signal.SIGUSR1)
        if callable(found) and found != self._note:
            self.handler = found
            signal.signal(signal.SIGUSR1, self._note)

    def after_step(self) -> None:
        """All ranks hear of it; every worker calls it."""
        came, self.came = self.came, False
        self.due = self.due or self.pipe.sum([float(came)])[0] > 0

    def _note(self, *_: Any) -> None:
        self.came = True
