#!/usr/bin/env python3
"""hetu.torch.Pipeline(devices="threads:N") in one process, as in a notebook: same bits as plain PyTorch, and refused
settings.

Skipped where PyTorch is not installed (`./run torch`)."""

import contextlib
import copy
import os
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

WIDTH, ROWS, MICROS = 4, 11, 4


def pieces():
    """Returns layers with dropout, statistics, and a frozen part."""
    from torch import nn

    made = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh(), nn.Dropout(0.2)) for _ in range(4)]
    made[1][0].requires_grad_(False)
    return made


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Threads(unittest.TestCase):
    """Pipelines of threads in this process."""

    def train(self, schedule, workers, **options):
        """Trains by threads and in plain PyTorch, and returns both."""
        import torch
        from torch import nn

        import hetu.torch
        import torch_plain

        torch.manual_seed(1)
        model = nn.Sequential(*pieces())
        torch.manual_seed(1)
        plain = torch_plain.Plain(pieces(), nn.MSELoss(), torch_plain.adamw)
        pipe = hetu.torch.Pipeline(model, nn.MSELoss(), schedule, MICROS, devices=f"threads:{workers}", **options)
        optimizer = torch_plain.adamw(list(pipe.parameters()))
        draw = torch.Generator().manual_seed(2)
        for step in range(3):
            if step == 1:
                model[1][0].requires_grad_(True)
                model[3][1].eval()
                plain.pieces[1][0].requires_grad_(True)
                plain.pieces[3][1].eval()
            rows = ROWS * pipe.pipelines
            x, y = torch.randn(rows, WIDTH, generator=draw), torch.randn(rows, WIDTH, generator=draw)
            micros = [pair for a, b in zip(x.chunk(pipe.pipelines), y.chunk(pipe.pipelines), strict=True)
                      for pair in zip(torch_plain.cut(a, MICROS), torch_plain.cut(b, MICROS), strict=True)]
            state = torch.get_rng_state()
            with self.subTest(schedule=schedule, step=step):
                self.assertAlmostEqual(pipe.step(x, y), plain.step(micros), delta=0 if pipe.pipelines == 1 else 1e-6)
            if step == 0:
                self.assertIsNone(model[1][0].weight.grad)
            torch.set_rng_state(state)
            pipe.clip_grad_norm_(0.5)
            torch.nn.utils.clip_grad_norm_(plain.whole.parameters(), 0.5)
            optimizer.step()
            plain.optimizer.step()
        return model, pipe, optimizer, plain, (x, y, micros)

    def test_bits_of_plain_torch(self):
        """Losses, weights, evaluation and a checkpoint are equal, and the script's model holds all weights."""
        import torch
        from torch import nn

        import hetu.torch

        for schedule, workers in (("1f1b", 2), ("zb-h1", 4), ("zb-v", 2)):
            model, pipe, optimizer, plain, (x, y, micros) = self.train(schedule, workers)
            with self.subTest(schedule=schedule):
                state = pipe.state_dict()
                for name, value in nn.Sequential(*plain.pieces).state_dict().items():
                    self.assertTrue(torch.equal(value, state[name]) and torch.equal(value, model.state_dict()[name]), name)
                expected = plain.evaluate(micros)
                self.assertEqual(pipe.evaluate(x, y), expected)
                loss, found, outputs = pipe.evaluate(x, y, metrics={"rows": lambda out, target: len(out)},
                                                     return_outputs=True)
                self.assertEqual((loss, found["rows"]), (expected, ROWS))
                self.assertTrue(torch.equal(outputs, pipe.predict(x)))
                self.assertFalse(model[3][1].training)
                self.assertTrue(model[3][3].training)
        with tempfile.TemporaryDirectory() as folder:
            pipe.save(os.path.join(folder, "saved"), optimizer)
            other = hetu.torch.Pipeline(nn.Sequential(*pieces()), nn.MSELoss(), "1f1b", MICROS, devices="threads:4")
            other.load(os.path.join(folder, "saved"), torch.optim.AdamW(other.parameters()))
            self.assertEqual(other.evaluate(x, y), pipe.evaluate(x, y))

    def test_copies(self):
        """With two pipelines and a bidirectional schedule, copies stay equal, and follow the settings on the model."""
        import torch

        for schedule, workers, options in (("1f1b", 4, {"pipelines": 2}), ("chimera", 2, {})):
            model, pipe, *_ = self.train_close(schedule, workers, **options)
            state = model.state_dict()
            for name, parameter in pipe.named_parameters():
                with self.subTest(schedule=schedule, name=name):
                    self.assertTrue(torch.equal(parameter, state[name]))

    def test_uneven_shares(self):
        """The samples need not divide over the pipelines. Each counts the same, and outputs are those of all samples."""
        import torch
        from torch import nn

        import hetu.torch

        class Head(nn.Module):
            """Returns a tensor with rows, one without, and text."""

            def forward(self, x):
                return {"logits": x, "mean": x.mean(), "name": "head"}

        def loss_of(out, target):
            return nn.functional.mse_loss(out["logits"], target)

        def hits(out, target):
            return (out["logits"] > target).sum(), target.numel()

        for pipelines, rows, options in ((2, 15, {}), (3, 7, {}), (2, 15, {"whole_batches": True}), (1, 5, {})):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), Head())
            whole = copy.deepcopy(model)
            pipe = hetu.torch.Pipeline(model, loss_of, "1f1b", 2, pipelines=pipelines, devices=f"threads:{2 * pipelines}",
                                       first_pieces=[0, 2], **options)
            x, y = torch.randn(rows, WIDTH), torch.randn(rows, WIDTH)
            with self.subTest(pipelines=pipelines, rows=rows, **options):
                want = whole(x)
                loss_of(want, y).backward()
                loss, out = pipe.step(x, y, return_outputs=True)
                self.assertAlmostEqual(loss, loss_of(want, y).item(), delta=1e-6)
                torch.testing.assert_close(model[0].weight.grad, whole[0].weight.grad)
                found, metrics, again = pipe.evaluate(x, y, metrics={"hits": hits, "rows": lambda out, target: len(target)},
                                                      return_outputs=True)
                self.assertAlmostEqual(found, loss, delta=1e-6)
                self.assertEqual(metrics["hits"], (float((want["logits"] > y).sum()), float(y.numel())))
                for outputs in (out, again, pipe.predict(x)):
                    torch.testing.assert_close(outputs["logits"], want["logits"].detach())
                    self.assertEqual((outputs["mean"].shape, outputs["name"]), ((2 * pipelines,), "head"))
                if pipelines > 1 and not options:
                    for call, *given in ((pipe.predict, x[:1]), (pipe.step, x[:1], y[:1])):
                        with self.assertRaisesRegex(ValueError, rf"1 sample for {pipelines} pipelines; each pipeline "
                                                                rf"needs at least one"):
                            call(*given)

    def train_close(self, schedule, workers, **options):
        """Trains by threads only, where sums are in another order."""
        import torch
        from torch import nn

        import hetu.torch

        torch.manual_seed(1)
        model = nn.Sequential(*pieces())
        pipe = hetu.torch.Pipeline(model, nn.MSELoss(), schedule, MICROS, devices=f"threads:{workers}", **options)
        optimizer = torch.optim.AdamW(pipe.parameters(), lr=0.01)
        seen = []
        for step in range(3):
            model[1][0].requires_grad_(step > 0)
            if step == 1:
                model[0][1].eval()
                model[0].register_forward_hook(lambda module, given, out: seen.append(module[1].training))
            x = torch.randn(16, WIDTH)
            pipe.step(x, x)
            optimizer.step()
        self.assertEqual(seen, 2 * MICROS * pipe.pipelines * [False])
        return model, pipe

    def test_drawn_models(self):
        """Models of torch_random.py train: words, custom functions, parameters that are frozen and unfrozen."""
        import torch
        from torch import nn

        import hetu.torch
        import torch_plain
        import torch_random

        for seed in (2, 3):
            make, change, words, _, rows = torch_random.draw(seed, False)
            made = []
            for _ in range(2):
                torch.manual_seed(seed)
                made.append(make())
            loss = torch_random.mean_of_rows if words else nn.MSELoss()
            plain = torch_plain.Plain(made[1], loss, torch_plain.sgd)
            pipe = hetu.torch.Pipeline(made[0], loss, "zb-v", MICROS, devices="threads:2")
            optimizer = torch_plain.sgd(list(pipe.parameters()))
            batches = torch_random.batches_of(words, rows)
            draw = torch.Generator().manual_seed(seed)
            for step in range(3):
                x, y = (t[0] for t in batches(draw, 1)) if words else torch.randn(2, rows, WIDTH, generator=draw)
                change(step, made[0])
                change(step, made[1])
                micros = list(zip(torch_plain.cut(x, MICROS), torch_plain.cut(y, MICROS), strict=True))
                with self.subTest(seed=seed, step=step):
                    self.assertEqual(pipe.step(x.clone(), y), plain.step([(a.clone(), b) for a, b in micros]))
                optimizer.step()
                plain.optimizer.step()
            for name, value in nn.Sequential(*made[1]).state_dict().items():
                with self.subTest(seed=seed, name=name):
                    self.assertTrue(torch.equal(value, nn.Sequential(*made[0]).state_dict()[name]))

    def test_settings(self):
        """The script's autocast applies in all threads. Generators are unchanged afterwards."""
        import torch
        from torch import nn

        import hetu.torch

        seen = []

        class Seen(nn.Module):
            """Records the type of its input."""

            def forward(self, x):
                seen.append(x.dtype)
                return x

        model = [nn.Linear(WIDTH, WIDTH), Seen(), nn.Linear(WIDTH, WIDTH), Seen()]
        pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "1f1b", 2, devices="threads:2")
        state = torch.get_rng_state()
        with torch.autocast("cpu", torch.bfloat16):
            pipe.step(torch.ones(4, WIDTH), torch.ones(4, WIDTH))
        self.assertEqual(seen, 4 * [torch.bfloat16])
        self.assertTrue(torch.equal(state, torch.get_rng_state()))
        with self.assertRaisesRegex(RuntimeError, "inside torch.no_grad"), torch.no_grad():
            pipe.step(torch.ones(4, WIDTH), torch.ones(4, WIDTH))

    def test_page(self):
        """The code block of docs/pytorch.md for notebooks runs without heturun."""
        page = Path(__file__).resolve().parents[3] / "docs" / "pytorch.md"
        section = page.read_text().split("\n## In a notebook\n")[1].split("\n## ")[0]
        snippet, = re.findall(r"```py\n(.*?)```", section, flags=re.S)
        run = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, timeout=300)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("first weight", run.stdout)
        self.assertNotIn("leaked", run.stderr)

    def test_a_tied_stage_twice_on_a_worker(self):
        """Gems on three workers has the middle stage twice on the second one."""
        from torch import nn

        import hetu.torch

        for one, two, is_refused in ((0, 1, True), (1, 2, True), (0, 2, False)):
            model = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
            model[two].weight = model[one].weight
            with self.subTest(one=one, two=two), contextlib.ExitStack() as stack:
                if is_refused:
                    stack.enter_context(self.assertRaisesRegex(
                        ValueError, f"'{one}.weight' is used on model stages {one} and {two}, and stage 1 is on worker 1"))
                hetu.torch.Pipeline(model, nn.MSELoss(), "gems", 4, devices="threads:3")

    def test_errors(self):
        """Wrong names are refused, and the error of one worker is raised by the call."""
        import torch
        from torch import nn

        import hetu.torch

        class Fails(nn.Module):
            """Fails on real values."""

            def forward(self, x):
                if not isinstance(x, torch._subclasses.FakeTensor):
                    raise ValueError("this stage fails")
                return x

        for name in ("threads:0", "threads:2x2", "threads"):
            with self.subTest(name=name), self.assertRaisesRegex(ValueError, "expected 'threads:N'"):
                hetu.torch.Pipeline([nn.Linear(2, 2)], nn.MSELoss(), "1f1b", 1, devices=name)
        with self.assertWarnsRegex(UserWarning, "has no parameters"):
            pipe = hetu.torch.Pipeline([nn.Linear(WIDTH, WIDTH), Fails()], nn.MSELoss(), "1f1b", 2, devices="threads:2")
        with self.assertRaisesRegex(RuntimeError, "exchange: not supported with devices"):
            pipe.exchange(b"")
        with self.assertRaisesRegex(ValueError, "this stage fails"):
            pipe.step(torch.ones(4, WIDTH), torch.ones(4, WIDTH))


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
