#!/usr/bin/env python3
"""Changes of a model between steps, and what modules do inside, by hetu.torch beside plain PyTorch.

Freezing, eval() of modules, hooks, autograd.Functions, changes in place, checkpoints, buffers of copies, other settings.
The cases are in torch_modes.py and torch_inside.py. Skipped where PyTorch is not there (`./run torch`)."""

import subprocess
import sys
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent


def job(script, *cases):
    """Runs cases of a script on two workers."""
    run = subprocess.run(["heturun", "-w", "2", sys.executable, HERE / script, *cases], capture_output=True, text=True,
                         timeout=300)
    printed = run.stdout + run.stderr
    missing = [case for case in cases if printed.count(f"PASSED {case}") != 2]
    if run.returncode or missing:
        raise AssertionError(f"{', '.join(missing)} of {', '.join(cases)}: {printed}")


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Modes(unittest.TestCase):
    """Each in one job."""

    def test_frozen_and_unused_parameters(self):
        """requires_grad that changes between steps, LoRA, and parameters that have no gradient."""
        job("torch_modes.py", "frozen", "by_owner", "no_gradient", "differing")

    def test_modes_and_settings(self):
        """eval() of single modules, autocast, default types; buffers of several copies of a stage."""
        job("torch_modes.py", "modes", "copies", "settings")

    def test_averaging_and_varuna(self):
        """The same in pipelines that average weights, and under Varuna's names."""
        job("torch_modes.py", "averaging", "varuna")

    def test_what_modules_do(self):
        """Custom and compiled functions, checkpoints, changes in place, calls that count, and hooks."""
        job("torch_inside.py", "functions", "compiled", "checkpoints", "in_place", "calls", "hooks", "old_hooks",
            "accumulated", "scalars")


if __name__ == "__main__":
    unittest.main(verbosity=2)  # which prints why a test is skipped
