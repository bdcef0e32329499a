"""Jobs whose processes are started one by one with RANK and WORLD_SIZE: same results as heturun, exits, and mismatches.

`by_hand_test.py --whole` trains with every script, and on 4 workers."""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from hetu import _hetu
from processes import processes_with, wait_until
from train_cases import END_S, HETURUN, MANY_S, ROOT, TrainCase, checksums

WHOLE = "--whole" in sys.argv
SEED = int(os.environ.get("BY_HAND_TEST_SEED", time.time_ns() % 100000))
MET = [sys.executable, str(pathlib.Path(__file__).with_name("met_worker.py"))]
FOREVER = 1000000
NOBODY = 65534
LISTENS = "0A"
draw = random.Random(SEED)
slow = unittest.skipUnless(WHOLE, "takes long; --whole runs it")


class ByHand(TrainCase):
    """A test that starts each process separately, as a user does in several shells."""

    def setUp(self):
        super().setUp()
        self.env = {k: v for k, v in self.env.items() if not k.startswith(("SLURM_", "MASTER_"))}
        self.port = draw.randrange(20000, 60000)
        self.env["MASTER_PORT"] = str(self.port)
        self.where = f"127.0.0.1:{self.port}"

    def shell(self, words, rank, size, **more):
        """Starts one process. `more` holds additional variables; None removes a variable."""
        env = {**self.env, "RANK": str(rank), "WORLD_SIZE": str(size), **more}
        process = subprocess.Popen([str(w) for w in words], env={k: v for k, v in env.items() if v is not None}, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder)
        self.addCleanup(process.communicate)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def shells(self, words, size, **more):
        return [self.shell(words, rank, size, **more) for rank in range(size)]

    def ends(self, process, status, says=None, seconds=MANY_S):
        """Checks that the process ends with `status`, and returns its output. With `says`, standard error must have exactly
        one line of the process's own, which matches `says`."""
        out, err = process.communicate(timeout=seconds)
        self.assertEqual(process.returncode, status, f"{out}\n{err}")
        if says is not None:
            lines = [line for line in err.splitlines() if not line.startswith(("[", "hetu: computing", "step "))]
            self.assertEqual(len(lines), 1, err)
            self.assertRegex(lines[0], says)
        return out, err

    def end_all(self, processes):
        """Lets processes of `met_worker.py open` exit together."""
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        return [self.ends(process, 0) for process in processes]

    def train_by_hand(self, grid, *options):
        """Runs the job of TrainCase.train with separately started processes. Returns its checkpoint folder."""
        saved = self.folder / f"hand{self.jobs}"
        words, _ = self.command(grid, *options, "--checkpoint", saved)
        words = words[words.index(sys.executable, len(HETURUN)):]
        for process in self.shells(words, grid[0] * grid[1]):
            self.ends(process, 0)
        return saved

    def train_by_heturun(self, grid, *options):
        saved = self.folder / f"run{self.jobs}"
        self.train(grid, *options, "--checkpoint", saved)
        return saved


