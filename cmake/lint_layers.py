"""Who may include whom, as a table, and the check of it over includes and link lists (DESIGN, "Folders")."""

from __future__ import annotations

import re
from pathlib import Path

# A folder and what it may see besides itself. The longest matching prefix of a path decides its layer.
BELOW_EXECUTOR = ["graph/base", "graph", "config", "ops", "pipeline", "pipeline/groups", "ps", "datasets"]
LAYERS: dict[str, list[str]] = {
    "graph/base": [],
    "config": ["graph/base"],
    "graph": ["graph/base"],
    "pipeline/groups": ["graph/base"],
    "pipeline": ["graph/base", "config", "graph", "pipeline/groups"],
    "ops": ["graph/base", "graph"],
    "ps": ["graph/base", "config", "pipeline/groups"],
    "datasets": ["graph/base", "config"],
    "executor": BELOW_EXECUTOR,
    "python": [*BELOW_EXECUTOR, "executor"],
    "tests": [*BELOW_EXECUTOR, "executor", "python"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
LIBRARY = re.compile(r"hetu_(?:library|command)\(\s*(\w+)([^)]*)\)")
LINK = re.compile(r"target_link_libraries\(\s*hetu_(\w+)([^)]*)\)")


def layer_of(path: str) -> str | None:
    """The layer that a path belongs to; None outside the table."""
    return max((name for name in LAYERS if path == name or path.startswith((name + "/", name + "."))),
               key=len, default=None)


def check_includes(root: Path, files: list[str]) -> list[str]:
    """Every quoted include names a file from the root, in a layer that the including one may see."""
    found = []
    for file in files:
        layer = layer_of(file)
        if layer is None or not file.endswith((".h", ".cpp", ".cu")):
            continue
        for number, line in enumerate((root / file).read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                found += [f"{file}:{number}: {m}" for m in judge(root, layer, match[1])]
    return found


def judge(root: Path, layer: str, target: str) -> list[str]:
    """What is wrong with `target` being included from `layer`."""
    if not (root / target).is_file():
        return [f'"{target}" is not in the tree; includes are written from the root, outside headers in <>']
    other = layer_of(target)
    if other is None or (other != layer and other not in LAYERS[layer]):
        return [f"{layer} may not include {target}; it may see: {', '.join(LAYERS[layer]) or 'nothing'}"]
    return []


def check_links(root: Path, files: list[str]) -> list[str]:
    """The link lists in CMake obey the same table."""
    texts = {f: strip_comments((root / f).read_text()) for f in files if f.endswith("CMakeLists.txt")}
    layers: dict[str, str] = {}
    for text in texts.values():
        for name, rest in LIBRARY.findall(text):
            layers[name] = library_layer(rest)
    found = []
    for file, text in texts.items():
        for name, rest in [*LIBRARY.findall(text), *LINK.findall(text)]:
            mine = layers.get(name)
            for dep in re.findall(r"hetu(?:::|_)(\w+)", rest):
                other = layers.get(dep)
                if mine and other and other != mine and other not in LAYERS[mine]:
                    found.append(f"{file}: hetu_{name} ({mine}) may not link hetu::{dep} ({other})")
    return found


def library_layer(arguments: str) -> str:
    """The layer of a library from its DIR and its sources: pipeline/groups is a file or a folder of pipeline."""
    directory = re.search(r"\bDIR\s+(\S+)", arguments)
    source = re.search(r"\bSOURCES\s+(\S+)", arguments)
    path = (directory[1] if directory else "") + "/" + (source[1] if source else "")
    return layer_of(path) or ""


def strip_comments(text: str) -> str:
    return re.sub(r"#[^\n]*", "", text)
