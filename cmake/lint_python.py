"""Checks the sizes of Python's classes and functions, and the numbers of their parameters.

The bounds are those of C++ (lint_classes.py, .clang-tidy). Docstrings and lines that hold only a comment don't count, so
that nobody saves on explanations. A class counts with its base classes, because a class that is divided by inheritance is
still one class. A parameter counts if a call must pass it: the layers and optimizers have PyTorch's many optional
parameters."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

from lint_classes import MOST_LINES

MOST_BODY_LINES = 60
MOST_PARAMETERS = 6
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Class:
    """The lines of a class without its base classes, and the names of these."""

    def __init__(self, file: str, node: ast.ClassDef, lines: int) -> None:
        self.file, self.name, self.line, self.lines = file, node.name, node.lineno, lines
        self.bases = [name for base in node.bases if (name := _name(base))]


def check(root: Path, files: list[str]) -> list[str]:
    """Returns all findings, as `file:line: message`."""
    found, classes = [], []
    for file in files:
        if not file.endswith(".py"):
            continue
        text = (root / file).read_text()
        tree = ast.parse(text)
        counted = code_lines_before(tree, text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.append(Class(file, node, _size(node, node.lineno, counted)))
            elif isinstance(node, Function):
                found += [f"{file}:{node.lineno}: {message}" for message in check_function(node, counted)]
    for one, lines in sizes(classes):
        if lines > MOST_LINES:
            found.append(f"{one.file}:{one.line}: class {one.name} has {lines} lines with its base classes; cut it along an "
                         f"idea (at most {MOST_LINES})")
    return found


def check_function(node: Function, counted: list[int]) -> Iterator[str]:
    """Yields what is wrong with one function."""
    lines = _size(node, node.body[0].lineno, counted)
    if lines > MOST_BODY_LINES:
        yield f"{node.name} has {lines} lines; cut it along an idea (at most {MOST_BODY_LINES})"
    given = [*node.args.posonlyargs, *node.args.args]
    own = bool(given) and given[0].arg in ("self", "cls")
    needed = len(given) - own - len(node.args.defaults) + sum(default is None for default in node.args.kw_defaults)
    if needed > MOST_PARAMETERS:
        yield f"{node.name} has {needed} parameters without a default; group them in a class (at most {MOST_PARAMETERS})"


def sizes(classes: list[Class]) -> Iterator[tuple[Class, int]]:
    """Yields each class with its lines, including those of its base classes in the tree. A base class is found by its name;
    of two classes with that name, it is the larger one."""
    known: dict[str, Class] = {}
    for one in classes:
        if one.name not in known or known[one.name].lines < one.lines:
            known[one.name] = one
    for one in classes:
        bases: dict[str, Class] = {}
        open_names = list(one.bases)
        while open_names:
            name = open_names.pop()
            if name in known and name not in bases and name != one.name:
                bases[name] = known[name]
                open_names += known[name].bases
        yield one, one.lines + sum(base.lines for base in bases.values())


def code_lines_before(tree: ast.Module, text: str) -> list[int]:
    """Returns, by line number, the count of lines up to it that are neither comments nor part of a docstring."""
    skipped = {number for number, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith("#")}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | Function) and ast.get_docstring(node, clean=False) is not None:
            skipped.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = range(text.count("\n") + 2)
    return list(itertools.accumulate(number > 0 and number not in skipped for number in lines))


def _size(node: ast.ClassDef | Function, first: int, counted: list[int]) -> int:
    return counted[node.end_lineno or 0] - counted[first - 1]


def _name(base: ast.expr) -> str:
    """Returns the last part of a base class's name: Module for nn.Module, Generic for Generic[T]."""
    if isinstance(base, ast.Subscript):
        base = base.value
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
