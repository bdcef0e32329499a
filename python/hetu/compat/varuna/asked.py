"""Handling of SIGUSR1 in scripts for Varuna, whose handler saves and ends. The signal may arrive in the middle of a step,
and at different moments on different ranks. The handler is therefore called between two steps, on all ranks between the
same two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from hetu.torch import Pipeline


class Asked:
    """The script's handler of SIGUSR1, whose call is deferred."""

    def __init__(self, pipe: Pipeline) -> None:
        self.pipe = pipe
        self.handler: Callable[[int, Any], Any] | None = None
        self.came = self.due = False

    def before_step(self) -> None:
        """Calls the handler if the signal arrived on any rank before the end of the last step. Takes over a handler that
        the script has installed, so that later signals are deferred."""
        if self.due and self.handler is not None:
            self.due = False
            self.handler(signal.SIGUSR1, None)
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may install signal handlers
        found = signal.getsignal(signal.SIGUSR1)
        if callable(found) and found != self._note:
            self.handler = found
            signal.signal(signal.SIGUSR1, self._note)

    def after_step(self) -> None:
        """Shares the arrival of a signal with all ranks. Collective: every worker calls it."""
        came, self.came = self.came, False
        self.due = self.due or self.pipe.sum([float(came)])[0] > 0

    def _note(self, *_: Any) -> None:
        self.came = True
