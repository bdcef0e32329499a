"""heturun --on-failure shrink with trainings.

After kill -9 of a worker, the live pipelines finish, and the checkpoint states the loss. After kill -9 of the coordinator,
everything ends.

`train_shrink_test.py --whole` draws 50 moments instead of 3. They come from a seed that is printed."""
import json
import os
import random
import signal
import subprocess
import sys
import time
import types
import unittest

from hetu.job.checkpoint import Checkpoints
from processes import parent_of, process_of, wait_until
from train_cases import END_S, HETURUN, MANY_S, MODEL, TrainCase, manifest_of

MOMENTS = 50 if "--whole" in sys.argv else 3
SEED = int(os.environ.get("TRAIN_TEST_SEED", time.time_ns() % 100000))
METHODS = (("--preduce",), ("--adpsgd",), ("--preduce", "--sync-period", "1"), ("--adpsgd", "lockstep"))
FOREVER = 1000000
SOON = 100  # steps that may pass until the end after SIGUSR1
LAST = 180  # steps of a training that must be running when a worker dies
SHRINK = ("--on-failure", "shrink")
WORDS = ("--pipeline", "pipedream", "--micro-batches", "1", "--optimizer", "sgd", "--learning-rate", "5e-2")


def lines_of(log):
    """Returns the number of lines in a log."""
    return log.read_text().count("\n") if log.exists() else 0


