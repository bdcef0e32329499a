"""SIGUSR1 and Ctrl-C: save a checkpoint and end in order. `heturun` hands them to all workers, once they take them; the
workers stop after the same step."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

from hetu import _hetu, progress


class Stopping(BaseException):
    """Ends a hook in the middle of an evaluation, because a worker was asked to stop. job.run takes it, saves and ends in
    order. Not an Exception: a hook that takes all of these is not meant to take this one."""


def watch() -> None:
    """From here on SIGUSR1 is noted instead of ending the process."""
    _hetu.watch_signal(signal.SIGUSR1, "", asks=True, once=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})  # see hetu/process/hold.py


def asked() -> bool:
    """Whether SIGUSR1, or Ctrl-C in a training that saves, came since it is watched."""
    return bool(_hetu.stop_asked())


def _is_interactive() -> bool:
    """In a notebook or at a prompt, where the Ctrl-C that ended one training does not mean the next."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


@contextlib.contextmanager
def training(folder: str | None) -> Iterator[None]:
    """While a training runs: SIGUSR1 is noted, and the first Ctrl-C too if there is a `folder` for checkpoints; without one
    it is Python's KeyboardInterrupt. The second Ctrl-C ends the process at once. What the script itself does with these
    signals stands. heturun, which takes a terminal's Ctrl-C itself, is told whether this worker saves; a SIGINT to one of
    its workers alone ends that worker's script."""
    watched = []
    if _is_interactive():
        _hetu.forget_asked()
    if threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            if _hetu.watch_signal(signal.SIGUSR1, "", asks=True, once=False):
                watched.append(signal.SIGUSR1)
        what = f"the training saves in {folder}" if folder else "no checkpoint folder was given, and nothing is saved"
        text = f"SIGINT: ending after this step; {what}; once more ends at once\n"
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
