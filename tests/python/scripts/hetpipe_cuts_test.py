"""Pipelines of hetpipe with different cuts, as users call them.

Cuts come from measured times of blocks and workers' speeds, from the command line, or from a memory limit. Training gives
the same weights as equal cuts and can resume under other cuts. Each error is one line."""
import json
import unittest

from train_cases import MODEL, TrainCase, manifest_of, tensors

# With weight decay, an update depends on whether a pull came before it, and therefore on the number of stages.
HETPIPE = ("--pipeline", "hetpipe", "--micro-batches", 4, "--optimizer", "momentum", "--learning-rate", "3e-3",
           "--weight-decay", 0)
ALIKE = 1e-5  # servers add in any order


class HetpipeCuts(TrainCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model.write_text(json.dumps({**MODEL, "tie_word_embeddings": False, "hidden_dropout_prob": 0,
                                         "attention_probs_dropout_prob": 0}))

    def alike(self, one, two):
        import numpy as np

        self.assertEqual(one.keys(), two.keys())
        for key, values in one.items():
            self.assertLess(np.abs(values - two[key]).max(), ALIKE, key)

    def test_by_measured_times_and_speeds(self):
        """The second pipeline gives its slow last worker fewer blocks. The trace of such a run can be used as costs again.
        """
        run, again, saved = self.folder / "run.json", self.folder / "again.json", self.folder / "apart"
        self.train((2, 2), *HETPIPE, "--steps", 6, "--checkpoint", self.folder / "alike", "--trace", run)
        how = ("--partition", "times", "--costs", run, "--speed", "1,1,1,0.1")
        apart = self.train((2, 2), *HETPIPE, *how, "--steps", 6, "--checkpoint", saved, "--trace", again)
        self.assertRegex(apart.out, r"blocks [1-5] \+ [1-5], 5 \+ 1 by times and speed")
        self.alike(tensors(self.folder / "alike"), tensors(saved))
        costs = json.loads(again.read_text())["metadata"]["costs"]
        self.assertEqual((len(costs["cuts"]), len(costs["stages"]), costs["cuts"][1]), (2, 4, [0, 5]))
        third = self.train((2, 2), *HETPIPE, "--partition", "times", "--costs", again, "--steps", 2)
        self.assertIn(" by times", third.out)

    def test_go_on_under_other_cuts(self):
        saved, whole = self.folder / "saved", self.folder / "whole"
        how = (*HETPIPE, "--steps", 6)
        self.train((2, 2), *how, "--save-every", 3, "--checkpoint", whole)
        self.train((2, 2), *HETPIPE, "--steps", 3, "--partition", "1,5/4,2", "--checkpoint", saved)
        on = self.train((2, 3), *how, "--partition", "2,2,2/3,1,2", "--checkpoint", saved, "--resume")
        self.assertIn("blocks 2 + 2 + 2, 3 + 1 + 2 as given", on.out)
        self.assertEqual(manifest_of(saved)[1]["step"], 6)
        self.alike(tensors(whole), tensors(saved))

    def test_what_does_not_fit(self):
        for options, says in (
            (("--partition", "3,2"), "--partition 3,2: 5 blocks in total, but the model has 6"),
            (("--partition", "3,3/2,4/1,5"), "--partition 3,3/2,4/1,5: 3 lists for 2 pipelines"),
            (("--partition", "2,2,2"), "--partition 2,2,2: 3 numbers for 2 stages"),
            (("--speed", "1,0.5,1"), "--speed: 3 numbers for 4 workers; give 1, 2 or 4"),
            (("--partition", "times"), "--partition times: the times of blocks are missing; give --costs FILE"),
            (("--speed", "1,0.5", "--memory-limit", "100KiB"),
             r"no cut of 6 blocks into 2 stages keeps every worker of pipeline 0 within 0\.1 MiB \(102400 bytes\); .* "
             r"needs \d+\.\d MiB"),
        ):
            with self.subTest(options=options):
                self.refused_in_plan((2, 2), *HETPIPE, *options, "--steps", 2, says=says)
        self.refused_in_plan((2, 2), "--pipeline", "1f1b", "--micro-batches", 4, "--partition", "3,3/2,4", "--steps", 2,
                             says=r"--partition 3,3/2,4: different lists per pipeline need hetpipe on at least 2 pipelines")
        self.refused((2, 2), *HETPIPE, "--partition", "halves", "--steps", 2, says="--partition.*'halves'")


if __name__ == "__main__":
    unittest.main()
