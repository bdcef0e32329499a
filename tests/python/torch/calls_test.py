#!/usr/bin/env python3
"""Workers that make different calls: all get one error within seconds, and no job hangs.

Skipped where PyTorch is not installed (`./run torch`)."""

import os
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

WORKER = Path(__file__).resolve().parent / "torch_calls.py"


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Calls(unittest.TestCase):
    """Different calls in processes."""

    def run_job(self, workers, *words):
        """Returns the output of torch_calls.py. A hang ends after 300 s in an error of the job, so the limit is less."""
        run = subprocess.run(["heturun", "-w", str(workers), sys.executable, WORKER, *words], capture_output=True,
                             text=True, timeout=200)
        self.assertEqual(run.returncode, 0, f"{run.stdout}\n{run.stderr}")
        return run.stdout

    def test_differ_in_a_pipeline(self):
        with tempfile.TemporaryDirectory() as folder:
            printed = self.run_job(2, folder)
            self.assertEqual(printed.count("DIFFER "), 2 * 8, printed)

    def test_a_wait_names_the_call(self):
        """Where the workers can't compare their calls, the timeout error names the call and its line."""
        run = subprocess.run(["heturun", "-w", "4", sys.executable, WORKER, "skips"], capture_output=True, text=True,
                             timeout=200, env={**os.environ, "HETU_TIMEOUT": "10"})
        self.assertNotEqual(run.returncode, 0)
        self.assertRegex(run.stderr, r"waited 10 s for the call of (SGD|Pipeline).step\(\), here in torch_calls.py, line "
                                     r"\d+, from worker \d")

    def test_differ_between_pipelines_that_average(self):
        printed = self.run_job(4)
        self.assertEqual((printed.count("DIFFER "), printed.count("AVERAGED")), (2 + 4, 4), printed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
