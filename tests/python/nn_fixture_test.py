"""Layers of hetu.nn equal torch.nn's in names, shapes, values, gradients and initial weights, by the reference kernels and
by the fast ones. The reference values are in tests/fixtures/nn.json, written by make_nn_fixture.py."""

import json
import unittest
from pathlib import Path

import nn_cases as cases
import nn_hetu
from bert_cases import distance, worst

FIXTURE = json.loads((Path(__file__).resolve().parent.parent / "fixtures" / "nn.json").read_text())
BOUND = 1e-5


def check(test, name, theirs):
    """Compares a case with the results of torch.nn."""
    for fed in (False, True):
        for kernels in ("reference", "best"):
            with test.subTest(name, fed=fed, kernels=kernels, seed=cases.SEED):
                ours = nn_hetu.run(name, fed, kernels)
                tied = {n for n, _ in theirs["state"].items()} - set(ours["state"])
                test.assertLessEqual({n: theirs["state"][n] for n in theirs["state"] if n not in tied}.items(),
                                     ours["state"].items())
                test.assertEqual(tied, {"3.weight"} if name == "tied" else set())
                slopes = {n: d for n, d in theirs["slopes"].items() if not (fed and n.startswith("input"))}
                test.assertEqual(set(ours["slopes"]), set(slopes))
                if slopes:
                    apart = worst(ours["slopes"], slopes)
                    test.assertLess(apart[0], BOUND, apart[1])
                for buffer, kept in theirs["buffers"].items():
                    test.assertLess(distance(ours["buffers"][buffer], kept), BOUND * max(1, kept["norm"]), buffer)
                if ours["value"] is not None:
                    test.assertLess(distance(ours["value"], theirs["value"]), BOUND * theirs["value"]["norm"])
                test.assertLess(abs(ours["total"] - theirs["total"]), 1e-5 * max(1, abs(ours["total"])))


class LayersEqualPyTorch(unittest.TestCase):
    def test_every_case(self):
        self.assertEqual(set(FIXTURE["cases"]), set(cases.CASES))
        for name in cases.CASES:
            check(self, name, FIXTURE["cases"][name])

    def test_they_start_alike(self):
        for name, theirs in FIXTURE["starts"].items():
            ours = nn_hetu.starts(name)
            self.assertEqual(set(ours), {n for n in theirs if not n.endswith(("running_mean", "running_var", "tracked"))})
            for tensor, found in ours.items():
                with self.subTest(name, tensor=tensor):
                    kept = theirs[tensor]
                    width = max(kept["std"], 1e-6)
                    self.assertLess(abs(found["std"] - kept["std"]), 0.2 * width)  # biases have few elements
                    self.assertLess(abs(found["mean"] - kept["mean"]), 0.3 * width)
                    self.assertLess(abs(found["most"] - kept["most"]), 0.25 * max(kept["most"], 1e-6))


if __name__ == "__main__":
    unittest.main()
