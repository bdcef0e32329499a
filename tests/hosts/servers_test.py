"""Parameter servers on the hosts that the cluster file names: training over them, kills, ends, strangers, and unsupported
combinations.

`servers_test.py --whole` adds tests that take long. Moments of kills come from a seed that is printed."""
import contextlib
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

from hosts_case import END_S, FOREVER, HostsCase, slow

from hetu.launch import guard
from hetu.launch.mpirun import Mpirun
from processes import wait_until
from train_cases import END_S as SOON_S
from train_cases import MANY_S, MODEL, checksums, manifest_of, tensors

SEED = int(os.environ.get("HOSTS_TEST_SEED", time.time_ns() % 100000))
SUM = pathlib.Path(__file__).with_name("sum_worker.py")
PS = ("--pipeline", "1f1b", "--sync-method", "ps", "--optimizer", "adamw", "--learning-rate", "3e-3")
HETPIPE = ("--pipeline", "hetpipe", "--wave", 4, "--optimizer", "momentum", "--learning-rate", "3e-3")
OWN = "/dev/shm"  # one of the hosts' folders that they don't share

# Sends noise, as a process does that knows only the port. ZeroMQ greets every connection with the same 64 bytes.
NOISE = """
import random, socket, sys
draw = random.Random(int(sys.argv[3]))
for _ in range(50):
    got = b""
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as sock:
        sock.settimeout(0.02)
        try:
            sock.sendall(draw.randbytes(draw.randrange(1, 4096)))
            while piece := sock.recv(4096):
                got += piece
        except OSError:
            pass
    assert len(got) <= 64, got
"""


