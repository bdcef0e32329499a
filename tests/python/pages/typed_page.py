"""Runs a tutorial page as a reader types it: writes its files, runs its commands in one shell, compares what they print.

The words behind the three backticks of a block say what the runner does with it. MkDocs shows a title above the block:

| words | action |
|---|---|
| LANGUAGE `title="FILE"`, or LANGUAGE FILE | appends the block to FILE |
| `sh` | runs each line, which must succeed. A comment begins with two spaces and `#`; a backslash continues a line |
| `sh title="ends with status N"` | runs each line; the last one must end with status N. `sh refused` means 1 |
| `text title="output"`, or `said` | must be found in what the commands before it printed; `…` stands for any text |
| `text title="output, with other numbers"` | the same, but numbers and the width of columns may differ |
| a language alone | ignored |

Commands that begin as `TypedPage.prepared` says are left out: the test has prepared what they do, such as building the tree.
"""

from __future__ import annotations

import os
import pathlib
import re
import select
import signal
import subprocess
import tempfile
import unittest
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIMIT_S = 300  # per command
NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"


class Ended(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    error: str


class Shell:
    """One bash that runs commands one after another, so that variables and background jobs last from line to line."""

    def __init__(self, folder: pathlib.Path, files: pathlib.Path) -> None:
        self.files = files
        self.statuses, status = os.pipe()
        usual = {name: value for name, value in os.environ.items() if name != "HETU_RUNS"}  # jobs keep run folders
        self.bash = subprocess.Popen(["bash", "--norc"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                     text=True, env=usual, pass_fds=[status], start_new_session=True)
        os.close(status)
        self.status = status

    def run(self, command: str) -> Ended:
        """Runs a command to its end; its standard input is empty."""
        assert self.bash.stdin is not None
        out, error = self.files / "out", self.files / "error"
        for path in (out, error):  # a background job of an earlier command may still write to the old file
            path.unlink(missing_ok=True)
        close = f"{self.status}>&-"  # no background job keeps the pipe of statuses
        self.bash.stdin.write(f"{{ {command}\n}} > {out} 2> {error} < /dev/null {close}\necho $? >&{self.status}\n")
        self.bash.stdin.flush()
        ready, _, _ = select.select([self.statuses], [], [], LIMIT_S)
        if not ready:
            raise AssertionError(f"{command}: not done after {LIMIT_S} s\n{out.read_text()}{error.read_text()}")
        status = os.read(self.statuses, 16)
        if not status:
            raise AssertionError(f"{command}: ended the shell")
        return Ended(int(status), out.read_text(), error.read_text())

    def close(self) -> None:
        """Ends the shell and whatever it has started."""
        assert self.bash.stdin is not None
        self.bash.stdin.close()
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.bash.pid, sign)
                self.bash.wait(timeout=20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self.bash.wait()
        os.close(self.statuses)


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Returns language, further words or title, and text of each block of a page."""
    text = (ROOT / "docs" / page).read_text()
    found = re.findall(r'^```(\w*) ?(?:title="([^"\n]*)"|([^\n]*))\n(.*?)^```', text, re.M | re.S)
    return [(language, title or words, body) for language, title, words, body in found]


def commands(block: str) -> list[str]:
    """Returns the commands of a block without comments."""
    lines = [line.split("  #")[0].rstrip() for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def pattern(block: str, any_numbers: bool) -> str:
    """Returns the regular expression of a block of what commands print."""
    parts = []
    for line in block.strip("\n").split("\n"):
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
            continue
        words = re.split(rf"(…|{NUMBER}| +)" if any_numbers else "(…)", line.strip())
        line = "".join(".*?" if word == "…" else NUMBER if any_numbers and re.fullmatch(NUMBER, word) else
                       " +" if any_numbers and word.isspace() else re.escape(word) for word in words)
        parts.append(rf" *{line} *(?:\n|\Z)")
    return "^" + "".join(parts)


class TypedPage(unittest.TestCase):
    """A page in an empty folder. Subclasses call type_page() and look at what was printed."""

    prepared: tuple[str, ...] = ("./run ", "source ")

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="hetu-tutorial-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name, "page")
        self.folder.mkdir()
        self.shell = Shell(self.folder, pathlib.Path(folder.name))
        self.addCleanup(self.shell.close)

    def type_page(self, page: str) -> dict[str, str]:
        """Writes and runs all blocks in order. Returns the standard output of each command."""
        printed: dict[str, str] = {}
        last = ""
        for language, words, text in blocks(page):
            if language == "sh":
                last = self._type_commands(words, text, printed)
            elif language == "said" or words.startswith("output"):
                wanted = pattern(text, "numbers" in words)
                untagged = re.sub(r"^\[\d\] ", "", last, flags=re.M)
                self.assertTrue(re.search(wanted, last, re.M) or re.search(wanted, untagged, re.M),
                                f"{page} shows\n{text}\nprinted was\n{last}")
            elif words:
                with open(self.folder / words, "a", encoding="utf-8") as file:
                    file.write(text)
        return printed

    def _type_commands(self, words: str, text: str, printed: dict[str, str]) -> str:
        """Runs the commands of a block. Returns what they have printed, on both streams."""
        last = 1 if words == "refused" else int(words.removeprefix("ends with status ") or 0)
        said = ""
        lines = [line for line in commands(text) if not line.startswith(self.prepared)]
        for line in lines:
            done = self.shell.run(line)
            wanted = last if line is lines[-1] else 0
            self.assertEqual(done.status, wanted, f"{line}\n{done.out}{done.error}")
            printed[line] = done.out
            said += done.out + done.error
        return said
