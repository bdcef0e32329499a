#!/usr/bin/env python3
"""Stages of hetu.torch: default cuts, dataclasses between stages, parameters that two stages share.

Skipped where PyTorch is not installed (`./run torch`)."""

import dataclasses
import unittest
import warnings
from importlib.util import find_spec
from typing import Any


@dataclasses.dataclass(frozen=True)
class Inner:
    """Tensors inside another dataclass."""

    skip: Any
    scale: float


@dataclasses.dataclass
class State:
    """The value between two pieces of this test."""

    hidden: Any
    inner: Inner
    names: tuple = ("a", "b")


class Opaque:
    """An object with tensors that isn't a dataclass."""

    def __init__(self, hidden):
        self.hidden = {"x": hidden}


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Stages(unittest.TestCase):
    """Stages in one process, whose plan has two or more of them."""

    def test_default_cuts(self):
        """Every stage has parameters where that is possible. Cuts for which this already holds stay even."""
        from hetu.torch.cuts import even_cut

        for pieces, stages, first in (("PPPPP", 2, [0, 2]), ("P.P.P", 2, [0, 2]), ("P.PP.P", 3, [0, 2, 4]),
                                      ("P.P.P.P", 4, [0, 1, 3, 5]), ("PP..", 2, [0, 1]), ("..PP", 2, [0, 3]),
                                      ("....P...P", 2, [0, 5]), ("...", 2, [0, 1]), ("P" * 12, 5, [0, 2, 4, 7, 9])):
            with self.subTest(pieces=pieces, stages=stages), warnings.catch_warnings():
                warnings.simplefilter("error")
                has = [piece == "P" for piece in pieces]
                self.assertEqual(even_cut(has, stages, ["Piece"] * len(has)), first)
                if any(has):
                    self.assertTrue(all(any(has[a:b]) for a, b in zip(first, [*first[1:], len(has)], strict=True)))

    def test_says_which_stage_is_empty(self):
        """A warning names the empty stage: five pieces, three of them with parameters, over four stages."""
        from torch import nn

        import hetu.torch

        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        with self.assertWarnsRegex(UserWarning, r"stage 1 \(ReLU\) has no parameters: 3 of 5 pieces have parameters, for 4"):
            hetu.torch.Pipeline(model, nn.MSELoss(), "interleaved-1f1b", 4, chunks=4)

    def test_dataclasses_between_stages(self):
        """Frozen and nested dataclasses cross a boundary, with their gradients. Other objects are refused by name."""
        import torch
        from torch import nn

        import hetu.torch

        class First(nn.Linear):
            def forward(self, x):
                return State(super().forward(x), Inner(x * 2, 0.5))

        class Middle(nn.Linear):
            def forward(self, state):
                assert isinstance(state.inner, Inner) and state.names == ("a", "b")
                return dataclasses.replace(state, hidden=super().forward(state.hidden) * state.inner.scale)

        class Last(nn.Linear):
            def forward(self, state):
                return super().forward(state.hidden + state.inner.skip)

        class Hides(nn.Linear):
            def forward(self, x):
                return Opaque(super().forward(x))

        torch.manual_seed(1)
        model, x = nn.Sequential(First(4, 4), Middle(4, 4), Last(4, 4)), torch.randn(8, 4)
        loss = nn.functional.mse_loss(model(x), x)
        loss.backward()
        want = [p.grad.clone() for p in model.parameters()]
        pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "zb-v", 1)
        self.assertEqual(pipe.step(x, x), loss.item())
        for parameter, grad in zip(pipe.parameters(), want, strict=True):
            self.assertTrue(torch.equal(parameter.grad, grad))
        pipe = hetu.torch.Pipeline(nn.Sequential(Hides(4, 4), nn.Linear(4, 4)), nn.MSELoss(), "zb-v", 1)
        with self.assertRaisesRegex(ValueError, r"stage 0 \(Hides\) gives an object of type Opaque, which holds tensors"):
            pipe.step(x, x)

    def test_ties_are_found(self):
        """A tied head, and a parameter of the model itself that two stages read, are one parameter for training."""
        import torch
        from torch import nn

        import hetu.torch

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.middle = nn.Embedding(8, 4), nn.Linear(4, 4)
                self.head = nn.Linear(4, 8, bias=False)
                self.head.weight = self.words.weight
                self.scale = nn.Parameter(torch.rand(4))

            def forward(self, ids):
                return self.head(self.middle(self.words(ids) * self.scale) * self.scale)

        torch.manual_seed(1)
        model, ids = Model(), torch.arange(8).view(2, 4)

        def loss_of(out, y):
            return nn.functional.cross_entropy(out.flatten(0, 1), y.flatten())

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        copy = Model()
        copy.load_state_dict(model.state_dict())
        pipe = hetu.torch.Pipeline(hetu.torch.split(copy, at=["middle"], example=ids), loss_of, "zb-v", 1)
        rule = torch.optim.SGD(pipe.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = loss_of(model(ids), ids)
            loss.backward()
            optimizer.step()
            self.assertAlmostEqual(pipe.step(ids, ids), loss.item(), 6)
            rule.step()
        self.assertEqual([tie.names for tie in pipe.ties], [("scale", "scale"), ("words.weight", "head.weight")])
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(pipe.state_dict()[name], tensor, rtol=1e-6, atol=1e-7)


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
