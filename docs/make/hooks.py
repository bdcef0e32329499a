"""MkDocs hooks of the documentation site: add the pages that aren't in docs/, and lead links to them (see mkdocs.yml)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cpp_headers  # noqa: E402
import links  # noqa: E402

try:
    import api
    import gallery
except ImportError as error:
    raise PluginError(f"the site needs the built package hetu ({error}). Build both with ./run docs") from None

# Guides come first in results of the search: the weights of other pages, by the start of their address.
WEIGHTS = {"headers/": 0.1, "folders/": 0.3, "api/": 0.3}
UNBUILT = ('<!DOCTYPE html><title>Playground</title><p>This site was built without the playground: <code>./run playground'
           '</code> was not run before <code>./run docs</code>. <a href="../playground.html">About the playground</a>\n')
ORIGIN: dict[str, str] = {}  # pages of the site, and the files of the tree that they come from


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Makes the anchors of headings GitHub's, and lists generated pages in the navigation."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    api_pages = [{path.removeprefix("api/").removesuffix(".md"): path} for path in api.pages()]
    header_pages = [{folder: f"headers/{folder}.md"} for folder in cpp_headers.folders(links.ROOT)]
    folders = [path for path in map(links.address, links.tree_pages()) if path.startswith("folders/")]
    folder_pages = [{path.removeprefix("folders/").removesuffix(".md"): path} for path in folders]
    lists: dict[str, Any] = {"@api": api_pages, "@headers": header_pages, "@folders": folder_pages}
    config.nav = [filled(entry, lists) for entry in config.nav or []]
    return config


def filled(entry: Any, lists: dict[str, Any]) -> Any:
    """Returns an entry of the navigation with lists in place of the names that begin with @."""
    if isinstance(entry, dict):
        return {title: filled(value, lists) for title, value in entry.items()}
    if isinstance(entry, list):
        return [filled(value, lists) for value in entry]
    return lists.get(entry, entry)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of other folders, sources, the interactive gallery, the Python interface and the C++ headers."""
    tree = links.tree_pages()
    ORIGIN.clear()
    ORIGIN.update({links.address(path): path for path in tree})
    added = {address: (links.ROOT / path).read_text(encoding="utf-8") for address, path in ORIGIN.items()
             if files.get_file_from_path(address) is None}
    added |= {links.address(path): links.code_page(path) for path in links.linked_sources(tree)}
    added |= {f"headers/{folder}.md": cpp_headers.page(links.ROOT, folder) for folder in cpp_headers.folders(links.ROOT)}
    added |= {**api.pages(), **gallery.pages()}
    for path, content in added.items():
        files.append(File.generated(config, path, content=content))
    for file in playground(config):
        files.append(file)
    return files


def playground(config: MkDocsConfig) -> list[File]:
    """Returns the files of the playground, which `./run playground` builds. Without them, prints a line, and a page says
    so."""
    folder = links.ROOT / "build" / "playground"
    if not (folder / "core.js").exists():
        print("The site is built without the playground. To include it, run ./run playground first", flush=True)
        return [File.generated(config, "playground/index.html", content=UNBUILT)]
    text = (folder / "index.html").read_text(encoding="utf-8")
    page = text.replace("<!-- site -->", '<a href="../playground.html">About</a>')
    return [File.generated(config, "playground/index.html", content=page),
            *(File.generated(config, f"playground/{path.name}", abs_src_path=str(path)) for path in sorted(folder.iterdir())
              if path.name != "index.html")]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leaves pages of code out of the search, and rewrites the links of a page of the tree."""
    if page.file.src_uri.startswith("source/"):
        page.meta["search"] = {"exclude": True}
    path = ORIGIN.get(page.file.src_uri)
    if path is None:
        return markdown
    markdown = links.rewrite(links.for_python_markdown(markdown), lambda target: links.site_link(target, path))
    if path == "docs/schedules.md":  # a picture leads to its interactive form
        markdown = "\n".join(f"[{line}](gallery/{Path(line[:-1]).stem}.html)" if line.startswith("![") else line
                             for line in markdown.splitlines())
    return markdown


@event_priority(50)  # before the search writes its index
def on_post_build(config: MkDocsConfig) -> None:
    """Weights the sections of pages in the search, whose own setting is for the head of a page only."""
    plugin: Any = config.plugins["material/search"]
    for entry in plugin.search_index.entries:
        for start, weight in WEIGHTS.items():
            if entry["location"].startswith(start):
                entry["boost"] = weight