class Training(ByHand):
    def same_bits(self, grid, *options):
        self.assertEqual(checksums(self.train_by_hand(grid, "--steps", 4, *options)),
                         checksums(self.train_by_heturun(grid, "--steps", 4, *options)))

    def test_two_workers_train_to_the_bits_of_heturun(self):
        self.same_bits((1, 2))

    @slow
    def test_two_pipelines_and_four_workers(self):
        self.same_bits((2, 1))
        self.same_bits((2, 2), "--pipeline", "zb-h1")

    def test_a_worker_that_is_killed_is_named_by_the_others(self):
        words, log = self.command((1, 2), "--steps", FOREVER)
        first, second = self.shells(words[words.index(sys.executable, len(HETURUN)):], 2)
        self.assertTrue(wait_until(lambda: log.exists() and log.read_text().count("\n") > 3, MANY_S))
        since = time.monotonic()
        second.kill()
        self.ends(first, 5, r"worker 1 \(host \S+\) has ended without leaving the job$", END_S)
        self.assertLess(time.monotonic() - since, END_S)

    def test_a_signal_to_one_worker_saves_and_ends_all(self):
        saved = self.folder / "saved"
        words, log = self.command((1, 2), "--steps", FOREVER, "--checkpoint", saved)
        both = self.shells(words[words.index(sys.executable, len(HETURUN)):], 2)
        self.assertTrue(wait_until(lambda: log.exists() and log.read_text().count("\n") > 3, MANY_S))
        both[draw.randrange(2)].send_signal(signal.SIGUSR1)
        for process in both:
            self.ends(process, 0)
        self.assertTrue(list(saved.glob("step-*/manifest.json")))

    def test_what_needs_heturun_is_refused(self):
        words, _ = self.command((2, 1), "--pipeline", "pipedream", "--micro-batches", 1, "--preduce", "--steps", 2)
        both = self.shells(words[words.index(sys.executable, len(HETURUN)):], 2)
        said = [process.communicate(timeout=MANY_S)[1] for process in both]
        self.assertEqual([process.returncode for process in both], [2, 2], said)
        self.assertIn("but is not set; start the command under heturun", said[0])

    @slow
    def test_every_script(self):
        """Each training script gives the same losses as under heturun."""
        sample = self.folder / "sample"
        small = {"vocab_size": 256, "n_positions": 32, "n_embd": 32, "n_layer": 3, "n_head": 2, "n_inner": None,
                 "model_type": "gpt2"}
        sizes, text = self.folder / "gpt.json", self.folder / "text.txt"
        sizes.write_text(json.dumps(small))
        text.write_text("the quick brown fox jumps over the lazy dog; " * 200)
        scripts = {
            "train_gpt.py": (None, ["--data", text, "--model", sizes, "--steps", 3, "--batch-size", 4]),
            "train_ctr.py": ("criteo", ["--data", sample, "--steps", 3, "--batch-size", 16]),
            "train_resnet.py": ("cifar100", ["--data", sample, "--dataset", "cifar100", "--model", "resnet18", "--steps", 2,
                                             "--batch-size", 4]),
        }
        for script, (kind, options) in scripts.items():
            with self.subTest(script=script):
                shutil.rmtree(sample, ignore_errors=True)
                if kind:
                    subprocess.run(["hetu", "data", "sample", sample, "--kind", kind], env=self.env, check=True,
                                   capture_output=True)
                saved = {}
                for how in ("hand", "run"):
                    saved[how] = self.folder / f"{script}.{how}"
                    words = [sys.executable, ROOT / "python" / script, *options, "--devices", "pipe_2_1",
                             "--pipeline", "dp", "--threads", 1, "--seed", 3, "--checkpoint", saved[how]]
                    if how == "hand":
                        for process in self.shells(words, 2):
                            self.ends(process, 0)
                    else:
                        subprocess.run([str(w) for w in [*HETURUN, "-w", 2, *words]], env=self.env, check=True,
                                       capture_output=True, cwd=self.folder)
                self.assertEqual(checksums(saved["hand"]), checksums(saved["run"]))


