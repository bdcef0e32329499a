#!/usr/bin/env python3
"""Counts of updates where gradients accumulate, the loop that saves them, metrics of an evaluation, and warnings about
buffers that copies of a stage don't share.

Skipped where PyTorch is not installed (`./run torch`)."""

import contextlib
import io
import json
import subprocess
import sys
import unittest
import warnings

from torch_saved import HAS_TORCH, CheckpointCase

if HAS_TORCH:
    import torch
    from torch import nn

    import hetu.torch
    from hetu import _hetu

# Modules that take as long to import as torch itself. An optimizer or torch.compile imports most of them later.
HEAVY = ("sympy", "torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes", "torch.distributed.fsdp",
         "torch.distributed.tensor", "torch.distributed.pipelining", "transformers")


class Updates(CheckpointCase):
    """pipe.updates counts updates, and pipe.steps counts calls of step()."""

    def update(self, pipe, optimizer, calls=2):
        for call in range(calls):
            pipe.step(torch.ones(4, 8), torch.ones(4, 8), accumulate=call > 0, factor=1 / calls)
        optimizer.step()

    def test_a_loop_resumes_at_its_update(self):
        pipe, optimizer = self.made(norms=False)
        start = pipe.steps
        for _ in range(3):
            self.update(pipe, optimizer)
        self.assertEqual((pipe.steps - start, pipe.updates - start), (6, 3))
        pipe.save(self.folder, optimizer)
        other, second = self.made(seed=2, norms=False)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            other.load(self.folder, second)
        self.assertEqual((other.steps, other.updates), (pipe.steps, pipe.updates))
        self.assertIn(f": {pipe.updates} updates, of {pipe.steps} calls of step()", said.getvalue())
        hetu.torch.save_dcp(pipe, self.folder.with_name("dcp"), optimizer)
        third, rule = self.made(seed=2, norms=False)
        hetu.torch.load_dcp(third, self.folder.with_name("dcp"), rule)
        self.assertEqual((third.steps, third.updates), (pipe.steps, pipe.updates))

    def test_gradients_that_always_accumulate(self):
        """Loops of Accelerate accumulate in each call, and remove gradients after each update."""
        pipe, optimizer = self.made(norms=False)
        x = torch.ones(4, 8)
        counts = []
        for call in range(6):
            if call % 2 == 0:
                optimizer.zero_grad()
            pipe.step(x, x, accumulate=True)
            counts.append(pipe.updates)
        self.assertEqual([count - counts[0] for count in counts], [0, 0, 1, 1, 2, 2])

    def test_a_checkpoint_that_counted_calls_only(self):
        pipe, optimizer = self.made(norms=False)
        pipe.save(self.folder, optimizer)
        path = self.step_folder() / "manifest.json"
        body = json.loads(path.read_text())["checkpoint"]

        def load():
            text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            path.write_text(json.dumps({"crc32c": f"{_hetu.crc32c(text.encode()):08x}", "checkpoint": body}))
            return pipe.load(self.folder, optimizer)

        del body["run"]["updates"]
        self.assertEqual(load(), [])
        with self.assertRaisesRegex(ValueError, r"counted only calls of step\(\). They are in pipe.steps \(1\)"):
            print(pipe.updates)
        body["run"]["updates"] = "3"
        self.refused("invalid value for updates; it is damaged", load)

    def test_the_loop_counts_turns(self):
        """A wrong calls= is refused with the right one. Messages have both counts."""
        pipe, optimizer = self.made(norms=False)
        pipe.steps = 0
        with self.assertRaisesRegex(ValueError, r"a turn made 2 calls of step\(\), and calls=1. If gradients are "
                                                r"accumulated, give loop\(..., calls=2\)"):
            for _ in hetu.torch.loop(pipe, optimizer, steps=2, checkpoint=self.folder):
                self.update(pipe, optimizer)
        with self.assertRaisesRegex(ValueError, r"a turn made 0 calls.* Call step\(\) in each turn"):
            for _ in hetu.torch.loop(pipe, optimizer, steps=4, checkpoint=self.folder):
                pass
        pipe.steps, turns = 0, []
        for turn in hetu.torch.loop(pipe, optimizer, steps=2, checkpoint=self.folder, calls=2):
            self.update(pipe, optimizer)
            turns.append(turn)
        self.assertEqual((turns, self.step_folder().name), ([0, 1], "step-00000004"))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            turns = list(hetu.torch.loop(pipe, optimizer, steps=2, checkpoint=self.folder, calls=2))
        self.assertEqual(turns, [])
        self.assertIn("continues from step 2 of 2 (4 calls of step()) in", said.getvalue())


