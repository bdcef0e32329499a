"""Layers of hetu.nn equal torch.nn's in names, shapes, values, gradients and initial weights, by the reference kernels and
by the fast ones. The reference values are in tests/fixtures/nn.json, written by make_nn_fixture.py."""

import json
import unittest
from pathlib import Path

import nn_cases as cases
import nn_hetu

FIXTURE = json.loads((Path(__file__).resolve().parents[2] / "fixtures" / "nn.json").read_text())


class LayersEqualPyTorch(unittest.TestCase):
    def test_every_case(self):
        self.assertEqual(set(FIXTURE["cases"]), set(cases.CASES))
        for name in cases.CASES:
            nn_hetu.check(self, name, FIXTURE["cases"][name])

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
