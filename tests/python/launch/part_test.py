"""The worker that heturun blames for the end of a part."""
import os
import signal
import subprocess
import time
import unittest

from hetu.launch.part import COMM, STOPPED, Part, Worker
from processes import wait_until


class Blame(unittest.TestCase):
    """Worker 0 has lost worker 1, which is stopped."""

    def setUp(self):
        self.lost, self.stopped = Worker(0, "w", 11), Worker(1, "w", 12)
        self.part = Part(0, [self.lost, self.stopped])
        self.part.failed_at = time.monotonic() - 60.0
        self.lost.code = COMM

    def blamed(self):
        return self.part.failure(time.monotonic(), {}, False)

    def test_its_guard_has_reported_it(self):
        self.stopped.stopped = True
        self.assertEqual(self.blamed(), (COMM, f"worker 1 (w, pid 12) {STOPPED}", "ending"))

    def test_mpirun_has_ended_it_since(self):
        self.stopped.stopped = self.stopped.told = True
        self.stopped.code = -signal.SIGTERM
        self.assertEqual(self.blamed(), (COMM, f"worker 1 (w, pid 12) {STOPPED}", "ending"))

    def test_its_guard_has_not_reported_it_yet(self):
        child = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.stopped.pid = child.pid
        self.assertEqual(self.blamed()[1], "worker 0 (w, pid 11) exited with status 5")
        os.kill(child.pid, signal.SIGSTOP)
        self.assertTrue(wait_until(lambda: self.part.failure(time.monotonic(), {}, False) == (
            COMM, f"worker 1 (w, pid {child.pid}) {STOPPED}", "ending")))

    def test_another_end_is_not_forgiven(self):
        """A worker that was stopped once and failed by itself is to blame by its own status."""
        self.stopped.stopped, self.stopped.code = True, 3
        self.assertEqual(self.blamed(), (3, "worker 1 (w, pid 12) exited with status 3"))


if __name__ == "__main__":
    unittest.main()
