#!/usr/bin/env python3
"""What a step is given (losses with parameters, scalers, arrays, lists) is taken as plain PyTorch takes it, or refused.

Skipped where PyTorch is not there (`./run torch`)."""

import unittest
from importlib.util import find_spec

THERE = find_spec("torch") is not None
if THERE:
    import torch
    from torch import nn

    import hetu.torch

    class WithScale(nn.Module):
        """A loss with a parameter."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, out, y):
            """Its mean."""
            return ((out * self.scale - y) ** 2).mean()

    class GivesLoss(nn.Module):
        """The same as the last piece of a model, whose target is an input."""

        def __init__(self):
            super().__init__()
            self.of = WithScale()

        def forward(self, value):
            """A scalar."""
            return self.of(*value)

    class OfInputs(nn.Module):
        """Passes the target on."""

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, value):
            """(output, target)"""
            return self.linear(value["x"]), value["y"]


@unittest.skipUnless(THERE, "PyTorch is not there: ./run torch installs it")
class Inputs(unittest.TestCase):
    """In one process, with two stages."""

    def made(self, loss=None, micros=2):
        torch.manual_seed(1)
        return hetu.torch.Pipeline([nn.Linear(4, 4), nn.Linear(4, 4)], loss or nn.MSELoss(), "zb-v", micros)

    def refuses(self, text, call):
        with self.assertRaisesRegex(ValueError, text) as caught:
            call()
        self.assertNotIn("\n", str(caught.exception))

    def test_a_loss_with_parameters_is_refused(self):
        x = torch.ones(4, 4)
        self.refuses("the loss WithScale has parameters .scale., which belong to no stage", lambda: self.made(WithScale()))
        loss = WithScale()
        self.refuses(r"stage 1 or the loss uses a tensor of shape \[4\] that requires gradients",
                     lambda: self.made(lambda out, y: loss(out, y)).step(x, x))
        pieces = [nn.Linear(4, 4), nn.Linear(4, 4)]
        pipe = hetu.torch.Pipeline(pieces, lambda out, y: out.mean() + pieces[0].weight.sum(), "zb-v", 2)
        self.refuses("stage 1 or the loss uses '0.weight', a parameter of another stage", lambda: pipe.step(x, x))
        self.made(loss.requires_grad_(False)).step(x, x)
        x.requires_grad_()
        self.made().step(x, x.detach())  # inputs may require gradients

    def test_a_loss_as_the_last_piece_is_trained(self):
        torch.manual_seed(1)
        model, whole = (nn.Sequential(OfInputs(), GivesLoss()) for _ in range(2))
        whole.load_state_dict(model.state_dict())
        pipe = hetu.torch.Pipeline(model, lambda out, target: out, "zb-v", 1)
        batch = {"x": torch.randn(4, 4), "y": torch.randn(4, 4)}
        whole(batch).backward()
        pipe.step(batch, None)
        known = dict(whole.named_parameters())
        self.assertIn("1.of.scale", known)
        for name, parameter in pipe.named_parameters():
            self.assertTrue(torch.equal(parameter.grad, known[name].grad), name)

    def test_another_scaler_is_refused(self):
        x, pipe = torch.ones(4, 4), self.made()
        self.refuses("step: a torch.amp.GradScaler sees the gradients of this worker's stages alone",
                     lambda: pipe.step(x, x, torch.amp.GradScaler("cpu")))
        self.refuses("made of this Pipeline", lambda: pipe.step(x, x, hetu.torch.GradScaler(self.made())))
        pipe.step(x, x, torch.amp.GradScaler("cpu", enabled=False))
        pipe.step(x, x, hetu.torch.GradScaler(pipe))


if __name__ == "__main__":
    unittest.main(verbosity=2)
