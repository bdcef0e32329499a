"""Handling of SIGUSR1 and Ctrl-C: saves a checkpoint and ends in order. `heturun` forwards the signals to all workers as
soon as they handle them. The workers stop after the same step."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

from hetu import _hetu, progress


class Stopping(BaseException):
    """Ends a hook in the middle of an evaluation, because a worker was asked to stop. job.run catches it, saves and ends in
    order. It is not an Exception, so that a hook that catches all exceptions doesn't catch it."""


def watch() -> None:
    """Records SIGUSR1 from this call on, instead of letting it end the process."""
    _hetu.watch_signal(signal.SIGUSR1, "", asks=True, once=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})  # see hetu/process/hold.py


def asked() -> bool:
    """Returns true if SIGUSR1 (or Ctrl-C in a training that saves) has arrived while it was watched."""
    return bool(_hetu.stop_asked())


def _is_interactive() -> bool:
    """Returns true in a notebook or at a prompt, where a Ctrl-C for one training does not apply to the next."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


@contextlib.contextmanager
def training(folder: str | None) -> Iterator[None]:
    """Handles signals while a training runs.

    SIGUSR1 is recorded. The first Ctrl-C is recorded too if there is a `folder` for checkpoints; otherwise it is Python's
    KeyboardInterrupt. The second Ctrl-C ends the process at once. Handlers that the script itself has installed stay in
    place. heturun, which handles Ctrl-C of a terminal itself, is informed whether this worker saves. A SIGINT to a single
    worker under heturun ends that worker's script.
    """
    watched = []
    if _is_interactive():
        _hetu.forget_asked()
    if threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            if _hetu.watch_signal(signal.SIGUSR1, "", asks=True, once=False):
                watched.append(signal.SIGUSR1)
        what = f"the training saves in {folder}" if folder else "no checkpoint folder was given, and nothing is saved"
        text = f"SIGINT: ending after this step; {what}; a second SIGINT ends at once\n"
        alone = _hetu.env()["progress_fd"] < 0
        if alone and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            if _hetu.watch_signal(signal.SIGINT, text, asks=folder is not None, once=True):
                watched.append(signal.SIGINT)
    progress.tell({"pid": os.getpid(), "training": "saves" if folder else "unsaved"})
    try:
        yield
    finally:
        progress.tell({"training": "over"})
        for number in watched:
            _hetu.forget_signal(number)