class Metrics(CheckpointCase):
    """Values that a metric may return, in one process."""

    def test_values(self):
        pipe, _ = self.made(norms=False)
        x, y = torch.randn(5, 8), torch.randn(5, 8)
        metrics = {"rows": lambda out, target: (len(target), torch.tensor(3)), "zero": lambda out, target: False,
                   "one": lambda out, target: torch.tensor([2.5])}
        self.assertEqual(pipe.evaluate(x, y, metrics=metrics)[1], {"rows": (5.0, 3.0), "one": 2.5, "zero": 0.0})
        for wrong, found in (([1, 2], "a list"), (torch.ones(2), r"a Tensor of shape \[2\]"), (None, "a NoneType"),
                             ((1, torch.ones(3)), r"a Tensor of shape \[3\] in a tuple"), ({"hits": 1}, "a dict")):
            with self.subTest(found), self.assertRaisesRegex(
                    ValueError, f"^evaluate: the metric 'hits' returned {found}. Return a number, .* or a tuple of numbers"):
                pipe.evaluate(x, y, metrics={"zero": lambda out, target: 0, "hits": lambda out, target, w=wrong: w})


@unittest.skipUnless(HAS_TORCH, "PyTorch is not there: ./run torch installs it")
class Copies(unittest.TestCase):
    """Buffers that copies of a stage change apart."""

    def warnings_of(self, norm, pipelines=2, change=lambda model: None):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 8), norm, nn.Tanh(), nn.Linear(8, 8))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "1f1b", 2, pipelines=pipelines, devices="threads:2")
            change(model)
            for _ in range(3):
                pipe.step(torch.randn(8, 8), torch.randn(8, 8))
        return [str(one.message) for one in caught if "each copy of a stage" in str(one.message)]

    def test_one_warning(self):
        two = nn.Sequential(nn.BatchNorm1d(8), nn.BatchNorm1d(8))
        for norm, says in ((nn.BatchNorm1d(8), r"^'1' \(BatchNorm1d\): each copy of a stage changes buffers such as "
                                               r"'1.running_mean' by its own .* use GroupNorm or LayerNorm, call eval\(\)"),
                           (two, r"^'1.0' \(BatchNorm1d\) and 1 more module: each copy")):
            found = self.warnings_of(norm)
            self.assertEqual(len(found), 1, found)
            self.assertRegex(found[0], says)

    def test_none(self):
        """There is no warning for one copy, for frozen statistics, and for buffers that change alike."""

        class Counts(nn.Module):
            """Counts its calls, alike on all copies."""

            def __init__(self):
                super().__init__()
                self.register_buffer("calls", torch.zeros(()))

            def forward(self, x):
                self.calls += 1
                return x

        self.assertEqual(self.warnings_of(nn.BatchNorm1d(8), pipelines=1), [])
        self.assertEqual(self.warnings_of(nn.BatchNorm1d(8), change=lambda model: model[1].eval()), [])
        self.assertEqual(self.warnings_of(nn.LayerNorm(8)), [])
        self.assertEqual(self.warnings_of(Counts()), [])


@unittest.skipUnless(HAS_TORCH, "PyTorch is not there: ./run torch installs it")
class Imports(unittest.TestCase):
    """`import hetu.torch` imports little besides torch."""

    def test_heavy_modules_come_later(self):
        script = (f"import sys, torch\nbefore = set(sys.modules)\nimport hetu.torch\n"
                  f"print([name for name in {HEAVY} if name in sys.modules and name not in before])")
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual((run.returncode, run.stdout), (0, "[]\n"), run.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
