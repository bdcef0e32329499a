"""Markdown of the tree as pages of the site: which files become pages, and what their links become.

A page of docs/ keeps its path. Other pages and the sources that a page links to have an address of their own:

    README.md                 index.md
    INSTALL.md                INSTALL.md
    pipeline/ir/README.md     folders/pipeline/ir.md
    docs/examples/train.py    source/docs/examples/train.py.md      (shown as code)

Paths are relative to the root of the tree. Nothing here needs MkDocs, so that a test can use it without.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = (".svg", ".png", ".jpg")
LANGUAGES = {".py": "python", ".h": "cpp", ".cpp": "cpp", ".cu": "cuda", ".yml": "yaml", ".cff": "yaml", ".toml": "toml",
             ".json": "json", ".sh": "bash", ".cmake": "cmake"}
# Fenced blocks and code spans, which hold no links, are matched first.
LINK = re.compile(r"^```.*?^```|^    .*?$|``.+?``|`[^`\n]+`|(?P<open>\]\()(?P<target>[^)\s]+)\)", re.M | re.S)


def tree_pages() -> list[str]:
    """Returns the Markdown files that become pages: those of docs/, of the top folder, and each folder's README.md."""
    pages = []
    for folder, folders, files in os.walk(ROOT):
        top = folder == str(ROOT)
        folders[:] = sorted(f for f in folders if not f.startswith((".", "__")) and
                            not (top and (f.startswith("build") or f in ("runs", "shared", "dist"))))
        here = Path(folder).relative_to(ROOT).as_posix()
        names = files if top or here.split("/")[0] == "docs" else [f for f in files if f == "README.md"]
        pages += [posixpath.normpath(f"{here}/{name}") for name in sorted(names) if name.endswith(".md")]
    return pages


def address(path: str) -> str:
    """Returns the path within the site's sources of a file of the tree. Sources of programs become pages of code."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/") and path.endswith((".md", *PICTURES)):
        return path.removeprefix("docs/")
    if path.endswith("/README.md"):
        return f"folders/{path.removesuffix('/README.md')}.md"
    return path if path.endswith(".md") else f"source/{path}.md"


def rewrite(markdown: str, change: Callable[[str], str]) -> str:
    """Replaces the target of every link outside code by change(target)."""
    def replaced(match: re.Match[str]) -> str:
        return f"]({change(match['target'])})" if match["open"] else match[0]
    return LINK.sub(replaced, markdown)


def is_outside(target: str) -> bool:
    """Returns true for a link to another host, or within its own page."""
    return target.startswith(("#", "http:", "https:", "mailto:"))


def linked_file(target: str, page: str) -> str:
    """Returns the file of the tree that a link on `page` leads to. A folder stands for its README.md."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))
    return f"{path}/README.md" if (ROOT / path).is_dir() else path


def site_link(target: str, page: str) -> str:
    """Returns the link of the site that stands for `target` on the page `page` of the tree."""
    if is_outside(target):
        return target
    mark = target.partition("#")[1:]
    here = posixpath.dirname(address(page)) or "."
    return posixpath.relpath(address(linked_file(target, page)), here) + "".join(mark)


def linked_sources(pages: list[str]) -> list[str]:
    """Returns the files that pages link to and that are neither pages nor pictures."""
    found: set[str] = set()
    for page in pages:
        def note(target: str, page: str = page) -> str:
            if not is_outside(target):
                found.add(linked_file(target, page))
            return target
        rewrite((ROOT / page).read_text(encoding="utf-8"), note)
    return sorted(path for path in found if not path.endswith((".md", *PICTURES)) and (ROOT / path).is_file())


def code_page(path: str) -> str:
    """Returns a page that shows a source file."""
    language = LANGUAGES.get(Path(path).suffix, "cmake" if path.endswith("CMakeLists.txt") else "text")
    text = (ROOT / path).read_text(encoding="utf-8")
    return f"# {path}\n\n~~~~{language}\n{text.rstrip()}\n~~~~\n"


def for_python_markdown(markdown: str) -> str:
    """Returns GitHub's Markdown in the form that Python-Markdown reads alike: a blank line before a list or a table that
    follows a paragraph, four spaces before a nested item, and the name of a block's file as its title."""
    lines: list[str] = []
    in_code = False
    for line in markdown.splitlines():
        if line.startswith("```"):
            in_code = not in_code
            line = re.sub(r"^```(\w+) (\S+\.\w+).*", r'```\1 title="\2"', line) if '"' not in line else line
            line = re.sub(r"^```(\w+) [^\"]*$", r"```\1", line)
        before = lines[-1].strip() if lines else ""
        if not in_code:
            item = re.match(r"( *)([-*]|\d+\.) ", line)
            if item and item[1] in ("  ", "   "):
                line = "    " + line.lstrip()
            in_list = re.match(r" *([-*]|\d+\.) |  ", lines[-1]) if before else True
            if item and not item[1] and not in_list or line.startswith("|") and before and not before.startswith("|"):
                lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"
