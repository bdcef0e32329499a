"""Slow workers: heturun's decisions from the workers' reports (hetu/launch/slow.py), and a job with a slowed worker."""
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from hetu.launch import run_folder, supervise
from hetu.launch.slow import LIMIT, STEPS, Slow

HETURUN = [sys.executable, str(pathlib.Path(__file__).resolve().parents[3] / "python" / "heturun")]
MANY_S = 200
SEED = 20261130
STEP_S = 1.2


class Item:
    """A worker."""

    def __init__(self, number):
        self.number, self.code = number, None

    def describe(self):
        return f"worker {self.number}"


class Job:
    """Workers that make a step every STEP_S, and report after each. `compute`: the seconds per step of each; `rows`: the
    number of each in its pipeline."""

    def __init__(self, compute, rows, limit=LIMIT):
        self.workers = [Item(i) for i in range(len(compute))]
        self.compute, self.rows = list(compute), rows
        self.slow, self.now, self.step = Slow(limit), 0.0, 0
        self.work = [0.0] * len(compute)

    def run(self, steps, noise=lambda: 1.0, phase="step"):
        """Returns [(step, line)] of what is said."""
        said = []
        for _ in range(steps):
            self.now += STEP_S
            self.step += 1
            for i, worker in enumerate(self.workers):
                self.work[i] += self.compute[i] * noise()
                beat = {"step": self.step, "phase": phase, "work_s": self.work[i], "row": self.rows[i]}
                if text := self.slow.take(worker, beat, self.now):
                    said.append((self.step, text))
        return said


class Decisions(unittest.TestCase):
    def test_names_a_worker_slower_than_its_peers(self):
        """It is named within STEPS steps after it became slow, and again when it has recovered."""
        job = Job([0.2, 0.5, 0.2, 0.5, 0.2, 0.5], [0, 1, 0, 1, 0, 1])
        self.assertEqual(job.run(30), [])
        job.compute[3] *= 1.3
        (step, text), = job.run(STEPS)
        self.assertRegex(text, r"^worker 3 is slow: it computes 6\d\d ms per step, 1\.\d+ times what the workers with the "
                               r"same stages take \(500 ms\); the others wait for it \(--slow-limit 1\.25\)$")
        self.assertTrue(job.slow.is_slow(job.workers[3]))
        self.assertEqual(job.run(30), [], "it is named once")
        job.compute[3] /= 1.3
        (step, text), = job.run(STEPS)
        self.assertRegex(text, r"^worker 3 is no longer slow: it computes 5\d\d ms per step$")

    def test_compares_a_worker_of_one_pipeline_with_its_past(self):
        job = Job([0.2, 0.6], [0, 1])
        self.assertEqual(job.run(40), [])
        job.compute[0] *= 1.3
        (_, text), = job.run(STEPS)
        self.assertRegex(text, r"^worker 0 is slow: it computes 2\d\d ms per step, 1\.\d+ times what it took before "
                               r"\(200 ms\); ")
        self.assertEqual(job.run(500), [], "its past stays that of before")

    def test_names_no_healthy_worker(self):
        """1,000 steps with times that vary by up to 10 %, of six workers and of two."""
        draw = random.Random(SEED)
        for compute, rows in (([0.2, 0.5] * 3, [0, 1] * 3), ([0.2, 0.5], [0, 1])):
            with self.subTest(workers=len(rows), seed=SEED):
                self.assertEqual(Job(compute, rows).run(1000, lambda: draw.uniform(0.9, 1.1)), [])

    def test_one_late_step_names_nobody(self):
        job = Job([0.5, 0.5], [0, 0])
        job.run(30)
        job.work[1] += 0.5  # twice its time
        self.assertEqual(job.run(STEPS), [])

    def test_ignores_first_steps_saves_and_evaluations(self):
        job = Job([0.2, 0.2], [0, 0])
        job.compute[1] = 2.0
        self.assertEqual(job.run(3), [])
        job.compute[1] = 0.2
        self.assertEqual(job.run(30), [])
        job.compute[1] = 2.0
        for phase in ("saves", "evaluates", "starts"):
            self.assertEqual(job.run(30, phase=phase), [])
        job.compute[1] = 0.2
        self.assertEqual(job.run(30), [])

    def test_judges_nobody_without_a_limit(self):
        job = Job([0.2, 0.9], [0, 0], limit=0.0)
        self.assertEqual(job.run(100), [])

    def test_a_restarted_count_begins_anew(self):
        """A process that trains twice counts its steps from 0 again."""
        job = Job([0.2, 0.2], [0, 0])
        job.run(30)
        job.step = 0
        self.assertEqual(job.run(30), [])
        self.assertTrue(re.match(r"2\d\d|200", f"{1e3 * job.slow.mean(job.workers[0]):.0f}"))


