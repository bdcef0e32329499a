"""Every exit of one process of a job, under every kind of method. The job ends soon with the matching status, and training
continues from its complete checkpoint.

`kill_methods_test.py --whole` tries all cases. Without it, a seed selects three, and the seed is printed."""
import os
import random
import signal
import subprocess
import sys
import time
import unittest

from exit_test import COMM, FOREVER, SCRIPT, ExitCase
from processes import parent_of, process_of
from train_cases import END_S, HETURUN, MANY_S

METHODS = ("gpipe", "1f1b", "interleaved-1f1b", "chimera", "hanayo", "zb-h1", "pipedream", "pipedream-2bw")
# For each exit: the process that gets a signal or the exit of worker 1's script, the signal, and the status.
WAYS = {
    "a worker is killed": ("worker", signal.SIGKILL, 137),
    "a worker is terminated": ("worker", signal.SIGTERM, 143),
    "a worker is interrupted": ("worker", signal.SIGINT, 130),
    "a worker crashes": ("worker", signal.SIGSEGV, 139),
    "a guard is killed": ("guard", signal.SIGKILL, 137),
    "mpirun is killed": ("mpirun", signal.SIGKILL, 137),
    "heturun is terminated": ("heturun", signal.SIGTERM, 143),
    "heturun is killed": ("heturun", signal.SIGKILL, -signal.SIGKILL),
    "exit": (None, None, COMM),
    "break": (None, None, COMM),
    "in the loop": (None, None, 1),
}
SEED = int(os.environ.get("KILL_TEST_SEED", time.time_ns() % 100000))


class KillMethods(ExitCase):
    """A job of two workers that saves every five steps."""

    def start(self, method, how, saved):
        words = [*HETURUN, "-w", "2", sys.executable, SCRIPT, method, how, "1", str(FOREVER), str(saved)]
        process = subprocess.Popen(words, env=self.env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, cwd=self.folder)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def victim(self, process, who):
        if who == "heturun":
            return process.pid
        worker = process_of(self.mark, "small_job.py", 1)
        self.assertIsNotNone(worker)
        return {"worker": worker, "guard": parent_of(worker), "mpirun": parent_of(parent_of(worker))}[who]

    def check(self, method, way):
        who, number, status = WAYS[way]
        saved = self.folder / f"{method} {way}"
        process = self.start(method, way if who is None else "-", saved)
        said = []
        for line in process.stdout:
            said.append(line)
            if "step 12 " in line:
                break
        since = time.monotonic()
        if who is not None:
            os.kill(self.victim(process, who), number)
        try:
            rest = process.communicate(timeout=MANY_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()  # otherwise the next case would find this job's workers
            raise
        self.check_nothing_runs()
        seconds = time.monotonic() - since
        text = "".join(said) + rest
        self.assertEqual(process.returncode, status, text)
        self.assertLess(seconds, END_S, text)
        self.assertLessEqual(text.count("Traceback"), 1, text)
        steps = [int(path.name[len("step-"):]) for path in saved.glob("step-*") if (path / "manifest.json").exists()]
        self.assertTrue(steps, text)
        code, out, error, _ = self.run_job(2, SCRIPT, method, "-", 1, max(steps) + 2, saved)
        self.assertEqual(code, 0, error)
        self.assertIn(f"step {max(steps) + 1} ", out)
        return seconds

    def test_ends_soon_and_goes_on(self):
        cases = [(method, way) for method in METHODS for way in WAYS]
        if "--whole" not in sys.argv:
            cases = random.Random(SEED).sample(cases, 3)
        slowest = 0.0
        for method, way in cases:
            with self.subTest(method=method, way=way, seed=SEED):
                slowest = max(slowest, self.check(method, way))
        print(f"{len(cases)} ends, the slowest after {slowest:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    print(f"random seed {SEED}; KILL_TEST_SEED sets it", file=sys.stderr)
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
