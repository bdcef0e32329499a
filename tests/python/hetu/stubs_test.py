"""The stub package hetu-stubs is up to date, and type checkers find mistakes of a script with it."""

import ast
import importlib.util
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import hetu as ht
from hetu import _hetu, averaging

ROOT = Path(os.environ["HETU_SOURCE_DIR"])
STUBS = Path(os.environ["HETU_BUILD_DIR"]) / "python" / "hetu-stubs"
MAKER = ROOT / "python" / "src" / "make_stubs.py"
SCRIPT = """
import hetu as ht
x = ht.data.Arrays(x=[[1.0]], batch_size=1).x
w = ht.nn.Linear(1, 1)(x)
loss = ht.ops.maximum(w, 0.0).sum()
train = ht.optim.Adam(0.1, l2=0.01).minimize(loss)
job = ht.Executor({"train": [loss, train]}, pipeline="gpipe", micro_batches=2, seed=3, dtype="bf16", memory_limit="4GiB",
                  averaging=ht.averaging.Averaging(sync_period=4))
for step in job.run("train", steps=3):
    print(step.loss, step.index + 1)
"""
# Lines with a mistake, and a part of the error that mypy reports for them.
MISTAKES = (
    ("ht.Executor({'train': [loss, train]}, sed=3)", 'Unexpected keyword argument "sed" for "Executor"'),
    ("ht.Executor({'train': [loss, train]}, threads='all')", 'Argument "threads" to "Executor" has incompatible type "str"'),
    ("job.run('train', steps='many')", 'Argument "steps" to "run" of "Executor" has incompatible type "str"'),
    ("job.fit()", '"Executor" has no attribute "fit"'),
    ("ht.ops.relu(w, w)", 'Too many positional arguments for "relu"'),
    ("ht.ops.reluu(w)", 'Module has no attribute "reluu"'),
    ("ht.ops.reduce_sum(w, axes=1.5)", 'Argument "axes" to "reduce_sum" has incompatible type "float"'),
    ("ht.averaging.Averaging(sync=4)", 'Unexpected keyword argument "sync" for "Averaging"'),
    ("ht.optim.Adam(0.1, decay=0.1)", 'Unexpected keyword argument "decay" for "Adam"'),
    ("ht.Executer", 'Module has no attribute "Executer"'),
)


class Stubs(unittest.TestCase):
    def test_the_build_has_the_stubs_of_these_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, MAKER, _hetu.__file__, ROOT / "python" / "hetu", folder], check=True)
            made = self.files(Path(folder))
        self.assertGreaterEqual(made.keys(), {"py.typed", "__init__.pyi", "ops.pyi", "averaging.pyi", "job/executor.pyi"})
        self.assertEqual(self.files(STUBS).keys(), made.keys())
        for name, text in self.files(STUBS).items():
            self.assertEqual(text, made[name], f"{STUBS / name} is stale; build the target hetu_stubs")
        self.assertTrue((ROOT / "python" / "hetu" / "py.typed").exists())

    @staticmethod
    def files(folder):
        return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}

    def test_every_module_is_python(self):
        for path in STUBS.rglob("*.pyi"):
            ast.parse(path.read_text())

    def test_signatures_are_those_at_run_time(self):
        for name, kind in (("job/executor.pyi", ht.Executor), ("averaging.pyi", averaging.Averaging),
                           ("averaging.pyi", averaging.Stragglers)):
            (found,) = [node for node in ast.parse((STUBS / name).read_text()).body
                        if isinstance(node, ast.ClassDef) and node.name == kind.__name__]
            (init,) = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
            defaults = [*init.args.defaults, *init.args.kw_defaults]
            told = inspect.signature(kind).parameters
            self.assertEqual([one.arg for one in [*init.args.args[1:], *init.args.kwonlyargs]], list(told))
            self.assertEqual([ast.literal_eval(one) for one in defaults],
                             [one.default for one in told.values() if one.default is not one.empty])

    def test_the_package_has_every_public_name(self):
        names = {alias.asname for node in ast.parse((STUBS / "__init__.pyi").read_text()).body
                 if isinstance(node, ast.ImportFrom) for alias in node.names}
        self.assertEqual(names - {"_hetu", "hold"}, set(ht.__all__))
        records = {record["name"] for record in _hetu.operator_records()}
        self.assertEqual({node.name for node in ast.parse((STUBS / "ops.pyi").read_text()).body
                          if isinstance(node, ast.FunctionDef)}, records)


class Checked(unittest.TestCase):
    def mypy(self, text):
        """Returns the messages of mypy about a script, by line."""
        here = importlib.util.find_spec("mypy") is not None
        command = [sys.executable, "-m", "mypy"] if here else [shutil.which("mypy"), "--python-executable", sys.executable]
        if command[0] is None:
            self.skipTest("mypy is not installed (./run lint installs it)")
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "script.py"
            script.write_text(text)
            done = subprocess.run([*command, "--config-file", "", "--cache-dir", folder, script], cwd=folder,
                                  capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return [line for line in done.stdout.splitlines() if line.startswith("script.py:")]

    def test_a_right_script_passes(self):
        self.assertEqual(self.mypy(SCRIPT), [])

    def test_each_mistake_is_reported(self):
        found = self.mypy(SCRIPT + "".join(f"{line}\n" for line, _ in MISTAKES))
        first = SCRIPT.count("\n") + 1
        for number, (line, message) in enumerate(MISTAKES, first):
            with self.subTest(line):
                of_line = [text for text in found if text.startswith(f"script.py:{number}: error: ")]
                self.assertTrue(any(message in text for text in of_line), found)
        self.assertEqual({int(text.split(":")[1]) for text in found if ": error: " in text},
                         set(range(first, first + len(MISTAKES))))


if __name__ == "__main__":
    unittest.main(verbosity=2)
