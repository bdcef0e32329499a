#!/usr/bin/env python3
"""Losses that aren't means over samples: token means, sums, micro-batches without labels, and the check of the rule.

Skipped where PyTorch is not installed (`./run torch`)."""

import subprocess
import sys
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Losses(unittest.TestCase):
    """Two workers compared with one process, and single calls."""

    def test_equal_the_whole_batch(self):
        """Every loss of torch_losses.py works under every plan there, and wrong losses are refused."""
        import torch_losses

        run = subprocess.run(["heturun", "-w", "2", sys.executable, HERE / "torch_losses.py"], capture_output=True,
                             text=True, timeout=300)
        self.assertEqual(run.returncode, 0, f"{run.stdout}\n{run.stderr}")
        pairs = len(torch_losses.PLANS) * len(torch_losses.LOSSES)
        for word, lines in (("RIGHT ", pairs), ("BITS ", 6), ("REFUSED ", 7), ("VARUNA ", 2), ("QUIET", 1),
                            ("ROWS ", 7), ("UNUSED", 1), ("DRAWING", 1),
                            ("NOTHING", 1), ("NOT FINITE", 1)):
            self.assertEqual(run.stdout.count(word), 2 * lines, run.stdout)
        self.assertEqual(run.stderr.count("the loss uses random numbers or changes between calls"), 2, run.stderr)

    def test_equals_a_loop_that_multiplies_by_the_share(self):
        """The losses of 6 micro-batches have the bits of `loss * (1 / 6)`. A loop that divides by 6 has others."""
        import torch
        from torch import nn

        import hetu.torch

        def make():
            torch.manual_seed(1)
            return nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(2)])

        def batches():
            draw = torch.Generator().manual_seed(2)
            return [torch.randn(48, 64, generator=draw) for _ in range(4)]

        def loop(share):
            model, losses = make(), []
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            for x in batches():
                optimizer.zero_grad()
                parts = [share(nn.functional.mse_loss(model(part), part)) for part in x.chunk(6)]
                for part in parts:
                    part.backward()
                losses.append(sum(part.item() for part in parts))
                optimizer.step()
            return losses

        pipe = hetu.torch.Pipeline(make(), nn.MSELoss(), schedule="1f1b", micro_batches=6)
        optimizer = torch.optim.AdamW(pipe.parameters(), lr=1e-3)
        found = []
        for x in batches():
            found.append(float(pipe.step(x, x)))
            optimizer.step()
        self.assertEqual(found, loop(lambda loss: loss * (1 / 6)))
        self.assertNotEqual(found, loop(lambda loss: loss / 6))

    @unittest.skipUnless(find_spec("transformers"), "transformers is not there: ./run torch installs it")
    def test_models_of_transformers_bring_their_loss(self):
        """Without a loss argument, the model's own loss is used on padded labels. With one micro-batch it is equal to the
        bit."""
        import torch

        import hetu.torch
        import hetu.torch.blocks
        import torch_models

        draw = torch.Generator().manual_seed(1)
        for name in ("bert", "gpt2", "llama", "t5"):
            make, ties, inputs_of, shape = torch_models.MODELS[name]
            labels = torch.randint(0, torch_models.WORDS, (6, *shape), generator=draw)
            for row, length in enumerate((9, 8, 2, 1, 1, 0)):
                labels[row, length:] = -100
            inputs = inputs_of(draw, 6)
            torch.manual_seed(1)
            whole = make()
            plain = whole(**inputs, labels=labels).loss
            plain.backward()
            for micros in (1, 3):
                with self.subTest(model=name, micro_batches=micros):
                    torch.manual_seed(1)
                    pipe = hetu.torch.Pipeline(hetu.torch.blocks.split(make()), schedule="1f1b", micro_batches=micros,
                                               check_loss_every=1)
                    loss = pipe.step(inputs, labels)
                    self.assertAlmostEqual(loss, plain.item(), delta=0 if micros == 1 else 1e-5)
                    known = dict(whole.named_parameters())
                    for key, parameter in pipe.named_parameters():
                        apart = (parameter.grad - known[key].grad).norm() / known[key].grad.norm().clamp_min(1e-3)
                        self.assertLess(float(apart), 1e-5, key)

    def test_refuses_in_one_line(self):
        import torch
        from torch import nn

        import hetu.torch
        import hetu.torch.blocks

        def made(**options):
            return hetu.torch.Pipeline([nn.Linear(4, 4), nn.Linear(4, 4)], nn.MSELoss(), "1f1b", 2, **options)

        x = torch.ones(4, 4)
        cases = [
            (lambda: made(loss_reduction="none"), 'expected "mean" or "sum"'),
            (lambda: made(loss_reduction="sum", loss_weight=len), "a sum needs no weights"),
            (lambda: made(loss_weight=3), "loss_weight=3: expected a function"),
            (lambda: made(loss_weight=lambda: 1), "loss_weight takes 0 arguments"),
            (lambda: made(check_loss_every=-1), "check_loss_every=-1"),
            (lambda: made(loss_weight=lambda y: -1).step(x, x), "loss_weight gave -1 for a micro-batch"),
            (lambda: made(loss_weight=lambda y: y).step(x, x), r"loss_weight gave a tensor of shape \[2, 4\]"),
            (lambda: made(loss_weight=hetu.torch.token_count()).step(x, x), "token_count: expected a tensor of labels"),
            (lambda: hetu.torch.Pipeline([nn.Linear(4, 4)], schedule="1f1b", micro_batches=2), "Pipeline without a loss"),
        ]
        for make, message in cases:
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message) as caught:
                make()
            self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    unittest.main(verbosity=2)
