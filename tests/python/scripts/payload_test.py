"""--payload one-byte: messages and sums of gradients carry one byte. Every line of output, the log and the trace state that
the results are meaningless, and nothing is saved."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import hetu as ht
from prose_text import write_prose
from train_cases import HETURUN, ROOT

KINDS = ("allreduce", "p2p", "both")


class Payload(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        write_prose(cls.folder / "text.txt", 40)
        subprocess.run(["hetu", "data", "sample", cls.folder / "bert", "--rows", "64", "--sequence-length", "16", "--text",
                        cls.folder / "text.txt"], check=True, stdout=subprocess.DEVNULL)

    def start(self, *more):
        words = ["--data", "bert", "--model", "tiny", "--devices", "pipe_2_2", "--pipeline", "1f1b", "--batch-size", 4,
                 "--micro-batches", 2, "--steps", 3, "--warmup-steps", 1, "--learning-rate", "1e-3", *more]
        command = [*HETURUN, "-w", 4, sys.executable, ROOT / "python" / "train_bert.py", *words]
        return subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=300, cwd=self.folder)

    def losses(self):
        return [json.loads(line) for line in (self.folder / "log.json").read_text().splitlines()]

    def test_every_output_says_that_it_means_nothing(self):
        done = self.start("--log", "log.json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("meaningless", done.stdout)
        whole = [step["loss"] for step in self.losses()]
        for kind in KINDS:
            with self.subTest(kind):
                done = self.start("--payload", f"one-byte:{kind}", "--log", "log.json", "--trace", "run.json")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                label = f"meaningless (--payload one-byte:{kind}): "
                lines = [line for line in done.stdout.splitlines() if line.strip()]
                self.assertGreaterEqual(len(lines), 4)
                for line in lines:
                    self.assertIn(label, line)
                for step in self.losses():
                    self.assertEqual(step["meaningless"], f"payload one-byte:{kind}")
                found = [step["loss"] for step in self.losses()]
                if kind == "allreduce":  # the first forward is complete, but learning from it isn't
                    self.assertEqual(found[0], whole[0])
                    self.assertNotEqual(found[1:], whole[1:])
                else:
                    self.assertNotEqual(found[0], whole[0])
                self.assertEqual(json.loads((self.folder / "run.json").read_text())["metadata"]["meaningless"],
                                 f"one-byte:{kind}")
        said = subprocess.run(["hetu", "timeline", "run.json", "--step", "1"], capture_output=True, text=True, check=True,
                              cwd=self.folder).stdout
        self.assertIn("meaningless (--payload one-byte:both)", said)

    def test_nothing_is_saved_and_what_is_wrong_is_said(self):
        for more, message in [(["--payload", "one-byte:p2p", "--checkpoint", "saved"],
                               "meaningless results; remove --checkpoint"),
                              (["--payload", "one-byte:p2p", "--compare-single"],
                               "meaningless results; remove --compare-single"),
                              (["--payload", "two"], "invalid choice: 'two'"),
                              (["--payload", "one-byte:both", "--preduce", "--pipeline", "pipedream"],
                               "but these average weights")]:
            done = self.start(*more)
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn(message, done.stdout + done.stderr)
        self.assertFalse((self.folder / "saved").exists())

    def test_an_executor_of_ones_own_refuses_to_save(self):
        ht.new_graph()
        import numpy

        data = ht.data.Batches([{"x": numpy.ones((2, 3), numpy.float32)}] * 4, 2)
        loss = ht.step_mean((data.x * ht.parameter("w", [3], ht.init.normal(1.0))).sum(1), name="loss")
        job = ht.Executor({"train": [loss, ht.optim.SGD(0.1).minimize(loss)]}, payload="one-byte:both", pipeline="gpipe")
        self.assertIn("meaningless (payload one-byte:both)", job.describe())
        step = next(iter(job.run("train", steps=1)))
        self.assertEqual(step.meaningless, "payload one-byte:both")
        says = "weights are meaningless and can't be saved; remove checkpoint"
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, says):
            list(job.run("train", steps=1, checkpoint=folder))
        with self.assertRaisesRegex(ValueError, "neither saved nor shown"):
            job.weights()


if __name__ == "__main__":
    unittest.main()
