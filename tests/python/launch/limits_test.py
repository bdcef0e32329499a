"""heturun on restricted hosts: users without a home folder, unusual or full temporary folders, little shared memory, few
open files. A job works, or is refused in one line that names the remedy."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from hetu.launch import folders, limits
from launch_test import HETURUN, MANY, ROOT, LaunchCase

REHEARSE = "hetu rehearse 1f1b --stages 2 --micro-batches 4 --repeat 1 --time-unit 1ms"
STRANGER = "12345"  # a user unknown to the system


def permitted(*words):
    """Returns True if this user may run a command."""
    return bool(shutil.which(words[0])) and subprocess.run([*words, "true"], capture_output=True).returncode == 0


class LimitsCase(LaunchCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="l")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def shell(self, script):
        return subprocess.run(["sh", "-c", script], env=self.env, capture_output=True, text=True, timeout=MANY,
                              stdin=subprocess.DEVNULL, cwd=ROOT)

    def works(self, before):
        done = self.shell(f"{before} {' '.join(HETURUN)} -w 2 {REHEARSE}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("worker 1 (sum)", done.stdout)

    def refused(self, before, says):
        done = self.shell(f"{before} {' '.join(HETURUN)} -w 2 {REHEARSE}")
        self.assertEqual((done.returncode, done.stdout), (4, ""), done.stderr)
        self.assertRegex(done.stderr, rf"\A(Cluster: {{\n(  .*\n)+}}\n)?heturun: {says}\n\Z")

    def mounts(self, *mounts):
        """Returns a shell prefix that mounts file systems in memory for a command. `mounts` holds pairs (folder, KiB)."""
        if not permitted("unshare", "-m"):
            self.skipTest("this machine does not permit `unshare -m`")
        steps = [f"mount -t tmpfs -o size={size}k tmpfs {place}" for place, size in mounts]
        return f"exec unshare -m sh -c '{' && '.join(steps)} && exec \"$@\"' sh"


class Users(LimitsCase):
    def test_a_user_without_home_and_entry(self):
        """heturun works for a user without HOME and without an entry in the user database, as in containers. Open MPI would
        crash without HOME."""
        before = ["setpriv", "--reuid", STRANGER, "--regid", STRANGER, "--clear-groups"]
        if not permitted(*before):
            self.skipTest("this machine does not permit `setpriv --reuid`")
        self.env.pop("HOME", None)
        self.env["TMPDIR"] = str(self.folder)
        os.chmod(self.folder, 0o777)

        def run(*words):
            return subprocess.run([*before, *words], env=self.env, capture_output=True, text=True, timeout=MANY, cwd="/",
                                  stdin=subprocess.DEVNULL)
        starts = "import os; from hetu import _hetu; assert os.access('{}', os.X_OK)"  # Open MPI checks this
        python = next((path for path in (sys.executable, "/usr/bin/python3")
                       if run(path, "-c", starts.format(path)).returncode == 0), None)
        if python is None:
            self.skipTest(f"user {STRANGER} may not run {sys.executable} or import Hetu")
        done = run(python, HETURUN[1], "-w", "2", "sh", "-c", f"echo HOME=$HOME; exec {REHEARSE}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("HOME=/\n"), 2, done.stdout)
        self.assertIn("worker 1 (sum)", done.stdout)


class Folders(LimitsCase):
    def test_the_length_of_a_folder_is_counted_in_bytes(self):
        """The name of a socket has at most 108 bytes."""
        for name, is_short in (("x" * 30, True), ("é" * 15, True), ("é" * 30, False), ("日" * 13, False)):
            with mock.patch.object(tempfile, "gettempdir", lambda name=name: "/" + name):
                self.assertEqual(folders.short_place(), "/" + name if is_short else "/tmp")

    def test_a_temporary_folder_with_letters_that_are_not_ascii(self):
        with tempfile.TemporaryDirectory(prefix="ééééééééé") as place:
            self.env["TMPDIR"] = place
            self.works("")

    def test_a_temporary_folder_that_is_nearly_full(self):
        self.env["TMPDIR"] = str(self.folder)
        self.refused(self.mounts((self.folder, 64)), rf"the temporary folder {self.folder} has 6\d KiB left, and a job "
                     r"needs 16384 KiB there; free some, or set TMPDIR to another folder")

    def test_little_shared_memory(self):
        """With little shared memory, the workers share the temporary folder instead."""
        self.works(self.mounts(("/dev/shm", 64)))

    def test_little_of_both(self):
        self.env["TMPDIR"] = str(self.folder)
        self.refused(self.mounts(("/dev/shm", 64), (self.folder, 17 << 10)),
                     rf"/dev/shm has 6\d KiB left and the temporary folder {self.folder} has \d+ KiB; 2 workers need "
                     r"10240 KiB in the first \(docker run --shm-size\), or 26624 KiB in the other \(TMPDIR\)")


class Files(LimitsCase):
    def test_a_low_limit_is_raised(self):
        self.works("ulimit -S -n 32;")

    def test_a_limit_that_cannot_be_raised(self):
        needed = limits.FILES + 2 * limits.FILES_PER_WORKER
        self.refused("ulimit -n 32;", rf"a process may open only 32 files here \(ulimit -Hn\), and 2 workers on this host "
                                      rf"need {needed}; raise the limit")

    def test_the_least_that_is_allowed_is_enough(self):
        self.works(f"ulimit -n {limits.FILES + 2 * limits.FILES_PER_WORKER};")


if __name__ == "__main__":
    unittest.main(verbosity=2)
