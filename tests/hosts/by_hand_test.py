"""Jobs of 2 x 2 workers on two hosts whose processes are started one by one, without heturun. Results equal those of one
host. Covers ranks in another order than hosts, ends, secrets and strangers."""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import unittest

from hosts_case import FOREVER, HostsCase

from processes import wait_until
from train_cases import END_S, MANY_S, ROOT, checksums

SEED = int(os.environ.get("BY_HAND_TEST_SEED", time.time_ns() % 100000))
SECRET = "a secret that nobody guesses"
PORT = 29517
BLOCKED = (2, 3)  # ranks of w1, where ranks are ordered by host
draw = random.Random(SEED)


class ByHand(HostsCase):
    def setUp(self):
        super().setUp()
        self.env = {k: v for k, v in self.env.items() if not k.startswith("SLURM_")}

    def shells(self, words, of_w1=BLOCKED, **more):
        """Returns the processes of all ranks. Ranks in `of_w1` run on w1, the others on w0."""
        started = []
        for rank in range(4):
            env = {**self.env, "RANK": str(rank), "WORLD_SIZE": "4", "MASTER_ADDR": "w0", "MASTER_PORT": str(PORT),
                   "HETU_JOB_SECRET": SECRET, **more}
            host = "w1" if rank in of_w1 else "w0"
            process = subprocess.Popen(self.hosts.inside(host, *words, cwd=self.place), env=env, text=True,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(process.communicate)
            self.addCleanup(lambda p=process: p.poll() is None and p.kill())
            started.append(process)
        return started

    def bert_words(self, *more):
        return [sys.executable, "train_bert.py", *map(str, self.bert("--pipeline", "1f1b", *more))]

    def ends(self, processes, statuses):
        said = [process.communicate(timeout=MANY_S) for process in processes]
        self.assertEqual([process.returncode for process in processes], statuses, said)
        return [err for _, err in said]

    def test_ranks_by_host_and_across_train_to_the_bits_of_one_host(self):
        """Both orders of ranks give the bits of one host. MASTER_ADDR is a name that w0 itself resolves to a loopback
        address."""
        alone = self.folder / "alone"
        self.check(self.alone("heturun -c config/w0_w1.yml python3 train_bert.py --pipeline 1f1b",
                              *self.bert("--steps", 4, "--checkpoint", alone)))
        for name, of_w1 in (("pipe_across", BLOCKED), ("pipe_2_2", (1, 3))):
            saved = self.folder / name
            four = self.shells(self.bert_words("--steps", 4, "--checkpoint", saved, "--devices", name), of_w1)
            said = self.ends(four, [0, 0, 0, 0])
            self.assertEqual(checksums(saved), checksums(alone), said)

    def test_a_worker_that_is_killed_is_named_on_both_hosts(self):
        log = self.folder / "log.jsonl"
        four = self.shells(self.bert_words("--steps", FOREVER, "--devices", "pipe_across", "--log", log))
        self.assertTrue(wait_until(lambda: log.exists() and log.read_text().count("\n") > 3, MANY_S))
        since = time.monotonic()
        os.kill(self.hosts.inner(four[3]), signal.SIGKILL)
        said = self.ends(four[:3], [5, 5, 5])
        self.assertLess(time.monotonic() - since, END_S)
        for words in said:
            self.assertRegex(words, r"worker 3 \(host w1\) has ended without leaving the job")

    def test_a_host_that_is_lost_is_named(self):
        log = self.folder / "log.jsonl"
        four = self.shells(self.bert_words("--steps", FOREVER, "--devices", "pipe_across", "--log", log))
        self.assertTrue(wait_until(lambda: log.exists() and log.read_text().count("\n") > 3, MANY_S))
        self.hosts.link("w1", "down")
        try:
            said = self.ends(four, [5, 5, 5, 5])
        finally:
            self.hosts.link("w1", "up")
        for words in said:
            self.assertRegex(words, r"worker \d \(host w[01]\) has shown no sign of life")

    def met(self, host, rank, size, **more):
        env = {**self.env, "RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "w0", "MASTER_PORT": str(PORT),
               "HETU_JOB_SECRET": SECRET, "HETU_TIMEOUT": "60", **more}
        words = [sys.executable, str(ROOT / "tests" / "python" / "process" / "met_worker.py"), "open"]
        return subprocess.Popen(self.hosts.inside(host, *words, cwd=self.place), env=env, text=True, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_other_secrets_and_strangers_are_turned_away(self):
        first = self.met("w0", 0, 2)
        wrong = self.met("w1", 1, 2, HETU_JOB_SECRET="quite another secret of theirs")
        [said] = self.ends([wrong], [2])
        self.assertRegex(said, r"rank 1 \(host w1, process \d+\) has another secret than rank 0 \(host w0\); all ranks need "
                               "the same HETU_JOB_SECRET")
        knock = ("import random, socket, sys; draw = random.Random(int(sys.argv[3]))\n"
                 "for _ in range(40):\n"
                 " try:\n"
                 "  with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as s: s.sendall(draw.randbytes(300))\n"
                 " except ConnectionError: pass\n")

        def strangers(port, address="w0"):
            self.check(self.hosts.run("w1", sys.executable, "-c", knock, address, port, SEED))
        strangers(PORT)
        second = self.met("w1", 1, 2)
        for process in (first, second):
            self.assertEqual(process.stdout.readline(), "met [('w0', 1), ('w1', 1)] 1\n")
            process.stdout.readline()
        strangers(PORT)
        for port in self.open_ports("w0"):
            strangers(port)
        for process in (first, second):
            process.stdin.write("\n")
            process.stdin.flush()
        words = self.ends([first, second], [0, 0])
        self.assertIn("10.77.0.2 was refused: it is not a process of Hetu", words[0])

    def test_a_flood_of_strangers_keeps_no_rank_out(self):
        """Strangers on both hosts open and drop hundreds of connections, before, while and after ranks connect."""
        flood = ("import collections, socket, sys\n"
                 "held = collections.deque(maxlen=500)\n"
                 "print('floods', flush=True)\n"
                 "while True:\n"
                 " try: held.append(socket.create_connection((sys.argv[1], int(sys.argv[2])), 2))\n"
                 " except OSError: pass\n")
        first = self.met("w0", 0, 4)
        early = self.met("w1", 1, 4)
        for host in ("w1", "w1", "w0"):
            stranger = subprocess.Popen(self.hosts.inside(host, sys.executable, "-c", flood, "10.77.0.1", PORT), text=True,
                                        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
            self.addCleanup(stranger.communicate)
            self.assertEqual(stranger.stdout.readline(), "floods\n")
            self.addCleanup(os.kill, self.hosts.inner(stranger), signal.SIGKILL)
        time.sleep(1)
        ranks = [first, early, self.met("w1", 2, 4), self.met("w0", 3, 4)]
        for process in ranks:
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
        for process in ranks:
            self.assertEqual(process.stdout.readline(), "met [('w0', 1), ('w1', 2), ('w0', 1)] 2\n")
            line = process.stdout.readline()
            self.assertRegex(line, r"linked \d 4\n", "" if line else (process.wait(), process.stderr.read()))
        for process in ranks:
            process.stdin.write("\n")
            process.stdin.flush()
        self.ends(ranks, [0, 0, 0, 0])

    def open_ports(self, host):
        """Returns the TCP ports at which processes of a job listen on a host."""
        table = self.hosts.run(host, "cat", "/proc/net/tcp").stdout
        inodes = set()
        for pid in self.hosts.left(host):
            for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry))
                inodes.add(found[1] if found else "")
        rows = [line.split() for line in table.splitlines()[1:]]
        return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes}

    def test_rank_0_on_the_wrong_host(self):
        process = self.met("w1", 0, 2)
        [said] = self.ends([process], [2])
        self.assertIn("MASTER_ADDR: got 'w0', which is not an address of this host (w1)", said)


if __name__ == "__main__":
    print(f"random seed {SEED}; BY_HAND_TEST_SEED sets it", file=sys.stderr)
    unittest.main(verbosity=2)
