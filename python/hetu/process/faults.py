"""Makes the faults of HETU_FAULT happen in this worker (hetu/drill.py has their grammar). heturun --elastic passes those of
the round. Without a fault for this worker, each call below only looks at an empty list."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hetu.process import rounds

if TYPE_CHECKING:
    from hetu.drill import Fault

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def _own() -> list[Fault]:
    text = os.environ.get("FAULTS_OF_ROUND")
    if not text:
        return []
    from hetu import drill  # imported late: most jobs don't need it

    number = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))  # set by each starter of a round (launch/starters.py)
    return [fault for fault in drill.parse(text) if fault.worker == number]


_pending = _own()


def at_step(number: int) -> None:
    """Makes the faults of a step happen. Call it before the step begins."""
    if _pending:
        _happen(lambda fault: fault.step == number)


def at(place: str) -> None:
    """Makes the faults of a place happen, once: "start", "load" or "evaluate"."""
    if _pending:
        _happen(lambda fault: fault.at == place)


@contextlib.contextmanager
def during(place: str) -> Iterator[None]:
    """Makes the faults of a place happen at its beginning."""
    at(place)
    yield


@contextlib.contextmanager
def saving() -> Iterator[None]:
    """Makes the faults of a save happen. With enospc, the file system takes no byte of it: a limit of this process makes
    each write to a file fail, so the error arises where a full disk would raise it. Python ignores the limit's signal."""
    if not _pending:
        yield
        return
    full = _take(lambda fault: fault.at == "save" and fault.kind == "enospc")
    _happen(lambda fault: fault.at == "save")
    if not full:
        yield
        return
    _say(full[0])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _take(wanted: Callable[[Fault], bool]) -> list[Fault]:
    """Removes the faults that `wanted` accepts from those of this worker, and returns them."""
    global _pending
    taken = [fault for fault in _pending if wanted(fault)]
    _pending = [fault for fault in _pending if not wanted(fault)]
    return taken


def _happen(wanted: Callable[[Fault], bool]) -> None:
    for fault in _take(wanted):
        _say(fault)
        if fault.kind == "delay":
            time.sleep(fault.seconds)
        elif fault.kind == "hang":
            while True:
                time.sleep(3600)
        elif fault.seconds:  # a moment later, wherever the worker is by then
            later = threading.Timer(fault.seconds, os.kill, (os.getpid(), _SIGNALS[fault.kind]))
            later.daemon = True
            later.start()
        else:
            os.kill(os.getpid(), _SIGNALS[fault.kind])


def _say(fault: Fault) -> None:
    rounds.note(fault=str(fault))
    print(f"hetu: a fault on purpose (HETU_FAULT): {fault}", file=sys.stderr, flush=True)
