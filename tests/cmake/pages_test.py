"""Pages agree with the tree.

Every link and every file that a page or a folder's README names exists. The table of layers is the one that lint checks. The
commands of pages have options that the tools know.

A word in backticks or in a block of commands is a path if it begins with a folder of the tree, or ends like sources and
pages. Names of files that intentionally don't exist are in ELSEWHERE, with the reason."""

from __future__ import annotations

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake"))
from lint_layers import LAYERS  # noqa: E402

KINDS = r"\.(?:py|h|cpp|cpp\.in|cu|md|yml|cmake|txt|css|js|sh|in|toml|supp|example)"
MADE = ("build", "runs", "build-")  # written by builds and runs
ELSEWHERE = {
    "a file that the reader makes": {"cmake/config.cmake", "config.cmake", "pipeline/generate/two_by_two.cpp", "mine.py",
                                   "plan.py", "use.py", "eager.py", "sweep.py", "plain.py", "pipelined.py",
                                   "whole.py", "real.py", "costs.py", "cluster.yml", "three.yml", "plan.yml", "PLAN.yml",
                                   "SCRIPT.py", "measure.py"},
    "a file that ./run playground makes": {"core.js"},
    "a file that hetu plan --export makes": {"deepspeed_stages.py", "devices.txt", "megatron.sh", "plan/megatron.sh",
                                             "torchtitan.sh", "torchtitan_stages.py"},
    "of another system": {
        "datasets/imagenet.py", "models/wiki.py", "main_bert.py", "main_bert_simple.py",
        "bert_data/wikipedia.segmented.nltk.txt",
        "data_utils.py", "compute.txt", "graph.txt", "GRAPH.txt", "vgg16.graph.txt",
        "docs/converging.md", "pretrain_bert.py",
    },
    "of a data set": {"vocab.txt", "bert_data/vocab.txt", "train.txt", "corpus.txt", "wikipedia.segmented.nltk.txt"},
}


def files() -> list[pathlib.Path]:
    """Returns the files of the tree, without generated and hidden ones."""
    out: list[pathlib.Path] = []
    for top in sorted(ROOT.iterdir()):
        if top.name.startswith((".", "build")) or top.name in ("runs", "shared"):
            continue
        out += [top] if top.is_file() else [p for p in top.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return out


FILES = files()
NAMES = {p.name for p in FILES}
PAGES = [p for p in FILES if p.suffix == ".md"]
FOLDERS = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith((".", "build"))}


