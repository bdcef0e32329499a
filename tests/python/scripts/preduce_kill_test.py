"""kill -9 of a worker and of the coordinator in a training whose pipelines average weights. Everything ends within 10 s with
a name and a status, and the last checkpoint is intact.

`preduce_kill_test.py --whole` draws 50 moments of each kind instead of 3. They come from a seed that is printed."""
import json
import os
import random
import signal
import sys
import time
import unittest

from processes import process_of, wait_until
from train_cases import END_S, MANY_S, MODEL, TrainCase, manifest_of

MOMENTS = 50 if "--whole" in sys.argv else 3
SEED = int(os.environ.get("TRAIN_TEST_SEED", time.time_ns() % 100000))
FOREVER = 1000000
METHODS = (("--preduce",), ("--preduce", "--sync-period", "1"), ("--adpsgd",))


class Kill(TrainCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model.write_text(json.dumps({**MODEL, "tie_word_embeddings": False}))

    def kill_at_random_moments(self, who):
        draw = random.Random(f"{SEED} {who}")
        saved = self.folder / "saved"
        for moment in range(MOMENTS):
            method = METHODS[moment % len(METHODS)]
            number = None if who == "coordinator" else draw.randrange(2)
            with self.subTest(moment=moment, seed=SEED, method=method):
                before = manifest_of(saved)[1]["step"] if saved.exists() else 0
                process, log = self.start((2, 1), "--pipeline", "pipedream", "--micro-batches", "1", "--optimizer", "sgd",
                                          *method, "--steps", FOREVER, "--save-every", 5, "--checkpoint", saved, "--resume",
                                          "--keep", 2)
                self.assertTrue(wait_until(lambda log=log: log.exists() and log.read_text().count("\n") > 12),
                                process.poll())
                time.sleep(draw.random() * 0.3)
                name = "hetu.launch.coordinator" if who == "coordinator" else "train_bert.py"
                victim = process_of(self.mark, name, number)
                self.assertIsNotNone(victim)
                since = time.monotonic()
                os.kill(victim, signal.SIGKILL)
                _, error = process.communicate(timeout=MANY_S)
                self.assertLess(time.monotonic() - since, END_S, error)
                self.assertEqual(process.returncode, 128 + signal.SIGKILL, error)
                name = "the coordinator" if who == "coordinator" else f"worker {number}"
                self.assertRegex(error, rf"heturun: {name} \(.*pid \d+\) was killed by SIGKILL; ending the other")
                self.check_nothing_runs()
                self.assertGreater(manifest_of(saved)[1]["step"], before)  # it resumed from an intact checkpoint
        step = manifest_of(saved)[1]["step"]
        self.train((1, 1), "--batch-size", 16, "--steps", step + 1, "--checkpoint", saved, "--resume", "--optimizer", "sgd")
        self.assertEqual(manifest_of(saved)[1]["step"], step + 1)

    def test_a_worker(self):
        self.kill_at_random_moments("worker")

    def test_the_coordinator(self):
        self.kill_at_random_moments("coordinator")


if __name__ == "__main__":
    print(f"random seed {SEED}; TRAIN_TEST_SEED sets it", file=sys.stderr)
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
