"""The table of allowed includes, and its check over includes and link lists (DESIGN, "Folders")."""

from __future__ import annotations

import re
from pathlib import Path

# Maps a folder to the folders that it may include besides itself. Subfolders inherit nothing. The longest matching prefix of
# a path decides its layer.
_TABLE = {
    "base": "",
    "config": "base",
    "net/keys": "base",
    "net/wire": "base",
    "net/transport": "base net/keys",
    "graph": "base",
    "ops": "base graph",
    "pipeline/groups": "base",
    "pipeline/ir": "base",
    "pipeline/verify": "base pipeline/ir",
    "pipeline/cost": "base pipeline/ir",
    "pipeline/simulate": "base pipeline/ir pipeline/verify pipeline/cost pipeline/groups",
    "pipeline/lower": "base pipeline/ir pipeline/verify pipeline/cost pipeline/simulate",
    "pipeline/generate": "base pipeline/ir pipeline/verify pipeline/cost pipeline/simulate pipeline/lower",
    "pipeline/plan": "base pipeline/ir pipeline/verify pipeline/cost pipeline/simulate pipeline/lower pipeline/generate",
    "pipeline/compare": "base pipeline/ir pipeline/verify pipeline/cost",
    "pipeline/fill": "base pipeline/ir pipeline/cost pipeline/simulate",
    "pipeline/choose": "base pipeline/ir pipeline/cost pipeline/simulate pipeline/lower pipeline/generate pipeline/plan",
    "pipeline/planner": "base pipeline/ir pipeline/cost pipeline/simulate pipeline/lower pipeline/generate pipeline/plan "
                        "pipeline/choose pipeline/render",
    "pipeline/render": "base pipeline/ir pipeline/cost pipeline/simulate pipeline/groups",
    "pipeline/options": "base pipeline/groups pipeline/ir pipeline/verify pipeline/cost pipeline/simulate "
                        "pipeline/lower pipeline/generate pipeline/plan pipeline/choose pipeline/planner "
                        "pipeline/render pipeline/fill",
    "ps/coordinator": "base net/keys pipeline/groups net/wire",
    "ps/server": "base ops net/keys net/wire",
    "ps/client": "base ops net/keys net/wire ps/server",
    "datasets": "base config",
    "executor/device": "base config ops",
    "executor/direct": "base ops net/transport executor/device",
    "executor/state": "base net/transport executor/device",
    "executor/compile": "base graph ops pipeline/ir pipeline/verify",
    "executor/stage": "base graph ops pipeline/ir pipeline/cost net/transport executor/device executor/state "
                      "executor/compile",
    "executor/predict": "base graph ops pipeline/ir net/transport executor/device executor/state executor/compile "
                        "executor/stage",
    "executor/sync": "base graph ops pipeline/groups pipeline/ir ps/client ps/coordinator net/transport "
                     "executor/device executor/direct executor/state executor/compile executor/stage",
    "executor/feed": "base datasets executor/device executor/compile executor/stage executor/sync",
    "executor/loop": "base pipeline/groups pipeline/ir pipeline/cost net/transport executor/direct executor/compile "
                     "executor/stage executor/sync executor/feed",
    "executor/job": "base config graph ops datasets ps/client ps/coordinator pipeline/groups pipeline/ir "
                    "pipeline/verify pipeline/cost pipeline/simulate pipeline/lower pipeline/generate pipeline/plan "
                    "pipeline/compare pipeline/fill net/transport executor/device executor/direct executor/state "
                    "executor/compile executor/stage executor/predict executor/sync executor/feed executor/loop",
    "executor/rehearse": "base ps/client ps/coordinator pipeline/groups pipeline/ir pipeline/cost pipeline/simulate "
                         "net/transport executor/device executor/compile executor/stage executor/sync executor/loop",
    "executor/module": "base ps/coordinator pipeline/groups pipeline/ir pipeline/verify pipeline/cost "
                       "pipeline/lower pipeline/plan net/transport executor/device executor/compile executor/stage "
                       "executor/sync executor/loop executor/job",
}
LAYERS: dict[str, list[str]] = {folder: seen.split() for folder, seen in _TABLE.items()}
LAYERS["cli"] = [*_TABLE]
# Python packages import each other. The compiled module hetu._hetu isn't one of them, and all may import it.
_PACKAGES = {
    "python/hetu": "",
    "python/hetu/process": "python/hetu",
    "python/hetu/job": "python/hetu python/hetu/process",
    "python/hetu/nn": "python/hetu",
    "python/hetu/models": "python/hetu python/hetu/nn",
    "python/hetu/sample": "python/hetu",
    "python/hetu/profile": "python/hetu python/hetu/process python/hetu/job python/hetu/nn python/hetu/models",
    "python/hetu/launch": "python/hetu",
    "python/hetu/torch": "python/hetu python/hetu/process",
    "python/hetu/compat": "python/hetu python/hetu/process python/hetu/launch python/hetu/job python/hetu/torch "
                          "python/hetu/sample",
    "python/hetu/varuna": "python/hetu/compat",
    "python/hetu/launcher": "python/hetu/compat",
}
LAYERS.update({folder: seen.split() for folder, seen in _PACKAGES.items()})
LAYERS["python"] = [*_TABLE, *_PACKAGES]
LAYERS["tests"] = [*_TABLE, "cli", *_PACKAGES, "python"]
SPLIT = ("net", "pipeline", "executor", "ps")  # folders whose sources are all in subfolders
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
LIBRARY = re.compile(r"hetu_(?:library|command)\(\s*(\w+)([^)]*)\)")
LINK = re.compile(r"target_link_libraries\(\s*hetu_(\w+)([^)]*)\)")


