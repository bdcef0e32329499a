"""What workers write, on its way to heturun's standard output: with the worker before each line, or as it is.
Used by supervise.py."""
import os


def writes_alone(command, workers):
    """True where one worker alone writes to standard output so that nothing must tell workers apart."""
    return workers == 1 or [os.path.basename(command[0]), *command[1:2]] == ["hetu", "rehearse"]


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
