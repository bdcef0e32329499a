"""Checks the length of classes: definition and members together, as clang-format lays them out, over all files of a folder.

Lines that hold only a comment don't count, so that nobody saves on explanations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lint_rules import CODE, LIBRARIES

MOST_LINES = 490
DEFINED = re.compile(r"^(?:template <.*> )?(?:class|struct) (?:[\w:]+::)?(\w+)(?: final)?(?: :[^;]*)?(?: \{|$)")
MEMBER = re.compile(r"(?:^|[\s*&])(?:\w+::)*(\w+)::(?:~?\w+|operator\S+)\(")


def check(root: Path, files: list[str]) -> list[str]:
    """Returns all findings, as `folder or file: message`."""
    sources = {f: code_lines((root / f).read_text(errors="replace")) for f in files
               if f.endswith(CODE) and f.startswith(LIBRARIES)}
    return [f"{place}: class {name} has {lines} lines with its members; cut it along an idea (at most {MOST_LINES})"
            for (place, name), lines in sorted(sizes(sources).items()) if lines > MOST_LINES]


def sizes(sources: dict[str, list[str]]) -> Counter[tuple[str, str]]:
    """Returns the lines of each class. A class is identified by its folder, or by its file if it is defined in a .cpp."""
    defined: Counter[tuple[str, str]] = Counter()
    for file, lines in sources.items():
        for name, count in definitions(lines):
            defined[home(file), name] += count
    total = Counter(defined)
    for file, lines in sources.items():
        for name, count in members(lines):
            own = (file, name) if (file, name) in defined else (folder(file), name)
            if own in defined:
                total[own] += count
    return total


def code_lines(text: str) -> list[str]:
    """Returns the lines of a file without those that hold only a comment."""
    return [line for line in text.splitlines() if not line.lstrip().startswith("//")]


def folder(file: str) -> str:
    return file.rpartition("/")[0]


def home(file: str) -> str:
    return folder(file) if file.endswith((".h", ".cuh")) else file


def definitions(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Yields classes that aren't inside another class. The lines of inner classes count for the outer one."""
    for begin, line in enumerate(lines):
        if (found := DEFINED.match(line)) and not line.endswith(";"):
            end = next((i for i in range(begin, len(lines)) if lines[i].startswith("};")), begin)
            yield found[1], end - begin + 1


def members(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Yields functions outside of their class, with the name of their class."""
    begin = 0
    while begin < len(lines):
        if not re.match(r"[A-Za-z]", lines[begin]):
            begin += 1
            continue
        head = next((i for i in range(begin, len(lines)) if re.search(r"[{};]$", lines[i])), len(lines) - 1)
        end = head
        if lines[head].endswith("{"):
            end = next((i for i in range(head, len(lines)) if lines[i].startswith("}")), head)
        if not lines[head].endswith(";") and (found := MEMBER.search(" ".join(lines[begin:head + 1]).split(" : ")[0])):
            yield found[1], end - begin + 1
        begin = end + 1
