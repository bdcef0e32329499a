#!/usr/bin/env python3
"""Plans are exchanged between Hetu and torch.distributed.pipelining. PyTorch's runtime executes plans that Hetu writes, and
hetu.torch and training accept plans that PyTorch's runtime writes.

Skipped where PyTorch is not installed (`./run torch`)."""

import os
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

from hetu import schedule

HERE = Path(__file__).resolve().parent
METHODS = ("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-v", "interleaved-zb", "dualpipev")
EXACT = 1e-6  # sums over micro-batches are in another order


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Runtime(unittest.TestCase):
    """Plans with four ranks, or two workers."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hetu-torch-runtime-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, stages, micro_batches, names=METHODS):
        for name in names:
            plan = schedule.named(name, stages=stages, micro_batches=micro_batches)
            (self.folder / f"{name}.compute.csv").write_text(plan.csv())
            (self.folder / f"{name}.lowered.csv").write_text(schedule.lower(plan).torch_csv())

    def test_pytorch_executes_lowered_plans(self):
        self.write(4, 8)
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--rdzv-backend", "c10d",
             "--rdzv-endpoint", "localhost:0", str(HERE / "torch_runtime.py"), str(self.folder)],
            capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
        results = {words[1]: [float(w) for w in words[2:]] for line in done.stdout.splitlines()
                   if (words := line.split())[:1] == ["RESULT"]}
        self.assertEqual(sorted(results), sorted(METHODS), done.stderr[-2000:])
        for name, differences in results.items():
            for form, difference in zip(("compute only", "lowered"), differences, strict=True):
                self.assertLess(difference, EXACT, f"{name} {form}")

    def test_hetu_takes_lowered_plans(self):
        """Messages and reductions in a plan are replaced by the job's own."""
        names = ("1f1b", "zb-v")
        self.write(2, 4, names)
        script = self.folder / "train.py"
        script.write_text("import sys, torch, hetu.torch\n"
                          "for plan in sys.argv[1:]:\n"
                          "    torch.manual_seed(1)\n"
                          "    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])\n"
                          "    pipe = hetu.torch.Pipeline(model, torch.nn.MSELoss(), plan, 4)\n"
                          "    x = torch.ones(8, 8)\n"
                          "    print('LOSS', pipe.step(x, x), [p.grad.sum().item() for p in pipe.parameters()])\n")
        plans = [str(self.folder / f"{name}.{form}.csv") for name in names for form in ("lowered", "compute")]
        done = subprocess.run(["heturun", "-w", "2", sys.executable, str(script), *plans], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        for worker in ("[0]", "[1]"):
            losses = [line for line in done.stdout.splitlines() if line.startswith(worker) and "LOSS" in line]
            self.assertEqual(len(losses), len(plans), done.stdout)
            self.assertEqual(losses[0::2], losses[1::2])


if __name__ == "__main__":
    unittest.main(verbosity=2)
