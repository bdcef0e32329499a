"""How a script of Hetu ends on an error: one line, and an exit status that `heturun` passes on."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator

from hetu import _hetu
from hetu.process import stop

# As exit_status() in graph/base/error.h.
STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (_hetu.CommError, 5), (TimeoutError, 6), (NotImplementedError, 3), (ValueError, 2), (OSError, 4), (RuntimeError, 70),
)


def parse_bytes(text: str) -> int:
    """"4GiB", "512 MiB", "1000000"."""
    return int(_hetu.TrainingOptions({"memory_limit": text}).memory_limit)


def _speaks_first() -> bool:
    try:
        return _hetu.env()["worker"] == 0
    except ValueError:  # the environment itself is what is wrong
        return True


def report(program: str, message: str) -> None:
    """One line on standard error; a plan that is refused has one more per worker concerned, indented. Workers that
    fail alike leave the word to the first: it ends the job before they speak."""
    if not _speaks_first():
        time.sleep(1.0)
    first, *concerned = message.split("\n  ")
    lines = [f"{program}: {' '.join(first.split())}", *(f"  {' '.join(line.split())}" for line in concerned)]
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()


@contextlib.contextmanager
def one_line_errors(program: str) -> Iterator[None]:
    """Errors of Hetu and of the operating system, and Ctrl-C, become one line and an exit status; bugs keep their traceback.
    Inside, SIGUSR1 asks trainings to save and end."""
    from hetu.process import leave

    stop.watch()
    try:
        yield
        leave.close()
    except tuple(kind for kind, _ in STATUS) as error:
        status = next(status for kind, status in STATUS if isinstance(error, kind))
        report(program, str(error))
        leave.close(status)
        sys.exit(status)
    except KeyboardInterrupt:
        report(program, "ended by SIGINT")
        leave.close(128 + signal.SIGINT)
        sys.exit(128 + signal.SIGINT)
