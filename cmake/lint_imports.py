"""Checks the imports of Python packages against the table of lint_layers, and that no modules import each other in a cycle.

An import counts at any place, also inside a function or for type checkers only: it is still a dependency."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from lint_layers import LAYERS, circles, layer_of

SOURCES = "python/"  # where `hetu` is found
FREE = ("hetu._hetu", "device_list")  # the compiled module; the user's own list, for which the tree has an example


def check(root: Path, files: list[str]) -> list[str]:
    """Returns all findings over the scripts and packages in python/."""
    found = []
    sees: dict[str, set[str]] = {}
    known = set(files)
    for file in files:
        if not (file.startswith(SOURCES) and file.endswith(".py")):
            continue
        layer = layer_of(file) or ""
        sees[file] = set()
        for line, target in imports(ast.parse((root / file).read_text()), known):
            sees[file].add(target)
            other = layer_of(target) or ""
            if other != layer and other not in LAYERS[layer]:
                seen = ", ".join(name for name in LAYERS[layer] if name.startswith(SOURCES))
                found.append(f"{file}:{line}: {layer} may not import {target}; it may import: "
                             f"{seen or 'only hetu._hetu from Hetu'}")
    return found + circles(sees, "these import each other in a circle")


def imports(tree: ast.AST, known: set[str]) -> Iterator[tuple[int, str]]:
    """Yields (line, file) of every import of a file in python/. For a name in a module, the file is the module's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            # `from hetu import data` is the module data; `from hetu.data import Text` the name of a module
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name in FREE:
                continue
            target = file_of(name, known)
            if target is None and isinstance(node, ast.ImportFrom):
                target = file_of(node.module or "", known)
            if target is not None:
                yield node.lineno, target


def file_of(module: str, known: set[str]) -> str | None:
    """Returns the file of a module's full name, or None if the module isn't in python/."""
    path = SOURCES + module.replace(".", "/")
    return next((name for name in (f"{path}.py", f"{path}/__init__.py") if name in known), None)
