#!/usr/bin/env python3
"""Changes of a model between steps, and actions inside modules, in hetu.torch compared with plain PyTorch.

Freezing, eval() of modules, hooks, autograd.Functions, changes in place, checkpoints, buffers of copies, other settings.
The cases are in torch_modes.py and torch_inside.py. Skipped where PyTorch is not installed (`./run torch`)."""

import subprocess
import sys
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent


CASES = {
    "frozen": ("frozen", "by_owner", "no_gradient", "differing"),
    "modes": ("modes", "copies", "settings"),
    "others": ("averaging", "varuna"),
    "inside": ("functions", "compiled", "checkpoints", "in_place", "calls", "hooks", "old_hooks", "scalars",
               "accumulated"),  # the last one, because it ends the links
}


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Modes(unittest.TestCase):
    """All cases in one job of two workers, because most of a job's time goes into the import of PyTorch."""

    @classmethod
    def setUpClass(cls):
        cases = [case for some in CASES.values() for case in some]
        cls.run_of_all = subprocess.run(["heturun", "-w", "2", sys.executable, HERE / "torch_modes.py", *cases], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)

    def passed(self, name):
        """Checks that both workers have passed the cases. After a case that fails, no other is run."""
        printed = self.run_of_all.stdout
        missing = [case for case in CASES[name] if printed.count(f"PASSED {case}\n") != 2]
        self.assertFalse(missing, printed)
        self.assertTrue(self.run_of_all.returncode == 0 or "FAILED " in printed, printed)

    def test_frozen_and_unused_parameters(self):
        """requires_grad that changes between steps, LoRA, and parameters without a gradient."""
        self.passed("frozen")

    def test_modes_and_settings(self):
        """eval() of single modules, autocast, default types, and buffers of several copies of a stage."""
        self.passed("modes")

    def test_averaging_and_varuna(self):
        """Frozen parameters in pipelines that average weights, and with Varuna's names."""
        self.passed("others")

    def test_what_modules_do(self):
        """Custom and compiled functions, checkpoints, changes in place, calls that count, and hooks."""
        self.passed("inside")


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