def slugs(page: pathlib.Path) -> set[str]:
    """Returns the anchors of a page's headings."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def is_path(word: str) -> bool:
    if not re.fullmatch(r"[\w./*-]+", word) or word.startswith(("/", "~", "-", "...")):
        return False
    return word.split("/")[0] in FOLDERS and "/" in word or bool(re.fullmatch(rf"[\w./*-]+{KINDS}", word))


def is_there(word: str, page: pathlib.Path) -> bool:
    """Returns true if a path exists relative to the root, the page, python/ or docs/. A bare name may be anywhere; `*`
    stands for any text."""
    if any(word in names for names in ELSEWHERE.values()) or word.startswith(MADE):
        return True
    for folder in (ROOT, page.parent, *(ROOT / name for name in ("python", "python/src", "python/hetu", "docs"))):
        if (folder / word).exists() or "*" in word and any(folder.glob(word)):
            return True
    return word in NAMES


def named(page: pathlib.Path) -> set[str]:
    """Returns the paths that a page names."""
    text = page.read_text()
    blocks = re.findall(r"```.*?\n(.*?)```", text, re.S)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    words = [word.strip(",;:()\"'│─►▼┐┴└") for part in (*blocks, *spans) for word in part.split()]
    placeholders = r"NAME|DIR|FILE|(?:^|/)(?:no_)?x\."  # for any name
    return {word for word in words if is_path(word) and not re.search(placeholders, word)}


class Pages(unittest.TestCase):
    def test_links_lead_somewhere(self) -> None:
        seen = 0
        for page in PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
                if target.startswith(("http:", "https:")):
                    continue
                path, _, anchor = target.partition("#")
                where = page.parent / path if path else page
                with self.subTest(page=str(page.relative_to(ROOT)), link=target):
                    self.assertTrue(where.exists(), "no such file")
                    if anchor:
                        self.assertIn(anchor, slugs(where))
                seen += 1
        self.assertGreater(seen, 60)

    def test_commands_that_train_say_how_long(self) -> None:
        """Commands that train limit their length: by default the scripts train for hours, like the systems that they come
        from."""
        seen = 0
        for page in (page for page in PAGES if page.name != "reference.md"):
            for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.M | re.S):
                for command in re.sub(r"\\\n", "", block).splitlines():
                    if not re.search(r"python/(train_\w+|main_bert\w*)\.py ", command):
                        continue
                    with self.subTest(page=str(page.relative_to(ROOT)), command=command):
                        self.assertRegex(command, r"--(steps|epochs|num_optimization_steps|num_epochs|plan-only|profile|"
                                                  r"resume|help)\b|…")
                    seen += 1
        self.assertGreater(seen, 15)

    def test_files_that_pages_name_exist(self) -> None:
        seen = 0
        for page in PAGES:
            for word in sorted(named(page)):
                with self.subTest(page=str(page.relative_to(ROOT)), file=word):
                    self.assertTrue(is_there(word, page), "not in the tree; a name for the reader's own file: see ELSEWHERE")
                seen += 1
        self.assertGreater(seen, 300)
        for words in ELSEWHERE.values():
            for word in words:
                self.assertFalse((ROOT / word).exists(), f"{word} is here")

    def test_tests_variables_and_commands_that_pages_name_exist(self) -> None:
        tests = (ROOT / "tests" / "CMakeLists.txt").read_text() + (ROOT / "tests" / "ranks" / "CMakeLists.txt").read_text()
        read = [p for p in FILES if p.name in ("env_variables.cpp", "CMakeLists.txt") or p.suffix in (".h", ".cmake")]
        sources = "".join(p.read_text() for p in read)
        run = (ROOT / "run").read_text()
        seen = 0
        for page in PAGES:
            text = page.read_text()
            wanted = [(name, rf"\b{name}\b", tests) for name in re.findall(r"(?<![\w/])(\w+_test)`", text)]
            wanted += [(name, rf"\b{name}\b", sources) for name in re.findall(r"`\$?(HETU_[A-Z_]+[A-Z])\b", text)]
            wanted += [(f"./run {name}", rf"(?m)^  {name}  +\w", run)
                       for name in re.findall(r"\./run ([a-z][a-z-]*)(?=[`\s,])", text)]
            for name, pattern, where in sorted(set(wanted)):
                with self.subTest(page=str(page.relative_to(ROOT)), name=name):
                    self.assertIsNotNone(re.search(pattern, where), f"nothing here has the name {name}")
                seen += 1
        self.assertGreater(seen, 40)

    def test_layers_are_those_that_lint_checks(self) -> None:
        text = (ROOT / "docs" / "architecture.md").read_text()
        table = text.split("\n## Layers\n")[1].strip().split("\n\n")[0]
        said = {re.findall(r"`([^`]+)`", row.split("|")[1])[0].rstrip("/"): row.split("|")[3].strip()
                for row in table.splitlines()[2:]}
        self.assertEqual(set(said), set(LAYERS) - {"tests"})
        for folder, words in said.items():
            with self.subTest(folder=folder):
                if words.startswith(("all of the above", "everything")):
                    above = set(list(said)[:list(said).index(folder)]) - set(re.findall(r"but `([^`]+)`", words))
                    self.assertEqual(sorted(LAYERS[folder]), sorted(above))
                else:
                    self.assertEqual(sorted(LAYERS[folder]), sorted(re.findall(r"`([^`]+)`", words)))


if __name__ == "__main__":
    unittest.main()
