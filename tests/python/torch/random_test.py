#!/usr/bin/env python3
"""Random small models by six schedules, in one and in two pipelines, compared with plain PyTorch: bit for bit, or within
1e-6 over copies.

A sample by default; --whole tries 30 models. --seed N selects other models. Skipped where PyTorch is not installed
(`./run torch`)."""

import subprocess
import sys
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEED = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 1
WHOLE = "--whole" in sys.argv
SCHEDULES = ["gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "chimera"]


def job(pipelines, models, schedules):
    """Trains models, numbered from SEED, and raises AssertionError unless all are the same."""
    workers = 2 * pipelines
    run = subprocess.run(["heturun", "-w", str(workers), sys.executable, HERE / "torch_random.py", str(SEED), str(models),
                          str(pipelines), *schedules], capture_output=True, text=True, timeout=3000)
    for line in sorted({line for line in run.stdout.splitlines() if "NOTE" in line}):
        print(line, flush=True)
    if run.returncode or run.stdout.count("SAME") != workers * models * len(schedules):
        raise AssertionError(f"seed {SEED}: {run.stdout}{run.stderr}")


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Random(unittest.TestCase):
    """Compares the models that torch_random.py generates."""

    def test_one_pipeline(self):
        """One pipeline of two workers."""
        job(1, 30 if WHOLE else 3, SCHEDULES)

    def test_two_pipelines(self):
        """Two pipelines of four workers."""
        job(2, 30 if WHOLE else 1, SCHEDULES)


if __name__ == "__main__":
    print(f"seed {SEED}", flush=True)
    if "--seed" in sys.argv:
        at = sys.argv.index("--seed")
        del sys.argv[at:at + 2]
    if WHOLE:
        sys.argv.remove("--whole")
    unittest.main(verbosity=2)  # prints the reason for a skip
