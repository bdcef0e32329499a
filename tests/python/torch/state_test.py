#!/usr/bin/env python3
"""Checkpoints of hetu.torch hold more than weights: the optimizer with the options of its groups, scalers, schedulers.

Skipped where PyTorch is not installed (`./run torch`)."""

import tempfile
import unittest
from importlib.util import find_spec


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class State(unittest.TestCase):
    """Checkpoints in one process, with two stages."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def made(self, rate=0.05, scale=1024.0, groups=1):
        import torch
        from torch import nn

        import hetu.torch

        torch.manual_seed(1)
        pipe = hetu.torch.Pipeline([nn.Linear(4, 4), nn.Linear(4, 4)], nn.MSELoss(), "zb-v", 2)
        every = list(pipe.parameters())
        optimizer = torch.optim.AdamW([{"params": every[n::groups]} for n in range(groups)], lr=rate, betas=(0.8, 0.9))
        rates = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return pipe, optimizer, rates, hetu.torch.GradScaler(pipe, init_scale=scale, growth_interval=2)

    def steps(self, number, pipe, optimizer, rates, scaler):
        import torch

        for _ in range(number):
            x = torch.linspace(-1, 1, 16).view(4, 4)
            pipe.step(x, -x, scaler)
            scaler.step(optimizer)
            scaler.update()
            rates.step()
        return {name: value.clone() for name, value in pipe.state_dict().items()}

    def test_goes_on_as_if_it_had_not_stopped(self):
        """A resumed training equals an uninterrupted one, although it was rebuilt with another learning rate, other betas
        and another scale."""
        import torch

        want = self.steps(5, *self.made())
        pipe, optimizer, rates, scaler = first = self.made()
        self.steps(3, *first)
        pipe.save(self.folder, optimizer, scaler=scaler, rates=rates)
        pipe, optimizer, rates, scaler = second = self.made(rate=1.0, scale=2.0)
        pipe.load(self.folder, optimizer, scaler=scaler, rates=rates)
        self.assertEqual((scaler.get_scale(), rates.last_epoch), (2048.0, 3))
        self.assertEqual(optimizer.param_groups[0]["betas"], (0.8, 0.9))
        for name, value in self.steps(2, *second).items():
            self.assertTrue(torch.equal(value, want[name]), name)

    def test_what_is_not_there_is_said(self):
        pipe, optimizer, rates, scaler = self.made()
        self.steps(1, pipe, optimizer, rates, scaler)
        pipe.save(self.folder, optimizer, rates=rates)
        with self.assertRaisesRegex(ValueError, "no state of 'scaler'; besides the optimizer, it holds 'rates'"):
            pipe.load(self.folder, optimizer, scaler=scaler, rates=rates)
        other = self.made(groups=2)
        with self.assertRaisesRegex(ValueError, r"optimizer has 1 group of parameters, this one 2"):
            other[0].load(self.folder, other[1], rates=other[2])

        class Odd:
            def state_dict(self):
                return {"f": print}

            def load_state_dict(self, state):
                raise AssertionError("nothing was saved")

        with self.assertRaisesRegex(ValueError, "odd: its state holds a builtin_function_or_method"):
            pipe.save(self.folder, odd=Odd())


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
