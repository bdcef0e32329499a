"""hetu.launcher: the file of SD-PIPE's older launcher starts workers and servers, and errors name its line."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from hetu.compat import launcher
from train_cases import MANY_S

FILE = """\
shared:
  DMLC_PS_ROOT_PORT: 13100  # theirs
  GREETING: "hello: all"
launch:
  worker: 2
  server: 0
  scheduler: 1
"""
SCRIPT = """\
import argparse
import os
import sys
from hetu.launcher import launch

def work(args):
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    print("works", rank, args.num_local_worker, args.lr, os.environ["GREETING"], os.environ["DMLC_ROLE"])
    if args.lr == 9 and rank == "1":
        sys.exit(7)

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--lr", type=int)
launch(work, parser.parse_args())
print("once")
"""
WRONG = [
    ("shared:\n  a b\n", "FILE:2: 'a b' is not a line of the form `key: value`"),
    ("nodes:\n", "FILE:1: expected `shared:` or `launch:` with indented lines below, got 'nodes:'"),
    ("  worker: 2\n", "FILE:1: 'worker' is in no section"),
    ("launch:\n  workers: 2\n", "FILE:2: launch takes worker, server, scheduler with a number from 0 to 9999"),
    ("launch:\n  worker: two\n", "got 'worker: two'"),
]


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "local.yml"

    def test_both_sections_are_read(self):
        self.file.write_text(FILE)
        self.assertEqual(launcher.read(self.file),
                         launcher.Settings({"DMLC_PS_ROOT_PORT": "13100", "GREETING": "hello: all"}, 2, 0, 1))

    def test_what_is_wrong_is_said_by_line(self):
        for text, message in WRONG:
            self.file.write_text(text)
            with self.subTest(text), self.assertRaises(ValueError) as caught:
                launcher.read(self.file)
            self.assertIn(message.replace("FILE", str(self.file)), str(caught.exception))

    def start(self, *words):
        script = self.folder / "train.py"
        script.write_text(SCRIPT)
        self.file.write_text(FILE)
        return subprocess.run([sys.executable, str(script), "--config", str(self.file), *words], capture_output=True,
                              text=True, timeout=MANY_S, env={**os.environ, "HETU_RUNS": "none"})

    def test_the_target_runs_in_every_worker_and_the_rest_once(self):
        done = self.start("--lr", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["[0] works 0 2 3 hello: all worker",
                                                            "[1] works 1 2 3 hello: all worker", "once"])
        self.assertIn("heturun sets the addresses of its servers; not used: DMLC_PS_ROOT_PORT\n", done.stderr)
        self.assertIn("no scheduler is started, because heturun's servers need none\n", done.stderr)

    def test_a_failed_worker_ends_the_script_with_its_status(self):
        done = self.start("--lr", "9")
        self.assertEqual(done.returncode, 7, done.stdout + done.stderr)
        self.assertNotIn("once", done.stdout)


if __name__ == "__main__":
    unittest.main()
