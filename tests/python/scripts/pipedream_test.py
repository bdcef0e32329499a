"""train_bert.py without a flush: pipedream and pipedream-2bw through heturun, with stops, resumes and drains.

tests/executor/loop/repeated_test.cpp checks that their bits equal those of a replay of the weight versions."""
import itertools
import json
import re
import signal
import subprocess
import sys
import time
import unittest

from processes import wait_until
from train_cases import END_S, MANY_S, TrainCase, checksums, manifest_of

WHOLE = "--whole" in sys.argv
PIPEDREAM = ("--pipeline", "pipedream", "--micro-batches", "1")
METHODS = {"pipedream": PIPEDREAM, "2bw": ("--pipeline", "pipedream-2bw")}


class WithoutAFlush(TrainCase):

    def test_trains_and_says_its_versions(self):
        for (name, options), grid in itertools.product(METHODS.items(), [(1, 2), (2, 2)] if WHOLE else [(1, 2)]):
            with self.subTest(method=name, grid=grid):
                folder = self.folder / f"{name}-{grid[0]}"
                done = self.train(grid, *options, "--steps", 30, "--checkpoint", folder)
                self.assertEqual(done.steps, list(range(30)))
                self.assertLess(sum(done.losses[-5:]), sum(done.losses[:5]))
                self.assertRegex(done.out, r"weights \d+\.\d MiB x 2 versions")
                self.assertEqual(manifest_of(folder)[1]["step"], 30)

    def test_recompute_changes_no_bit(self):
        for (name, options), stages in itertools.product(METHODS.items(), (2, 3, 4) if WHOLE else (2,)):
            with self.subTest(method=name, stages=stages):
                kept, again = self.folder / f"kept-{name}-{stages}", self.folder / f"again-{name}-{stages}"
                one = self.train((1, stages), *options, "--steps", 14, "--checkpoint", kept)
                two = self.train((1, stages), *options, "--steps", 14, "--checkpoint", again, "--with-recompute")
                self.assertEqual(one.losses, two.losses)
                self.assertEqual(checksums(kept), checksums(again))

    def test_micro_batches_are_one_unless_told(self):
        words, log = self.command((1, 1), "--pipeline", "pipedream", "--steps", 2)
        at = words.index("--micro-batches")
        del words[at:at + 2]
        self.assertEqual(self.run_words(words), 0)
        self.assertEqual(log.read_text().count("\n"), 2)

    def run_words(self, words):
        return subprocess.run(words, env=self.env, capture_output=True, timeout=MANY_S, cwd=self.folder).returncode

    def test_a_drain_where_it_saves_and_updates_are_counted(self):
        """Saves every 4 steps drain the pipeline, with a checkpoint folder or by resuming: the same updates, the same bits.
        """
        for name, options in METHODS.items():
            with self.subTest(method=name):
                whole, parts = self.folder / f"whole-{name}", self.folder / f"parts-{name}"
                one = self.train((1, 2), *options, "--steps", 12, "--checkpoint", whole, "--save-every", 4)
                losses = []
                for steps in (4, 8, 12):
                    done = self.train((1, 2), *options, "--steps", steps, "--checkpoint", parts, "--resume")
                    losses += done.losses
                self.assertEqual(losses, one.losses)
                self.assertEqual(checksums(parts), checksums(whole))
                self.assertEqual(manifest_of(parts)[1]["step"], 12)
                if not WHOLE and name != "pipedream":
                    continue
                # Other stages use other weight versions, but count the same updates.
                done = self.train((1, 4 if WHOLE else 3), *options, "--steps", 15, "--checkpoint", parts, "--resume")
                self.assertEqual(done.steps, [12, 13, 14])
                self.assertEqual(manifest_of(parts)[1]["step"], 15)

    def test_usr1_drains_saves_and_ends_in_order(self):
        for grid in [(1, 2), (2, 2)] if WHOLE else [(1, 2)]:
            with self.subTest(grid=grid):
                folder = self.folder / f"asked-{grid[0]}"
                process, log = self.start(grid, *PIPEDREAM, "--steps", 1000000, "--no-drain", "--checkpoint", folder)
                self.assertTrue(wait_until(lambda log=log: log.exists() and log.read_text().count("\n") >= 30),
                                process.poll())
                since = time.monotonic()
                process.send_signal(signal.SIGUSR1)
                out, err = process.communicate(timeout=MANY_S)
                self.assertLess(time.monotonic() - since, END_S, out + err)
                self.assertEqual(process.returncode, 0, out + err)
                steps = log.read_text().count("\n")
                self.assertIn(f"Stopped as asked after {steps} steps; saved in {folder}", out)
                self.assertEqual(manifest_of(folder)[1]["step"], steps)
                done = self.train(grid, *PIPEDREAM, "--steps", steps + 3, "--checkpoint", folder, "--resume")
                self.assertEqual(done.steps, [steps, steps + 1, steps + 2])

    def test_evaluation_wants_a_drained_pipeline(self):
        self.refused((1, 1), *PIPEDREAM, "--no-drain", "--eval-data", self.data, "--steps", 2,
                     says="--no-drain: an evaluation after each epoch needs a drained pipeline")
        done = self.train((1, 2), *PIPEDREAM, "--eval-data", self.data, "--steps", 102)
        self.assertEqual(len(re.findall(r"\d EVAL  loss", done.out)), 2, done.out)

    def test_rows_of_different_lengths(self):
        """With stage 1 on two workers, losses equal those of one process, which can also read the checkpoint."""
        script = self.folder / "uneven.py"
        script.write_text("import sys\nimport device_list\nfrom hetu.devices import gpu\nimport train_bert\n"
                          "device_list.uneven = [[gpu(0)], [gpu(1), gpu(2)]]\nsys.exit(train_bert.main())\n")
        alone = self.train((1, 1), "--steps", 6)
        for method in ("1f1b", "gpipe", "pipedream") if WHOLE else ("1f1b",):
            with self.subTest(method=method):
                folder = self.folder / method
                words, log = self.command((3, 1), "--pipeline", method, "--steps", 6, "--checkpoint", folder)
                words[words.index("pipe_3_1")] = "uneven"
                words = [str(script) if word.endswith("train_bert.py") else word for word in words]
                done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=MANY_S, cwd=self.folder)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("uneven: 2 stages on 1 + 2 workers", done.stdout)
                losses = [json.loads(line)["loss"] for line in log.read_text().splitlines()]
                if method != "pipedream":
                    for expected, got in zip(alone.losses, losses, strict=True):
                        self.assertAlmostEqual(got, expected, delta=1e-5)
                again = self.train((1, 1), "--steps", 7, "--checkpoint", folder, "--resume")
                self.assertEqual(again.steps, [6])

    def test_trace(self):
        trace = self.folder / "run.json"
        self.train((1, 2), *PIPEDREAM, "--steps", 20, "--trace", trace)
        text = trace.read_text()
        self.assertEqual(len(re.findall(r'"name": ?"1B\d+"|"kind": ?"B"', text)) % 20, 0)
        self.assertIn("0UPDATE", text)


if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
