"""The argument parser of the tool's commands and of the scripts: it wraps their docstrings, and suggests a flag for a
misspelt one."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any, NoReturn

_UNKNOWN = "unrecognized arguments: "


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser whose error about unknown flags names the closest known flags. With RawDescriptionHelpFormatter, the
    description is a docstring: its paragraphs are wrapped, and its indented examples stay."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.formatter_class is argparse.RawDescriptionHelpFormatter and self.description:
            parts = self.description.strip().split("\n\n")
            self.description = "\n\n".join(part if "\n " in f"\n{part}" else textwrap.fill(part, 98) for part in parts)

    def error(self, message: str) -> NoReturn:
        super().error(self.with_suggestion(message))

    def with_suggestion(self, message: str) -> str:
        """Returns the message; if it is about unknown flags, it ends with the flags that they resemble."""
        import difflib  # imported late, to save the time at each start of a worker

        if not message.startswith(_UNKNOWN):
            return message
        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        typed = [word.partition("=")[0] for word in message[len(_UNKNOWN):].split() if word.startswith("--")]
        close = [near for flag in typed for near in difflib.get_close_matches(flag.replace("_", "-"), known, 1)]
        return f"{message}; did you mean {' and '.join(dict.fromkeys(close))}?" if close else message
