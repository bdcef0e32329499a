#!/usr/bin/env python3
"""Varuna's two programs as commands of `hetu`: the golden orders, consistent times, and one-line errors."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

# P = 4, N = 5, by stage. Source: Varuna's own program (spec/varuna.md, section 3).
GOLDEN = ["F0 F1 F2 F3 F4 R0 B0 R1 B1 R2 B2 R3 B3 R4 B4"] * 2 + [
    "F0 F1 F2 R0 B0 R1 B1 R2 B2 F3 F4 R3 B3 R4 B4", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"]


def hetu(*words, folder=None, **environment):
    """Returns the command's result."""
    return subprocess.run(["hetu", *map(str, words)], capture_output=True, text=True, cwd=folder,
                          env={**os.environ, **environment})


class Lines(unittest.TestCase):
    """The commands in the form of Varuna's scripts."""

    def refused(self, run, text):
        """Checks that a command fails with one line."""
        self.assertNotEqual(run.returncode, 0)
        self.assertEqual(len(run.stderr.strip().splitlines()), 1, run.stderr)
        self.assertIn(text, run.stderr)

    def test_genschedule(self):
        """The orders equal the golden ones."""
        for stage, golden in enumerate(GOLDEN):
            run = hetu("genschedule", 4, 5, stage)
            wanted = "".join(f"{'FRB'.index(task[0])},{task[1:]};" for task in golden.split())
            self.assertEqual((run.returncode, run.stdout.strip(), run.stderr), (0, wanted, ""))
        self.refused(hetu("genschedule", 4, 5, 4), "the 4 stages are 0 to 3")

    def test_simulate(self):
        """The time is 27 units without the rule and without messages. Messages between machines take longer, and sums are
        added."""
        with tempfile.TemporaryDirectory() as folder:
            self.refused(hetu("simulate-varuna", 4, 5, 0, 0, folder=folder), "compute.txt not found in")
            Path(folder, "compute.txt").write_text("1000 2000\n" * 4)

            def time(*words, **environment):
                run = hetu("simulate-varuna", *words, folder=folder, **environment)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertIn("Mini-batch time (usec) = ", run.stdout)
                return int(run.stdout.split("=")[1])

            self.assertEqual(time(4, 5, 0, 0, "--static"), 27000)
            self.assertEqual(time(4, 5, 0, 700, "--static"), 27700)
            self.assertEqual(time(4, 5, 0, 700, 0, 1, "--static"), 27000)
            near = time(4, 5, 10, 0, 500)
            self.assertGreater(time(4, 5, 10, 0, 500, GPUS_PER_VM="2"), near)
            self.assertEqual(time(4, 5, 10, 0, 10, GPUS_PER_VM="1"), near)
            self.assertGreater(time(4, 5, 0, 0, GPIPE="1"), 27000)
            self.assertGreater(time(4, 5, 1000, 0, PD_1F1B="1"), time(4, 5, 1000, 0))
            self.refused(hetu("simulate-varuna", 3, 5, 0, 0, folder=folder), "4 lines for 3 stages")
            self.refused(hetu("simulate-varuna", 4, 5, 0, 0, folder=folder, SCATTERED="1"), "is not supported")
            Path(folder, "compute.txt").write_text("1000\n")
            self.refused(hetu("simulate-varuna", 1, 5, 0, 0, folder=folder), "compute.txt:1: '1000'")


if __name__ == "__main__":
    unittest.main()