# Two pipelines of one stage; worker 1 computes each instruction four times as long.
SCRIPT = """
import numpy as np
import hetu as ht
from hetu.averaging import Stragglers
x = np.random.default_rng(0).standard_normal((256, 64))
data = ht.data.Arrays(x=x, y=x[:, 0] > 0, batch_size=64, seed=1)
h = ht.nn.Linear(64, 256).named("first")(data.x)
loss = ht.models.mean_cross_entropy(ht.nn.Linear(256, 2).named("last")(ht.ops.tanh(h)), data.y, "loss")
job = ht.Executor({"train": [loss, ht.optim.SGD(1e-3).minimize(loss)]}, micro_batches=4, devices="pipe_2_1",
                  stragglers=Stragglers(slow=[{"worker": 1, "factor": 4}]))
for _ in job.run("train", steps=10**6):
    pass
"""


class State(unittest.TestCase):
    def test_the_state_says_it_before_the_line(self):
        """A reader of the line finds the slow worker in heturun ps, although the state is written once a second."""
        said = []
        with tempfile.TemporaryDirectory() as path:
            folder = run_folder.RunFolder(path, said.append)
            job = supervise.Job(2, [], 60, mock.Mock(),
                                lambda text: said.append((text, run_folder.read(f"{path}/status.json"))))
            self.addCleanup(job.close)
            job._run = folder
            folder.status(job._workers, job._slow)
            worker = job._workers[1]
            with mock.patch.object(job._slow, "take", return_value="worker 1 is slow"):
                job._take_progress(worker, {"beat": {"step": 7, "phase": "step", "work_s": 1.0, "row": 0}})
        [(text, state)] = said
        self.assertEqual((text, state["workers"][1]["step"]), ("worker 1 is slow", 7))


class RealJob(unittest.TestCase):
    def test_names_the_slowed_worker_while_the_job_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "train.py")
            script.write_text(SCRIPT)
            flags = ["-w", "2", "--slow-limit", "2", "--run-dir", f"{folder}/run"]
            process = subprocess.Popen([*HETURUN, *flags, "python3", script],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ)
            self.addCleanup(lambda: (process.kill(), process.wait(), process.stderr.close()))
            lines = []
            for line in process.stderr:
                lines.append(line)
                if " is slow: " in line:
                    break
            self.assertRegex(lines[-1], r"^heturun: worker 1 \(\S+, pid \d+\) is slow: it computes \S+ ms per step, \S+ "
                                        r"times what the other worker with the same stages takes \(\S+ ms\); the others "
                                        r"wait for it \(--slow-limit 2\)$", "".join(lines))
            told = subprocess.run([*HETURUN, "ps", f"{folder}/run"], capture_output=True, text=True, timeout=MANY_S,
                                  check=True)
            self.assertIn("worker 1 slow", told.stdout)
            self.assertRegex(told.stdout, r"(?m)^1 +\S+ +\d+ +slow +\d+ +\S+ ms +")


if __name__ == "__main__":
    unittest.main()
