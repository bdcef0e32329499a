"""Jobs on two hosts: checks of the other hosts before anything starts there. Each failed check gives one line."""
import contextlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

import two_hosts
from hosts_case import END_S, ROOT, HostsCase

from hetu.launch import mpirun
from processes import processes_with, wait_until
from train_cases import MANY_S


class Asked(HostsCase):
    """Checks of the other hosts before anything starts there."""

    def cluster(self, *hosts):
        path = self.folder / "cluster.yml"
        path.write_text("nodes:\n" + "".join(f"  - {{host: {host}, workers: 1, chief: {str(i == 0).lower()}}}\n"
                                             for i, host in enumerate(hosts)))
        return ["-c", path]

    def launch(self, *words, key=True, cwd=None):
        key = ["-i", self.hosts.key] if key is True else ["-i", key] if key else []
        return self.hosts.run("w0", "heturun", *key, *words, cwd=cwd or self.place, env=self.env, timeout=MANY_S)

    def refused(self, says, *words, seconds=END_S, **more):
        since = time.monotonic()
        done = self.launch(*words, "echo", "started", **more)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("heturun: interface ")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertRegex(lines[0], "^heturun: " + says)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertNotIn("started", done.stdout)
        self.assertLess(time.monotonic() - since, seconds)

    @contextlib.contextmanager
    def hidden(self, place, by):
        """Replaces a file or folder by `by`, on w1 only."""
        self.check(self.hosts.run("w1", "mount", "--bind", by, place))
        try:
            yield
        finally:
            self.check(self.hosts.run("w1", "umount", place))

    def test_unreachable(self):
        self.refused(r"host 10\.77\.0\.9: ssh does not reach it: ssh: connect to host 10\.77\.0\.9 port 22: ",
                     *self.cluster("w0", "10.77.0.9"))
        self.refused(r"host nowhere: ssh does not reach it: ssh: Could not resolve hostname nowhere",
                     *self.cluster("w0", "nowhere"))
        self.refused("host nowhere: .*; host neither: ", *self.cluster("w0", "nowhere", "w1", "neither"))

    def test_a_link_that_is_down(self):
        self.hosts.link("w1", "down")
        self.addCleanup(self.hosts.link, "w1", "up")
        self.refused("host w1: ssh does not reach it: ", *self.cluster("w0", "w1"))

    def test_keys(self):
        two = self.cluster("w0", "w1")
        self.refused(f"host w1: it refuses the ssh key {self.hosts.wrong_key}: .*Permission denied", *two,
                     key=self.hosts.wrong_key)
        self.refused(r"host w1: it refuses every ssh key \(-i gives one\): .*Permission denied", *two, key=None)

    def test_another_hetu(self):
        with self.hidden(ROOT / "python" / "hetu" / "lr.py", self.data / "vocab.txt"):
            self.refused("host w1: it has another version of Hetu .*; install the same on all hosts$",
                         *self.cluster("w0", "w1"))

    def test_another_build_is_told(self):
        """Another build of the same version gives a warning: hosts with other processors have other builds."""
        module = importlib.util.find_spec("hetu._hetu").origin
        other = self.folder / "other.so"
        other.write_bytes(pathlib.Path(module).read_bytes() + b"\0")
        with self.hidden(module, other):
            done = self.launch(*self.cluster("w0", "w1"), "echo", "started")
        self.assertRegex(done.stderr, r"warning: host w1 has another build of Hetu \(\w+, here \w+\): the last bits")
        self.assertEqual((done.returncode, done.stdout.count("started")), (0, 2), done.stderr)

    def test_no_hetu(self):
        (self.folder / "empty").mkdir()
        with self.hidden(ROOT / "python" / "hetu", self.folder / "empty"):
            self.refused(f"host w1: it has no Hetu in {ROOT}/python/hetu; install the same version at the same path$",
                         *self.cluster("w0", "w1"))

    def test_no_open_mpi(self):
        with self.hidden(mpirun.Mpirun().daemon(), self.data / "vocab.txt"):
            self.refused(r"host w1: it has no \S+/(orted|prted); install Open MPI there as it is here$",
                         *self.cluster("w0", "w1"))

    def test_no_folder(self):
        only_there = "/dev/shm/of-w0"
        self.check(self.hosts.run("w0", "mkdir", "-p", only_there))
        self.refused(f"host w1: it has no folder {only_there}, where the job would run; ", *self.cluster("w0", "w1"),
                     cwd=only_there)

    def test_one_machine_under_two_names(self):
        self.refused(r"hosts w1 and other are one machine \(both call themselves w1\); write one node with the sum "
                     "of their workers$",
                     *self.cluster("w0", "w1", "other"))

    def test_an_alias_of_the_ssh_configuration(self):
        done = self.check(self.launch(*self.cluster("w0", "other"), "sh", "-c", "echo $(hostname) $HETU_HOSTS"))
        self.assertIn("[1@w1] w1 w0:1,other:1\n", done.stdout)
        self.assertIn("other by ssh alone", done.stderr)

    def test_interface(self):
        done = self.check(self.launch(*self.cluster("w0", "w1"), "--interface", two_hosts.DEVICE, "hostname"))
        self.assertIn("heturun: interface hetu0, address 10.77.0.1\n", done.stderr)
        self.assertIn("[1@w1] w1\n", done.stdout)

    def test_workers_are_numbered_in_the_order_of_the_file(self):
        for hosts in (("w0", "w1"), ("w1", "w0")):
            path = self.folder / "cluster.yml"
            path.write_text("nodes:\n" + "".join(f"  - {{host: {host}, workers: 2, chief: {str(host == 'w0').lower()}}}\n"
                                                 for host in hosts))
            done = self.check(self.launch("-c", path, "hostname"))
            numbered = [f"[{2 * i + j}@{host}] {host}" for i, host in enumerate(hosts) for j in range(2)]
            self.assertEqual(sorted(line for line in done.stdout.splitlines() if line.startswith("[")), numbered)

    def test_a_slurm_allocation(self):
        self.env.update(SLURM_JOB_ID="7", SLURM_JOBID="7", SLURM_JOB_NODELIST="w[0-1]", SLURM_NODELIST="w[0-1]",
                        SLURM_JOB_NUM_NODES="2", SLURM_NNODES="2", SLURM_TASKS_PER_NODE="1,2")
        done = self.check(self.launch("sh", "-c", "echo $(hostname) $HETU_HOSTS"))
        self.assertEqual(sorted(line for line in done.stdout.splitlines() if line.startswith("[")),
                         ["[0@w0] w0 w0:1,w1:2", "[1@w1] w1 w0:1,w1:2", "[2@w1] w1 w0:1,w1:2"])


