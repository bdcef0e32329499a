#!/usr/bin/env python3
"""Models of any class, cut by an example of their inputs (hetu.torch.split(..., example=)), compared with the unsplit
models.

Skipped where PyTorch is not installed (`./run torch`)."""

import unittest
from importlib.util import find_spec


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Example(unittest.TestCase):
    """Models in one process, whose plan has two stages."""

    def ids(self, rows=6, length=12):
        """Returns random words."""
        import torch

        return torch.randint(0, 64, (rows, length), generator=torch.Generator().manual_seed(rows))

    def same(self, make, at, inputs, loss_of, exact=True, micro_batches=2, more=()):
        """Trains a step for each of the inputs, and compares losses and gradients with the unsplit model's."""
        import torch
        from torch.utils._pytree import tree_map

        import hetu.torch

        torch.manual_seed(1)
        model = make()
        torch.manual_seed(1)
        whole = make()
        pipe = hetu.torch.Pipeline(hetu.torch.split(model, at=at, example=inputs), loss_of, "gpipe", micro_batches)
        for given in (inputs, *more):
            rows = next(iter(given.values())).shape[0] if isinstance(given, dict) else given.shape[0]
            labels = self.ids(rows)
            whole.zero_grad()
            total = 0.0
            each = -(-rows // micro_batches)
            for begin in range(0, rows, each):
                part = tree_map(lambda t, part=slice(begin, begin + each): t[part], given)
                out = whole(**part) if isinstance(part, dict) else whole(part)
                y = labels[begin:begin + each]
                loss = loss_of(out, y) * (len(y) / rows)
                loss.backward()
                total += loss.item()
            self.assertEqual(pipe.step(given, labels), total)
            names = dict(whole.named_parameters(remove_duplicate=False))
            for name, parameter in pipe.named_parameters():
                torch.testing.assert_close(parameter.grad, names[name].grad, rtol=0 if exact else 1e-5,
                                           atol=0 if exact else 1e-7, msg=name)
        self.assertEqual(set(pipe.state_dict()), set(whole.state_dict()))
        whole.eval()
        with torch.no_grad():
            parts = [tree_map(lambda t, b=b: t[b:b + each], given) for b in range(0, rows, each)]
            outs = [whole(**part) if isinstance(part, dict) else whole(part) for part in parts]
            want = sum(float(loss_of(out, y) * (len(y) / rows)) for out, y in zip(outs, labels.split(each), strict=True))
        self.assertAlmostEqual(pipe.evaluate(given, labels), want, 6)

    def words(self, out, y):
        """Returns the cross entropy of words."""
        from torch.nn import functional

        return functional.cross_entropy(out.flatten(0, 1), y[:, :out.shape[1]].flatten())

    def test_nanogpt(self):
        """nanoGPT trains with and without targets, with several lengths, and with a smaller last micro-batch."""
        import torch_example_models as models

        at = ["transformer.h.1", "transformer.h.3"]
        self.same(models.NanoGpt, at, {"idx": self.ids(), "targets": self.ids()}, lambda out, y: out[1], exact=False,
                  more=[{"idx": self.ids(5, 7), "targets": self.ids(5, 7)}])
        self.same(models.NanoGpt, at, self.ids(), lambda out, y: self.words(out[0], y), exact=False)

    def test_transformer_encoder(self):
        """Every stage computes the causal mask itself, and no message contains it."""
        import hetu.torch
        import torch_example_models as models

        at = ["encoder.layers.1", "encoder.layers.2"]
        self.same(models.Encoder, at, self.ids(), self.words)
        pieces = hetu.torch.split(models.Encoder(), at=at, example=self.ids()).pieces
        self.assertEqual([len(piece.recording.first.parts[piece.number].imports) for piece in pieces], [0, 1, 1])

    def test_experts(self):
        """Modules whose inner shapes and branches depend on values work as a list of modules, and cut by an example."""
        import torch

        import hetu.torch
        import torch_example_models as models

        self.same(models.Mixture, ["layers.1", "layers.2"], self.ids(), self.words, more=[self.ids(5)])
        torch.manual_seed(1)
        model = models.Mixture()
        loss = self.words(model(self.ids()), self.ids()).item()
        drawn = torch.get_rng_state()
        pipe = hetu.torch.Pipeline([model.words, *model.layers, model.head], self.words, "zb-v", 1)
        self.assertEqual(pipe.step(self.ids(), self.ids()), loss)
        self.assertTrue(torch.equal(drawn, torch.get_rng_state()), "the shape search has drawn random numbers")

    def test_values_in_place_and_modes(self):
        """Code between modules works: in-place changes after a cut, no_grad, loops over tensors, train() and eval()."""
        import torch
        from torch import nn

        class Glue(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.a, self.b = nn.Embedding(64, 8), nn.Linear(8, 8), nn.Linear(8, 8)
                self.head = nn.Linear(8, 64)
                self.register_buffer("shift", torch.arange(8.0))

            def forward(self, ids):
                h = self.words(ids)
                h += self.shift * (0.5 if self.training else 0.25)
                h += self.a(h.relu())  # in place, after the cut at a
                with torch.no_grad():
                    top = h.amax(-1, keepdim=True)
                mask = torch.zeros(ids.shape)
                mask[:, 2:] = 1
                h = h - top
                h[:, 0] = 0
                parts = [part * 2 for part in self.b(h)]
                return self.head(torch.stack(parts) * mask[..., None] + h)

        self.same(Glue, ["a", "b"], self.ids(), self.words)

    def test_nothing_recorded_goes_stale(self):
        """Modes that the user sets take effect. Changed attributes and values read from tensors are refused by name."""
        import torch
        from torch import nn

        import hetu.torch

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last, self.temperature = nn.Linear(4, 4), nn.Linear(4, 4), 1.0

            def forward(self, x):
                return self.last(nn.functional.dropout(self.first(x), 0.5, self.training) * self.temperature)

        class Greatest(nn.Linear):
            def forward(self, x):
                x = super().forward(x)
                return x, x.abs().max().item()

        class Divides(nn.Linear):
            def forward(self, v):
                return super().forward(v[0] / v[1])

        class Reads(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = Greatest(4, 4), nn.Linear(4, 4)

            def forward(self, x):
                h, greatest = self.first(x)
                return self.last(h / greatest)

        def pipeline(pieces):
            return hetu.torch.Pipeline(pieces, nn.MSELoss(), "zb-v", 1)

        model, x = Model(), torch.randn(8, 4)
        pipe = pipeline(hetu.torch.split(model, at=["last"], example=x))
        model.eval()
        self.assertEqual(pipe.step(x, x), nn.functional.mse_loss(model(x), x).item())
        model.train()
        self.assertNotEqual(pipe.step(x, x), nn.functional.mse_loss(model.eval()(x), x).item())
        model.temperature = 0.5
        with self.assertRaisesRegex(ValueError, "'Model.temperature' was 1.0 when the forward was recorded, and is 0.5 now"):
            pipe.step(x, x)
        with self.assertRaisesRegex(ValueError, r"stage 0 returned \d\S+, but \S+ when shapes were determined"):
            pipeline([Greatest(4, 4), Divides(4, 4)]).step(x, x)
        with self.assertRaisesRegex(ValueError, r"module 'first' returns \d\S+ at example_test.py:\d+ .*recorded"):
            pipeline(hetu.torch.split(Reads(), at=["last"], example=x)).step(x, x)

    def test_errors_name_the_line(self):
        """Errors name the line of the user's source that can't be recorded."""
        from torch import nn

        class Base(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

        class Branches(Base):
            def forward(self, x):
                h = self.first(x)
                if h.sum() > 0:  # a branch
                    h = h * 2
                return self.last(h)

        class Asserts(Base):
            def forward(self, x):
                assert x.shape[1] == 5, "five columns are wanted"
                return self.last(self.first(x))

        class View(Base):
            def forward(self, x):
                h = self.first(x)
                column = h[:, 0]
                h = self.last(h)
                column.mul_(2)  # a view of a value from before the cut
                return h + column[:, None]

        class Twice(Base):
            def forward(self, x):
                return self.first(self.last(self.first(x)))

        line = r"example_test.py:\d+"
        for kind, text in ((Branches, rf"at {line} \(if h.sum\(\) > 0:  # a branch\): the code needs the value of a tensor"),
                           (Asserts, rf"at {line} .*AssertionError: five columns are wanted"),
                           (View, "a view of it is read after the cut|changes a value in place"),
                           (Twice, "'first' is called again at .*, after a cut")):
            self.refuses(kind(), text)

    def test_an_object_that_holds_tensors(self):
        """The error names the line, because a module can't pass such an object over a cut."""
        from torch import nn

        class Box:
            pass

        class Opens(nn.Module):
            def forward(self, box):
                return box.x

        class Boxed(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last, self.opens = nn.Linear(4, 4), nn.Linear(4, 4), Opens()

            def forward(self, x):
                box = Box()
                box.x = self.first(x)
                return self.last(self.opens(box))

        self.refuses(Boxed(), r"at example_test.py:\d+ .*a Box, which holds tensors")

    def refuses(self, model, text):
        """Checks that a model that is split before its module `last` ends in an error of one line."""
        import torch

        import hetu.torch

        with self.subTest(model=type(model).__name__), self.assertRaisesRegex(ValueError, text) as caught:
            x = torch.randn(4, 4)
            value = x
            for piece in hetu.torch.split(model, at=["last"], example=x).pieces:
                value = piece(value)
            self.assertTrue(torch.equal(value, model(x)))
        self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