class Shrink(TrainCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model.write_text(json.dumps({**MODEL, "tie_word_embeddings": False, "hidden_dropout_prob": 0.0,
                                         "attention_probs_dropout_prob": 0.0}))

    def command(self, grid, *options, before=()):
        words, log = super().command(grid, *options, before=before)
        at = words.index(HETURUN[1])
        return [*words[:at + 1], *SHRINK, *words[at + 1:]], log

    def check_whole(self, folder):
        """Checks that every tensor of every checkpoint has the checksum in its manifest."""
        hetu = os.path.join(os.environ["HETU_BUILD_DIR"], "bin", "hetu")
        for step in sorted(folder.glob("step-*")):
            done = subprocess.run([hetu, "checkpoint", "diff", str(step), str(step)], capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_nobody_dies(self):
        folder = self.folder / "saved"
        done = self.train((2, 2), *WORDS, "--preduce", "--steps", 12, "--save-every", 6, "--checkpoint", folder)
        self.assertEqual(manifest_of(folder)[1]["step"], 12)
        self.assertNotIn("lost", manifest_of(folder)[1]["run"])
        self.assertNotIn("without", done.err)

    def test_goes_on_without_a_pipeline(self):
        draw = random.Random(SEED)
        for moment in range(MOMENTS):
            method = METHODS[moment % len(METHODS)]
            pipelines, stages = ((3, 1), (2, 2))[moment % 2]
            number = draw.randrange(pipelines * stages)
            delay = draw.random() * 0.3
            with self.subTest(moment=moment, seed=SEED, method=method, worker=number, delay=delay):
                self.lose_one(method, (pipelines, stages), number, delay, self.folder / f"saved{moment}")

    def lose_one(self, method, grid, number, delay, folder):
        words = (*WORDS, *method, "--save-every", 20, "--checkpoint", folder, "--keep", 2)
        process, log = self.start(grid, *words, "--steps", LAST)
        self.assertTrue(wait_until(lambda: lines_of(log) > 8), process.poll())
        time.sleep(delay)
        victim = process_of(self.mark, "train_bert.py", number)
        self.assertIsNotNone(victim)
        lost = number // grid[1]
        os.kill(victim, signal.SIGKILL)
        self.check_nobody_hangs(process, log, [lost * grid[1] + stage for stage in range(grid[1])])
        _, error = process.communicate(timeout=MANY_S)
        self.check_nothing_runs()
        self.assertEqual(process.returncode, 0, error)
        how = rf"worker {number} \(\S+, pid {victim}\) was killed by SIGKILL"
        self.assertRegex(error, rf"heturun: {how}; the job continues without pipeline {lost}\n")
        self.assertRegex(error.splitlines()[-1], rf"heturun: finished without pipeline {lost}: {how}$")
        manifest = manifest_of(folder)[1]
        self.assertEqual(manifest["step"], LAST, error)
        self.check_whole(folder)
        said = manifest["run"]["lost"]
        self.assertEqual([one["pipeline"] for one in said], [lost])
        self.assertRegex(said[0]["reason"], "was killed by SIGKILL")
        self.assertLessEqual(said[0]["averaged"], said[0]["updates"])
        self.assertIsNone(manifest["run"]["positions"][lost])
        losses = [json.loads(line)["loss"] for line in log.read_text().splitlines()]
        self.assertLess(sum(losses[-20:]) / 20, sum(losses[:8]) / 8)

    def check_nobody_hangs(self, process, log, dead):
        """Checks that, within END_S of a death, the workers of its pipeline end, and the others continue or finish."""
        since, before = time.monotonic(), lines_of(log)
        self.assertTrue(wait_until(lambda: lines_of(log) > before + 2 or process.poll() is not None, END_S),
                        f"the losses stand still at step {before}")
        gone = wait_until(lambda: all(process_of(self.mark, "train_bert.py", one) is None for one in dead),
                          END_S - (time.monotonic() - since))
        self.assertTrue(gone, f"of workers {dead} some still run")

    def test_goes_on_without_a_killed_mpirun(self):
        """An mpirun is killed at the start, and in the middle. The manifest has the cause, not the later error of the
        workers."""
        died = "mpirun was killed by SIGKILL before worker 1 ended"
        for steps in (0, 8):
            with self.subTest(steps=steps):
                folder = self.folder / f"saved{steps}"
                process, log = self.start((3, 1), *WORDS, "--preduce", "--steps", 2 * LAST, "--checkpoint", folder)
                self.assertTrue(wait_until(lambda: process_of(self.mark, "train_bert.py", 1)), process.poll())
                self.assertTrue(wait_until(lambda steps=steps, log=log: lines_of(log) >= steps), process.poll())
                os.kill(parent_of(parent_of(process_of(self.mark, "train_bert.py", 1))), signal.SIGKILL)
                _, error = process.communicate(timeout=MANY_S)
                self.assertEqual(process.returncode, 0, error)
                self.assertIn(f"heturun: {died}; the job continues without pipeline 1\n", error)
                manifest = manifest_of(folder)[1]
                self.assertEqual(manifest["step"], 2 * LAST)
                [lost] = manifest["run"]["lost"]
                self.assertEqual(lost["pipeline"], 1)
                self.assertEqual(lost["reason"], f"pipeline 1 is lost: {died}")

    def test_resumes_with_fewer_or_all_pipelines(self):
        folder = self.folder / "saved"
        self.lose_one(("--preduce",), (3, 1), 0, 0.1, folder)
        for grid, steps in (((2, 1), LAST + 10), ((3, 1), LAST + 20), ((2, 2), LAST + 25)):
            done = self.train(grid, *WORDS, "--preduce", "--checkpoint", folder, "--resume", "--steps", steps)
            self.assertRegex(done.out, r"Resumed from \S+ at step \d+", str(done))
            manifest = manifest_of(folder)[1]
            self.assertEqual(manifest["step"], steps)
            self.assertEqual(len(manifest["run"]["positions"]), grid[0])
            self.assertNotIn("lost", manifest["run"])
        self.check_whole(folder)

    def test_the_coordinator_is_missed_by_all(self):
        draw = random.Random(f"{SEED} coordinator")
        folder = self.folder / "saved"
        for moment in range(MOMENTS):
            method = METHODS[moment % len(METHODS)]
            with self.subTest(moment=moment, seed=SEED, method=method):
                process, log = self.start((2, 1), *WORDS, *method, "--steps", FOREVER, "--save-every", 5, "--checkpoint",
                                          folder, "--resume", "--keep", 2)
                self.assertTrue(wait_until(lambda log=log: lines_of(log) > 12), process.poll())
                time.sleep(draw.random() * 0.3)
                victim = process_of(self.mark, "hetu.launch.coordinator")
                since = time.monotonic()
                os.kill(victim, signal.SIGKILL)
                _, error = process.communicate(timeout=MANY_S)
                self.assertLess(time.monotonic() - since, END_S, error)
                self.assertEqual(process.returncode, 128 + signal.SIGKILL, error)
                self.assertIn(f"heturun: the coordinator (pid {victim}) was killed by SIGKILL; ending the other", error)
                self.check_nothing_runs()
                self.check_whole(folder)

    def test_sigusr1_saves_soon(self):
        for before in ((), SHRINK):
            folder = self.folder / f"saved{len(before)}"
            words, log = super().command((2, 2), *WORDS, "--preduce", "--steps", FOREVER, "--checkpoint", folder,
                                         "--no-drain")
            at = words.index(HETURUN[1])
            process = subprocess.Popen([*words[:at + 1], *before, *words[at + 1:]], env=self.env, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, cwd=self.folder)
            self.addCleanup(lambda process=process: process.poll() is None and process.kill())
            self.assertTrue(wait_until(lambda log=log: lines_of(log) > 12), process.poll())
            done = lines_of(log)
            process.send_signal(signal.SIGUSR1)
            out, error = process.communicate(timeout=MANY_S)
            self.assertEqual(process.returncode, 0, error)
            step = manifest_of(folder)[1]["step"]
            self.assertIn(f"Stopped as asked after {step} steps", out)
            self.assertGreaterEqual(2 * step + 1, done)  # the mean of two pipelines, of which one logs
            self.assertLess(step, done + SOON)
            self.check_whole(folder)

    def test_what_cannot_shrink_is_said_in_one_line(self):
        self.refused((2, 1), *WORDS, "--steps", 2, says="only a job whose pipelines average weights")
        self.refused((2, 1), *WORDS, "--preduce", "--sync-period", 0, "--steps", 2, says="--sync-period must be >= 1, got 0")


class Said(unittest.TestCase):
    def test_a_pipeline_that_dies_while_a_checkpoint_is_written_is_named_in_it(self):
        class Job:
            losses = []

            def save(self, folder, run_json, keep):
                self.losses = [{"pipeline": 0, "reason": "was killed"}]
                self.saved = json.loads(run_json())

        store = Checkpoints.__new__(Checkpoints)
        store.worker, store.folder, store.keep = types.SimpleNamespace(job=Job(), is_chief=False), "folder", 1
        store._run = lambda: {"positions": [{"index": 8}, {"index": 16}], "method": "pipedream"}
        store.save()
        self.assertEqual(store.worker.job.saved, {
            "positions": [None, {"index": 16}], "method": "pipedream", "lost": [{"pipeline": 0, "reason": "was killed"}]})


if __name__ == "__main__":
    print(f"random seed {SEED}; TRAIN_TEST_SEED sets it", file=sys.stderr)
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