class Meeting(ByHand):
    """Processes that find each other, and processes that fail to."""

    def test_they_learn_who_takes_part_and_open_no_port(self):
        three = self.shells([*MET, "open"], 3)
        for process in three:
            self.assertEqual(process.stdout.readline(), f"met [('{socket.gethostname()}', 3)] 3\n")
            self.assertRegex(process.stdout.readline(), r"linked \d 3\n")
        self.assertEqual(self.ports(), set())
        self.end_all(three)

    def ports(self):
        """Returns {(table, address, port)} of the internet sockets of this test's processes."""
        inodes = {entry.readlink() for pid in processes_with(self.mark) for entry in
                  pathlib.Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
        found = set()
        for table in ("tcp", "tcp6", "udp", "udp6"):
            path = pathlib.Path("/proc/net", table)
            for line in path.read_text().splitlines()[1:] if path.exists() else ():
                words = line.split()
                if pathlib.Path(f"socket:[{words[9]}]") in inodes:
                    found.add((table, words[1]))
        return found

    def test_a_missing_rank_is_named_by_all(self):
        here = [self.shell(MET, rank, 4, HETU_TIMEOUT="2") for rank in (0, 2)]
        for process in here:
            self.ends(process, 6, rf"ranks 1 and 3 of 4 did not connect to {self.where} within 2 s")

    def test_no_rank_0(self):
        self.ends(self.shell(MET, 1, 2, HETU_TIMEOUT="1"), 6,
                  rf"rank 1 of 2 found no rank 0 at {self.where} within 1 s .*start one process with RANK=0")

    def test_what_does_not_fit_is_turned_away_and_the_job_goes_on(self):
        first = self.shell(MET, 0, 3)
        second = self.shell([*MET, "open"], 1, 3)
        self.ends(self.shell(MET, 1, 2), 2, r"was started with WORLD_SIZE=2, rank 0 \(process \d+\) with WORLD_SIZE=3")
        time.sleep(0.5)  # rank 1 has joined by now, if it had not before
        self.ends(self.shell(MET, 1, 3), 2, rf"rank 1 .* is a duplicate: rank 1 \(host \S+, process {second.pid}\) came "
                                            "before it, started as `.*met_worker.py open`")
        self.ends(self.shell(MET, 0, 3), 2, rf"RANK=0 cannot listen at {self.where}: process {first.pid} is already "
                                            "rank 0 there; .*another MASTER_PORT")
        self.ends(self.other_build(), 2, r"runs another version or build of Hetu \(\w{12}\) than rank 0")
        second.kill()
        again = [self.shell(MET, rank, 3) for rank in (1, 2)]
        _, said = self.ends(first, 0)
        for process in again:
            self.ends(process, 0)
        who = f"rank 1 (host {socket.gethostname()}, process {second.pid})"
        self.assertIn(f"{who} has ended before all ranks had connected", said)
        self.assertIn("met_worker.py open`, rank 0 as `", said)

    def other_build(self):
        """Starts a process with a different compiled module: the same code, in a longer file."""
        place = self.folder / "other" / "hetu"
        shutil.copytree(ROOT / "python" / "hetu", place, ignore=shutil.ignore_patterns("__pycache__"))
        module = pathlib.Path(_hetu.__file__)
        shutil.copy(module, place)
        with open(place / module.name, "ab") as file:
            file.write(b"!")
        return self.shell(MET, 2, 3, PYTHONPATH=str(place.parent))

    def test_a_job_that_is_complete_takes_nobody(self):
        job = self.shells([*MET, "open"], 2)
        for process in job:
            process.stdout.readline(), process.stdout.readline()
        for rank, says in ((1, rf"came too late or to the wrong job: the job at {self.where} already has its 2 ranks"),
                           (0, rf"process {job[0].pid} is already rank 0 there")):
            self.ends(self.shell(MET, rank, 2), 2, says)
        self.end_all(job)

    def test_two_jobs_do_not_meet(self):
        jobs = [self.shells([*MET, "open"], 2, MASTER_PORT=str(self.port + n)) for n in range(2)]
        for job in jobs:
            self.assertEqual([out.splitlines()[1] for out, _ in self.end_all(job)], ["linked 0 2", "linked 1 2"])

    def test_an_address_of_ipv6(self):
        """An IPv6 MASTER_ADDR works with the brackets that URLs have, and without them."""
        for n, address in enumerate(("::1", "[::1]")):
            job = self.shells([*MET, "open"], 2, MASTER_PORT=str(self.port + n), MASTER_ADDR=address)
            self.assertEqual([out.splitlines()[1] for out, _ in self.end_all(job)], ["linked 0 2", "linked 1 2"])

    def test_what_stands_in_the_environment(self):
        for more, says in (({"MASTER_ADDR": "203.0.113.7"}, "ADDR: got '203.0.113.7', which is not an address of this host"),
                           ({"MASTER_ADDR": "nowhere.invalid"}, "ADDR: got 'nowhere.invalid', which is not a known host"),
                           ({"WORLD_SIZE": None}, "variable RANK is set and WORLD_SIZE is not"),
                           ({"RANK": None}, "variable WORLD_SIZE is set and RANK is not"),
                           ({"RANK": "2"}, "RANK: got '2'; it must be below WORLD_SIZE = 2"),
                           ({"MASTER_PORT": "0"}, "MASTER_PORT: got '0'; it must be a whole number from 1 to 65535")):
            with self.subTest(more=more):
                process = self.shell(MET, 0, 2, HETU_TIMEOUT="5", **more)
                self.assertRegex(self.ends(process, 2)[1].splitlines()[-1], says)
        mpi = self.shells([*MET, "open"], 2, HETU_TRANSPORT="mpi")
        for process in mpi:
            self.ends(process, 2, "HETU_TRANSPORT: got 'mpi', which needs heturun")
        batch_script = {"WORLD_SIZE": None, "RANK": None, "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
        for more in ({"WORLD_SIZE": "1", "RANK": "0"}, batch_script):
            self.assertEqual(self.ends(self.shell([*MET, "alone"], 0, 1, **more), 0)[0], "alone\n")

    def test_a_taken_port(self):
        """On an address that other hosts can reach, the port is a TCP port."""
        with socket.socket() as other:
            other.bind(("0.0.0.0", 0))
            other.listen()
            with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
                probe.connect(("203.0.113.7", 9))
                own = probe.getsockname()[0]
            port = str(other.getsockname()[1])
            self.ends(self.shell(MET, 0, 2, MASTER_ADDR=own, MASTER_PORT=port), 2,
                      rf"cannot listen at port {port} of {own} \(MASTER_PORT\): Address already in use; choose another port")

    def test_ctrl_c_ends_the_wait(self):
        for rank in (0, 1):
            process = self.shell(MET, rank, 2)
            time.sleep(2.0)
            since = time.monotonic()
            process.send_signal(signal.SIGINT)
            self.ends(process, 130, "ended by SIGINT", END_S)
            self.assertLess(time.monotonic() - since, 5)

    def test_whoever_else_answers_there(self):
        """A process of another user, or one that isn't Hetu's, holds the meeting point."""
        name = f"\0hetu-meet-{os.getuid()}-{self.port}"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(name)
            other.listen()
            waits = self.shell(MET, 1, 2)
            other.settimeout(MANY_S)
            with other.accept()[0] as talk:
                talk.sendall(draw.randbytes(100000))
                self.ends(waits, 5, "is not a rendezvous of Hetu: another program answers there")
        if os.getuid() != 0:
            self.skipTest("not root: nobody else can hold it")
        code = (f"import socket, os, sys; s = socket.socket(socket.AF_UNIX); os.setgid({NOBODY}); os.setuid({NOBODY}); "
                f"s.bind({name!r}); s.listen(); print(1, flush=True); sys.stdin.read()")
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
        self.ends(self.shell(MET, 1, 2), 5,
                  rf"belongs to user {NOBODY} \(process {child.pid}\), but this process belongs to user 0")
        child.communicate()

    def test_strangers_are_turned_away(self):
        """The job continues when random bytes or another user's process arrive at the meeting point."""
        first = self.shell(MET, 0, 2)
        name = f"\0hetu-meet-{os.getuid()}-{self.port}"

        def knock(data):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as one:
                one.connect(name)
                one.sendall(data)
                return True
            return False
        self.assertTrue(wait_until(lambda: knock(b"")))
        for _ in range(200):
            knock(draw.randbytes(draw.choice((1, 4, 100, 9000))))
        if os.getuid() == 0:
            subprocess.run([sys.executable, "-c", f"import os, socket; os.setgid({NOBODY}); os.setuid({NOBODY}); "
                            f"s = socket.socket(socket.AF_UNIX); s.connect({name!r}); s.recv(1)"], capture_output=True)
        second = self.shell(MET, 1, 2)
        self.ends(second, 0)
        _, said = self.ends(first, 0)
        self.assertIn("it is not a process of Hetu", said)
        if os.getuid() == 0:
            self.assertIn(f"it belongs to user {NOBODY}", said)


if __name__ == "__main__":
    print(f"random seed {SEED}; BY_HAND_TEST_SEED sets it", file=sys.stderr)
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