class ServersCase(HostsCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model.write_text(json.dumps({**MODEL, "tie_word_embeddings": False, "hidden_dropout_prob": 0,
                                         "attention_probs_dropout_prob": 0}))

    def cluster(self, *nodes):
        """Returns flags for a cluster of (host, workers, servers). The first host is chief."""
        self.jobs += 1
        path = self.folder / f"cluster{self.jobs}.yml"
        path.write_text("nodes:\n" + "".join(
            f"  - {{host: {host}, workers: {workers}, servers: {servers}, chief: {str(i == 0).lower()}}}\n"
            for i, (host, workers, servers) in enumerate(nodes)))
        return ["-c", path]

    def words_of(self, nodes, *words, flags=()):
        return ["heturun", "-i", self.hosts.key, *flags, *self.cluster(*nodes), *words]

    def launch(self, words):
        """Starts heturun on w0 in a separate process group, as a terminal does."""
        process = subprocess.Popen(self.hosts.inside("w0", "setsid", *words, cwd=self.place), env=self.env, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def start_training(self, nodes, *options):
        """Starts a training of two pipelines of one stage. Returns (process, folder of the checkpoint) once the servers run
        where they should."""
        saved = self.folder / f"saved{self.jobs}"
        process = self.launch(self.words_of(nodes, "python3", "train_bert.py", *self.bert(
            "--devices", "pipe_2_1", "--batch-size", 8, "--micro-batches", 4, "--checkpoint", saved, *options)))
        for host, _, servers in nodes:
            if servers:
                self.server(host)
        return process, saved

    def train(self, nodes, *options):
        """Runs a training and returns the folder of the checkpoint."""
        process, saved = self.start_training(nodes, *options)
        out, error = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, out + error)
        return saved

    def start(self, nodes, *flags, steps=FOREVER):
        """Starts workers that add. Returns the process once all workers run, and the job's name."""
        process = self.launch(self.words_of(nodes, "python3", SUM, steps, flags=flags))
        for _ in range(sum(workers for _, workers, _ in nodes)):
            line = process.stdout.readline()
            up = re.search(r"\] up (\w+)\n", line)
            self.assertTrue(up, line or process.stderr.read())
        return process, up[1]

    def process_of(self, host, word):
        """Returns the id of a process on a host whose command has this word, or None if there is none."""
        return next((pid for pid, words in self.hosts.left(host).items()
                     if f" {word} " in f" {words} " and not words.startswith("ssh ")), None)

    def server(self, host, unlike=None):
        """Returns the id of the process of a server on a host, once there is one."""
        self.assertTrue(wait_until(lambda: self.process_of(host, "hetu.launch.server") not in (None, unlike), 60), host)
        return self.process_of(host, "hetu.launch.server")

    def keeper(self, host):
        """Returns the id of the process that keeps the servers of a host."""
        return next(pid for pid, words in self.hosts.left(host).items()
                    if re.match(r"\S*python\S* -I -S \S*/launch/keeper\.py", words))

    def own_files(self, host):
        """Returns the folders of jobs in a host's own folder, which hosts don't share."""
        listed = self.hosts.run(host, "ls", OWN).stdout.split()
        return [name for name in listed if name.startswith("hetu-")]

    def ends(self, process, code, line, since, seconds=SOON_S):
        """Checks that the job ends in time, with this status and one such line of heturun."""
        _, error = process.communicate(timeout=MANY_S)
        self.assertLess(time.monotonic() - since, seconds, error)
        self.assertEqual(process.returncode, code, error)
        self.assertEqual(len(re.findall(f"^heturun: {line}$", error, re.M)), 1, f"{line} in: {error}")


class Training(ServersCase):
    def rounds_are_the_same(self, *others):
        """Checks that checksums equal those of two servers on the host of the workers."""
        options = (*PS, "--steps", 4)
        want = checksums(self.train([("w0", 2, 2)], *options))
        for nodes in others:
            self.assertEqual(checksums(self.train(nodes, *options)), want)

    def test_rounds_with_servers_on_a_host_without_workers(self):
        self.rounds_are_the_same([("w0", 2, 0), ("w1", 0, 2)])

    @slow
    def test_rounds_with_servers_on_other_hosts(self):
        self.rounds_are_the_same([("w0", 1, 1), ("w1", 1, 1)], [("w0", 1, 0), ("w1", 1, 3)], [("w1", 2, 1)])

    @slow
    def test_waves_do_not_depend_on_where_the_servers_are(self):
        """Weights are equal except for the order in which servers add, which is the order of arrival."""
        import numpy as np

        saved = [self.train(nodes, *HETPIPE, "--steps", 6) for nodes in (
            [("w0", 2, 1)], [("w0", 2, 0), ("w1", 0, 1)], [("w0", 1, 0), ("w1", 1, 2)])]
        want = tensors(saved[0])
        for folder in saved[1:]:
            self.assertEqual(manifest_of(folder)[1]["step"], 6)
            for key, values in tensors(folder).items():
                self.assertLess(np.abs(values - want[key]).max(), 1e-5, key)


class Kills(ServersCase):
    """Kills of processes on a host without workers, or on both hosts."""

    APART = (("w0", 2, 0), ("w1", 0, 1))
    BOTH = (("w0", 1, 1), ("w1", 1, 1))

    def test_a_killed_server_goes_on_there(self):
        """A killed server restarts on its host, and every push counts once. Its log is on its own host, and is removed when
        the job has ended."""
        steps, draw = 3000, random.Random(SEED)
        process, job = self.start(self.APART, "--server-log", OWN, steps=steps)
        dead = None
        for _ in range(2):
            time.sleep(draw.random() * 0.1)
            dead = self.server("w1", unlike=dead)
            self.assertRegex(" ".join(self.own_files("w1")), rf"^hetu-{job}-\w+$")
            os.kill(dead, signal.SIGKILL)
        out, error = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, error)
        again = re.findall(r"^heturun: the server 0 \(w1, pid \d+\) was killed by SIGKILL; it is started again from its "
                           r"log, (\d) of at most 100 times$", error, re.M)
        self.assertEqual(again, ["1", "2"], error)
        self.assertEqual(out.count(f"holds {3 * steps} to {3 * steps}\n"), 2, out)
        self.assertEqual(self.own_files("w1"), [])

    @slow
    def test_a_killed_server_without_restart(self):
        process, _ = self.start(self.BOTH, "--no-server-restart")
        since = time.monotonic()
        os.kill(self.server("w1"), signal.SIGKILL)
        self.ends(process, 128 + signal.SIGKILL,
                  r"the server 1 \(w1, pid \d+\) was killed by SIGKILL; ending the other 2 workers", since)

    @slow
    def test_a_killed_keeper(self):
        process, job = self.start(self.APART, "--server-log", OWN)
        since = time.monotonic()
        os.kill(self.keeper("w1"), signal.SIGKILL)
        self.ends(process, 128 + signal.SIGKILL,
                  r"server 0 \(w1\) is gone without a report: its keeper was killed or its host is lost; ending the other 2 "
                  r"workers", since)
        self.assertTrue(wait_until(lambda: not self.left(), END_S), self.left())
        left, = self.own_files("w1")  # as after any kill of all of a job's processes on a host
        self.assertIn(job, left)
        done = self.on_w0(self.words_of(self.APART, "true", flags=("--server-log", OWN)))
        self.assertIn(f"heturun: host w1: removed {OWN}/{left}: left by a job that was killed, and not in use "
                      "by any process\n",
                      self.check(done).stderr)
        self.assertEqual(self.own_files("w1"), [])

    @slow
    def test_a_stopped_keeper(self):
        process, _ = self.start(self.APART)
        since = time.monotonic()
        os.kill(self.keeper("w1"), signal.SIGSTOP)
        self.ends(process, 128 + signal.SIGKILL,
                  rf"server 0 \(w1\) is silent for {guard.DEAD_S:g} s: .*, or its keeper is stopped; ending the other 2 "
                  "workers", since, guard.DEAD_S + SOON_S)
        for pid in self.left():  # a stopped keeper can't end with its job
            os.kill(pid, signal.SIGCONT)

    @slow
    def test_a_stopped_server(self):
        """A stopped server is killed by its keeper, and restarts like any killed server."""
        process, _ = self.start(self.APART, steps=3000)
        os.kill(self.server("w1"), signal.SIGSTOP)
        _, error = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, error)
        self.assertRegex(error, r"the server 0 \(pid \d+\) is stopped by a signal such as SIGSTOP; it is killed\n")
        self.assertRegex(error, r"the server 0 \(w1, pid \d+\) was killed by SIGKILL; it is started again from its log")

    @slow
    def test_a_lost_host_of_servers_alone(self):
        """A silent host of servers is treated as lost, like any host."""
        process, _ = self.start(self.APART)
        since = time.monotonic()
        self.hosts.link("w1", "down")
        self.addCleanup(self.hosts.link, "w1", "up")
        self.ends(process, 128 + signal.SIGKILL,
                  rf"server 0 \(w1\) is silent for {guard.DEAD_S:g} s: its host or the network is lost, or its keeper is "
                  "stopped; ending the other 2 workers", since, guard.DEAD_S + SOON_S)
        self.assertTrue(wait_until(lambda: not self.left(), END_S), self.left())  # also there, while the link is down

    @slow
    def test_a_signal_to_all_of_a_terminal(self):
        """SIGTERM ends everything on all hosts. Ctrl-C lets workers save, and servers stay for that."""
        process, _ = self.start(self.BOTH)
        since = time.monotonic()
        os.killpg(self.hosts.inner(process), signal.SIGTERM)
        self.ends(process, 128 + signal.SIGTERM, "SIGTERM: ending 2 workers", since)
        process, saved = self.start_training(self.APART, *PS, "--steps", FOREVER)
        os.killpg(self.hosts.inner(process), signal.SIGINT)
        self.ends(process, 0, "SIGINT: SIGUSR1 sent to 2 workers: checkpoint and exit; a second SIGINT ends them at once",
                  time.monotonic(), MANY_S)
        self.assertGreater(manifest_of(saved)[1]["step"], 0)

    @slow
    def test_a_killed_heturun_leaves_nothing(self):
        """No process remains on either host, and no folder in their own or in their shared folders."""
        process, job = self.start(self.BOTH, "--server-log", OWN)
        self.assertEqual([len(self.own_files(host)) for host in ("w0", "w1")], [1, 1])
        os.kill(self.hosts.inner(process), signal.SIGKILL)
        process.communicate(timeout=MANY_S)
        self.assertTrue(wait_until(lambda: not self.left(), END_S), self.left())
        self.assertEqual([self.own_files(host) for host in ("w0", "w1")], [[], []])
        self.assertEqual(list(pathlib.Path("/tmp").glob(f"hetu-{job}-*")), [])


