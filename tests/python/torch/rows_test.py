#!/usr/bin/env python3
"""Gradients of embeddings by rows (hetu.torch.rows) equal those of PyTorch, bit for bit, or are left to PyTorch where
necessary.

Skipped where PyTorch is not installed (`./run torch`)."""
import copy
import io
import itertools
import unittest
import warnings
from importlib.util import find_spec

WORDS, WIDTH, STEPS = 500, 16, 4

if find_spec("torch"):
    import torch
    from torch import nn

    from hetu.torch import rows

    class Model(nn.Module):
        """A model that reads its table once or twice, or also uses it as its output's weights."""

        def __init__(self, twice=False, tied=False, **table):
            super().__init__()
            self.table = nn.Embedding(WORDS, WIDTH, **table)
            self.linear = nn.Linear(WIDTH, WIDTH)
            self.twice, self.tied = twice, tied

        def forward(self, ids):
            made = self.table(ids)
            if self.twice:
                made = made + self.table((ids * 7 + 1) % WORDS).tanh()
            made = self.linear(made).tanh()
            return made @ self.table.weight.T if self.tied else made


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Rows(unittest.TestCase):

    def pair(self, dtype=None, **how):
        made = []
        for _ in range(2):
            torch.manual_seed(5)
            made.append(Model(**how).to(dtype or torch.float32))
        rows.take(made[1:])
        return made

    def train(self, one, other, width=60):
        """Runs the same backwards of both models, which add to existing gradients. Returns the number of recorded row
        gradients."""
        noted = 0
        torch.manual_seed(6)
        for _ in range(STEPS):
            ids = torch.randint(0, WORDS, (2, width))
            ids[0, :5] = 3
            one(ids).float().pow(2).mean().backward()
            with rows.collecting():
                other(ids).float().pow(2).mean().backward()
                noted += len(rows._step.came)
                rows.add()
        return noted

    def expect_same(self, one, other):
        for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
            self.assertTrue(torch.equal(a.grad, b.grad), name)

    def test_same_bits(self):
        for dtype, twice, tied, padding in itertools.product(
                (torch.float32, torch.float64, torch.bfloat16), (False, True), (False, True), (None, 3)):
            with self.subTest(dtype=dtype, twice=twice, tied=tied, padding=padding):
                one, other = self.pair(dtype, twice=twice, tied=tied, padding_idx=padding)
                noted = self.train(one, other)
                self.assertEqual(noted, 0 if tied else STEPS)  # for a tied table, its hook takes the gradients
                self.expect_same(one, other)

    def test_what_is_left_to_pytorch(self):
        def hooked(model):
            model.table.weight.register_hook(lambda gradient: gradient * 2)

        def watched(model):
            def doubled(weight):
                weight.grad.mul_(2)
            model.table.weight.register_post_accumulate_grad_hook(doubled)

        for told in (hooked, watched):
            with self.subTest(told=told.__name__):
                one, other = self.pair()
                told(one)
                told(other)
                self.assertEqual(self.train(one, other), 0)
                self.expect_same(one, other)
        for width, how in ((WORDS, {}), (60, {"sparse": True}), (60, {"scale_grad_by_freq": True}), (60, {"max_norm": 1.0})):
            with self.subTest(width=width, how=how):
                one, other = self.pair(**how)
                self.assertEqual(self.train(one, other, width), 0)

    def test_a_compiled_model_keeps_pytorchs_way(self):
        one, other = self.pair()
        compiled = torch.compile(other, backend="eager")
        self.assertEqual(self.train(one, compiled), 0)
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            self.assertTrue(torch.equal(a.grad, b.grad))

    def test_a_second_module_with_the_table_keeps_pytorchs_way(self):
        one = Model()
        one.also = nn.Linear(WIDTH, WORDS, bias=False)
        one.also.weight = one.table.weight
        rows.take([one])
        self.assertIs(type(one.table), nn.Embedding)

    def test_outside_of_a_step_and_of_a_copy(self):
        one, other = self.pair()
        for model in (one, other, copy.deepcopy(other)):
            model.zero_grad()
            model(torch.arange(20).view(2, 10)).sum().backward()
            self.assertTrue(torch.equal(model.table.weight.grad, one.table.weight.grad))
        copied = copy.deepcopy(other)
        copied.zero_grad()
        one.zero_grad()
        self.assertEqual(self.train(one, copied), 0)
        self.expect_same(one, copied)

    def test_is_saved_and_shown_as_before(self):
        one, other = self.pair()
        self.assertEqual(repr(one), repr(other))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.save(other, io.BytesIO())


if __name__ == "__main__":
    unittest.main(verbosity=2)
