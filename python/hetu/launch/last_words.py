"""What a worker says last. When a job ends on an error, most of its workers only follow, each with a traceback of its own;
the one that is to blame speaks. Its guard holds back a traceback until it knows whether the command ends with it; heturun
(part.py) chooses. Standard library alone, for guard.py.
"""
import re

HOLD_S = 3.0  # a traceback after which a command lives on is not its last word
MOST = 256 << 10  # bytes that are held
# Of errors that nobody caught, in the main thread or another, and of a script that cannot be read.
BEGINS = re.compile(rb'^(Traceback \(most recent call last\):|Exception in thread |  \+ Exception Group Traceback |'
                    rb'  File "[^"\n]*", line \d+$)', re.MULTILINE)


class Held:
    """Holds what standard error has from the last traceback on; whole lines."""

    def __init__(self):
        self._text = b""
        self._since = None

    def feed(self, lines, now):
        """Takes lines; returns those that may go on."""
        if self._since is None:
            found = BEGINS.search(lines)
            if found is None:
                return lines
            self._since = now
            passed, self._text = lines[:found.start()], lines[found.start():]
        else:
            passed, self._text = b"", self._text + lines
        return passed if len(self._text) <= MOST else passed + self.take()

    def due(self, now):
        """What has been held long enough."""
        return self.take() if self._since is not None and now - self._since > HOLD_S else b""

    def take(self):
        """All that is held."""
        text, self._text, self._since = self._text, b"", None
        return text


def essence(words):
    """The error itself: the last line that is no part of the way to it."""
    lines = [line for line in words.decode(errors="replace").splitlines() if line and not line[0].isspace()]
    return lines[-1] if lines else ""
