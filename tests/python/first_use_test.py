"""What a new user types first: `hetu data` and `hetu ps` alone, and every --help."""

import os
import re
import subprocess
import sys
import unittest

from train_cases import HETURUN, MANY_S, ROOT

SCRIPTS = sorted(path for path in (ROOT / "python").glob("*.py") if "add_argument" in path.read_text()
                 or "training.Parser" in path.read_text())


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=MANY_S, **more)


def run_together(text):
    """Entries of a help text, lines of two spaces and a name, whose name isn't parted from its meaning: by two spaces, or by
    a line break with a deeper line below."""
    lines, wrong = text.splitlines(), []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if re.match(r"  \S", line) and not re.search(r"\S {2,}\S", line) and not re.match(r" {3,}\S", below):
            wrong.append(line)
    return wrong


class Help(unittest.TestCase):
    def commands(self):
        """All commands of hetu by `hetu --help`, and how the help is asked for."""
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
            for columns in ("", "40", "200"):  # of argparse; the others go by 100 columns
                with self.subTest(words=words, columns=columns):
                    said = run(*words, env={**os.environ, **({"COLUMNS": columns} if columns else {})})
                    self.assertEqual((said.returncode, said.stderr), (0, ""))
                    self.assertGreater(len(said.stdout), 60)
                    self.assertEqual(run_together(said.stdout), [])
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


if __name__ == "__main__":
    unittest.main()