def layer_of(path: str) -> str | None:
    """Returns the layer that a path belongs to, or None outside the table."""
    return max((name for name in LAYERS if path == name or path.startswith((name + "/", name + "."))),
               key=len, default=None)


def check_includes(root: Path, files: list[str]) -> list[str]:
    """Checks that every quoted include names a file from the root, in a layer that the including file may use."""
    found = []
    for file in files:
        if not file.endswith((".h", ".cpp", ".cu")):
            continue
        layer = layer_of(file)
        if layer is None:
            if file.startswith(tuple(f"{folder}/" for folder in SPLIT)):
                found.append(f"{file}: stands in none of its folder's folders; put it into one that LAYERS names")
            continue
        for number, line in enumerate((root / file).read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                found += [f"{file}:{number}: {m}" for m in judge(root, layer, match[1])]
    return found


def unit_of(path: str) -> str:
    """Returns the unit of a file. A header, its source, and the internal header that only they share (`x_impl.h`) are one
    unit."""
    return re.sub(r"(_impl)?\.(h|cpp|cu)$", "", path)


def check_cycles(root: Path, files: list[str]) -> list[str]:
    """Checks that no unit includes itself through other units."""
    sees: dict[str, set[str]] = {}
    for file in files:
        if layer_of(file) is not None and file.endswith((".h", ".cpp", ".cu")):
            included = (INCLUDE.match(line) for line in (root / file).read_text().splitlines())
            sees.setdefault(unit_of(file), set()).update(unit_of(match[1]) for match in included if match)
    return circles(sees, "these include each other in a circle")


def circles(sees: dict[str, set[str]], wrong: str) -> list[str]:
    """Returns the cycles in which a unit includes itself through others, each once."""
    done: set[str] = set()
    found = []

    def visit(unit: str, way: list[str]) -> None:
        if unit in way:
            found.append(" -> ".join([*way[way.index(unit):], unit]) + f": {wrong}")
        elif unit not in done:
            for other in sorted(sees.get(unit, set()) - {unit}):
                visit(other, [*way, unit])
            done.add(unit)

    for unit in sorted(sees):
        visit(unit, [])
    return found


def judge(root: Path, layer: str, target: str) -> list[str]:
    """Returns the errors of including `target` from `layer`."""
    if not (root / target).is_file():
        return [f'"{target}" is not in the tree; write its path from the root, or use <> for a header from outside']
    other = layer_of(target)
    if other is None or (other != layer and other not in LAYERS[layer]):
        return [f"{layer} may not include {target}; it may include: {', '.join(LAYERS[layer]) or 'nothing'}"]
    return []


def check_links(root: Path, files: list[str]) -> list[str]:
    """Checks that the link lists in CMake obey the same table."""
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
    """Returns the layer of a library from its DIR and its sources: pipeline/groups is a file or a folder of pipeline."""
    directory = re.search(r"\bDIR\s+(\S+)", arguments)
    source = re.search(r"\bSOURCES\s+(\S+)", arguments)
    path = (directory[1] if directory else "") + "/" + (source[1] if source else "")
    return layer_of(path) or ""


def strip_comments(text: str) -> str:
    return re.sub(r"#[^\n]*", "", text)
