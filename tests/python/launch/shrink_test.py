"""heturun --on-failure shrink from outside: a pipeline that dies or falls silent is dropped, and the others keep all that
they need. Trainings are in train_shrink_test.py."""
import os
import pathlib
import signal
import sys
import time
import unittest

from launch_test import MANY, STARTER, UP, WITHOUT_MPI, LaunchCase
from processes import parent_of, processes_with, wait_until

WORKER = str(pathlib.Path(os.environ["HETU_BUILD_DIR"]) / "bin" / "group_ranks")
SHRINK = ("--on-failure", "shrink", "--pipelines")
WAITER = ["sh", "-c", "trap 'exit 0' USR1; " + UP + "while :; do sleep 0.1; done"]


def runs(pid):
    """Returns true if a process exists and isn't a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Shrink(LaunchCase):
    def test_a_killed_starter_takes_its_pipeline_alone(self):
        process, pids = self.start("-w", "3", *SHRINK, "3", *WAITER)
        guard = parent_of(pids[1])
        os.kill(parent_of(guard), signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not runs(pids[1]) and not runs(guard), MANY))
        for place in (self.tmp, *(() if WITHOUT_MPI else ("/dev/shm",))):  # files that the other workers share
            self.assertTrue([n for n in os.listdir(place) if n.startswith(f"hetu-{self.job}-")], place)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGUSR1)
        _, error = process.communicate(timeout=MANY)
        self.assertEqual(process.returncode, 0, error)
        died = f"{STARTER} was killed by SIGKILL before worker 1 ended"
        self.assertIn(f"heturun: {died}; the job continues without pipeline 1\n", error)
        self.assertEqual(error.splitlines()[-1], f"heturun: finished without pipeline 1: {died}")

    def test_pipelines_that_are_only_silent(self):
        """One pipeline's worker is stopped, and of another one both the worker and its guard. No process dies."""
        process, pids = self.start("-w", "3", *SHRINK, "3", WORKER, "1", "10000", "--shrink")
        self.assertTrue(wait_until(lambda: any(
            b"hetu.launch.coordinator" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            for pid in processes_with(self.mark))))
        time.sleep(1.0)  # all have greeted the coordinator by then
        for pid in (pids[1], parent_of(pids[2]), pids[2]):
            os.kill(pid, signal.SIGSTOP)
        out, error = process.communicate(timeout=MANY)
        self.assertEqual(process.returncode, 0, error)
        for pipeline, why in (
                (1, r"worker 1 \(pipeline 1, stage 0\) is silent for 8 s"),
                (2, r"worker 2 \(\S+, pid \d+\): is lost: its guard \(pid \d+\) is stopped by a signal such as SIGSTOP")):
            self.assertRegex(error, rf"heturun: {why}; the job continues without pipeline {pipeline}\n")
            self.assertRegex(error, rf"heturun: finished without pipeline {pipeline}: {why}\n")
        self.assertIn("done pipeline 0 stage 0", out)

    REPORT = ("from hetu import progress\n"
              "import os, signal, sys, time\n"
              "worker = int(os.environ['HETU_FIRST_WORKER']) + int(os.environ['OMPI_COMM_WORLD_RANK'])\n"
              "if worker == 1: time.sleep(1); sys.exit(9)\n"
              "if worker == 0: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
              "if worker == 2: time.sleep(2)\n"
              "last = 1000 if worker == 0 else 50\n"
              "with progress.Reporter(last) as report:\n"
              "    for step in range(1, last + 1):\n"
              "        if worker != 3: report.update(step, loss=1.0)\n"
              "        time.sleep(0.12)\n")

    def test_progress_goes_on_with_a_pipeline_that_lives(self):
        """The dying pipeline's worker reports progress until it is killed."""
        done = self.run_it("-w", "4", *SHRINK, "2", sys.executable, "-c", self.REPORT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr,
                         r"worker 1 \(\S+, pid \d+\) exited with status 9; the job continues without pipeline 0")
        self.assertIn("step 50/50 (100 %)", done.stderr)


if __name__ == "__main__":
    unittest.main()
