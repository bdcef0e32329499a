"""--compare-single in processes: BERT and ResNet equal one process under every kind of plan, and differing tensors are
named. --whole: more plans."""
import os
import subprocess
import sys
import unittest

from train_cases import MANY_S, ROOT, TRAIN, TrainCase
from train_resnet_test import ResNetCase

WHOLE = "--whole" in sys.argv
STEPS = 3
NAME = "bert.encoder.layer.3.output.dense.weight"
# A training in which worker 1 loses an update of one of its weights.
STALE = f"""
import sys
import hetu as ht
import train_bert

with ht.one_line_errors("stale.py"):
    args = train_bert.parse(sys.argv[1:])
    job = train_bert.build(args)
    mine = [array for name, state, array, _ in job.job.state() if name == "{NAME}" and not state]
    for step in job.run("train", steps=args.steps):
        if step.index == 0:
            before = [weight.copy() for weight in mine]
        elif step.index == 1:
            for weight, old in zip(mine, before, strict=True):
                weight[:] = old
"""


class Bert(TrainCase):
    def compared(self, grid, *options):
        done = self.train(grid, "--steps", STEPS, "--compare-single", *options)
        lines = [line for line in done.out.splitlines() if "compare-single: " in line]
        self.assertEqual(len(lines), 1, str(done))
        return lines[0]

    def test_equal(self):
        for grid, options, how in [
            ((1, 2), ("--pipeline", "zb-v", "--micro-batches", 8), r"bit for bit \("),
            ((1, 2), ("--pipeline", "varuna"), r"bit for bit \("),
            ((2, 2), ("--pipeline", "chimera", "--optimizer", "sgd"), "except gradient sums"),
            ((1, 1), ("--pipeline", "gpipe"), r"bit for bit \("),
            *([((1, 2), ("--pipeline", "1f1b", "--with-recompute"), r"bit for bit \("),
               ((1, 4), ("--pipeline", "chimera", "--pairs", 2), "except gradient sums")] if WHOLE else []),
        ]:
            with self.subTest(options=options):
                self.assertRegex(self.compared(grid, *options), f"equal in {STEPS} steps, .*{how}")

    def test_resumed(self):
        saved = self.folder / "saved"
        self.train((1, 2), "--steps", 2, "--checkpoint", saved)
        line = self.compared((1, 2), "--pipeline", "interleaved-1f1b", "--checkpoint", saved, "--resume")
        self.assertRegex(line, f"equal in {STEPS - 2} step, bit for bit")

    def test_pipelines_of_unequal_shares(self):
        """Three pipelines train 8 micro-batches. The evaluation divides its rows likewise, and one process resumes."""
        saved, batch = self.folder / "shares", ("--batch-size", 4, "--micro-batches", 2)
        how = ("--pipeline", "1f1b", "--sums", "tree", "--checkpoint", saved)
        line = self.compared((3, 1), *how, *batch, "--shares", "3,3,2", "--eval-data", self.data)
        self.assertRegex(line, rf"equal in {STEPS} steps, bit for bit \(")
        done = self.train((1, 1), *how, "--batch-size", 16, "--micro-batches", 8, "--steps", STEPS + 1, "--resume")
        self.assertEqual(done.steps, [STEPS])
        two = (*batch, "--shares", "3,2")
        self.refused((3, 1), *two, says="--shares has the micro-batches of 2 pipelines, but the job has 3")
        self.refused((2, 1), *two, "--trace", self.folder / "t.json", says="leave --trace or --shares out")

    def test_asynchronous_is_refused(self):
        done = self.run_job((1, 2), "--pipeline", "pipedream", "--micro-batches", 1, "--batch-size", 2, "--compare-single")
        self.assertEqual(done.code, 2, str(done))
        self.assertRegex(done.words()[-1], "compare-single: 'pipedream' is asynchronous.*a synchronous method")

    def test_a_lost_update_is_named(self):
        script = self.folder / "stale.py"
        script.write_text(STALE)
        words, _ = self.command((1, 2), "--steps", 4, "--compare-single")
        words = [str(script) if word == TRAIN[1] else word for word in words]
        env = {**self.env, "PYTHONPATH": os.pathsep.join([self.env["PYTHONPATH"], str(ROOT / "python")])}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=MANY_S, cwd=self.folder)
        self.assertEqual(done.returncode, 70, done.stderr)
        self.assertRegex(done.stderr, r"compare-single: step 2 differs from a single process: forward of "
                                      r"'bert.encoder.layer.3.output.dense', stage 1, micro-batch 0, worker 1: "
                                      r"the difference is about ")


class ResNet(ResNetCase):
    def test_equal(self):
        for grid, options, how in [((1, 2), ("--pipeline", "zb-v", "--batch-size", 8), r"bit for bit \("),
                                   ((2, 2 if WHOLE else 1), ("--pipeline", "1f1b"), "except gradient sums")]:
            with self.subTest(options=options):
                done = self.train(grid, "--steps", 2, "--compare-single", "--optimizer", "sgd", *options)
                self.assertRegex(done.out, f"compare-single: equal in 2 steps, .*{how}")


if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word != "--whole"])
