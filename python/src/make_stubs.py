#!/usr/bin/env python3
"""Writes the stub package of hetu: the modules whose signatures exist only at run time.

usage: make_stubs.py MODULE SOURCES FOLDER

MODULE: the path of hetu._hetu.
SOURCES: the package's sources, python/hetu. The package itself and NumPy are not needed.
FOLDER: the stub package, hetu-stubs. It is partial (PEP 561): other modules have their annotations, which py.typed in
the package declares.

The build calls this script, and a test compares its output with the build's.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from operator_texts import load, signature

# Python's types of an option, by the type in its table. A size may have a unit, and a path may be an object.
TYPES = {"flag": "bool", "whole number": "int", "number": "float", "text": "str | os.PathLike[str]",
         "list of whole numbers": "Sequence[int]", "list of numbers": "Sequence[float]", "list of texts": "Sequence[str]",
         "records": "Sequence[Mapping[str, Any]]"}
Fields = list[dict[str, Any]]


def type_of(field: dict[str, Any]) -> str:
    """Returns the type of an option. None always means that it is not given."""
    kind = "int | str" if field["unit"] == "bytes" else "str" if field["choices"] else TYPES[field["type"]]
    return f"{kind} | None"


def parameters(fields: Fields) -> tuple[list[ast.arg], list[ast.expr]]:
    """Returns the options as parameters with defaults."""
    defaults = [[] if field["type"] == "records" else field["default"] for field in fields]
    return ([ast.arg(field["name"], ast.parse(type_of(field), mode="eval").body) for field in fields],
            [ast.parse(repr(value), mode="eval").body for value in defaults])


class Stub(ast.NodeTransformer):
    """Converts a module to a stub: without bodies, statements, and functions for the module itself.

    signed: classes whose constructor takes the options of a table, by name.
    """

    def __init__(self, signed: dict[str, Fields]) -> None:
        self.signed = signed

    def visit_Module(self, node: ast.Module) -> ast.Module:
        kept = [self.visit(one) for one in node.body if self._is_kept(one)]
        return ast.Module([one for one in kept if one is not None], [])

    def _is_kept(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            return not node.name.startswith("_")
        if isinstance(node, ast.Assign):
            return False  # of no public type
        return isinstance(node, ast.Import | ast.ImportFrom | ast.If | ast.AnnAssign)

    def visit_If(self, node: ast.If) -> ast.If | None:
        """Keeps what type checkers see."""
        return node if ast.unparse(node.test) == "TYPE_CHECKING" else None

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.body = [kept for one in node.body if (kept := self.visit(one)) is not None]
        node.keywords = []
        if node.name in self.signed and not any(isinstance(one, ast.FunctionDef) and one.name == "__init__"
                                                for one in node.body):
            node.body += self._constructor(self.signed[node.name])
        if node.name in self.signed:
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name == "__init__" and one.args.kwarg:
                    more, defaults = parameters(self.signed[node.name])
                    one.args.kwarg = None
                    one.args.kwonlyargs += more
                    one.args.kw_defaults += defaults
        return node

    def _constructor(self, fields: Fields) -> list[ast.stmt]:
        """Returns the members of a class that holds the options of a table."""
        arguments, defaults = parameters(fields)
        function = ast.parse("def __init__(self) -> None: ...").body[0]
        assert isinstance(function, ast.FunctionDef)
        function.args.args += arguments
        function.args.defaults = defaults
        members: list[ast.stmt] = [ast.AnnAssign(ast.Name(one.arg), one.annotation, None, 1) for one in arguments]
        return [*members, function]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        doc = node.body[:1] if ast.get_docstring(node) is not None else []
        node.body = [*doc, ast.Expr(ast.Constant(...))]
        node.decorator_list = [one for one in node.decorator_list if ast.unparse(one) == "property"]
        return node


def stub_of(path: Path, signed: dict[str, Fields], imports: str = "") -> str:
    """Returns the stub of a module with classes whose constructors take options."""
    tree = Stub(signed).visit(ast.parse(path.read_text()))
    text = ast.unparse(ast.fix_missing_locations(tree)).replace(":\n    ...", ": ...")
    return text.replace("from __future__ import annotations\n", f"from __future__ import annotations\n{imports}") + "\n"


def package_stub(path: Path) -> str:
    """Returns the stub of the package, whose names are loaded on first use."""
    module = ModuleType("names")
    names = [node for node in ast.parse(path.read_text()).body
             if isinstance(node, ast.Assign | ast.AugAssign) and ast.unparse(node).startswith(("_FROM =", "_MODULES "))]
    exec(compile(ast.Module(names, []), str(path), "exec"), vars(module))
    lines = ["from hetu import _hetu as _hetu"]
    for name, place in sorted(module._MODULES.items()):
        package, _, part = f"hetu.{place}".rpartition(".")
        lines.append(f"from {package} import {part} as {name}")
    lines += [f"from hetu.{place} import {name} as {name}" for name, place in sorted(module._FROM.items())]
    return "\n".join([*lines, "", "__version__: str", ""])


def operators_stub(path: Path, records: list[dict[str, Any]]) -> str:
    """Returns the stub of hetu.ops, whose source names the operators that take numbers too."""
    (numbers,) = [ast.literal_eval(node.value) for node in ast.parse(path.read_text()).body
                  if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_BESIDE_NUMBERS"]
    lines = ["from collections.abc import Sequence", "", "from hetu.graph import Value", ""]
    for record in records:
        head, arrow, result = signature(record).partition(" -> ")
        if record["name"] in numbers:
            head = head.replace(": Value", ": Value | float")
        lines += [head + arrow + result, f"    {record['doc']!r}", ""]
    return "\n".join(lines)


def module_stub(module: ModuleType) -> str | None:
    """Returns the stub of the compiled module, or None without nanobind's generator."""
    try:
        from nanobind.stubgen import StubGen
    except ImportError as error:
        print(f"make_stubs: _hetu.pyi is not written: {error}", file=sys.stderr)
        return None
    generator = StubGen(module)
    generator.put(module)
    # The generator takes the exceptions, whose module is named hetu, for those of another package.
    errors = [f"\nclass {name}({kind.__base__.__name__}): ...\n" for name, kind in vars(module).items()
              if isinstance(kind, type) and issubclass(kind, BaseException)]
    return "".join([str(generator.get()), *errors])


