#!/usr/bin/env python3
"""Models that PyTorch has already traced, in hetu.torch: programs of torch.export, and Pipes of its pipelining.

Skipped where PyTorch is not installed (`./run torch`)."""

import unittest
from importlib.util import find_spec


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Exported(unittest.TestCase):
    """Models in one process, whose plan has two stages, compared with the model that was exported."""

    def setUp(self):
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self, drop=0.0):
                super().__init__()
                self.words, self.first = nn.Embedding(16, 8), nn.Linear(8, 8)
                self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(drop))
                                            for _ in range(4))
                self.head = nn.Linear(8, 16, bias=False)
                self.head.weight = self.words.weight

            def forward(self, ids, scale=None):
                x = skip = self.first(self.words(ids))
                if scale is not None:
                    x = x * scale[:, :, None]
                for layer in self.layers:
                    x = x + layer(x)
                first, second = (x + skip).chunk(2, dim=-1)
                return self.head(torch.cat([second, first], -1))

        self.Model = Model
        self.ids = torch.randint(0, 16, (4, 6), generator=torch.Generator().manual_seed(1))

    def loss_of(self, out, y):
        """Returns the cross entropy of words."""
        from torch.nn import functional

        return functional.cross_entropy(out.flatten(0, 1), y.flatten())

    def same(self, whole, pieces, given, micro_batches=2):
        """Compares two steps, an evaluation and the names with the model's."""
        import torch
        from torch.utils._pytree import tree_map

        import hetu.torch

        pipe = hetu.torch.Pipeline(pieces, self.loss_of, "gpipe", micro_batches)
        self.assertEqual(set(pipe.state_dict()), set(whole.state_dict()))
        rule = torch.optim.SGD(pipe.parameters(), lr=0.1)
        plain = torch.optim.SGD(whole.parameters(), lr=0.1)
        each = len(self.ids) // micro_batches

        def total():
            losses = []
            for begin in range(0, len(self.ids), each):
                part = tree_map(lambda t, at=slice(begin, begin + each): t[at], given)
                out = whole(**part) if isinstance(part, dict) else whole(part)
                losses.append(self.loss_of(out, self.ids[begin:begin + each]) / micro_batches)
            return losses

        for _ in range(2):
            plain.zero_grad()
            losses = total()
            for loss in losses:
                loss.backward()
            self.assertEqual(pipe.step(given, self.ids), sum(loss.item() for loss in losses))
            plain.step()
            rule.step()
        names = dict(whole.named_parameters(remove_duplicate=False))
        for name, parameter in pipe.named_parameters():
            torch.testing.assert_close(parameter, names[name], rtol=1e-6, atol=1e-7, msg=name)
        whole.eval()
        with torch.no_grad():
            self.assertAlmostEqual(pipe.evaluate(given, self.ids), sum(float(loss) for loss in total()), 6)
        return pipe

    def made(self, drop=0.0):
        """Returns two models with the same weights."""
        import torch

        torch.manual_seed(1)
        one = self.Model(drop)
        torch.manual_seed(1)
        return one, self.Model(drop)

    def test_program(self):
        """Programs are exported for one micro-batch, or with a dynamic number of samples. Inputs are positional or keywords.
        """
        import torch

        import hetu.torch

        scale = torch.rand(4, 6)
        rows = torch.export.Dim("rows", min=1, max=64)
        for args, kwargs, shapes, given in (
                ((self.ids[:2],), {}, None, self.ids),
                ((self.ids[:3],), {}, {"ids": {0: rows}}, self.ids),
                ((), {"ids": self.ids[:2], "scale": scale[:2]}, None, {"ids": self.ids, "scale": scale}),
                ((self.ids[:2],), {"scale": scale[:2]}, None, {"scale": scale, "ids": self.ids})):
            with self.subTest(args=len(args), shapes=shapes):
                model, whole = self.made()
                program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
                self.same(whole, hetu.torch.split(program, at=["layers.1", "layers.3"]), given)

    def test_program_follows_train_and_eval(self):
        """Dropout of an exported program is off in evaluate(), and on in step()."""
        import torch

        import hetu.torch

        model, whole = self.made(drop=0.5)
        program = torch.export.export(model.train(), (self.ids[:2],))
        pipe = hetu.torch.Pipeline(hetu.torch.split(program, at=["layers.1"]), self.loss_of, "gpipe", 2)
        whole.eval()
        want = self.loss_of(whole(self.ids), self.ids).item()
        self.assertAlmostEqual(pipe.evaluate(self.ids, self.ids), want, 5)
        self.assertNotAlmostEqual(pipe.step(self.ids, self.ids), want, 3)
        self.assertAlmostEqual(pipe.evaluate(self.ids, self.ids), want, 5)

    def test_pipe(self):
        """A Pipe of torch.distributed.pipelining trains, with dropout off in evaluate()."""
        from torch.distributed.pipelining import SplitPoint, pipeline

        import hetu.torch

        spec = {"layers.1": SplitPoint.BEGINNING, "layers.3": SplitPoint.BEGINNING}
        model, whole = self.made()
        self.same(whole, hetu.torch.split(pipeline(model, (self.ids[:2],), split_spec=spec)), self.ids)
        model, whole = self.made(drop=0.5)
        pipe = hetu.torch.Pipeline(hetu.torch.split(pipeline(model, (self.ids[:2],), split_spec=spec)), self.loss_of,
                                   "gpipe", 2)
        whole.eval()
        want = self.loss_of(whole(self.ids), self.ids).item()
        self.assertAlmostEqual(pipe.evaluate(self.ids, self.ids), want, 5)
        self.assertNotAlmostEqual(pipe.step(self.ids, self.ids), want, 3)
        self.assertAlmostEqual(pipe.evaluate(self.ids, self.ids), want, 5)

    def test_refuses_in_one_line(self):
        """Other shapes, unknown inputs and unknown modules are refused in one line."""
        import torch

        import hetu.torch

        program = torch.export.export(self.Model(), (self.ids[:3],))
        two = {"schedule": "gpipe", "micro_batches": 2}
        made = hetu.torch.split(program, at=["layers.1"])
        cases = [(lambda: hetu.torch.Pipeline(made, self.loss_of, **two).step(self.ids, self.ids),
                  r"'ids' of the exported program has the shape \[3, 6\], and a micro-batch has \[2, 6\]"),
                 (lambda: hetu.torch.Pipeline(made, self.loss_of, **two).step({"idx": self.ids}, self.ids),
                  "'idx': the exported program takes no such input; did you mean 'ids'"),
                 (lambda: hetu.torch.split(program, at=["layer.1"]), "no operator of a module 'layer.1'; did you mean"),
                 (lambda: hetu.torch.split(program, at=["layers.1"], example=self.ids), "takes no example or inputs"),
                 (lambda: hetu.torch.split(self.Model()), "at is empty")]
        for call, text in cases:
            with self.subTest(message=text), self.assertRaisesRegex(ValueError, text) as caught:
                call()
            self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
