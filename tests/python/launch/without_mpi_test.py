"""heturun on a machine without Open MPI: run_workers.py starts the workers, and messages go over sockets.

launch_test.py, shrink_test.py and others run in the same way with HETU_TRANSPORT=sockets (labelled slow)."""
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

import train_cases
from launch_test import HETURUN, MANY, SLEEPER, STUBBORN, LaunchCase
from processes import parent_of

NEEDED = ("python3", "sh", "sleep", "cat", "env", "kill")


class WithoutMpi(LaunchCase):
    def setUp(self):
        super().setUp()
        self.bin = pathlib.Path(self.tmp + "-bin")  # all that PATH has
        self.bin.mkdir()
        self.addCleanup(shutil.rmtree, self.bin)
        for name in NEEDED:
            (self.bin / name).symlink_to(shutil.which(name))
        self.env["PATH"] = str(self.bin)
        self.assertIsNone(shutil.which("mpirun", path=self.env["PATH"]))

    def test_each_worker_has_its_number(self):
        mpi = "$OMPI_COMM_WORLD_"
        names = f"{mpi}RANK/{mpi}SIZE {mpi}LOCAL_RANK/{mpi}LOCAL_SIZE $HETU_TRANSPORT"
        done = self.run_it("-w", "3", "sh", "-c", f'echo "{names}"; cat; exit 0')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"[{n}] {n}/3 {n}/3 sockets" for n in range(3)])

    def test_the_first_failure_ends_the_job(self):
        for script, status, text in (("exit 7", 7, "exited with status 7"), ("kill -9 $$", 137, "was killed by SIGKILL")):
            with self.subTest(script):
                done = self.run_it("-w", "3", "sh", "-c", f"[ $OMPI_COMM_WORLD_RANK = 1 ] && {script}; sleep 1000")
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertRegex(done.stderr, rf"heturun: worker 1 \(\S+, pid \d+\) {text}; ending the other 2 workers\n\Z")

    def test_a_command_that_does_not_exist(self):
        done = self.run_it("-w", "2", "no-such-program")
        self.assertEqual((done.returncode, done.stderr.splitlines()[-1]),
                         (127, "heturun: cannot start 'no-such-program': not found, or not executable"))

    def test_the_starter_is_killed(self):
        process, pids = self.start("-w", "2", *SLEEPER)
        since = time.monotonic()
        os.kill(parent_of(parent_of(pids[0])), signal.SIGKILL)
        status, error = self.finish(process, since)
        self.assertEqual(status, 128 + signal.SIGKILL, error)
        self.assertRegex(error, r"\Aheturun: run_workers was killed by SIGKILL before workers 0, 1 ended(; ending .*)?\n\Z")

    def test_the_starter_is_stopped(self):
        process, pids = self.start("-w", "2", *SLEEPER)
        starter = parent_of(parent_of(pids[0]))
        since = time.monotonic()
        os.kill(starter, signal.SIGSTOP)
        status, error = self.finish(process, since)
        self.assertEqual(status, 5, error)
        self.assertIn(f"heturun: run_workers (pid {starter}) is stopped by a signal such as SIGSTOP", error)

    def test_the_starter_is_terminated(self):
        """SIGTERM to run_workers ends guards and workers, as SIGTERM to mpirun does."""
        process, pids = self.start("-w", "2", *SLEEPER)
        since = time.monotonic()
        os.kill(parent_of(parent_of(pids[0])), signal.SIGTERM)
        status, error = self.finish(process, since)
        self.assertEqual(status, 128 + signal.SIGTERM, error)

    def test_a_killed_guard(self):
        process, pids = self.start("-w", "2", *SLEEPER)
        since = time.monotonic()
        os.kill(parent_of(pids[1]), signal.SIGKILL)
        status, error = self.finish(process, since)
        self.assertEqual(status, 128 + signal.SIGKILL, error)
        self.assertRegex(error, r"worker 1 \(\S+, pid \d+\): is gone without a report: its guard was killed")

    def test_a_killed_heturun_leaves_nothing(self):
        for command in (SLEEPER, STUBBORN):
            process, _ = self.start("-w", "2", *command)
            process.kill()
            self.finish(process, time.monotonic())  # tearDown looks for leftovers

    def test_signals(self):
        process, _ = self.start("-w", "2", *STUBBORN)
        since = time.monotonic()
        process.send_signal(signal.SIGTERM)
        status, error = self.finish(process, since)
        self.assertEqual(status, 128 + signal.SIGTERM, error)

    def test_what_needs_open_mpi_says_so(self):
        text = ("heturun: mpirun is not installed or not in PATH. A job on several hosts and HETU_TRANSPORT=mpi need Open "
                "MPI: install it (Debian: openmpi-bin)")
        cluster = self.bin / "two.yml"
        cluster.write_text("nodes:\n"
                           "  - {host: localhost, workers: 1, chief: true}\n"
                           "  - {host: 192.0.2.1, workers: 1}\n")
        for arguments, more in ((("-c", str(cluster)), {}), (("-w", "2"), {"HETU_TRANSPORT": "mpi"})):
            with self.subTest(arguments):
                done = subprocess.run([*HETURUN, *arguments, "sh", "-c", "exit 0"], env={**self.env, **more}, text=True,
                                      capture_output=True, timeout=MANY)
                self.assertEqual((done.returncode, done.stderr.splitlines()[-1]), (4, text))


class Trainings(train_cases.TrainCase):
    """Trainings with links of each kind have the same bits as under Open MPI: messages, sums of pipelines, servers."""

    def test_same_bits(self):
        for name, grid, options in (("chimera", (1, 4), ("--pipeline", "chimera")), ("pipelines", (2, 2), ()),
                                    ("servers", (2, 1), ("--sync-method", "ps"))):
            with self.subTest(name):
                found = []
                for transport in ("mpi", "sockets"):
                    self.env["HETU_TRANSPORT"] = transport
                    folder = self.folder / f"{name}-{transport}"
                    self.train(grid, *options, "--steps", 4, "--checkpoint", folder)
                    found.append(train_cases.checksums(folder))
                self.assertTrue(found[0])
                self.assertEqual(*found)


if __name__ == "__main__":
    unittest.main(verbosity=2)
