"""Checks of the prose in comments, docstrings and Markdown pages (WRITING, rules 1 and 8). Used by lint.py.

The rules are those that a program can decide: the first words of sentences in comments and docstrings, and the length of
table cells. Everything else is for reviewers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# A comment that begins so has no subject, and a reader has to guess it.
STARTS = re.compile(r"(?:Of|What|Whether|Whose|That|Those|How|Who|Whom|Whoever|The same of|For whom)\b")
# Later sentences may begin with "That" before a noun.
LATER_STARTS = re.compile(r"(?:Of|What|Whether|Whose|Those|Whom|Whoever|The same of|For whom)\b")
CELL_WORDS = 40
GENERATED = tuple(f"docs/{name}.md" for name in ("reference", "operators", "equality", "reproduction", "schedules",
                                                 "errors", "lab/speed"))
CPP = (".h", ".cpp", ".cu", ".cuh")


def cpp_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yields the first line number and the text of each comment. Consecutive comment lines are one comment."""
    first, block, is_trailing = 0, list[str](), False
    for number, line in enumerate(text.split("\n"), 1):
        whole = re.match(r"\s*//(/?<?)\s?(.*)", line)
        if whole:
            # A trailing comment goes on in lines that are indented as far, and ends before a comment of its own.
            if block and is_trailing and "<" not in whole[1] and not re.match(r"\s{20,}//", line):
                yield first, " ".join(block)
                block = []
            if not block:
                first, is_trailing = number, False
            block.append(whole[2])
            continue
        if block:
            yield first, " ".join(block)
            block = []
        trailing = re.search(r"\s//[/]?<?\s([^\"]*)$", line)
        if trailing:
            first, block, is_trailing = number, [trailing[1]], True
    if block:
        yield first, " ".join(block)


def python_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line number and the text of each docstring and each comment on lines of its own."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring
    first, block = 0, list[str]()
    for number, line in enumerate([*text.split("\n"), ""], 1):
        comment = re.match(r"\s*#(?!!)\s?(.*)", line)
        if comment:
            first = first if block else number
            block.append(comment[1])
        elif block:
            yield first, " ".join(block)
            block = []


def cells(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line number and the text of each table cell of a Markdown page."""
    is_code = False
    for number, line in enumerate(text.split("\n"), 1):
        is_code ^= line.startswith("```")
        if line.startswith("|") and not is_code:
            yield from ((number, cell) for cell in line.strip("|").split(" | "))


def bad_starts(comment: str) -> Iterator[str]:
    """Yields the first words of each sentence that begins with a word of STARTS or LATER_STARTS. Questions may."""
    for place, sentence in enumerate(re.split(r"(?<=[.!?:])\s+(?=[A-Z])", comment.strip())):
        if (LATER_STARTS if place else STARTS).match(sentence) and not sentence.endswith("?"):
            yield " ".join(sentence.split()[:4])


def check(root: Path, names: list[str]) -> list[str]:
    """Returns a line for each sentence of a comment that begins with such a word, and for each table cell with too many
    words."""
    found = []
    for name in names:
        if name.endswith((*CPP, ".py")):
            text = (root / name).read_text(errors="replace")
            comments = python_comments(text) if name.endswith(".py") else cpp_comments(text)
            found += [f"{name}:{number}: a sentence begins with '{start}': begin with a verb or a noun"
                      for number, words in comments for start in bad_starts(words)]
        elif name.endswith(".md") and name not in GENERATED:
            text = (root / name).read_text(errors="replace")
            found += [f"{name}:{number}: a cell has {len(cell.split())} words, at most {CELL_WORDS}: move text below it"
                      for number, cell in cells(text) if len(cell.split()) > CELL_WORDS]
    return found
