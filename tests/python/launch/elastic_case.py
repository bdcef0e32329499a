"""A test case with elastic jobs: starts heturun --elastic, waits for its lines, and compares checkpoints."""
import os
import pathlib
import subprocess
import tempfile
import time
import unittest
import uuid

from processes import process_of
from train_cases import HETURUN, MANY_S

HETU = str(pathlib.Path(os.environ["HETU_BUILD_DIR"], "bin", "hetu"))


class ElasticCase(unittest.TestCase):
    """A subclass has SCRIPT, the name of the workers' script, and command(name), which returns the command of a job."""

    SCRIPT = ""
    ENVIRONMENT: dict[str, str] = {}

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def start(self, name, *flags):
        """Starts an elastic job. Its standard error goes to a file, which said() reads."""
        self.mark = f"elastic-{uuid.uuid4()}"
        self.errors = self.folder / f"{name}.{self.mark}"
        with open(self.errors, "w", encoding="utf-8") as errors:
            process = subprocess.Popen([*HETURUN, "--elastic", *flags, *self.command(name)], stdout=subprocess.DEVNULL,
                                       stderr=errors, env={**os.environ, **self.ENVIRONMENT, "MARK": self.mark})
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def said(self):
        """Returns what heturun has said so far, without the workers' lines."""
        return [line[9:] for line in self.errors.read_text().splitlines() if line.startswith("heturun: ")]

    def await_line(self, process, part, count=1):
        """Waits until heturun has said a line with this part `count` times."""
        until = time.monotonic() + MANY_S
        while sum(part in line for line in self.said()) < count:
            self.assertIsNone(process.poll(), self.errors.read_text())
            self.assertLess(time.monotonic(), until, self.errors.read_text())
            time.sleep(0.02)

    def finish(self, process, status=0):
        self.assertEqual(process.wait(MANY_S), status, self.errors.read_text())
        return self.said()

    def await_text(self, process, path, pattern):
        """Waits until a line of a file matches a compiled pattern."""
        until = time.monotonic() + MANY_S
        while time.monotonic() < until:
            if path.exists() and pattern.search(path.read_text()):
                return
            self.assertIsNone(process.poll(), f"ended before {pattern.pattern}: {self.errors.read_text()}")
            time.sleep(0.02)
        self.fail(f"no {pattern.pattern} in {MANY_S:g} s: {self.errors.read_text()}")

    def signal_worker(self, number, what):
        """Sends a signal to a worker's script."""
        os.kill(process_of(self.mark, self.SCRIPT, number), what)

    def same_checkpoints(self, one, other):
        """Checks that two checkpoints have the same bits."""
        done = subprocess.run([HETU, "checkpoint", "diff", str(one), str(other)], check=False, capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
