"""The end of a script of Hetu on an error: one line, and an exit status that `heturun` passes on."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator

from hetu import _hetu, progress
from hetu.process import stop

# The same values as exit_status() in base/error.h.
STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (_hetu.CommError, 5), (TimeoutError, 6), (NotImplementedError, 3), (ValueError, 2), (OSError, 4), (RuntimeError, 70),
)


def parse_bytes(text: str) -> int:
    """Parses a number of bytes: "4GiB", "512 MiB", "1000000"."""
    return int(_hetu.TrainingOptions({"memory_limit": text}).memory_limit)


def _await_turn(follows: bool) -> None:
    try:
        is_first = _hetu.env()["worker"] == 0
        is_chosen_from = not follows and progress.tell({"last_words": True})
        if not is_first and not is_chosen_from:
            time.sleep(1.0)
    except ValueError:  # the environment itself is invalid
        return


def report(program: str, message: str, follows: bool = False) -> None:
    """Prints one error line on standard error. A rejected plan has one more line per affected worker, indented.

    Often all workers fail for the same reason. Then only one of them should print: heturun shows the line of the worker
    that caused the failure. Without heturun, and for an error that `follows` from another worker's failure, worker 0 prints
    at once. The others wait a second, in which worker 0 ends the job.
    """
    _await_turn(follows)
    first, *concerned = message.split("\n  ")
    named = re.match(rf"{re.escape(program)}:\d+: ", first)  # the script's line, which names the script already
    prefix = "" if named else f"{program}: "
    lines = [f"{prefix}{' '.join(first.split())}", *(f"  {' '.join(line.split())}" for line in concerned)]
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()


def _flush_output() -> None:
    """Writes the buffered standard output. Raises OSError on failure. The rest is then dropped, because Python would try
    again at its end and exit with another status."""
    try:
        if sys.stdout is not None:  # standard output was closed when Python started
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(f"standard output cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def one_line_errors(program: str) -> Iterator[None]:
    """Turns errors of Hetu and of the operating system, and Ctrl-C, into one line and an exit status. Bugs keep their
    traceback. Inside the `with` block, SIGUSR1 asks trainings to save and end."""
    from hetu.process import leave

    stop.watch()
    try:
        yield
        _flush_output()
        leave.close()
    except tuple(kind for kind, _ in STATUS) as error:
        status = next(status for kind, status in STATUS if isinstance(error, kind))
        report(program, str(error), follows=leave.follower_status(type(error)) != 0)
        leave.close(status)
        sys.exit(status)
    except KeyboardInterrupt:
        report(program, "ended by SIGINT")
        leave.close(128 + signal.SIGINT)
        sys.exit(128 + signal.SIGINT)
