"""Operators equal PyTorch's in value and gradient, including broadcasting, empty axes, infinities and NaNs, by the reference
kernels and by the fast ones. The reference values are in tests/fixtures/operators.json, written by make_operator_fixture.py.
"""

import json
import unittest
from pathlib import Path

import operator_cases as cases
import operator_hetu

FIXTURE = json.loads((Path(__file__).resolve().parents[2] / "fixtures" / "operators.json").read_text())["cases"]
BOUND = 2e-6


class OperatorsEqualPyTorch(unittest.TestCase):
    def test_values_and_slopes(self) -> None:
        all_cases = cases.cases()
        self.assertEqual(set(FIXTURE), set(all_cases))
        for name, case in all_cases.items():
            for kernels in ("reference", "best"):
                with self.subTest(name, kernels=kernels, seed=cases.SEED):
                    self.assertEqual(list(operator_hetu.run(case, kernels)["value"].shape), FIXTURE[name]["shape"])
                    self.assertLess(operator_hetu.worst(name, FIXTURE[name], kernels), BOUND)


if __name__ == "__main__":
    unittest.main()
