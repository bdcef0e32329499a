"""The way a worker joins its job and leaves it, at a normal end of its script and after a failure.

Everything that matters at the end (links, MPI, loaders, their threads) is ended here, at one moment, whatever Python
objects the script still holds. A script that fails reports the reason to the other workers before it ends. Its exit status
is Python's own. Only errors that follow from another worker's failure have their own statuses.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from types import TracebackType
from typing import Any

from hetu import _hetu
from hetu.process import faults, watch

LAST_S = 4.0  # time that a failed script may still use: other threads, its own atexit functions

_transport: Any = None
_members: weakref.WeakSet[Any] = weakref.WeakSet()  # workers of Executors, and Pipelines
numbering = ""  # which process each worker is, where their numbers differ; printed below errors
_failed = ""  # the reason why this worker's script fails
_forced: int | None = None  # the exit status, if Python would return 0


class Left:
    """Replaces a job that this worker has left. It keeps the worker's position in the job and its number of steps."""

    KEPT = ("in_first_pipeline", "averages", "pipeline", "stage", "step")

    def __init__(self, job: Any) -> None:
        for name in self.KEPT:
            setattr(self, name, getattr(job, name))

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"'{name}' is not available: this worker has left the job, because hetu.close() was called")


def follower_status(kind: type[BaseException]) -> int:
    """Returns the exit status of an error that another worker's end may have caused, as in hetu.process.errors; 0 for other
    errors."""
    return 5 if issubclass(kind, _hetu.CommError) else 6 if issubclass(kind, TimeoutError) else 0


def transport(number: int = 0) -> Any:
    """Returns the links of this process, opened once: MPI under heturun, sockets if the worker was started by hand, or a
    job of one worker. `number` is this worker's number in the layout, pipeline * stages + stage."""
    global _transport
    if _transport is None:
        faults.at("start")
        _transport = _hetu.connect(number)
        if _transport.workers > 1:
            _watch()
        watch.begin(_transport)
    return _transport


def _forked() -> None:
    """Detaches a forked child from the job of its parent. The child can't leave the job, or end links and threads that only
    the parent has. The objects that hold them therefore stay until the child ends."""
    global _transport, _failed, _forced
    _hetu.expect_leaks()
    parts = ("transport", "job", "loader", "readers")  # an object that is being constructed lacks some of them
    for held in (_transport, *(member.__dict__.get(part) for member in _members for part in parts)):
        if held is not None:
            _hetu.keep_forever(held)
    _transport, _failed, _forced = None, "", None
    _members.clear()


os.register_at_fork(after_in_child=_forked)


def join(member: Any) -> None:
    """Registers the worker of an Executor, or a Pipeline, which releases its resources when this worker leaves."""
    _members.add(member)


def close(status: int = 0, reason: str = "") -> None:
    """Leaves the job: in order, or with a status that ends the job for all workers. Executors of several workers can't be
    used afterwards."""
    global _transport
    links, _transport = _transport, None
    watch.end()
    if links is None:
        return
    if status:
        links.abort(status, reason)
    if links.workers > 1:
        _end(links)


def _end(links: Any) -> None:
    note = next((text for member in list(_members) if (text := member.unfinished())), "")
    _release()
    links.leave(note)


def _release() -> None:
    for member in list(_members):
        member.release()


def _watch() -> None:
    """Handles errors of the script, because other workers wait for this one: installs hooks for uncaught exceptions."""
    script, thread = sys.excepthook, threading.excepthook

    def script_fails(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        script(kind, error, trace)
        if numbering and "worker" in str(error):
            sys.stderr.write(f"hetu: {numbering}\n")
        status = 130 if issubclass(kind, KeyboardInterrupt) else follower_status(kind)
        _fail(kind, error, status or 1)
        if follower_status(kind):
            raise SystemExit(status)  # Python takes the exit status from this exception

    def thread_fails(arguments: Any) -> None:
        global _forced
        thread(arguments)
        who = arguments.thread.ident if arguments.thread else None
        if arguments.exc_type is not SystemExit and any(m.unfinished() and m.stepper == who for m in list(_members)):
            _forced = follower_status(arguments.exc_type) or 1
            _fail(arguments.exc_type, arguments.exc_value, _forced)

    sys.excepthook, threading.excepthook = script_fails, thread_fails


def _fail(kind: type[BaseException], error: BaseException | None, status: int) -> None:
    """Begins the end of a failed script: in order, or by force after LAST_S, because its other threads may never end."""
    global _failed
    text = " ".join(str(error).split())
    _failed = f"{kind.__name__}: {text}" if text else kind.__name__
    _hetu.expect_leaks()  # a traceback keeps all objects of its frames alive
    watchdog = threading.Timer(LAST_S, _exit_now, (status,))
    watchdog.daemon = True
    watchdog.start()


def _exit_now(status: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # the stream is closed or missing
            continue
    os._exit(status)


@atexit.register
def _at_exit() -> None:
    global _transport
    links, _transport = _transport, None
    watch.end()
    if links is not None and _failed:
        links.give_up(_failed)
    if threading.active_count() > 1:
        _hetu.expect_leaks()  # objects that these threads hold
    if _failed or links is None or links.workers == 1:
        _release()
    else:
        middle = any(member.unfinished() for member in list(_members))
        try:
            _end(links)
        except (_hetu.CommError, TimeoutError) as error:
            if not middle:  # else they wait for this worker, whose own status reports its end
                _say_late(error)
                _exit_now(follower_status(type(error)))
    if _forced is not None:
        _exit_now(_forced)


def _say_late(error: BaseException) -> None:
    """Prints an error after a delay. Under heturun, the worker that failed ends the job before this line is printed."""
    time.sleep(1.0)
    sys.stderr.write(f"hetu: worker {_hetu.env()['worker']}: {error}\n")
