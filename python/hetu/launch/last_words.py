"""What a worker says last. When a job ends on an error, most of its workers only follow, each with a traceback of its own;
the one that is to blame speaks. Its guard holds back a traceback, or a line that the worker has announced, until it knows
whether the command ends with it; heturun (part.py) chooses. Standard library alone, for guard.py.
"""
import re

HOLD_S = 3.0  # a traceback after which a command lives on is not its last word
ANNOUNCED_S = 10.0  # the same, of words that are said to be the last: the worker leaves its job meanwhile
MOST = 256 << 10  # bytes that are held
# Of errors that nobody caught, in the main thread or another, and of a script that cannot be read.
BEGINS = re.compile(rb'^(Traceback \(most recent call last\):|Exception in thread |  \+ Exception Group Traceback |'
                    rb'  File "[^"\n]*", line \d+$)', re.MULTILINE)


class Held:
    """Holds what standard error has from the last traceback on; whole lines."""

    def __init__(self):
        self._text = b""
        self._until = None  # while it holds

    def announce(self, now):
        """The next lines are the last."""
        self._until = now + ANNOUNCED_S

    def feed(self, lines, now):
        """Takes lines; returns those that may go on."""
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
        """What has been held long enough."""
        return self.take() if self._until is not None and now > self._until else b""

    def take(self):
        """All that is held."""
        text, self._text, self._until = self._text, b"", None
        return text


def is_traceback(words):
    """Whether they show where an error came from; else they are a line that was announced."""
    return BEGINS.search(words) is not None


def essence(words):
    """The error itself: the last line that is no part of the way to it."""
    lines = [line for line in words.decode(errors="replace").splitlines() if line and not line[0].isspace()]
    return lines[-1] if lines else ""
