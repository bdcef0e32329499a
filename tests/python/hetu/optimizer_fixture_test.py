"""50 steps of every optimizer and learning rate equal PyTorch's. The reference values are in tests/fixtures/optimizers.json,
written by make_optimizer_fixture.py. A resumed training has the learning rates of an uninterrupted one."""

import json
import tempfile
import unittest
from pathlib import Path

import hetu as ht
import optimizer_cases as cases
import optimizer_hetu

FIXTURE = json.loads((Path(__file__).resolve().parents[2] / "fixtures" / "optimizers.json").read_text())["cases"]


class OptimizersEqualPyTorch(unittest.TestCase):
    def test_fifty_steps(self) -> None:
        self.assertEqual(set(FIXTURE), set(cases.CASES))
        for name, case in cases.CASES.items():
            with self.subTest(name):
                self.assertLess(cases.distance(optimizer_hetu.run(*case), FIXTURE[name]), 1e-5)

    def test_a_plateau_goes_on_where_it_was_saved(self) -> None:
        whole = optimizer_hetu.run("momentum", "plateau")
        self.assertLess(whole["rates"][25], 0.1)  # the rate was reduced before the save
        with tempfile.TemporaryDirectory() as folder:
            rates = []
            for steps in (25, cases.STEPS):
                job = optimizer_hetu.build("momentum", "plateau")
                for step in job.run("train", until=steps, checkpoint=folder, resume=True):
                    rates.append(step.learning_rate)
                    assert job.plateau
                    job.plateau.report(step.loss)
            self.assertEqual(rates, whole["rates"])
            self.assertEqual(optimizer_hetu.weights_of(job), whole["weights"])


class Refuses(unittest.TestCase):
    def test_what_makes_no_sense(self) -> None:
        for says, make in (
            ("total must be larger than the warm-up", lambda: ht.lr.cosine(0.1, 10, warmup=10).at(1)),
            ("milestones must ascend", lambda: ht.lr.multi_step(0.1, [5, 3]).at(1)),
            ("factor must be between", lambda: ht.lr.ReduceOnPlateau(0.1, factor=2)),
            ("mode must be min or max", lambda: ht.lr.ReduceOnPlateau(0.1, mode="low")),
        ):
            with self.subTest(says), self.assertRaisesRegex(ValueError, says):
                make()


if __name__ == "__main__":
    unittest.main()
