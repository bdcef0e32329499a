"""The line of the user's script that made a request. Error messages begin with it."""

from __future__ import annotations

import contextlib
import inspect
import numbers
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, NoReturn, TypeVar

E = TypeVar("E", bound=BaseException)
_PACKAGE = os.path.dirname(os.path.abspath(__file__))
# Files of Python that call this package: context managers, and the threads of a job of threads.
_OF_PYTHON = {contextlib.__file__, threading.__file__,
              os.path.join(os.path.dirname(threading.__file__), "concurrent", "futures", "thread.py")}


_of_flags = False  # errors concern flags of a command line; the script's lines mean nothing to the person who typed them


@contextlib.contextmanager
def of_flags() -> Iterator[None]:
    """Suppresses the script's line in errors inside the `with` block, because they concern flags that were typed."""
    global _of_flags
    before, _of_flags = _of_flags, True
    try:
        yield
    finally:
        _of_flags = before


def place() -> str:
    """Returns the line of the user's script behind a call, as "mine.py:12: ". It is the nearest frame outside this package.
    """
    if _of_flags:
        return ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}: " if frame else ""


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    made = file == "<string>" and str(frame.f_globals.get("__name__", "")).startswith("hetu.")  # created by dataclasses
    return made or os.path.dirname(file).startswith(_PACKAGE) or file in _OF_PYTHON


def is_whole(given: Any, least: int) -> bool:
    """Returns true for an integer of Python or NumPy that is at least `least`."""
    return isinstance(given, numbers.Integral) and not isinstance(given, bool) and int(given) >= least


def of_script(error: E) -> E:
    """Marks an error that names the script's line. If it is not caught, its traceback ends at that line, and not in this
    package. An error of this package that is being handled is not shown beside it."""
    error.hetu_place = True  # type: ignore[attr-defined]
    handled = sys.exc_info()[2]  # begins with the frame that caught it
    if handled is not None and _is_ours(handled.tb_frame):
        error.__suppress_context__ = True
    return error


def _in_script(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if getattr(error, "hetu_place", False) and not sys.flags.dev_mode:  # python3 -X dev shows the whole traceback
        error = error.with_traceback(_outside(trace))
        if isinstance(error, AttributeError):
            error.name = None  # otherwise Python adds a suggestion of its own to ours
    _hook(kind, error, error.__traceback__)


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """Returns a traceback that ends at its last frame outside of this package."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    while len(frames) > 1 and _is_ours(frames[-1].tb_frame):
        frames.pop()
    for each in reversed(frames):
        trace = TracebackType(trace, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return trace


_hook, sys.excepthook = sys.excepthook, _in_script


def path_of(path: str | os.PathLike[str]) -> str:
    """Returns a path with ~ or ~user at its beginning replaced by the home folder. A shell does not replace it in
    --data=~/x and in quotes. Without a home folder the path stays unchanged."""
    return os.path.expanduser(os.fspath(path))


def refuse(message: str) -> NoReturn:
    """Throws ValueError in one line, which begins with the line of the user's script."""
    raise of_script(ValueError(place() + " ".join(part.strip() for part in message.split("\n"))))


def check_takes(what: str, function: Any, *inputs: str) -> None:
    """Throws ValueError if the user's function can't be called with these inputs."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled functions have no signature
        return
    try:
        signature.bind(*inputs)
    except TypeError:
        refuse(f"{what} is called with ({', '.join(inputs)}), but takes ({', '.join(signature.parameters)})")


@contextlib.contextmanager
def placed(words: Callable[[str], str] = str) -> Iterator[None]:
    """Prefixes errors that are raised inside with the line of the user's script, once. `words` converts the message."""
    try:
        yield
    except (ValueError, NotImplementedError, OSError) as error:
        where, kind = place(), type(error)
        if kind.__module__.split(".")[0] not in ("builtins", "hetu") or len(error.args) != 1:
            raise  # its constructor takes more than a message
        if not where or str(error).startswith(where):
            raise
        raise of_script(kind(f"{where}{words(str(error))}")) from None
