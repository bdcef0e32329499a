#!/usr/bin/env python3
"""Arguments of a step are accepted as in plain PyTorch, or refused: losses with parameters, scalers, arrays and lists.

Skipped where PyTorch is not installed (`./run torch`)."""

import unittest
from collections import UserDict
from importlib.util import find_spec

THERE = find_spec("torch") is not None
if THERE:
    import numpy as np
    import torch
    from torch import nn

    import hetu.torch

    class WithScale(nn.Module):
        """A loss with a parameter."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, out, y):
            """Returns the mean loss."""
            return ((out * self.scale - y) ** 2).mean()

    class GivesLoss(nn.Module):
        """A model whose last piece computes the same loss. The target is an input."""

        def __init__(self):
            super().__init__()
            self.of = WithScale()

        def forward(self, value):
            """Returns a scalar."""
            return self.of(*value)

    class OfInputs(nn.Module):
        """Passes the target on."""

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, value):
            """Returns (output, target)."""
            return self.linear(value["x"]), value["y"]


@unittest.skipUnless(THERE, "PyTorch is not there: ./run torch installs it")
class Inputs(unittest.TestCase):
    """Arguments in one process, with two stages."""

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
        self.refuses("step: a torch.amp.GradScaler checks only the gradients of this worker's stages",
                     lambda: pipe.step(x, x, torch.amp.GradScaler("cpu")))
        self.refuses("made of this Pipeline", lambda: pipe.step(x, x, hetu.torch.GradScaler(self.made())))
        pipe.step(x, x, torch.amp.GradScaler("cpu", enabled=False))
        pipe.step(x, x, hetu.torch.GradScaler(pipe))


    def test_arrays_and_mappings_are_cut(self):
        """Arrays and mappings give the results of tensors with the same values. Read-only arrays work, too."""
        draw = torch.Generator().manual_seed(1)
        x, y = torch.randn(6, 4, generator=draw), torch.randn(6, 4, generator=draw)
        want = self.made().step(x, y)
        fixed = y.numpy().copy()
        fixed.flags.writeable = False
        self.assertEqual(self.made().step(x.numpy(), fixed), want)
        named = UserDict({"of": UserDict({"x": x.numpy()})})

        class Named(nn.Module):
            def forward(self, value):
                return value["of"]["x"]

        def loss(out, target):
            self.assertEqual(len(out), len(target[0]["y"]))
            return nn.functional.mse_loss(out, target[0]["y"]) * target[1]

        torch.manual_seed(1)
        linear = [nn.Linear(4, 4), nn.Linear(4, 4)]
        pipe = hetu.torch.Pipeline([Named(), *linear], loss, "zb-v", 2)
        self.assertEqual(pipe.step(named, ({"y": fixed}, np.float64(1.0))), want)

    def test_what_is_as_long_as_the_batch_is_cut_or_refused(self):
        x, pipe = torch.ones(6, 4), self.made(lambda out, target: out.mean())
        class Rows:
            def __len__(self):
                return 6

        for target, text in (([1, 2, 3, 4, 5, 6], "target: a list of 6 elements isn't cut into micro-batches, "
                                                   "although there are 6 samples"),
                             ({"names": list("abcdef")}, r"target\['names'\]: a list of 6 elements"),
                             ((x, [torch.ones(())] * 6), r"target\[1\]: a list of 6 elements"),
                             ([torch.ones(1, 3)] * 6, "target: a list of 6 elements"),
                             ([{"boxes": torch.ones(6, 4)}] * 5 + [{"boxes": torch.ones(1, 4)}], "target: a list of 6"),
                             (Rows(), "target: a Rows of 6 elements"),
                             (np.array(list("abcdef")), "target: a NumPy array of <U1 can't become a tensor"),
                             (np.ones(5), r"target: a tensor of shape \[5\] in a batch of 6 samples")):
            self.refuses(text, lambda target=target: pipe.step(x, target))
        for target in ((1, 2, 3, 4, 5, 6), "abcdef", [x] * 6, [1, 2], {"a": x, "b": 3}, None):
            pipe.step(x, target)


    def test_lengths_may_change_from_step_to_step(self):
        """Shapes are inferred twice for the first length, once for the second, with open lengths, and never for later ones.
        At most 64 forms are remembered."""
        torch.manual_seed(1)
        model, whole = (nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9)) for _ in range(2))
        whole.load_state_dict(model.state_dict())
        pipe = hetu.torch.Pipeline(model, hetu.torch.causal_lm_loss(), "zb-v", 2)
        for length in range(2, 80):
            x = torch.randint(0, 9, (4, length))
            plain = hetu.torch.causal_lm_loss()(whole(x), x).item()
            self.assertAlmostEqual(pipe.step(x, x), plain, places=5)
            self.assertEqual(pipe.forms.looks, min(length, 3))  # the first length is inferred again with one sample more
            self.assertLessEqual(len(pipe.forms.known), 64)
        pipe.step(x, x)
        pipe.step(x[:, :2], x[:, :2])  # no longer remembered
        self.assertEqual(pipe.forms.looks, 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
