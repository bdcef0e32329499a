"""heturun --pre-command: once on each host, before the workers, and no worker after a failure."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from hetu.launch import pre_command
from hetu.launch.options import Options, UsageError

HETURUN = [sys.executable, str(pathlib.Path(__file__).resolve().parents[3] / "python" / "heturun")]
# A stand-in for ssh that runs the command here, with the host's name in $host.
SSH = """#!/bin/sh
while [ "$1" = -o ] || [ "$1" = -i ]; do shift 2; done
host=$1; export host; shift
exec sh -c "$*"
"""


class PreCommand(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def heturun(self, *words):
        return subprocess.run([*HETURUN, "-w", "2", *words], cwd=self.folder, capture_output=True, text=True, timeout=200,
                              stdin=subprocess.DEVNULL)

    def test_it_runs_once_before_two_workers(self):
        done = self.heturun("--pre-command", "echo once >> made; echo is ready; pwd", "sh", "-c", "cat made; echo w >> late")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["[0] once", "[1] once"])
        self.assertIn(f"heturun: localhost: is ready\nheturun: localhost: {self.folder}\n", done.stderr)
        self.assertLess(done.stderr.index("is ready"), done.stderr.index("Cluster: {"))

    def test_after_a_failure_no_worker_starts(self):
        done = self.heturun("--pre-command", "echo no data >&2; exit 7", "touch", "started")
        self.assertEqual(done.returncode, 7)
        self.assertFalse((self.folder / "started").exists())
        self.assertIn("heturun: localhost: no data\nheturun: --pre-command 'echo no data >&2; exit 7' failed, so no worker "
                      "was started: localhost: status 7\n", done.stderr)

    def test_each_host_runs_it_in_this_folder(self):
        (self.folder / "ssh").write_text(SSH)
        (self.folder / "ssh").chmod(0o755)
        said = []
        here = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, here)
        with unittest.mock.patch.dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}"):
            text = "echo \"$host in $(pwd)\" 'a  b'"
            self.assertEqual(pre_command.run(text, ["n7", "n8", "n7"], None, said.append), 0)
            self.assertEqual(said, [f"{host}: {host} in {self.folder} a  b" for host in ("n7", "n8")])
            said.clear()
            text = "test $host != n8 || exit 255; test $host != n9 || kill -9 $$"
            status = pre_command.run(text, ["n7", "n8", "n9"], None, said.append)
        self.assertEqual(status, 255)
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], "n8: status 255, which is also ssh's for a host that it doesn't reach; n9: signal 9$")

    def test_it_is_refused_where_it_can_not_run(self):
        for words, message in ((["-w", "2", "--pre-command", " ", "true"], "--pre-command is empty"),
                               (["-w", "2", "--elastic", "--pre-command", "true", "true"], "with --elastic, whose hosts")):
            with self.assertRaisesRegex(UsageError, message):
                Options(words, {})


if __name__ == "__main__":
    unittest.main(verbosity=2)