class Killed(unittest.TestCase):
    """The test's own process is killed, and nothing of the hosts remains."""

    def test_nothing_is_left(self):
        if reason := two_hosts.problem():
            self.skipTest(reason)
        mark = "HOSTS_TEST_MARK=" + uuid.uuid4().hex
        name, value = mark.split("=")
        seconds = f"1000.{uuid.uuid4().int % 10**9}"  # identified by its own argument, because ssh passes no environment on

        def asleep():
            return subprocess.run(["pgrep", "-f", f"^sleep {seconds}"], capture_output=True, text=True).stdout.split()

        with tempfile.TemporaryDirectory(prefix="hetu-hosts-") as folder:
            process = subprocess.Popen([sys.executable, two_hosts.__file__, "sh", "-c", f"ssh -i $KEY w1 sleep {seconds}"],
                                       env={**os.environ, name: value, "TMPDIR": folder}, start_new_session=True,
                                       stderr=subprocess.DEVNULL)
            self.assertTrue(wait_until(asleep, 30))
            process.kill()
            process.wait()
            self.assertTrue(wait_until(lambda: not asleep() and not processes_with(mark), 5))
        links = subprocess.run(["ip", "link"], capture_output=True, text=True).stdout
        self.assertNotIn(two_hosts.DEVICE, links)


if __name__ == "__main__":
    unittest.main(verbosity=2)
