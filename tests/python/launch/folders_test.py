"""Files that a completely killed job leaves on its host. The next job removes them, and nothing else."""
import fcntl
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from hetu.launch import folders
from hetu.launch.processes import signal_to
from launch_test import MANY, SLEEPER, UP, LaunchCase
from processes import processes_with, runs_script, wait_until


class Leftovers(LaunchCase):
    def folders_of(self, job):
        return sorted(str(path) for place in (self.tmp, "/dev/shm") for path in pathlib.Path(place).glob(f"hetu-{job}-*"))

    def guards(self):
        """Returns the process ids of this test's guards."""
        return [pid for pid in processes_with(self.mark) if runs_script(pid, "guard.py")]

    def kill_all(self, process, spared=()):
        """Sends SIGKILL to every process of this test except the `spared` ones and this process. Processes that would clean
        up are stopped or killed first."""
        os.kill(process.pid, signal.SIGSTOP)
        for pid in self.guards():
            signal_to(os.kill, pid, signal.SIGKILL)

        def none_left():
            left = set(processes_with(self.mark)) - set(spared)
            for pid in left:
                signal_to(os.kill, pid, signal.SIGKILL)
            return process.poll() is not None and not left

        self.assertTrue(wait_until(none_left, MANY))

    def test_the_next_job_removes_what_a_killed_job_left(self):
        for before in (["-w", "2"], ["-w", "2", "--on-failure", "shrink", "--pipelines", "2"]):
            with self.subTest(before=before):
                process, _ = self.start(*before, *SLEEPER)
                left = self.folders_of(self.job)
                self.assertEqual(len(left), 2)
                self.kill_all(process)
                self.assertEqual(self.folders_of(self.job), left)
                done = self.run_it("-w", "1", "true")
                self.assertEqual(done.returncode, 0, done.stderr)
                said = re.findall(r"^heturun: removed (.*): left by a job that was killed, ", done.stderr, re.M)
                self.assertEqual(len(said), 1, done.stderr)
                self.assertLessEqual(set(left), set(said[0].split(", ")))
                self.assertEqual(self.folders_of(self.job), [])
                self.assertNotIn("removed", self.run_it("-w", "1", "true").stderr)

    def test_a_living_job_keeps_its_own(self):
        """A job keeps its folder while any of its processes runs, even a process that a worker left behind."""
        process, _ = self.start("-w", "1", "--output", "tagged", "sh", "-c", UP + "setsid sleep 1000 & sleep 1000")
        own = self.folders_of(self.job)
        self.assertNotIn(self.job, self.run_it("-w", "1", "true").stderr)
        self.assertEqual(self.folders_of(self.job), own)
        self.assertTrue(wait_until(self.left_behind, MANY))
        last = self.left_behind()
        self.kill_all(process, last)
        self.assertNotIn(self.job, self.run_it("-w", "1", "true").stderr)
        self.assertEqual(self.folders_of(self.job), own)
        os.kill(last[0], signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not processes_with(self.mark), MANY))
        self.assertIn(self.job, self.run_it("-w", "1", "true").stderr)
        self.assertEqual(self.folders_of(self.job), [])

    def left_behind(self):
        return [pid for pid in processes_with(self.mark)
                if os.getsid(pid) == pid and pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]


class Sweep(unittest.TestCase):
    """A sweep removes only folders of dead jobs of this user on this host."""

    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="t")
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def make(self, name="hetu-0123456789ab-abcd1234", host=None, lock=True):
        path = self.place / name
        (path / "0" / "deep").mkdir(parents=True)
        (path / "link").symlink_to(self.place)
        if lock:
            (path / folders.HELD).write_text(os.uname().nodename if host is None else host)
        return path

    def test_the_folder_of_a_dead_job_goes(self):
        path = self.make()
        self.assertEqual(folders.sweep([str(self.place), str(self.place), "/no/such/place"]), [os.path.realpath(path)])
        self.assertEqual(os.listdir(self.place), [])

    def test_what_is_another_programs_stays(self):
        made = [self.make("hetu-train-abcd1234"), self.make("hetu-0123456789ab-abcd1234x"), self.make("0123456789ab"),
                self.make("hetu-0123456789ab-nolock00", lock=False),
                self.make("hetu-0123456789ab-elsewher", host="elsewhere"), self.make("hetu-0123456789ab-emptyloc", host="")]
        self.make("real")
        (self.place / "hetu-0123456789ab-linkdir0").symlink_to(self.place / "real")
        (self.place / "hetu-0123456789ab-filefile").write_text("x")
        before = sorted(os.listdir(self.place))
        self.assertEqual(folders.sweep([self.place]), [])
        self.assertEqual(sorted(os.listdir(self.place)), before)
        self.assertTrue(all((path / "0" / "deep").is_dir() for path in made))

    @unittest.skipUnless(os.geteuid() == 0, "another owner takes root")
    def test_what_is_another_users_stays(self):
        path = self.make()
        os.chown(path, 12345, 12345)
        self.assertEqual(folders.sweep([self.place]), [])
        self.assertTrue(path.is_dir())

    def test_a_lock_is_held_by_whoever_inherits_it(self):
        path, locks = folders.make(self.place, "0123456789ab")
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=locks)
        self.addCleanup(child.communicate)
        for lock in locks:
            os.close(lock)
        self.assertEqual(folders.sweep([self.place]), [])
        locks = folders.hold([path, str(self.place / "gone")])
        self.assertEqual(len(locks), 1)
        child.communicate(b"\n")
        self.assertEqual(folders.sweep([self.place]), [])
        os.close(locks[0])
        self.assertEqual(folders.sweep([self.place]), [os.path.realpath(path)])

    def test_without_locks_nothing_is_removed(self):
        def none(*_):
            raise OSError("no locks here")

        with mock.patch.object(fcntl, "flock", none):
            path, locks = folders.make(self.place, "0123456789ab")
            self.assertEqual(folders.sweep([self.place]), [])
        self.assertEqual((locks, os.listdir(path)), ([], []))
        self.assertEqual(folders.sweep([self.place]), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
