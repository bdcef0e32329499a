"""What workers write, on its way to heturun's standard output: with the worker before each line, or as it is.
Used by supervise.py."""
import contextlib
import os
import sys
import time

NAMES = ("standard input", "standard output", "standard error")


class OutputError(OSError):
    """Standard output cannot be written."""


def open_closed():
    """Opens /dev/null in place of each standard stream that is closed, and returns their names. Else the next file or socket
    of heturun would take the number, and what workers write would go into it."""
    closed = []
    for number, name in enumerate(NAMES):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free number
            closed.append(name)
    sys.stdin, sys.stdout, sys.stderr = (
        stream or os.fdopen(number, "w" if number else "r", closefd=False)
        for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)))
    return closed


def write_all(descriptor, data):
    """Writes all of it, also where the other end is not blocking. Raises BrokenPipeError and OutputError. Standard error
    that can't be written is no reason to end a job, and there is nobody to tell."""
    try:
        while data:
            try:
                data = data[os.write(descriptor, data):]
            except BlockingIOError:
                time.sleep(0.01)
    except BrokenPipeError:
        raise
    except OSError as error:
        if descriptor == 1:
            raise OutputError(f"standard output cannot be written: {error.strerror}") from None


class StandardError:
    """Standard error as a text stream without a buffer, so that nothing is left to fail when heturun ends."""

    def write(self, text):
        with contextlib.suppress(BrokenPipeError):
            write_all(2, text.encode(errors="backslashreplace"))

    def flush(self):
        pass

    def isatty(self):
        return os.isatty(2)


def writes_alone(command, workers):
    """True where one worker alone writes to standard output so that nothing must tell workers apart."""
    return workers == 1 or [os.path.basename(command[0]), *command[1:2]] == ["hetu", "rehearse"]


def tag(number, host=""):
    """Returns the tag before a worker's lines: [1], or [1@w0] in a job on several hosts, with the short name of its host."""
    return f"[{number}@{host.partition('.')[0]}] ".encode() if host else f"[{number}] ".encode()


def tagged(prefix, text):
    """Whole lines with `prefix` before each; the last may lack its end."""
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return b"".join(prefix + line + b"\n" for line in lines)


class Raw:
    """Puts together what workers write without a mark: every byte of one that writes alone; of several, no line begins in
    the middle of another's."""

    def __init__(self):
        self._open = None  # the worker whose last line has no end yet

    def join(self, worker, text):
        """What is to be written for this text of a worker."""
        before = b"" if self._open in (None, worker) else b"\n"
        self._open = None if text.endswith(b"\n") else worker
        return before + text
