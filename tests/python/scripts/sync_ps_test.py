"""Training whose parameter servers run the optimizer (--sync-method ps), as users call it.

In rounds it equals an all-reduce, bit for bit. Pipelines that run ahead of each other also learn. Jobs resume on other
grids. Each unsupported combination is refused in one line."""
import json
import os
import random
import subprocess
import sys
import time
import unittest

from train_cases import KILLED_STEPS, MANY_S, MODEL, TrainCase, checksums, manifest_of

PS = ("--micro-batches", 4, "--sync-method", "ps")
SEED = int(os.environ.get("TRAIN_TEST_SEED", time.time_ns() % 100000))
WHOLE = "--whole" in sys.argv
JOBS = 17 if WHOLE else 1  # each job has three kills
ALL_REDUCE = ("--micro-batches", 4)


class SyncPs(TrainCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model.write_text(json.dumps({**MODEL, "tie_word_embeddings": False}))

    def test_rounds_equal_an_all_reduce(self):
        """Rounds equal an all-reduce, also after a stop: the states and counters of the servers' optimizer are saved."""
        cases = (("1f1b", (2, 2), "adamw", 3), ("gpipe", (2, 1), "momentum", 3 if WHOLE else 0),
                 ("dp", (2, 1), "adagrad", 2))
        for pipeline, grid, optimizer, stop in cases:
            with self.subTest(pipeline=pipeline):
                how = ("--pipeline", pipeline, "--optimizer", optimizer, "--learning-rate", "3e-3")
                want = self.train(grid, *ALL_REDUCE, *how, "--steps", 6, "--checkpoint", self.folder / f"{pipeline}-sum")
                saved = ("--checkpoint", self.folder / f"{pipeline}-ps")
                got = self.train(grid, *PS, *how, "--steps", stop, *saved).losses if stop else []
                got += self.train(grid, *PS, *how, "--steps", 6, *saved, *(["--resume"] if stop else [])).losses
                self.assertEqual(got, want.losses)
                self.assertEqual(checksums(self.folder / f"{pipeline}-ps"), checksums(self.folder / f"{pipeline}-sum"))

    def test_killed_servers_change_no_bit(self):
        """Rounds are deterministic. Two servers are killed at random moments, and their logs restore all lost state."""
        how = (*PS, "--pipeline", "1f1b", "--optimizer", "adamw", "--learning-rate", "3e-3", "--steps", KILLED_STEPS)
        self.train((2, 2), *how, "--checkpoint", self.folder / "peace")
        peace, draw = checksums(self.folder / "peace"), random.Random(SEED)
        for job in range(JOBS):
            with self.subTest(job=job, seed=SEED):
                self.assertEqual(self.after_three_kills(how, self.folder / f"killed{job}", draw), peace)

    def after_three_kills(self, how, saved, draw):
        """Returns the checksums of a job with two servers, of which one is killed three times."""
        process, log = self.start((2, 2), *how, "--checkpoint", saved, heturun=("-s", "2"))
        self.kill_servers_of(process, log, draw)
        output, error = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, output + error)
        self.assertEqual(error.count("it is started again from its log"), 3, error)
        return checksums(saved)

    def test_ahead_of_each_other_pipelines_learn_and_resume(self):
        """Pipelines that run ahead learn, and resume on another grid, with another number of servers and without servers."""
        for staleness in (1, -1):
            saved = self.folder / f"saved{staleness}"
            how = ("--pipeline", "1f1b", "--optimizer", "adam", "--learning-rate", "1e-3", "--checkpoint", saved)
            ahead = (*PS, "--staleness", staleness, "--slow", "pipeline=1,factor=3")
            first = self.train((2, 2), *how, *ahead, "--steps", 30)
            self.assertEqual(first.steps, list(range(30)))
            self.assertLess(sum(first.losses[-5:]), sum(first.losses[:5]))
            if staleness == 1 and not WHOLE:  # the same code saves and resumes both cases
                continue
            words, log = self.command((4, 1), *how, *PS, "--batch-size", 4, "--resume", "--steps", 36)
            at = words.index("-w")
            words[at:at] = ["-s", "3"]
            done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=MANY_S, cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(len(log.read_text().splitlines()), 6)
            third = self.train((1, 2), *how, *ALL_REDUCE, "--batch-size", 16, "--resume", "--steps", 40)
            self.assertEqual(third.steps, list(range(36, 40)))
            self.assertLess(third.losses[0], first.losses[0])
            self.assertEqual(manifest_of(saved)[1]["step"], 40)

    def test_what_does_not_fit(self):
        for options, says in (
            (("--pipeline", "hetpipe"), "--sync-method ps .*'hetpipe' pushes waves"),
            (("--pipeline", "pipedream"), "--sync-method ps .*'pipedream' updates after its backwards, without a flush"),
            (("--pipeline", "chimera"), "'chimera' has several stages on a worker"),
            (("--pipeline", "1f1b", "--optimizer", "lamb"),
             "--sync-method ps needs an optimizer that takes no norm of a parameter, but lamb does"),
            (("--pipeline", "1f1b", "--staleness", -2), "--staleness.*-2"),
        ):
            with self.subTest(options=options):
                self.refused_in_plan((2, 2), *PS, *options, "--steps", 2, says=says)
        wrong = ("--pipeline", "1f1b", "--sync-method", "psr", "--steps", 2)
        self.refused((2, 2), *wrong, says="--sync-method.*'psr'.*allreduce'?, '?ps")
        self.refused((2, 1), *PS, "--pipeline", "pipedream", "--preduce", "--steps", 2,
                     says="'pipedream' updates after its backwards")


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main()