class Reached(ServersCase):
    """Processes that can connect to servers of other hosts, and processes that can't."""

    NODES = (("w0", 1, 1), ("w1", 1, 1))

    @staticmethod
    def variable(pid, name):
        for entry in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0"):
            if entry.startswith(name + "="):
                return entry[len(name) + 1:]
        return ""

    @staticmethod
    def listening(pid):
        """Returns the addresses on which a process accepts TCP connections, in hexadecimal."""
        inodes = set()
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the socket has been closed
                inodes.add(os.readlink(entry))
        rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}

    def stop(self, process):
        os.kill(self.hosts.inner(process), signal.SIGTERM)
        _, error = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, error)

    @slow
    def test_status(self):
        """The status is available on every host that has workers, and on heturun's own."""
        for nodes in (self.NODES, (("w1", 2, 1),)):
            process, job = self.start(nodes)
            for host in ("w0", "w1"):
                done = self.hosts.run(host, "hetu", "ps", "status", "--job", job, env=self.env)
                self.assertEqual(done.returncode, 0, done.stderr)
                places = re.findall(r"tcp://10\.77\.0\.(\d)", done.stdout)
                self.assertEqual(places, [str(1 + (name == "w1")) for name, _, servers in nodes for _ in range(servers)])
            self.stop(process)

    @slow
    def test_a_stranger_gets_nothing(self):
        """Secret keys are on no command line, and only in the environment of workers. A process without them gets no access,
        and noise stops no server."""
        process, _ = self.start(self.NODES)
        worker = next(pid for pid, words in self.hosts.left("w1").items() if re.match(rf"python3 {SUM} ", words))
        endpoint, keys = self.variable(worker, "HETU_SERVERS").split(";")[1].rsplit("@", 1)
        public, workers, secret = keys[:64], keys[64:128], keys[128:]
        self.assertRegex(endpoint, r"^tcp://10\.77\.0\.2:\d+$")
        server = self.server("w1")
        for host in ("w0", "w1"):
            for pid, words in self.hosts.left(host).items():
                self.assertNotIn(secret, words)
                if "keeper.py" in words or "hetu.launch.server" in words or "sshd" in words:
                    self.assertNotIn(secret, pathlib.Path(f"/proc/{pid}/environ").read_text(), words)
        wrong = f"{endpoint}@{public}{workers}{secret[::-1]}"
        done = self.hosts.run("w0", "hetu", "ps", "status", wrong, "--timeout", "2", env=self.env)
        self.assertEqual((done.returncode, "sums" in done.stdout), (5, False), done)
        right = self.hosts.run("w0", "hetu", "ps", "status", f"{endpoint}@{keys}", env=self.env)
        self.assertIn("sums", self.check(right).stdout)
        host, port = endpoint[len("tcp://"):].split(":")
        self.check(self.hosts.run("w0", sys.executable, "-c", NOISE, host, port, str(SEED)))
        self.assertEqual(self.server("w1"), server)
        self.assertIsNone(process.poll())
        for name, address in (("w0", "01004D0A"), ("w1", "02004D0A")):  # Hetu's own ports are on the job's network only
            ours = [pid for pid, words in self.hosts.left(name).items()
                    if re.search(r"/heturun |/keeper\.py|hetu\.launch\.server", words) and "nsenter" not in words]
            self.assertEqual({place for pid in ours for place in self.listening(pid)}, {address}, ours)
        self.stop(process)

    @slow
    def test_a_host_of_servers_needs_no_open_mpi(self):
        daemon = Mpirun().daemon()
        self.check(self.hosts.run("w1", "mount", "--bind", self.data / "vocab.txt", daemon))
        self.addCleanup(self.hosts.run, "w1", "umount", daemon)
        done = self.check(self.on_w0(self.words_of((("w0", 2, 0), ("w1", 0, 1)), "python3", SUM, 30)))
        self.assertEqual(done.stdout.count("holds 90 to 90\n"), 2, done.stdout)

    @slow
    def test_a_slurm_allocation(self):
        """The servers of -s are distributed over the allocation's hosts."""
        self.env.update(SLURM_JOB_ID="7", SLURM_JOBID="7", SLURM_JOB_NODELIST="w[0-1]", SLURM_NODELIST="w[0-1]",
                        SLURM_JOB_NUM_NODES="2", SLURM_NNODES="2", SLURM_TASKS_PER_NODE="1,1")
        done = self.check(self.on_w0(["heturun", "-i", self.hosts.key, "-s", 3, "python3", SUM, 30]))
        self.assertIn("  Servers(3): {'w0': 2, 'w1': 1},\n", done.stderr)
        self.assertEqual(done.stdout.count("holds 90 to 90\n"), 2, done.stdout)


