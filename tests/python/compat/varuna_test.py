#!/usr/bin/env python3
"""A script for Varuna in the form of its README, on two stages, compared with one stage. SIGUSR1 in the middle of a step on
one rank makes all ranks save a checkpoint, from which training continues.

Skipped where PyTorch is not installed (`./run torch`)."""

import re
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
STOP, END = 3, 7


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Readme(unittest.TestCase):
    """The script varuna_megatron.py."""

    def test_saves_when_it_is_told_to(self):
        """The handler runs on all ranks after the same step, even if only one rank got the signal, and exits. One rank
        continues from there."""
        import varuna_megatron

        def alone(*words):
            return varuna_megatron.main(varuna_megatron.arguments(
                ["--stage_to_rank_map", "0;", "--chunk_size", "2", "--batch-size", "8", "--iterations", str(END), *words]))

        one = alone()
        self.assertLess(one[END], one[1])
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run(["heturun", "-w", "2", sys.executable, HERE / "varuna_megatron.py", "--stage_to_rank_map",
                                  "0;1;", "--chunk_size", "2", "--batch-size", "8", "--save", folder, "--iterations",
                                  str(END), "--signal", str(STOP - 1)], capture_output=True, text=True, timeout=300)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            self.assertEqual(run.stdout.count(f"SAVED {STOP}"), 2, run.stdout)
            found = re.findall(r"ITERATION (\d+) LOSS (\S+)", run.stdout)
            self.assertEqual(sorted(int(at) for at, _ in found), sorted(2 * [*range(1, STOP + 1)]), run.stdout)
            on = alone("--save", folder, "--resume_step", str(STOP))
            self.assertEqual(list(on), list(range(STOP + 1, END + 1)))
            for at, loss in [*found, *on.items()]:
                self.assertAlmostEqual(float(loss), one[int(at)], delta=2e-6 * one[int(at)])  # the tied sum has two parts


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
