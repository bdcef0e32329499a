"""Messages about the use of the user's files."""

from __future__ import annotations

from hetu import _hetu


def notice(line: object) -> None:
    """Prints a line once per job: in the first worker, and not while heturun only checks the script."""
    env = _hetu.env()
    if env["worker"] == 0 and not env["check"]:
        print(line, flush=True)
