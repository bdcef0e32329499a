#!/usr/bin/env python3
"""Writes the documentation page of the operators, from the operator records of a built module.

usage: operator_texts.py MODULE --table FILE       docs/operators.md, operator x back end
       operator_texts.py MODULE --check FILE       exits with 1 if that page is stale (a test calls this)

MODULE is the path of hetu._hetu. The package and NumPy are not needed.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

HEAD = """# Operators

This page is generated from the operator records and kernel tables of a build. A test checks that it is up to date.
`help(hetu.ops.NAME)` shows an operator with its attributes. Kernels are listed from best to worst, and the first one that
supports the shapes and types is used. The other kernels are tested against the reference kernel, which
`HETU_KERNELS=reference` selects.

| operator | inputs | what it computes | CPU |
|---|---|---|---|
"""


def load(module: str) -> ModuleType:
    """Loads the compiled module without the package."""
    loader = ExtensionFileLoader("_hetu", module)
    spec = spec_from_file_location("_hetu", module, loader=loader)
    assert spec is not None
    loaded = module_from_spec(spec)
    loader.exec_module(loaded)
    return loaded


def signature(record: dict[str, Any]) -> str:
    """Returns the first line of an operator's function, as in a stub."""
    inputs = record["inputs"] or []
    optional = set(record["optional_inputs"])
    words = [f"{name}: Value" + (" = ..." if name in optional else "") for name in inputs]
    words += [f"{name}: Value = ..." for name in record["optional_inputs"] if name not in inputs]
    if record["repeats"]:
        words[-1] = f"*{record['inputs'][-1]}: Value"
    keywords = ["name: str = ..."]
    for name, fallback, required, _ in record["attrs"]:
        kind = "Sequence[int]" if isinstance(fallback, list) else type(fallback).__name__
        keywords.append(f"{name}: {kind}" + ("" if required else " = ..."))
    returns = "Value" if len(record["outputs"]) == 1 else "tuple[Value, ...]"
    divider = ", " if record["repeats"] else ", /, *, " if words else "*, "
    return f"def {record['name']}({', '.join(words)}{divider}{', '.join(keywords)}) -> {returns}:"


def table(found: list[dict[str, Any]]) -> str:
    rows = []
    for record in found:
        optional = [f"[{name}]" for name in record["optional_inputs"]]
        more = ["..."] if record["repeats"] else []
        inputs = ", ".join([n for n in record["inputs"] if n not in record["optional_inputs"]] + optional + more)
        doc = record["doc"].replace("|", "\\|")
        rows.append(f"| `{record['name']}` | {inputs} | {doc} | {', '.join(record['cpu_kernels']) or '-'} |")
    return HEAD + "\n".join(rows) + "\n"


def main(module: str, what: str, target: str) -> int:
    found = list(load(module).operator_records())
    path = Path(target)
    if what == "--table":
        path.write_text(table(found))
    elif path.read_text() != table(found):
        print(f"{target} is stale; regenerate it with: python3 python/src/operator_texts.py {module} --table {target}")
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[2] not in ("--table", "--check"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
