"""The last lines of a worker's standard error.

When a job ends on an error, most of its workers only follow, each with a traceback of its own. Only the worker that caused
the failure should print. The worker's guard holds back a traceback, or a line that the worker has announced, until it knows
if the command ends with it. heturun (part.py) then chooses. This module uses only the standard library, for guard.py.
"""
import re

HOLD_S = 3.0  # a traceback is not the last output of a command that continues for this time
ANNOUNCED_S = 10.0  # likewise for announced lines: the worker leaves its job in the meantime
MOST = 256 << 10  # most bytes that are held
# Beginnings of errors that were not caught, in the main thread or another, and of errors in a script that can't
# be parsed.
BEGINS = re.compile(rb'^(Traceback \(most recent call last\):|Exception in thread |  \+ Exception Group Traceback |'
                    rb'  File "[^"\n]*", line \d+$)', re.MULTILINE)


class Held:
    """Holds standard error from the last traceback on, in whole lines."""

    def __init__(self):
        self._text = b""
        self._until = None  # end of the hold; None if nothing is held

    def announce(self, now):
        """Notes that the next lines are the last ones."""
        self._until = now + ANNOUNCED_S

    def feed(self, lines, now):
        """Takes lines. Returns those that may be forwarded."""
        if self._until is None:
            found = BEGINS.search(lines)
            if found is None:
                return lines
            self._until = now + HOLD_S
            passed, self._text = lines[:found.start()], lines[found.start():]
        else:
            passed, self._text = b"", self._text + lines
        return passed if len(self._text) <= MOST else passed + self.take()

    def due(self, now):
        """Returns the lines that have been held long enough."""
        return self.take() if self._until is not None and now > self._until else b""

    def take(self):
        """Returns everything that is held."""
        text, self._text, self._until = self._text, b"", None
        return text


def is_traceback(words):
    """Returns true if the text shows the origin of an error. Otherwise it is a line that was announced."""
    return BEGINS.search(words) is not None


def essence(words):
    """Returns the error itself: the last line that is not part of the traceback's frames."""
    lines = [line for line in words.decode(errors="replace").splitlines() if line and not line[0].isspace()]
    return lines[-1] if lines else ""
