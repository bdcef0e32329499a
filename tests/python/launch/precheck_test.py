"""heturun's check of a script before its workers start: if the check fails, no worker starts, and one line gives the reason.
"""
import os
import pathlib
import signal
import subprocess
import time
import unittest

from launch_test import END_S, HETURUN, MANY, LaunchCase
from processes import processes_with, wait_until

SCRIPT = """
import hetu
import os, signal, sys, time
if "HETU_CHECK" not in os.environ:
    sys.exit("a worker started")
print("looking", flush=True)
if os.environ["HOW"] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if os.environ["HOW"] == "refused":
    sys.exit(3)
time.sleep(1000)
"""


class Precheck(LaunchCase):
    def setUp(self):
        super().setUp()
        self.script = pathlib.Path(self.tmp) / "script.py"
        self.script.write_text(SCRIPT)

    def tearDown(self):
        self.script.unlink()
        super().tearDown()

    def words(self):
        return ["-w", "2", "python3", str(self.script), "--memory-limit", "1GiB"]

    def check(self, how, status, says):
        self.env["HOW"] = how
        done = self.run_it(*self.words())
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stderr, f"heturun: {says}\n")

    def test_how_it_ends(self):
        self.check("refused", 3, "refused before any worker was started")
        self.check("killed", 137, "the check of the command was killed by SIGKILL; refused before any worker was started")
        self.env["HETU_TIMEOUT"] = "1.5"
        self.check("sleeps", 6, "the check of the command before its start took more than 1.5 s (HETU_TIMEOUT)")

    def looking(self):
        """Returns heturun in the middle of its check."""
        self.env["HOW"] = "sleeps"
        process = subprocess.Popen([*HETURUN, *self.words()], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, stdin=subprocess.DEVNULL, start_new_session=True)
        while (line := process.stdout.readline()) != "looking\n":
            self.assertTrue(line, "the job ended")
        return process

    def test_control_c(self):
        process = self.looking()
        since = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=MANY)
        self.assertEqual(process.returncode, 130, error)
        self.assertEqual(error, "heturun: SIGINT: ended before any worker was started\n")
        self.assertLess(time.monotonic() - since, END_S)

    def test_it_ends_with_heturun(self):
        process = self.looking()
        process.kill()
        process.communicate(timeout=MANY)
        self.assertTrue(wait_until(lambda: not processes_with(self.mark), END_S))


if __name__ == "__main__":
    unittest.main()
