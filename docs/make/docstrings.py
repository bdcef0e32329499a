"""A griffe extension that gives docstrings the form of Markdown.

Docstrings of Hetu describe a parameter in a line `name: text`, or `name, other: text`. In Markdown, such lines would flow
into one paragraph, so they become a list. Python removes the indentation that all lines but the first have in common. Where
these lines are one block of code, the block gets its indentation back.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

DESCRIBED = re.compile(r"(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*): (?=\S)")


def listed(text: str, parameters: set[str]) -> str:
    """Returns a docstring in which each line that describes one of `parameters` begins an item of a list."""
    lines: list[str] = []
    for line in text.splitlines():
        match = DESCRIBED.match(line)
        if match and parameters & set(re.findall(r"\w+", match[1])):
            item = f"- `{match[1]}`: {line[match.end():]}"
            lines += [item] if lines and lines[-1].startswith(("- `", "  ")) else ["", item]
        elif lines and line.strip() and not line.startswith(" ") and lines[-1].startswith(("- `", "  ")):
            lines.append(f"  {line}")
        else:
            lines.append(line)
    return "\n".join(lines)


def lost_indentation(source: str) -> int:
    """Returns by how much all lines of a docstring but the first are indented further than the first, in its source."""
    first, *others = source.splitlines()
    widths = [len(line) - len(line.lstrip()) for line in others if line.strip() and line.strip() != '"""']
    return max(0, min(widths, default=0) - (len(first) - len(first.lstrip())))


class MarkdownDocstrings(griffe.Extension):
    """Changes the docstrings of modules, functions and classes."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Indents a docstring that is a line and a block of code."""
        lost = lost_indentation(obj.docstring.source) if obj.docstring and obj.docstring.lineno else 0
        if obj.docstring and lost:
            first, *others = obj.docstring.value.splitlines()
            obj.docstring.value = "\n".join([first, *(" " * lost + line if line else "" for line in others)])

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Changes the docstring of a function."""
        self.change(func, func)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Changes the docstring of a class by the parameters of its __init__."""
        init = cls.members.get("__init__")
        if isinstance(init, griffe.Function):
            self.change(cls, init)

    @staticmethod
    def change(described: griffe.Object, function: griffe.Function) -> None:
        """Replaces the docstring of an object by one with lists for the parameters of a function."""
        if described.docstring:
            names = {parameter.name for parameter in function.parameters}
            described.docstring.value = listed(described.docstring.value, names)