def stubs(module: ModuleType, sources: Path) -> dict[str, str]:
    """Returns the files of the stub package by their paths. A module without training has no stubs of training."""
    files = {"py.typed": "partial\n", "__init__.pyi": package_stub(sources / "__init__.py")}
    if "training" in module.option_tables():
        files |= training_stubs(module, sources)
    compiled = module_stub(module)
    return files if compiled is None else {**files, "_hetu.pyi": compiled}


def training_stubs(module: ModuleType, sources: Path) -> dict[str, str]:
    """Returns the stubs of operators, and of classes that take the options of a training."""
    tables = {name: list(module.option_fields(name)) for name in ("training", "averaging", "stragglers")}
    keywords = [field if field["otherwise"] is None else {**field, "default": None}  # as hetu.options.sign does
                for field in tables["training"] if field["name"] not in ("batch_size", "micro_batches")]
    averaging = {"Averaging": tables["averaging"], "Stragglers": tables["stragglers"]}
    types = "import os\nfrom collections.abc import Mapping, Sequence\nfrom typing import Any\n"
    return {
        "ops.pyi": operators_stub(sources / "ops.py", list(module.operator_records())),
        "averaging.pyi": stub_of(sources / "averaging.py", averaging, types),
        "job/executor.pyi": stub_of(sources / "job" / "executor.py", {"Executor": keywords}),
    }


def main(module: str, sources: str, folder: str) -> None:
    for name, text in stubs(load(module), Path(sources)).items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
