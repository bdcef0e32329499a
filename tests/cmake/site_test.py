"""The documentation site has every page of docs/, reads every header, and builds without a warning or a broken link.

The build needs MkDocs and the built package. Without them it is skipped, with the reason printed.
"""

from __future__ import annotations

import ast
import html.parser
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "make"))
import cpp_headers  # noqa: E402
import links  # noqa: E402

NEEDED = ("mkdocs", "material", "mkdocstrings_handlers", "hetu")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
REASON = f"{', '.join(MISSING)} can't be imported: the documentation site was not built. ./run docs installs what it needs"
if MISSING:
    print("skipped:", REASON)


class Links(html.parser.HTMLParser):
    """The links and the anchors of a page of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes what a tag leads to, and its name."""
        for key, value in attrs:
            if key in ("href", "src") and value and tag != "link":
                self.targets.append(value)
            elif key in ("id", "name") and value:
                self.anchors.add(value)


class Site(unittest.TestCase):
    def test_navigation_has_every_page_of_docs(self) -> None:
        text = (ROOT / "mkdocs.yml").read_text()
        named = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", text.partition("\nnav:\n")[2], re.M)
        pages = {links.address(path): path for path in links.tree_pages()}
        in_docs = {address for address in pages if not address.startswith("folders/")}
        self.assertGreater(len(in_docs), 20)
        self.assertEqual(sorted(in_docs - set(named)), [], "these pages are not in the nav of mkdocs.yml")
        made = {"gallery.md"}
        self.assertEqual(sorted(set(named) - set(pages) - made), [], "the nav of mkdocs.yml names pages that don't exist")
        self.assertEqual(len(named), len(set(named)), "the nav of mkdocs.yml names a page twice")

    def test_links_lead_to_addresses_of_the_site(self) -> None:
        cases = [("README.md", "docs/nn.md#layers", "nn.md#layers"), ("docs/cpp.md", "examples/plan.cpp",
                  "source/docs/examples/plan.cpp.md"), ("docs/data.md", "../config/README.md", "folders/config.md"),
                 ("pipeline/ir/README.md", "../../README.md", "../../index.md"), ("docs/cpp.md", "#plan", "#plan"),
                 ("docs/cpp.md", "../executor/", "folders/executor.md")]
        for page, target, expected in cases:
            with self.subTest(page=page, target=target):
                self.assertEqual(links.site_link(target, page), expected)
        text = "[a](b.md) `[c](d.md)`\n\n```\n[e](f.md)\n```\n[`g`](h.md)\n"
        self.assertEqual(links.rewrite(text, str.upper), text.replace("b.md", "B.MD").replace("h.md", "H.MD"))

    def test_every_declaration_of_headers_has_a_name_and_a_whole_form(self) -> None:
        seen = 0
        for folder in cpp_headers.folders(ROOT):
            for header in sorted((ROOT / folder).glob("*.h")):
                rest = header.read_text(encoding="utf-8").partition("#pragma once")[2]
                for declaration in cpp_headers.declarations(rest.splitlines()):
                    code = cpp_headers.shortened(declaration.code)
                    with self.subTest(header=str(header.relative_to(ROOT)), code=declaration.code[0]):
                        self.assertRegex(cpp_headers.name_of(code), r"^(operator\W*|~?[A-Za-z]\w*(::\w+)*)$")
                        text = "\n".join(code)
                        self.assertEqual(text.count("{"), text.count("}"))
                        self.assertNotRegex(text, r"(?m)^ *private:")
                    seen += 1
        self.assertGreater(seen, 1000)

    def test_headers_are_shortened(self) -> None:
        code = ["class A : public B {", " public:", "  explicit A(int a)", "      : a_(a),", "        b_{a} {", "    go();",
                "  }", "  /// Returns a.", "  int a() const { return a_; }", "", " private:", "  struct C {", "   public:",
                "    int c;", "  };", "  int a_;", "};"]
        self.assertEqual(cpp_headers.shortened(code), ["class A : public B {", " public:", "  explicit A(int a);",
                                                       "  /// Returns a.", "  int a() const;", "};"])

    @unittest.skipIf(MISSING, REASON)
    def test_site_builds_without_a_warning_and_every_link_leads_somewhere(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder], cwd=ROOT,
                                  env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.check_links(pathlib.Path(folder))
            index = (pathlib.Path(folder) / "search" / "search_index.json").read_text()
            self.check_names(pathlib.Path(folder))
            for page in ("pytorch.html", "reference.html", "api/hetu.nn.html", "headers/pipeline/ir.html", "gallery.html"):
                self.assertIn(f'"location":"{page}', index)

    def check_names(self, site: pathlib.Path) -> None:
        """Checks that the pages of packages have every name of their __all__."""
        for module in ("hetu.nn", "hetu.models", "hetu.torch", "hetu.varuna"):
            source = (ROOT / "python" / module.replace(".", "/") / "__init__.py").read_text()
            found = re.search(r"^__all__ = (\[.*?\])", source, re.M | re.S)
            page = (site / "api" / f"{module}.html").read_text()
            for name in ast.literal_eval(found[1]) if found else ["no __all__"]:
                with self.subTest(module=module, name=name):
                    self.assertRegex(page, rf'<h2 id="{module}\.[\w.]*{name}"')

    def check_links(self, site: pathlib.Path) -> None:
        """Checks each link of each page: its file, and its anchor."""
        pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
                 if path.parent != site / "gallery" and path.name != "404.html"}
        frames = seen = 0
        for page, found in pages.items():
            for target in found.targets:
                url = urllib.parse.urlsplit(target)
                if url.scheme or target.startswith("//"):
                    continue
                where = (page.parent / urllib.parse.unquote(url.path)).resolve() if url.path else page
                with self.subTest(page=str(page.relative_to(site)), link=target):
                    self.assertTrue(where.is_file(), "no such file")
                    if where in pages:
                        self.assertIn(urllib.parse.unquote(url.fragment), {*pages[where].anchors, "__skip"})
                frames += page.name == "gallery.html" and target.startswith("gallery/")
                seen += 1
        self.assertGreater(seen, 5000)
        self.assertEqual(frames, 2 * len(list((site / "gallery").glob("*.html"))))
        self.assertGreater(frames, 40)


if __name__ == "__main__":
    unittest.main(verbosity=2)
