"""The worker that heturun blames for the end of a part."""
import argparse
import os
import signal
import subprocess
import time
import unittest

from hetu.launch import frames, supervise
from hetu.launch.part import COMM, STOPPED, Part, Worker
from processes import wait_until


class Blame(unittest.TestCase):
    """The worker that is blamed, depending on the messages that heturun has received so far."""

    def failure(self, codes, mpirun=0, words=(), told=()):
        """Returns (status, reason, last words by worker) of a part whose workers ended with `codes`. `mpirun` is its wait
        status."""
        workers = [Worker(number, code=code) for number, code in enumerate(codes)]
        one = Part(0, workers)
        one.name, one.process = "mpirun", argparse.Namespace(pid=1)
        one.note_failure()
        for worker, text in zip(workers, words, strict=False):
            worker.words = text
        for number in told:
            workers[number].told = True
        one.note_starter({1: mpirun})
        status, why = one.failure(time.monotonic() + 60, {1: mpirun}, False)
        return status, why, {worker.number: text for worker, text in one.last_words()}

    def test_mpirun_before_workers_that_follow_even_if_it_is_heard_of_later(self):
        status, why, _ = self.failure([-signal.SIGTERM, None], mpirun=signal.SIGKILL)
        self.assertEqual((status, why), (137, "mpirun was killed by SIGKILL before workers 0, 1 ended"))

    def test_a_worker_that_failed_by_itself_before_mpirun(self):
        self.assertEqual(self.failure([1, None], mpirun=signal.SIGKILL)[:2], (1, "worker 0 exited with status 1"))

    def test_the_cause_before_what_follows_and_its_words_alone(self):
        words = [b"Traceback (most recent call last):\n" + end for end in (
            b"  a\nCommError: lost 2\n", b"  a\nKeyError: 1\n", b"  b\nKeyError: 1\n", b"  c\nIndexError: 2\n")]
        status, why, said = self.failure([COMM, 1, 1, 1], words=words)
        self.assertEqual((status, why), (1, "worker 1 exited with status 1"))
        self.assertEqual(said, {1: words[1], 3: b"failed too: IndexError: 2\n"})

    def test_of_errors_in_one_line_that_of_the_cause_alone(self):
        lines = [b"script.py: row 1 is none\n", b"script.py: row 2 is none\n"]
        for codes, cause in (([2, 2], 0), ([None, 2], 1), ([COMM, 2], 1)):
            self.assertEqual(self.failure(codes, words=lines)[2], {cause: lines[cause]})

    def test_one_that_is_gone_with_status_0_before_those_that_mpirun_ended(self):
        status, why, _ = self.failure([-signal.SIGTERM, 0], told=[0])
        self.assertEqual(status, COMM)
        self.assertIn("worker 1 exited with status 0 without leaving the job", why)

    def test_one_that_lost_another_before_those_that_mpirun_ended(self):
        ended = -signal.SIGTERM
        for codes, told in (([ended, COMM], [0]), ([ended, COMM], [0, 1]), ([ended, COMM, 0], [0])):
            self.assertEqual(self.failure(codes, told=told)[:2], (COMM, "worker 1 exited with status 5"))

    def test_one_that_somebody_ended_before_those_that_lost_it(self):
        for codes, told in (([COMM, -signal.SIGTERM], []), ([-signal.SIGTERM, -signal.SIGTERM, COMM], [0])):
            self.assertEqual(self.failure(codes, told=told)[:2], (143, "worker 1 was killed by SIGTERM"))

    def test_a_guard_that_mpirun_kills_while_it_ends_its_worker(self):
        """mpirun sends SIGKILL one second after SIGTERM, or when one of its processes ends. The slowest guard then sends no
        message."""
        job = supervise.Job(3, [], 60, None, None)
        self.addCleanup(job.close)
        first, second, third = job._workers
        job._take_frame(second, frames.TOLD, b"")
        for worker in (second, third):
            job._lose_guard(worker, is_silent=False)
        self.assertEqual(second.death(), "worker 1 was killed by SIGTERM")
        self.assertIn("worker 2: is gone without a report", third.death())
        self.assertIsNone(first.code)


class StoppedPeer(unittest.TestCase):
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
