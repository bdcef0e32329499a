"""Where in the user's script something was asked for: what is refused begins with it."""

from __future__ import annotations

import contextlib
import inspect
import numbers
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, NoReturn, TypeVar

E = TypeVar("E", bound=BaseException)
_PACKAGE = os.path.dirname(os.path.abspath(__file__))


_of_flags = False  # what is said is of the flags of a command line, whose script's lines say nothing to who typed them


@contextlib.contextmanager
def of_flags() -> Iterator[None]:
    """Inside, nothing is said with a line of the script: its flags were typed."""
    global _of_flags
    before, _of_flags = _of_flags, True
    try:
        yield
    finally:
        _of_flags = before


def place() -> str:
    """The line of the user's script that stands behind a call, as "mine.py:12: ": the nearest frame outside this package."""
    if _of_flags:
        return ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}: " if frame else ""


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    made = file == "<string>" and str(frame.f_globals.get("__name__", "")).startswith("hetu.")  # by dataclasses
    return made or os.path.dirname(file).startswith(_PACKAGE) or file == contextlib.__file__


def is_whole(given: Any, least: int) -> bool:
    """Whether it is a whole number, Python's or NumPy's, of at least this."""
    return isinstance(given, numbers.Integral) and not isinstance(given, bool) and int(given) >= least


def of_script(error: E) -> E:
    """An error that says the place: where nobody catches it, its traceback ends there, and not in this package."""
    error.hetu_place = True  # type: ignore[attr-defined]
    return error


def _in_script(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if getattr(error, "hetu_place", False) and not sys.flags.dev_mode:  # python3 -X dev shows all
        error = error.with_traceback(_outside(trace))
    _hook(kind, error, error.__traceback__)


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """A traceback to its last frame outside of this package."""
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
    """Returns a path that was given to Hetu as the file system takes it: a ~ or ~user at its beginning is the home folder,
    which a shell leaves as it is in --data=~/x and in quotes. Without a home folder the path stays as it is."""
    return os.path.expanduser(os.fspath(path))


def refuse(message: str) -> NoReturn:
    """A ValueError that begins with the line of the user's script: one line, whatever was found has in it."""
    raise of_script(ValueError(place() + " ".join(part.strip() for part in message.split("\n"))))


def check_takes(what: str, function: Any, *inputs: str) -> None:
    """Refuses a function of the user's that cannot be called with so many inputs."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled ones have none
        return
    try:
        signature.bind(*inputs)
    except TypeError:
        refuse(f"{what} is called with ({', '.join(inputs)}), and takes ({', '.join(signature.parameters)})")


@contextlib.contextmanager
def placed(words: Callable[[str], str] = str) -> Iterator[None]:
    """What is refused inside is said with the line of the user's script, once, and in these words."""
    try:
        yield
    except (ValueError, NotImplementedError, OSError) as error:
        where, kind = place(), type(error)
        if kind.__module__.split(".")[0] not in ("builtins", "hetu") or len(error.args) != 1:
            raise  # it is made of more than a message
        if not where or str(error).startswith(where):
            raise
        raise of_script(kind(f"{where}{words(str(error))}")) from None
