#!/usr/bin/env python3
"""Cuts of models by hetu.torch: at CutPoints, at named modules, by time and by memory.

Skipped where PyTorch is not installed (`./run torch`)."""

import unittest
from importlib.util import find_spec


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Cuts(unittest.TestCase):
    """Cuts in one process."""

    def test_cut_points(self):
        """The parameters of the stages are a partition of 12 pieces' parameters, also with uneven stages. A tied parameter
        is on two stages, if there are two."""
        import torch_varuna
        from hetu.torch import ties
        from hetu.torch.cuts import Pieces
        from hetu.torch.tracing import split_at_cut_points

        for stages in (1, 2, 3, 4, 5, 6, 12):
            model = torch_varuna.Model(tied=False, blocks=11)
            pieces = Pieces(split_at_cut_points(model, ["ids", "labels", "mask"], {"doubled": False}))
            self.assertEqual(len(pieces.pieces), 12)
            cut = pieces.stages(pieces.cut(stages, None))
            names = [pieces.names[id(p)] for stage in cut for p in stage.parameters()]
            self.assertEqual(len(cut), stages)
            every = sorted(name for name, _ in model.named_parameters())
            self.assertEqual(sorted(names), every)
            tie = [("words.weight", "head.weight")]
            model = torch_varuna.Model(tied=True, blocks=11)
            pieces = Pieces(split_at_cut_points(model, ["ids", "labels", "mask"], {"doubled": False}))
            ties.join(pieces, tie)
            cut = pieces.stages(pieces.cut(stages, None))
            self.assertEqual(len(ties.cut(pieces, cut)), int(stages > 1))
            held = {id(p): pieces.names[id(p)] for stage in cut for p in stage.parameters()}
            self.assertEqual(sorted(held.values()), [n for n in every if stages > 1 or n != "head.weight"])

    def test_tied_parameters_must_be_equal(self):
        """The message says whether shapes or values differ."""
        from torch import nn

        import hetu.torch

        def refused(model, says):
            with self.assertRaisesRegex(ValueError, says):
                hetu.torch.Pipeline(model, nn.MSELoss(), "1f1b", 2, tied=[("0.weight", "2.weight")])

        square = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        refused(square, "'0.weight' and '2.weight' begin with different values; copy one into the other first")
        refused(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)),
                r"'0.weight' has the shape \[8, 4\] and '2.weight' \[4, 8\]; only parameters of equal shape can be tied")

    def test_too_few_pieces(self):
        """The message counts pieces and model stages, and says how to get more pieces of this kind of model."""
        import torch
        from torch import nn

        import hetu.torch
        from hetu.torch.cuts import Pieces

        class Two(nn.Module):
            """A model of two layers."""

            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x):
                return self.last(self.first(x))

        model, lines = Two(), [nn.Linear(4, 4), nn.Linear(4, 4)]
        x = torch.ones(2, 4)
        more = r"name more modules in at= of hetu.torch.split\(\)"
        cases = [(hetu.torch.split(model, at=["last"], example=x), more), (hetu.torch.split(model, at=["last"]), more),
                 (hetu.torch.split(torch.export.export(model, (x,)), at=["last"]), more),
                 (hetu.torch.ModelPieces(model, [model.first, model.last]), "give more pieces"),
                 (nn.Sequential(lines[0], hetu.torch.CutPoint(), lines[1]), "add CutPoints"),
                 (lines, "divide it into more modules")]
        for given, advice in cases:
            says = (f"the model has 2 piece.* for 4 model stages: 1 cut.*, where 3 are needed. To get more, {advice}. "
                    f"Otherwise start fewer workers, or choose a schedule with fewer model stages per worker")
            with self.subTest(advice):
                with self.assertRaisesRegex(ValueError, says):
                    Pieces(given).cut(4, None)
        with self.assertRaisesRegex(ValueError, "for 4 model stages"):
            hetu.torch.cut_by_time(lines, nn.MSELoss(), x, x, 4)

    def test_split_at_modules(self):
        """A model of any class is cut. Values that skip a cut are passed along, and names and results are the model's."""
        import torch
        from torch import nn

        import hetu.torch
        from hetu.torch.cuts import Pieces

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.layers = nn.Linear(4, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
                self.last = nn.Linear(8, 4)

            def forward(self, x, scale=None):
                mask, h = (x[:, :1] > 0).to(x.dtype), self.first(x)
                for layer in self.layers:
                    h = h + torch.tanh(layer(h)) * mask
                return self.last(h if scale is None else h * scale)

        torch.manual_seed(1)
        model, x, y = Model(), torch.randn(8, 4), torch.randn(8, 4)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        want = {name: p.grad.clone() for name, p in model.named_parameters()}
        model.zero_grad()
        made = hetu.torch.split(model, at=["layers.1", "layers.3"])
        cut = Pieces(made)
        self.assertEqual([[cut.names[id(p)] for p in piece.parameters()] for piece in cut.pieces],
                         [[f"{m}.{kind}" for m in names for kind in ("weight", "bias")]
                          for names in (("first", "layers.0"), ("layers.1", "layers.2"), ("layers.3", "last"))])
        with_scale = hetu.torch.split(model, at=["layers.2"], inputs=["x", "scale"])
        value = {"x": x, "scale": torch.tensor(2.0)}
        for piece in with_scale.pieces:
            value = piece(value)
        self.assertTrue(torch.equal(value, model(x, torch.tensor(2.0))))
        pipe = hetu.torch.Pipeline(hetu.torch.split(model, at=["layers.2"]), nn.MSELoss(), "zb-v", 1)
        self.assertEqual(float(pipe.step(x, y)), loss.item())
        found = dict(zip((pipe.pieces.names[id(p)] for p in pipe.parameters()), pipe.parameters(), strict=True))
        self.assertEqual(set(found), set(want))
        for name, grad in want.items():
            self.assertTrue(torch.equal(found[name].grad, grad), name)
        shared = nn.ModuleDict({"a": nn.Linear(4, 4)})
        shared.forward = lambda x: shared["a"](shared["a"](x))
        for at, text in ((["layer.1"], "Model has no module 'layer.1' to be cut at; did you mean 'layers.1'"),
                         ([""], "no module ''"), (["layers"], "'layers' is called 0 times in forward")):
            with self.assertRaisesRegex(ValueError, text):
                hetu.torch.split(model, at=at)
        with self.assertRaisesRegex(ValueError, "'a' is called 2 times in forward: cut a model at a module that"):
            hetu.torch.split(shared, at=["a"])

    def test_cuts_by_time_and_memory(self):
        """A piece that takes as long as all others gets its own stage. A memory limit moves the cut, or no cut fits."""
        import torch
        from torch import nn

        import hetu.torch
        from hetu.torch.measured import piece_costs

        class Slow(nn.Module):
            def __init__(self, times):
                super().__init__()
                self.times = times

            def forward(self, x):
                for _ in range(self.times):
                    x = torch.tanh(x)
                return x

        class Bulk(nn.Linear):
            def __init__(self):
                super().__init__(8, 8)
                self.more = nn.Parameter(torch.ones(10000))

        # The second piece takes clearly longer than the last one, so that the best cut doesn't depend on noise.
        model = [nn.Linear(8, 8), Slow(60), nn.Linear(8, 8), Slow(300), Bulk()]
        x, loss = torch.ones(4, 8), nn.MSELoss()
        self.assertEqual(hetu.torch.cut_by_time(model, loss, x, x, 2), [0, 3])
        self.assertEqual(hetu.torch.cut_by_time(model, loss, x, x, 2, most_bytes=170000), [0, 4])
        self.assertEqual(hetu.torch.cut_by_time(model, loss, x, x, 3), [0, 3, 4])
        costs = piece_costs(model, loss, x, x)
        self.assertEqual([c.weight_bytes for c in costs], [288, 0, 288, 0, 40288])
        self.assertEqual((costs[1].kept_bytes, costs[3].kept_bytes, costs[1].out_bytes), (60 * 128, 300 * 128, 128))
        self.assertTrue(all(p.grad is None for piece in model for p in piece.parameters()))
        for call, text in ((lambda: hetu.torch.cut_by_time(model, loss, x, x, 3, most_bytes=1000), "no cut into 3 stages"),
                           (lambda: hetu.torch.cut_by_time(model, loss, x, x, 6),
                            "5 piece.* for 6 model stages")):
            with self.assertRaisesRegex(ValueError, text):
                call()


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
