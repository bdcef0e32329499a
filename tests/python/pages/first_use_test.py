"""First commands of a new user: examples without arguments, `hetu data` and `hetu ps` without a subcommand, every --help,
and `import hetu` in a tree that isn't built."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec

from train_cases import HETURUN, MANY_S, ROOT

EXAMPLES = ROOT / "docs" / "examples"
# The scripts of other systems pass their arguments on to hetu.compat.
SCRIPTS = sorted(path for path in (ROOT / "python").glob("*.py")
                 if re.search(r"add_argument|training\.Parser|compat import main_", path.read_text()))


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=MANY_S, **more)


def run_together(text):
    """Returns the entries of a help text whose name isn't separated from its meaning. An entry is a line of two spaces and a
    name. Its meaning follows after two spaces, or on a line below with a deeper indent. Items of a list ("- ") have no
    names."""
    lines, wrong = text.splitlines(), []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if re.match(r"  (?!- )\S", line) and not re.search(r"\S {2,}\S", line) and not re.match(r" {3,}\S", below):
            wrong.append(line)
    return wrong


class Help(unittest.TestCase):
    def commands(self):
        """Returns all commands that `hetu --help` lists."""
        return re.findall(r"^  ([a-z-]+(?: [a-z-]+)?)(?= {2}|$)", run("hetu", "--help").stdout, re.MULTILINE)

    def test_the_rule_finds_what_runs_together(self):
        self.assertEqual(run_together("  data check  reads\n  data preparewrites shards\n  fill\n      places\n"),
                         ["  data preparewrites shards"])

    def test_no_help_text_runs_together(self):
        names = self.commands()
        self.assertGreaterEqual(len(names), 20)
        self.assertIn("data prepare", names)
        asked = [["hetu", "--help"], *(["hetu", *name.split(), "--help"] for name in names), ["hetu", "data", "--help"],
                 ["hetu", "ps", "--help"], [*HETURUN, "--help"], *([sys.executable, path, "--help"] for path in SCRIPTS)]
        self.assertGreater(len(SCRIPTS), 5)
        for words in asked:
            for columns in ("", "40", "200"):  # read by argparse; other commands always use 100 columns
                with self.subTest(words=words, columns=columns):
                    said = run(*words, env={**os.environ, **({"COLUMNS": columns} if columns else {})})
                    self.assertEqual((said.returncode, said.stderr), (0, ""))
                    self.assertGreater(len(said.stdout), 60)
                    self.assertEqual(run_together(said.stdout), [])
                    self.assertNotRegex(said.stdout, r"(?m) $")
                if "hetu" in words[:1]:
                    break

    def test_a_group_of_commands_lists_its_parts(self):
        for name, parts in (("data", ("check", "prepare", "vocabulary", "sample")), ("ps", ("serve", "status"))):
            alone, helped, unknown = run("hetu", name), run("hetu", name, "--help"), run("hetu", name, "nonsense")
            self.assertEqual((alone.returncode, alone.stdout, alone.stderr), (2, "", helped.stdout))
            self.assertEqual((helped.returncode, unknown.returncode), (0, 2))
            for part in parts:
                self.assertRegex(helped.stdout, rf"(?m)^  {name} {part} {{2,}}\S")
                self.assertIn(f"{name} {part}", unknown.stderr)
            self.assertIn(f"unknown '{name} nonsense'; known: ", unknown.stderr)
            self.assertNotIn("simulate", unknown.stderr)


class Examples(unittest.TestCase):
    def test_each_says_what_it_takes(self):
        """Each example runs or prints its usage, without a traceback. Examples with defaults are run by nn_examples_test and
        below. A module that adapts another library's loop (docs/pytorch.md) prints nothing."""
        for path in sorted(EXAMPLES.glob("*.py")):
            with self.subTest(path.name):
                library = path.stem.replace("torch_trainer", "transformers").removeprefix("torch_")
                if path.stem.startswith("torch_") and not find_spec(library):
                    self.skipTest(f"{library} is not there: pip install {library}")
                done = run(sys.executable, path)
                self.assertNotIn("Traceback", done.stderr)
                if done.returncode:
                    self.assertRegex(done.stderr, rf"^usage: {path.name} \S.*\n$")
                elif path.stem in ("torch_trainer", "torch_lightning"):
                    self.assertEqual(done.stdout, "")
                else:
                    self.assertIn(path.name, ("mlp.py", "cnn.py", "gpt.py"))
                    self.assertEqual(len(re.findall(r"(?m)^\d+ \d+\.\d+$", done.stdout)), 20, done.stdout)


class Import(unittest.TestCase):
    def test_a_tree_that_is_not_built_says_so(self):
        with tempfile.TemporaryDirectory(prefix="hetu-bare-") as folder:
            python = pathlib.Path(folder, "python")
            shutil.copytree(ROOT / "python" / "hetu", python / "hetu", ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "python" / "heturun", python)
            env = {**os.environ, "PYTHONPATH": str(python)}
            bare = [sys.executable, "-S"]  # -S: the virtual environment knows the tree that is built
            for words, status in ((["-c", "import hetu"], 1), (["-c", "from hetu import optim"], 1),
                                  ([python / "heturun", "-w", "1", "true"], 1)):
                done = run(*bare, *words, env=env)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(f"in {python / 'hetu'}, ", done.stderr)
                self.assertIn("nothing is compiled. Build it with `./run test`", done.stderr)
            (python / "hetu" / "_hetu.cpython-30-x86_64-linux-gnu.so").touch()
            said = run(*bare, "-c", "import hetu", env=env).stderr
            self.assertIn("found _hetu.cpython-30-x86_64-linux-gnu.so, which is for another Python", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
