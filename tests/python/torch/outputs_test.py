#!/usr/bin/env python3
"""Gradients that accumulate over step() calls, and outputs and metrics of hetu.torch, compared with plain PyTorch.

Skipped where PyTorch is not installed (`./run torch`)."""

import subprocess
import sys
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Outputs(unittest.TestCase):
    """Two workers compared with one process."""

    def test_equal_plain_pytorch(self):
        import torch_outputs

        run = subprocess.run(["heturun", "-w", "2", sys.executable, HERE / "torch_outputs.py"], capture_output=True,
                             text=True, timeout=300)
        self.assertEqual(run.returncode, 0, f"{run.stdout}\n{run.stderr}")
        plans = len(torch_outputs.PLANS)
        self.assertEqual(run.stdout.count("ACCUMULATED "), 2 * 2 * plans, run.stdout)
        self.assertEqual(run.stdout.count("OUTPUTS "), 2 * (plans - 1), run.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
