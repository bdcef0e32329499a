"""Sequences of many lengths. Shapes are inferred once for all of them, where a model's forward allows it. Losses equal those
of the model in one process."""
import copy
import importlib.util
import os
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped 'PyTorch is not there'")
    sys.exit(0)

import torch
from torch import nn

import hetu.torch

SEED = int(os.environ.get("TORCH_LENGTHS_TEST_SEED", "7"))
WORDS, WIDTH = 11, 8


class Block(nn.Module):
    """Attention and a layer."""

    def __init__(self):
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):
        y = self.norm(x)
        x = x + self.heads(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + torch.relu(self.layer(x))


class Decoder(nn.Module):
    """A forward that uses lengths in many places: positions, a mask, a slice, a view, and a number that scales."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.register_buffer("scale", torch.linspace(1, 2, 64), persistent=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids):
        rows, length = ids.shape
        x = self.words(ids.view(-1, length)) + self.places(torch.arange(length))
        x = x * self.scale[None, :length, None]
        mask = torch.full((length, length), float("-inf")).triu(1)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x).view(rows, length, WORDS)


class Branching(nn.Module):
    """Computes another function for long sequences."""

    def forward(self, x):
        return x.tanh() if x.shape[1] > 6 else x + x.mean(1, keepdim=True)


class Counting(nn.Module):
    """A forward that needs a length as a number."""

    def forward(self, x):
        sums = [x[:, :n + 1].sum(1) for n in range(x.shape[1])]
        return torch.stack(sums, 1)


class Two(nn.Module):
    """Two inputs whose lengths change independently. The second is returned together with the result."""

    def forward(self, value):
        one, two = value["one"], value["two"]
        return {"x": one.mean(1, keepdim=True) + two, "length": one.shape[1]}


class Lengths(unittest.TestCase):
    def compare(self, model, make, loss, batches):
        """Trains with each batch in one process and by a pipeline. Returns the number of shape inferences after each batch.
        """
        torch.manual_seed(SEED)
        whole = copy.deepcopy(model)
        pipe = hetu.torch.Pipeline(make(model), loss, "1f1b", 2, devices="threads:2")
        looks = []
        for x, y in batches:
            whole.zero_grad()
            plain = loss(whole(x), y)
            plain.backward()
            found = pipe.step(x, y)
            self.assertAlmostEqual(found, plain.item(), places=5)
            gradients = dict(pipe.named_parameters())
            for name, parameter in whole.named_parameters():
                torch.testing.assert_close(gradients[name].grad, parameter.grad, rtol=1e-5, atol=1e-6)
            looks.append(pipe.members[0].forms.looks)
        return looks

    def test_recorded_forwards(self):
        """The recording of a forward is also kept for all lengths."""
        draw = torch.Generator().manual_seed(SEED)
        batches = []
        for length in (5, 9, 3, 4, 17, 30, 2, 9, 60):
            x = torch.randint(0, WORDS, (4, length), generator=draw)
            batches.append((x, x))
        recordings = []

        def make(model):
            pieces = hetu.torch.split(model, at=["blocks.1"], example=batches[0][0])
            recordings.append(pieces.pieces[0].recording)
            record = recordings[0]._record
            recordings[0]._record = lambda key: (recordings.append(key), record(key))[1]
            return pieces

        loss = hetu.torch.masked_lm_loss()
        looks = self.compare(Decoder(), make, loss, batches)
        self.assertEqual(looks, [2, 3, 3, 3, 3, 3, 3, 3, 3])
        self.assertLess(len(recordings), 8)  # recordings of the first length, and one with open lengths, by member

    def test_forwards_with_a_branch(self):
        """A length on the other side of a branch gives a new shape inference. Both sides are right afterwards."""
        model = nn.Sequential(nn.Linear(3, 3), Branching(), nn.Linear(3, 3))
        draw = torch.Generator().manual_seed(SEED)
        batches = [(torch.randn(4, n, 3, generator=draw), torch.randn(4, n, 3, generator=draw))
                   for n in (3, 5, 4, 9, 12, 7, 20, 2, 6, 11)]
        looks = self.compare(model, lambda model: model, nn.MSELoss(), batches)
        self.assertEqual(looks[1], looks[2])
        self.assertEqual(looks[-1], looks[5], looks)  # both sides were known when length 7 came

    def test_forwards_that_need_a_number(self):
        """Each new length gives a new shape inference."""
        model = nn.Sequential(nn.Linear(3, 3), Counting(), nn.Linear(3, 3))
        draw = torch.Generator().manual_seed(SEED)
        batches = [(torch.randn(4, n, 3, generator=draw), torch.randn(4, n, 3, generator=draw)) for n in (3, 5, 4, 9, 4, 12)]
        looks = self.compare(model, lambda model: model, nn.MSELoss(), batches)
        self.assertEqual(looks[3], looks[4])
        self.assertGreater(looks[5], looks[4])

    def test_a_single_element(self):
        """PyTorch's open lengths are at least 2."""
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        batches = [(torch.randn(4, n, 3), torch.randn(4, n, 3)) for n in (3, 5, 1, 8, 1)]
        looks = self.compare(model, lambda model: model, nn.MSELoss(), batches)
        self.assertEqual(looks, [2, 3, 4, 4, 4])

    def test_two_lengths_and_a_number_between_stages(self):
        class Last(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3, 3)

            def forward(self, value):
                return self.layer(value["x"]) / value["length"]

        class First(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3, 3)

            def forward(self, value):
                return {"one": self.layer(value[0]), "two": value[1]}

        model = nn.Sequential(First(), Two(), Last())
        batches = [((torch.randn(4, m, 3), torch.randn(4, n, 3)), torch.randn(4, n, 3))
                   for m, n in ((3, 5), (4, 5), (6, 5), (6, 7), (8, 9), (9, 4))]
        looks = self.compare(model, lambda model: model, nn.MSELoss(), batches)
        self.assertEqual(looks[2], looks[1])
        self.assertEqual(looks[-1], looks[3], looks)

    def test_what_hides_a_length_is_not_frozen(self):
        from hetu.torch.lengths import Formula, NotFollowedError, OpenLengths, freeze, match, with_numbers
        from hetu.torch.values import TensorSpec

        x = torch.zeros(4, 6)
        lengths = OpenLengths([x], [[1]])
        size = lengths.shape_of(x)[1]
        found = freeze([TensorSpec((4, size), torch.float32, False), slice(None, size * 2 + 1), {"n": torch.Size([size])}])
        self.assertIsInstance(found[0].shape[1], Formula)
        numbers = match(found[:1], [TensorSpec((4, 9), torch.float32, False)])
        self.assertEqual(with_numbers(found[1:], numbers), [slice(None, 19), {"n": (9,)}])
        self.assertIsNone(match(found[:1], [TensorSpec((3, 9), torch.float32, False)]))
        for hidden in (lambda: size, size < 7, size / 3, [object()]):
            with self.subTest(hidden=hidden), self.assertRaises(NotFollowedError):
                freeze(hidden)
        int(size)
        with self.assertRaisesRegex(NotFollowedError, "as a number"):
            lengths.conditions()


if __name__ == "__main__":
    print(f"seed {SEED}", flush=True)
    unittest.main()
