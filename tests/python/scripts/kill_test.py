"""kill -9 in the middle of training and in the middle of saving: all processes end, and checkpoints stay intact.

`kill_test.py --whole` draws 50 moments instead of 5. They come from a seed that is printed."""
import os
import random
import signal
import sys
import time
import unittest

from processes import process_of, wait_until
from train_cases import END_S, MANY_S, TrainCase, manifest_of

MOMENTS = 50 if "--whole" in sys.argv else 5
SEED = int(os.environ.get("TRAIN_TEST_SEED", time.time_ns() % 100000))
FOREVER = 1000000


class Kill(TrainCase):
    """Workers that are killed with SIGKILL."""

    def worker(self, number):
        """Returns the process id of a worker of this test's job."""
        pid = process_of(self.mark, "train_bert.py", number)
        self.assertIsNotNone(pid, f"no process of worker {number}")
        return pid

    def test_in_mid_training(self):
        saved = self.folder / "saved"
        process, log = self.start((1, 2), "--steps", FOREVER, "--save-every", 5, "--checkpoint", saved)
        self.assertTrue(wait_until(lambda: log.exists() and log.read_text().count("\n") > 7), process.poll())
        since = time.monotonic()
        os.kill(self.worker(1), signal.SIGKILL)
        out, err = process.communicate(timeout=MANY_S)
        self.assertLess(time.monotonic() - since, END_S, err)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, err)
        self.assertRegex(err, r"heturun: worker 1 \(\S+, pid \d+\) was killed by SIGKILL; ending the other 1 worker\n")
        self.check_nothing_runs()
        step = manifest_of(saved)[1]["step"]
        self.assertEqual(step % 5, 0)
        done = self.train((1, 1), "--steps", step + 1, "--checkpoint", saved, "--resume")
        self.assertEqual(done.steps, [step])

    def saving(self, folder):
        """Returns true if a checkpoint is being written."""
        return folder.exists() and any(name.endswith(".saving") for name in os.listdir(folder))

    def newest(self, folder):
        return max((int(path.parent.name[len("step-"):]) for path in folder.glob("step-*/manifest.json")), default=0)

    def test_while_saving(self):
        draw = random.Random(SEED)
        saved = self.folder / "saved"
        hits = 0
        for moment in range(MOMENTS):
            grid = (1, 2) if moment % 5 == 4 else (1, 1)
            before = self.newest(saved)
            process, _ = self.start(grid, "--steps", FOREVER, "--save-every", 1, "--keep", 2, "--checkpoint", saved,
                                      "--resume")
            delay = draw.uniform(0, 0.04)

            def in_a_later_save(before=before):
                return self.newest(saved) > before and self.saving(saved)

            self.assertTrue(wait_until(in_a_later_save), process.poll())
            time.sleep(delay)
            os.kill(self.worker(draw.randrange(2)) if grid == (1, 2) else process.pid, signal.SIGKILL)
            _, err = process.communicate(timeout=MANY_S)
            self.assertNotEqual(process.returncode, 0)
            hits += self.saving(saved)
            with self.subTest(moment=moment, seed=SEED, delay=delay):
                # The job resumed from the previous job's checkpoint, so that one was intact. It also left a newer one.
                self.assertGreater(self.newest(saved), before, err)
                self.assertNotIn("train_bert.py:", err)
        step = self.newest(saved)
        self.train((1, 1), "--steps", step + 1, "--checkpoint", saved, "--resume", "--keep", 2)
        self.assertEqual(sorted(os.listdir(saved)), [f"step-{n:08}" for n in (step, step + 1)])
        print(f"{hits} of {MOMENTS} kills came in the middle of a save", file=sys.stderr)


if __name__ == "__main__":
    print(f"random seed {SEED}; TRAIN_TEST_SEED sets it", file=sys.stderr)
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
