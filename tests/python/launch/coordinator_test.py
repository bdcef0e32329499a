"""heturun and the coordinator of groups. The first worker that asks starts it, it ends with the job, and no job hangs.

`coordinator_test.py --whole` kills at 50 moments of each kind instead of 4. They come from a seed that is printed."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import unittest

from launch_test import END_S, MANY, LaunchCase
from processes import processes_with, wait_until, without_block

WORKER = str(pathlib.Path(os.environ["HETU_BUILD_DIR"]) / "bin" / "group_ranks")
MOMENTS = 50 if "--whole" in sys.argv else 4
SEED = int(os.environ.get("COORDINATOR_TEST_SEED", time.time_ns() % 100000))
FOREVER = "100000000"


class Coordinator(LaunchCase):
    """Workers without weights that ask for groups."""

    def coordinators(self):
        """Returns the process ids of this test's coordinators."""
        return [pid for pid in processes_with(self.mark)
                if b"hetu.launch.coordinator" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]

    def test_a_job_that_asks(self):
        log = pathlib.Path(self.tmp) / "groups.jsonl"
        done = self.run_it("-w", "4", WORKER, "2", "30", "--log", str(log))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(without_block(done.stderr), "")
        updates = dict(re.findall(r"done (pipeline \d stage \d) updates (\d+)", done.stdout))
        for pipeline in (0, 1):
            self.assertEqual(updates[f"pipeline {pipeline} stage 0"], updates[f"pipeline {pipeline} stage 1"])
        groups = [json.loads(line) for line in log.read_text().splitlines()]
        log.unlink()
        for stage in (0, 1):
            members = sum(len(group["members"]) for group in groups if group["stage"] == stage)
            self.assertEqual(members, sum(int(updates[f"pipeline {p} stage {stage}"]) for p in (0, 1)))
            self.assertGreaterEqual(members, 60)

    def test_a_job_that_does_not_ask_starts_none(self):
        process, _ = self.start("-w", "2", "sh", "-c", "echo up $$ $HETU_JOB; sleep 1")
        self.assertEqual(self.coordinators(), [])
        self.assertEqual(self.finish(process, time.monotonic())[0], 0)

    def test_one_after_the_other(self):
        done = self.run_it("-w", "2", WORKER, "1", "10", "--rounds", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("done "), 6)

    def test_no_secret_on_a_command_line(self):
        process, pids = self.start("-w", "2", WORKER, "1", FOREVER)
        self.assertTrue(wait_until(self.coordinators))
        address = next(entry[len("HETU_COORDINATOR="):] for entry in
                       pathlib.Path(f"/proc/{pids[0]}/environ").read_text().split("\0")
                       if entry.startswith("HETU_COORDINATOR="))
        endpoint, keys = address.rsplit("@", 1)
        self.assertEqual(os.stat(os.path.dirname(endpoint[len("ipc://"):])).st_mode & 0o077, 0)
        for pid in processes_with(self.mark):
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            for key in (keys[:64], keys[64:128], keys[128:]):
                self.assertNotIn(key, words)
        os.kill(process.pid, signal.SIGTERM)
        self.assertEqual(self.finish(process, time.monotonic())[0], 128 + signal.SIGTERM)

    def killed(self, victim, draw):
        """Runs a job in which `victim` is killed at a random moment, and returns (status, errors). `victim` maps the ids of
        workers to a process id."""
        process, pids = self.start("-w", "4", WORKER, "2", FOREVER)
        self.assertTrue(wait_until(self.coordinators))
        time.sleep(draw.choice([0, 0.05, 0.5]) * draw.random())
        since = time.monotonic()
        os.kill(victim(pids), signal.SIGKILL)
        status, error = self.finish(process, since)
        self.assertTrue(wait_until(lambda: not processes_with(self.mark), END_S))
        return status, error

    def test_a_killed_worker(self):
        draw = random.Random(SEED)
        for moment in range(MOMENTS):
            number = draw.randrange(4)
            with self.subTest(moment=moment, seed=SEED):
                status, error = self.killed(lambda pids, number=number: pids[number], draw)
                self.assertEqual(status, 128 + signal.SIGKILL, error)
                self.assertRegex(error, rf"heturun: worker {number} \(\S+, pid \d+\) was killed by SIGKILL; ending")

    def test_a_killed_coordinator(self):
        draw = random.Random(SEED + 1)
        for moment in range(MOMENTS):
            with self.subTest(moment=moment, seed=SEED + 1):
                status, error = self.killed(lambda _: self.coordinators()[0], draw)
                self.assertEqual(status, 128 + signal.SIGKILL, error)
                self.assertRegex(error, r"heturun: the coordinator \(pid \d+\) was killed by SIGKILL; ending the other")

    def test_a_killed_heturun_leaves_nothing(self):
        process, _ = self.start("-w", "2", WORKER, "1", FOREVER)
        self.assertTrue(wait_until(self.coordinators))
        process.kill()
        process.wait()
        self.assertTrue(wait_until(lambda: not processes_with(self.mark), END_S), processes_with(self.mark))

    def test_shrink_goes_on_without_the_pipeline_of_a_dead_worker(self):
        draw = random.Random(SEED + 2)
        for moment in range(MOMENTS):
            with self.subTest(moment=moment, seed=SEED + 2):
                process, pids = self.start("-w", "6", "--on-failure", "shrink", "--pipelines", "3", WORKER, "2", "1000",
                                           "--shrink")
                self.assertTrue(wait_until(self.coordinators))
                time.sleep(draw.choice([0, 0.05, 0.5]) * draw.random())
                number = draw.randrange(6)
                os.kill(pids[number], signal.SIGKILL)
                out, error = process.communicate(timeout=MANY)
                self.assertEqual(process.returncode, 0, error)
                self.assertRegex(error, rf"heturun: worker {number} \(\S+, pid \d+\) was killed by SIGKILL; the job "
                                        rf"continues without pipeline {number // 2}\n")
                done = re.findall(r"done pipeline (\d) stage \d updates (\d+) lost [01]", out)
                self.assertEqual(len(done), 4, out + error)
                self.assertEqual({int(pipeline) for pipeline, _ in done}, {0, 1, 2} - {number // 2})
                self.assertTrue(wait_until(lambda: not processes_with(self.mark), END_S))

    def test_shrink_ends_when_no_pipeline_is_left(self):
        process, pids = self.start("-w", "2", "--on-failure", "shrink", "--pipelines", "2", WORKER, "1", FOREVER, "--shrink")
        os.kill(pids[0], signal.SIGKILL)
        time.sleep(1.0)
        self.assertIsNone(process.poll())
        since = time.monotonic()
        os.kill(pids[1], signal.SIGKILL)
        status, error = self.finish(process, since)
        self.assertEqual(status, 128 + signal.SIGKILL, error)

    def test_shrink_needs_pipelines(self):
        for number, expected in (("1", "at least 2"), ("3", "4 workers can't be divided into 3 pipelines")):
            done = self.run_it("-w", "4", "--on-failure", "shrink", "--pipelines", number, "true")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(expected, done.stderr)
        self.assertIn("end or shrink", self.run_it("-w", "4", "--on-failure", "no", "true").stderr)

    def test_outside_of_heturun(self):
        done = subprocess.run([WORKER, "1", "5"], env=self.env, capture_output=True, text=True, timeout=MANY)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("start the command under heturun", done.stderr)


if __name__ == "__main__":
    print(f"random seed {SEED}; COORDINATOR_TEST_SEED sets it", file=sys.stderr)
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
