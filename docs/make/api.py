"""The Python interface as pages of the site, which mkdocstrings fills from docstrings without importing the modules."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import hetu
from hetu import _hetu

PACKAGE = Path(hetu.__file__).parent
# Modules that users name, beside those that hetu.__all__ has, and the modules that they stand for.
MORE = {name: name for name in ("hetu.torch", "hetu.torch.blocks", "hetu.varuna")}
MORE["hetu.varuna.checkpoint"] = "hetu.compat.varuna.checkpoint"

OPERATORS = "\nEvery operator, with its inputs and attributes: [Operators](../operators.md).\n"


def modules() -> dict[str, str]:
    """Returns the modules that have a page: the names that users write, and the modules that they stand for."""
    loaded = {f"hetu.{name}": f"hetu.{hetu._MODULES[name]}" for name in hetu.__all__ if name in hetu._MODULES}
    return dict(sorted({**loaded, **MORE}.items()))


def exported(module: str) -> list[str]:
    """Returns the names in the __all__ of a package, or [] if it has none."""
    path = PACKAGE.parent / module.replace(".", "/") / "__init__.py"
    if not path.exists():
        return []
    found = re.search(r"^__all__ = (\[.*?\])", path.read_text(encoding="utf-8"), re.M | re.S)
    return list(ast.literal_eval(found[1])) if found else []


def module_page(title: str, module: str) -> str:
    """Returns the page of a module or package, under the name that users write."""
    options = {"heading_level": 1, "heading": title, "toc_label": title}
    names = exported(module)
    # Names of functions that hide the module of the same name, which griffe would take.
    hiding = [name for name in names if (PACKAGE.parent / module.replace(".", "/") / f"{name}.py").exists()]
    lines = [f"    {key}: {value}" for key, value in options.items()]
    if names:
        lines.append(f"    members: [{', '.join(name for name in names if name not in hiding)}]")
    parts = [f"::: {module}", "    options:", *(f"  {line}" for line in lines)]
    for name in hiding:
        parts += ["", f"::: {module}.{name}.{name}", "    options:", f"      heading: {name}", f"      toc_label: {name}"]
    return "\n".join(parts) + "\n"


def top_page() -> str:
    """Returns the page of the names in `hetu` itself, which load from their modules on first use."""
    out = ["# hetu", "", "The names of the package itself (`import hetu as ht`). Its modules have pages of their own.", ""]
    for name in sorted(hetu._FROM, key=str.lower):
        out += [f"::: hetu.{hetu._FROM[name]}.{name}", "    options:", f"      heading: hetu.{name}",
                f"      toc_label: {name}", ""]
    return "\n".join(out)


def compiled_class(name: str, value: type) -> str:
    """Returns the section of a class of the compiled module, whose docstrings begin with signatures."""
    out = [f"\n## {name}", "", inspect.getdoc(value) or "", ""]
    for member, inner in vars(value).items():
        if not member.startswith("_"):
            signature, _, text = (inspect.getdoc(inner) or "").partition("\n\n")
            kind = signature.partition("->")[2].strip() if isinstance(inner, property) else ""
            out.append(f"- `{member + (f': {kind}' if kind else signature.removeprefix(member))}`  {text}")
    return "\n".join(out) + "\n"


def pages() -> dict[str, str]:
    """Returns the pages of the interface: their paths and their Markdown."""
    made = {"api/hetu.md": top_page()}
    made |= {f"api/{title}.md": module_page(title, module) for title, module in modules().items()}
    made["api/hetu.ops.md"] += OPERATORS
    made["api/hetu.schedule.md"] += compiled_class("Schedule", _hetu.Schedule)
    return made