class Refused(ServersCase):
    """Jobs that are refused in one line before any worker starts."""

    def refused(self, says, *nodes, flags=()):
        since = time.monotonic()
        done = self.on_w0(self.words_of(nodes, "echo", "started", flags=flags))
        lines = [line for line in done.stderr.splitlines() if re.match("heturun: (?!interface )", line)]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertRegex(lines[0], f"^heturun: {says}")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertNotIn("started", done.stdout)
        self.assertLess(time.monotonic() - since, END_S)

    @slow
    def test_a_host_that_cannot_be_reached(self):
        self.refused("host nowhere: ssh does not reach it: ssh: Could not resolve hostname nowhere",
                     ("w0", 2, 0), ("nowhere", 0, 1))

    @slow
    def test_a_host_without_a_folder_for_logs(self):
        self.check(self.hosts.run("w0", "mkdir", "-p", f"{OWN}/logs"))
        self.refused(f"host w1: --server-log {OWN}/logs: it must be an existing, writable folder on this host, "
                     "too$", ("w0", 2, 0), ("w1", 0, 1), flags=("--server-log", f"{OWN}/logs"))

    @slow
    def test_a_host_without_a_free_port(self):
        ports = "/proc/sys/net/ipv4/ip_local_port_range"
        before = self.hosts.run("w1", "cat", ports).stdout.strip()
        if self.hosts.run("w1", "sh", "-c", f"echo 45000 45001 > {ports}").returncode:
            self.skipTest("the range of ports cannot be changed here")
        self.addCleanup(self.hosts.run, "w1", "sh", "-c", f"echo {before} > {ports}")
        self.refused(r"host w1: no TCP port is left for the server \d on 10\.77\.0\.2; free some, or widen " + ports + "$",
                     ("w0", 2, 0), ("w1", 0, 3))

    @slow
    def test_servers_that_nobody_asks_for(self):
        """heturun reports servers of -s that no worker uses. Servers of a cluster file serve all jobs on it, so they aren't
        reported."""
        done = self.on_w0(["heturun", "-w", 1, "-s", 2, "true"])
        self.assertIn("heturun: no worker needed the 2 parameter servers; only hetpipe on several pipelines, "
                      "--sync-method ps and tables on servers do\n", self.check(done).stderr)
        done = self.on_w0(self.words_of((("w0", 1, 0), ("w1", 0, 1)), "true"))
        self.assertNotIn("no worker needed", self.check(done).stderr)


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
