#!/usr/bin/env python3
"""Optimizer states that copies of a stage shard among themselves, Pipeline(shard_optimizer=True): same bits as a training
with all states on each worker.

The cases are in torch_zero.py. --whole trains more random models. Skipped where PyTorch is not installed (`./run torch`)."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
WHOLE = "--whole" in sys.argv


def job(workers, *cases, **environment):
    """Runs cases of torch_zero.py and returns its output."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(["heturun", "-w", str(workers), sys.executable, HERE / "torch_zero.py", folder, *cases],
                             capture_output=True, text=True, timeout=600, env={**os.environ, **environment})
    printed = run.stdout + run.stderr
    missing = [case for case in cases if printed.count(f"PASSED {case}!") != workers]
    if run.returncode or missing or "leaked" in run.stderr:
        raise AssertionError(f"{', '.join(missing)} of {', '.join(cases)}: {printed}")
    return printed


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Shards(unittest.TestCase):
    """Sharded states, each test in one job."""

    def test_two_workers(self):
        """Covers optimizers, clipping, gradients that are None, loops, scales, copies within a pipeline, tied parameters,
        the states of each worker, checkpoints that are saved with shards and loaded without them, and refused settings."""
        printed = job(2, "rules", "gradients", "loops", "scaled", "balance", "memory", "schedules", "states", "checkpoints",
                      "dcp", "drawn", "bad")
        kept = [(int(a), int(b)) for a, b in re.findall(r"MEMORY worker \d: (\d+) of (\d+) elements", printed)]
        self.assertEqual(sum(a for a, _ in kept), kept[0][1], printed)

    def test_four_workers(self):
        """Two pipelines of two stages, and four of one."""
        job(4, "schedules", "memory", "memory/4", "balance", "checkpoints/4")

    def test_drawn_models(self):
        """More random models with --whole."""
        if not WHOLE:
            self.skipTest("--whole")
        job(2, "drawn", SEEDS="30")
        job(4, "drawn", "drawn/4", SEEDS="30")

    def test_two_copies_on_one_worker(self):
        """One worker keeps the states of one of its two copies."""
        job(1, "schedules")

    def test_threads(self):
        """Workers are threads, and their script has one optimizer."""
        import torch
        from torch import nn

        import hetu.torch
        import torch_sharded

        for schedule, options in (("1f1b", {"pipelines": 2}), ("chimera", {})):
            trained = []
            for shard in (True, False):
                torch.manual_seed(1)
                model = nn.Sequential(*torch_sharded.plain())
                pipe = hetu.torch.Pipeline(model, nn.MSELoss(), schedule, 4, devices="threads:2", shard_optimizer=shard,
                                           **options)
                (rule,) = torch_sharded.adamw(pipe.parameters()).values()
                draw = torch.Generator().manual_seed(2)
                for _ in range(3):
                    x, y = torch.randn(2, 16, torch_sharded.WIDTH, generator=draw)
                    loss = pipe.step(x, y)
                    norm = pipe.clip_grad_norm_(0.1)
                    rule.step()
                complete = rule.state_dict()["state"]
                kept = sum(value.numel() for state in rule.state.values() for value in state.values() if value.dim())
                trained.append((loss, float(norm), complete, model.state_dict(), kept))
                with tempfile.TemporaryDirectory() as folder:
                    pipe.save(folder, rule)
                    other = hetu.torch.Pipeline(nn.Sequential(*torch_sharded.plain()), nn.MSELoss(), "1f1b", 4,
                                                devices="threads:4", pipelines=2, shard_optimizer=not shard)
                    (second,) = torch_sharded.adamw(other.parameters()).values()
                    other.load(folder, second)
                    self.assertTrue(all(torch.equal(a, b) for a, b in zip(other.state_dict().values(),
                                                                         model.state_dict().values(), strict=True)))
                    self.assertEqual(2 * kept if shard else kept // 2, sum(value.numel() for state in second.state.values()
                                                                           for value in state.values() if value.dim()))
            (*numbers, states, state, kept), (*expected, others, other, whole) = trained
            with self.subTest(schedule=schedule):
                self.assertEqual(numbers, expected)
                self.assertEqual(list(states), list(others))
                self.assertTrue(all(torch.equal(states[number][key], value) for number, known in others.items()
                                    for key, value in known.items()))
                self.assertTrue(all(torch.equal(state[name], other[name]) for name in other))
                self.assertEqual(2 * kept, whole)


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main(verbosity=2)  # prints the reason for a skip
