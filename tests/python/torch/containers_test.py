#!/usr/bin/env python3
"""Containers whose own code a cut would lose: hetu.torch runs the code, or refuses the model by name.

Skipped where PyTorch is not installed (`./run torch`)."""

import unittest
from importlib.util import find_spec


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Containers(unittest.TestCase):
    """Containers in one process, whose plan has two stages."""

    def setUp(self):
        import torch
        from torch import nn

        torch.manual_seed(1)

        class Skip(nn.Sequential):
            def forward(self, x):
                return x + super().forward(x)

        class Listed(nn.ModuleList):
            def forward(self, x):
                for module in self:
                    x = x + module(x)
                return x

        self.Skip, self.Listed = Skip, Listed

    def pipeline(self, model):
        """Returns a Pipeline of two stages on this worker."""
        from torch import nn

        import hetu.torch

        return hetu.torch.Pipeline(model, nn.MSELoss(), "zb-v", 1)

    def refused(self, model, text):
        """Expects one line with the reason why the model can't be cut."""
        with self.assertRaisesRegex(ValueError, text) as caught:
            self.pipeline(model)
        self.assertNotIn("\n", str(caught.exception))

    def step(self, model, pipe, x, y):
        """Compares a step with the unsplit model's."""
        import torch
        from torch import nn

        model.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        want = {name: p.grad.clone() for name, p in model.named_parameters()}
        self.assertEqual(pipe.step(x, y), loss.item())
        for name, parameter in pipe.named_parameters():
            self.assertTrue(torch.equal(parameter.grad, want[name]), name)

    def test_an_overridden_forward(self):
        """A container with its own forward is refused if its children are cut, runs as one piece, and runs where an example
        cuts it."""
        import torch
        from torch import nn

        import hetu.torch

        x, y = torch.randn(8, 4), torch.randn(8, 4)
        for kind in (self.Skip, self.Listed):
            def made(kind=kind):
                children = [nn.Linear(4, 4), nn.Linear(4, 4)]
                return kind(*children) if kind is self.Skip else kind(children)

            self.refused(made(), rf"{kind.__name__} has its own forward\(\), which would not run")
            model = made()
            inner = nn.Sequential(model, nn.Linear(4, 4))
            self.step(inner, self.pipeline(inner), x, y)
            model = made()
            self.step(model, self.pipeline(hetu.torch.split(model, at=["1"], example=x)), x, y)
        replaced = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        replaced.forward = lambda x: x
        self.refused(replaced, r"Sequential has its own forward\(\)")

    def test_hooks_of_what_is_cut(self):
        """Each kind of hook is refused on the model and on a module that contains a cut. On a piece, it runs."""
        import torch
        from torch import nn

        import hetu.torch

        x, y = torch.randn(8, 4), torch.randn(8, 4)
        kinds = {"register_forward_hook": (lambda m, a, o: o * 2, "forward hook"),
                 "register_forward_pre_hook": (lambda m, a: (a[0] * 2,), "forward pre-hook"),
                 "register_full_backward_hook": (lambda m, i, o: (i[0] * 2,), "backward hook"),
                 "register_full_backward_pre_hook": (lambda m, o: (o[0] * 2,), "backward pre-hook")}
        for method, (hook, text) in kinds.items():
            with self.subTest(hook=method):
                model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
                getattr(model, method)(hook)
                self.refused(model, f"Sequential has a {text}, which would not run")
                outer = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
                getattr(outer[1], method)(hook)
                for options in ({}, {"example": x}):
                    with self.assertRaisesRegex(ValueError, f"module '1' of Sequential has a {text}"):
                        hetu.torch.split(outer, at=["1.1"], **options)
                self.step(outer, self.pipeline(outer), x, y)

    def test_what_a_container_holds_itself(self):
        """A container's own parameter is refused. A ModuleList is cut like a list, and so is a subclass that adds nothing.
        """
        import torch
        from torch import nn

        class Named(nn.Sequential):
            pass

        x, y = torch.randn(8, 4), torch.randn(8, 4)
        model = Named(nn.Linear(4, 4), nn.Linear(4, 4))
        self.step(model, self.pipeline(model), x, y)
        model.scale = nn.Parameter(torch.ones(4))
        self.refused(model, "Named has its own parameter or buffer 'scale', which would be in no stage")
        pipe = self.pipeline(nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]))
        self.assertEqual(list(pipe.state_dict()), ["0.weight", "0.bias", "1.weight", "1.bias"])
        norm = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        model = nn.Sequential(norm, nn.Linear(4, 4))
        self.step(model, self.pipeline(model), x, y)

    def test_parametrizations_of_what_is_cut(self):
        """A parameter of the model itself keeps its parametrization. Parameters that forward doesn't use stay in the
        state_dict."""
        import torch
        from torch import nn

        import hetu.torch

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(2, 2)
                self.scale = nn.Parameter(torch.rand(4))

            def forward(self, x):
                return self.last(self.first(x) * self.scale) * self.scale

        class Double(nn.Module):
            def forward(self, x):
                return x * 2

        model, x, y = Model(), torch.randn(8, 4), torch.randn(8, 4)
        nn.utils.parametrize.register_parametrization(model, "scale", Double())
        loss = nn.functional.mse_loss(model(x), y).item()
        pipe = self.pipeline(hetu.torch.split(model, at=["last"], example=x))
        self.assertEqual(pipe.step(x, y), loss)
        self.assertEqual(set(pipe.state_dict()), set(model.state_dict()))


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
