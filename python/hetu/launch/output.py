"""Output of workers on its way to heturun's standard output: with the worker's number before each line, or unchanged. Used
by supervise.py."""
import contextlib
import os
import sys
import time

NAMES = ("standard input", "standard output", "standard error")


class OutputError(OSError):
    """Standard output can't be written."""


def open_closed():
    """Opens /dev/null in place of each closed standard stream, and returns the streams' names. Otherwise the next file or
    socket of heturun would get the stream's number, and workers' output would go into it."""
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
    """Writes all data, even if the descriptor is non-blocking. Raises BrokenPipeError and OutputError. A failure of
    standard error is ignored: it doesn't end a job, and it can't be reported."""
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
    """Standard error as an unbuffered text stream, so that no buffered data can fail when heturun ends."""

    def write(self, text):
        with contextlib.suppress(BrokenPipeError):
            write_all(2, text.encode(errors="backslashreplace"))

    def flush(self):
        pass

    def isatty(self):
        return os.isatty(2)


def writes_alone(command, workers):
    """Returns true if only one worker writes to standard output, so that lines need no tags."""
    return workers == 1 or [os.path.basename(command[0]), *command[1:2]] == ["hetu", "rehearse"]


def tag(number, host=""):
    """Returns the tag before a worker's lines: [1], or [1@w0] with the short name of its host in a job on several hosts."""
    return f"[{number}@{host.partition('.')[0]}] ".encode() if host else f"[{number}] ".encode()


def tagged(prefix, text):
    """Returns whole lines with `prefix` before each. The last line may lack its newline."""
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return b"".join(prefix + line + b"\n" for line in lines)


class Raw:
    """Joins the untagged output of workers. The output of a single worker is unchanged, byte for byte. With several
    workers, no line begins in the middle of another's."""

    def __init__(self):
        self._open = None  # the worker whose last line has no newline yet

    def join(self, worker, text):
        """Returns the bytes to write for this text of a worker."""
        before = b"" if self._open in (None, worker) else b"\n"
        self._open = None if text.endswith(b"\n") else worker
        return before + text


class Logs:
    """Files with the output of each worker: worker-N.out and worker-N.err in a folder. They are appended to."""

    def __init__(self, folder):
        self._folder = folder
        self._files = {}

    def write(self, worker, is_out, text):
        """Appends text of a worker's standard output, or whole lines of its standard error. Raises OutputError."""
        name = f"worker-{worker}.{'out' if is_out else 'err'}"
        try:
            if name not in self._files:
                self._files[name] = open(os.path.join(self._folder, name), "ab", buffering=0)  # noqa: SIM115
            self._files[name].write(text + b"\n" * (not is_out and not text.endswith(b"\n")))
        except OSError as error:
            raise OutputError(f"{os.path.join(self._folder, name)} cannot be written: {error.strerror}") from None
