"""Jobs on two hosts over ssh and TCP: SD-PIPE's two command lines from `python/`, a link that goes down, ends, refusals.

`hosts_test.py --whole` adds what takes minutes. Without the right to make namespaces it is skipped with the reason.
"""
import contextlib
import importlib.util
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
import two_hosts  # noqa: E402

from hetu import _hetu  # noqa: E402
from hetu.launch import command_line  # noqa: E402
from processes import processes_with, wait_until  # noqa: E402
from train_cases import MANY_S, TOKENS, TrainCase, checksums, columns, manifest_of, write_shard  # noqa: E402

WHOLE = "--whole" in sys.argv
WORKERS = 2  # of each host; the README has 8
ROWS = 160
FOREVER = 1000000
END_S = 30.0  # a lost host is known after 8 s; then there are 6 s to end by force
# Columns inside a host, as in the README; and pipelines over both hosts.
LISTS = {
    "pipe_2_2": '[[rgpu("w0", 0), rgpu("w1", 0)], [rgpu("w0", 1), rgpu("w1", 1)]]',
    "pipe_across": '[[rgpu("w0", 0), rgpu("w0", 1)], [rgpu("w1", 0), rgpu("w1", 1)]]',
}


def line_of(script):
    """The command line of SD-PIPE's README for a script, as docs/coming-from.md has it."""
    blocks = (ROOT / "docs" / "coming-from.md").read_text().split("```")[1::2]
    return next(block.replace("\\\n", " ") for block in blocks if script in block).strip()


AVERAGED = {script: line_of(script) for script in ("train_bert.py", "train_resnet.py")}  # with --preduce
README_BERT, README_RESNET = (line.removesuffix("--preduce") for line in AVERAGED.values())
BERT = README_BERT.replace("--pipeline pipedream", "--pipeline 1f1b")
slow = unittest.skipUnless(WHOLE, "takes long; --whole runs it")


def cut_to_fit(folder):
    """A copy of `python/` as SD-PIPE's user has it, with fewer workers and devices; returns its path."""
    place = folder / "python"
    (place / "config").mkdir(parents=True)
    for name in ("train_bert.py", "train_resnet.py"):
        shutil.copy(ROOT / "python" / name, place)
    text = (ROOT / "config" / "w0_w1.yml").read_text()
    (place / "config" / "w0_w1.yml").write_text(text.replace("workers: 8", f"workers: {WORKERS}"))
    text = (ROOT / "python" / "device_list.py").read_text()
    for name, rows in LISTS.items():
        text += f"{name} = {rows}\n"
    (place / "device_list.py").write_text(text + "my_device = pipe_2_2\n")
    return place


class HostsCase(TrainCase):
    """Gives all tests the same two hosts; at the end of each nothing may run on them."""

    @classmethod
    def setUpClass(cls):
        if reason := two_hosts.problem():
            raise unittest.SkipTest(reason)
        super().setUpClass()
        root = pathlib.Path(cls.shared.name)
        cls.place = cut_to_fit(root)
        cls.data = root / "wiki"
        cls.data.mkdir()
        for number in range(2):
            write_shard(cls.data / f"small_training_{number}.hdf5", columns(ROWS, TOKENS, (7, number)))
        (cls.data / "vocab.txt").write_text((root / "data" / "vocab.txt").read_text())
        cls.hosts = two_hosts.TwoHosts(root / "hosts").__enter__()
        cls.addClassCleanup(cls.hosts.close)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.check_hosts)
        self.env["HOME"] = os.path.expanduser("~")
        for name in ("heturun", "python3"):
            self.assertTrue(shutil.which(name, path=self.env["PATH"]), f"{name} is not in PATH")

    def left(self):
        return {**self.hosts.left("w0"), **self.hosts.left("w1")}

    def check_hosts(self):
        gone = wait_until(lambda: not self.left(), END_S)
        left = self.left()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertTrue(gone, f"processes left: {left}")

    def words(self, line, *more):
        """A command line of the README with the key, and `more` at its end."""
        words = shlex.split(line)
        return [words[0], "-i", str(self.hosts.key), *words[1:], *map(str, more)]

    def bert(self, *more):
        return ["--data", self.data, "--model", self.model, "--threads", "1", "--warmup-steps", "3", "--seed", "5", *more]

    def resnet(self, images, *more):
        """Options for so many images of each of 4 classes; where they are goes into the environment."""
        if not _hetu.reads_images():
            self.skipTest("this build reads no images")
        folder = self.folder / "images"
        subprocess.run(["hetu", "data", "sample", folder, "--kind", "images", "--classes", "4", "--train", str(images),
                        "--val", str(images), "--size", "40"], env=self.env, check=True, capture_output=True)
        self.env.update(IMAGENET_TRAIN_ROOT=str(folder / "train"), IMAGENET_VAL_ROOT=str(folder / "val"))
        return ["--size", 32, "--threads", 1, "--seed", 5, *more]

    def on_w0(self, words, **more):
        """Runs a command on w0, from `python/`."""
        return self.hosts.run("w0", *words, cwd=self.place, env=self.env, timeout=MANY_S, **more)

    def alone(self, line, *more):
        """Runs the same training on this host, in 2 pipelines x 2 stages."""
        words = [str(ROOT / "python" / word) if word.startswith("train_") else word for word in shlex.split(line)]
        at = words.index("-c")
        words[at:at + 2] = ["-w", str(2 * WORKERS)]
        return subprocess.run([*words, *map(str, more), "--devices", "pipe_2_2"], cwd=self.folder, env=self.env,
                              capture_output=True, text=True, timeout=MANY_S, stdin=subprocess.DEVNULL)

    def check(self, done):
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        return done


class Readme(HostsCase):
    """The command lines as they stand in SD-PIPE's README."""

    def same_weights(self, line, options, devices="pipe_2_2"):
        """Trains on both hosts and on one; returns what the first left."""
        one, two = self.folder / "one", self.folder / "two"
        done = self.check(self.on_w0(self.words(line, *options, "--checkpoint", two, "--devices", devices)))
        self.assertIn(f"  Workers({2 * WORKERS}): {{'w0': {WORKERS}, 'w1': {WORKERS}}},\n", done.stderr)
        self.assertIn("heturun: interface hetu0, network 10.77.0.0/30; w0 10.77.0.1, w1 10.77.0.2; "
                      "--interface overrides\n", done.stderr)
        self.check(self.alone(line, *options, "--checkpoint", one))
        self.assertEqual(checksums(two), checksums(one))
        return done

    def test_bert(self):
        done = self.same_weights(README_BERT, self.bert("--steps", 8))
        self.assertIn("pipedream, pipe_2_2: 2 pipelines x 2 stages", done.stdout)

    def averages(self, script, *options):
        """Trains on both hosts by the line as it stands; both stages of both pipelines meet."""
        line, log = AVERAGED[script], self.folder / "groups.jsonl"
        self.assertEqual(shlex.split(line)[-3:], ["--pipeline", "pipedream", "--preduce"])
        self.check(self.on_w0(self.words(line, *options, "--group-log", log, "--devices", "pipe_2_2")))
        groups = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual({group["stage"] for group in groups}, {0, 1})
        self.assertEqual({member for group in groups for member in group["members"]}, {0, 1})
        self.assertTrue(any(len(group["members"]) == 2 for group in groups))

    def test_bert_that_averages_weights(self):
        """The coordinator stands on w0; w1 reaches it, and no key stands on any command line."""
        model = self.folder / "untied.json"
        model.write_text(json.dumps({**json.loads(self.model.read_text()), "tie_word_embeddings": False}))
        self.averages("train_bert.py", *self.bert("--model", model, "--steps", 8))

    def test_resnet_that_averages_weights(self):
        self.averages("train_resnet.py", *self.resnet(16, "--model", "resnet18", "--batch-size", 8, "--steps", 3))

    def test_resnet(self):
        """Cut down to resnet18 and 32 pixels; the folders come from SD-PIPE's names, through the environment."""
        done = self.same_weights(README_RESNET, self.resnet(16, "--model", "resnet18", "--batch-size", 8, "--steps", 3))
        self.assertIn("pipedream, pipe_2_2: 2 pipelines x 2 stages", done.stdout)
        self.assertRegex(done.stdout, r"\[w0\] 0 EVAL  loss \d+\.\d{4} acc [01]\.\d{4}")

    @slow
    def test_resnet50(self):
        self.same_weights(README_RESNET, self.resnet(64, "--steps", 2))

    @slow
    def test_bert_in_pipelines_over_both_hosts(self):
        done = self.same_weights(BERT, self.bert("--steps", 6), "pipe_across")
        self.assertIn("pipe_across: 2 pipelines x 2 stages", done.stdout)

    @slow
    def test_the_default_list_is_the_one_exported_as_my_device(self):
        done = self.check(self.on_w0(self.words(BERT, *self.bert("--steps", 1))))
        self.assertIn("my_device: 2 pipelines x 2 stages", done.stdout)

    @slow
    def test_a_checkpoint_folder_that_the_hosts_do_not_share(self):
        for host in ("w0", "w1"):
            self.check(self.hosts.run(host, "mkdir", "-p", "/dev/shm/own"))
        done = self.on_w0(self.words(BERT, *self.bert("--steps", 3, "--checkpoint", "/dev/shm/own/saved")))
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("train_bert.py: /dev/shm/own/saved: worker 2 on w1 does not see what worker 0 on w0 writes there; "
                      "give a folder that all hosts share\n", done.stderr)
        self.assertNotIn("TRAIN", done.stdout)
        for host in ("w0", "w1"):
            self.assertEqual(self.hosts.run(host, "ls", "-A", "/dev/shm/own").stdout, "")

    @slow
    def test_from_a_host_that_has_no_worker(self):
        path = self.folder / "cluster.yml"
        path.write_text("nodes:\n  - {host: w1, workers: 2, chief: true}\n")
        done = self.check(self.hosts.run("w0", "heturun", "-i", self.hosts.key, "-c", path, "sh", "-c", "hostname",
                                         cwd=self.place, env=self.env))
        self.assertEqual(done.stdout.count("] w1\n"), 2, done.stdout)


class Ends(HostsCase):
    """How jobs on two hosts end before their time."""

    def start(self, *more, line=BERT):
        """Starts a training over both hosts; returns (process, its log) when some steps are done."""
        log = self.folder / "log.jsonl"
        words = self.words(line, *self.bert("--devices", "pipe_across", "--log", log, *more))
        process = subprocess.Popen(self.hosts.inside("w0", *words, cwd=self.place), env=self.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        enough = wait_until(lambda: process.poll() is not None or len(self.losses(log)) > 7)
        self.assertTrue(enough and process.poll() is None, process.communicate() if process.poll() is not None else "")
        return process, log

    @staticmethod
    def losses(log):
        """{step: loss} of the whole lines of a log."""
        lines = log.read_text().rpartition("\n")[0].splitlines() if log.exists() else []
        return {record["step"]: record["loss"] for record in map(json.loads, lines)}

    def check_resumed(self, log, saved, *more, line=BERT):
        """Resumes on both hosts for 3 steps: all losses must be those of a run on one host that nothing disturbed. `more`
        goes to both, as how often is saved: pipedream drains there."""
        steps = manifest_of(saved)[1]["step"] + 3
        options = self.bert("--devices", "pipe_across", "--checkpoint", saved, "--resume", "--log", log, "--steps", steps)
        self.check(self.on_w0(self.words(line, *options, *more)))
        whole, folder = self.folder / "whole.jsonl", self.folder / "whole"
        options = self.bert("--log", whole, "--steps", max(self.losses(log)) + 1, "--checkpoint", folder)
        self.check(self.alone(line, *options, *more))
        self.assertEqual(self.losses(log), self.losses(whole))

    def link_goes_down(self, line):
        saved, often = self.folder / "saved", ("--save-every", 4)
        process, log = self.start("--steps", FOREVER, "--checkpoint", saved, *often, line=line)
        since = time.monotonic()
        self.hosts.link("w1", "down")
        self.addCleanup(self.hosts.link, "w1", "up")
        _, err = process.communicate(timeout=MANY_S)
        self.assertGreater(process.returncode, 0)
        self.assertRegex(err, r"heturun: worker \d \(w1, pid \d+\): is gone without a word: its guard was killed or its "
                              r"host is lost; ending the other 2 workers\n")
        self.assertTrue(wait_until(lambda: not self.left(), END_S - (time.monotonic() - since)), self.left())
        self.hosts.link("w1", "up")
        self.check_resumed(log, saved, *often, line=line)

    def test_a_link_that_goes_down(self):
        self.link_goes_down(BERT)

    @slow
    def test_a_link_that_goes_down_under_pipedream(self):
        self.link_goes_down(README_BERT)

    @slow
    def test_sigusr1_saves_and_exits_0_on_both_hosts(self):
        self.saves(signal.SIGUSR1, "")

    @slow
    def test_the_first_control_c_saves_on_both_hosts(self):
        self.saves(signal.SIGINT, "; once more ends them at once")

    def saves(self, number, more):
        saved = self.folder / "saved"
        process, log = self.start("--steps", FOREVER, "--checkpoint", saved)
        os.kill(self.hosts.inner(process), number)
        out, err = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn(f"SIGUSR1 handed to {2 * WORKERS} workers: checkpoint and exit{more}\n", err)
        self.assertRegex(out, r"Stopped as asked after \d+ steps; saved in ")
        self.assertEqual(manifest_of(saved)[1]["step"], len(self.losses(log)))
        self.check_resumed(log, saved)

    @slow
    def test_a_killed_worker_on_the_other_host(self):
        process, _ = self.start("--steps", FOREVER)
        since = time.monotonic()
        worker = next(pid for pid, words in self.hosts.left("w1").items() if words.startswith("python3 train_bert.py"))
        os.kill(worker, signal.SIGKILL)
        _, err = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, err)
        self.assertRegex(err, r"heturun: worker \d \(w1, pid \d+\) was killed by SIGKILL; ending the other 3 workers\n")
        self.assertTrue(wait_until(lambda: not self.left(), END_S - (time.monotonic() - since)), self.left())

    def start_of_three(self, saved, steps):
        """Starts three averaging pipelines of two stages: one on w0, one across both hosts, one on w1."""
        cluster, model = self.folder / "cluster.yml", self.folder / "untied.json"
        cluster.write_text("nodes:\n  - {host: w0, workers: 3, chief: true}\n  - {host: w1, workers: 3, chief: false}\n")
        model.write_text(json.dumps({**json.loads(self.model.read_text()), "tie_word_embeddings": False}))
        line = AVERAGED["train_bert.py"].replace("config/w0_w1.yml", str(cluster))
        line = line.replace("heturun ", "heturun --on-failure shrink ", 1)
        return self.start("--devices", "pipe_3_2", "--model", model, "--steps", steps, "--checkpoint", saved, line=line)

    def check_shrunk(self, process, saved, steps, lost):
        _, err = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual([one["pipeline"] for one in manifest_of(saved)[1]["run"]["lost"]], lost)
        self.assertEqual(manifest_of(saved)[1]["step"], steps)

    def test_shrinks_by_the_pipeline_across_both_hosts(self):
        """Every host has daemons of two mpiruns, and the lost pipeline workers on both."""
        saved, steps = self.folder / "saved", 200
        process, _ = self.start_of_three(saved, steps)
        victim = next(pid for pid, words in self.hosts.left("w1").items() if words.startswith("python3 train_bert.py")
                      and "HETU_FIRST_WORKER=2" in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0"))
        os.kill(victim, signal.SIGKILL)
        self.check_shrunk(process, saved, steps, [1])

    @slow
    def test_shrinks_by_all_that_a_lost_host_had(self):
        saved, steps = self.folder / "saved", 2000
        process, _ = self.start_of_three(saved, steps)
        self.hosts.link("w1", "down")
        self.addCleanup(self.hosts.link, "w1", "up")
        self.check_shrunk(process, saved, steps, [1, 2])

    @slow
    def test_a_killed_heturun_leaves_nothing_on_either_host(self):
        process, _ = self.start("--steps", FOREVER)
        os.kill(self.hosts.inner(process), signal.SIGKILL)
        process.communicate(timeout=MANY_S)
        self.assertTrue(wait_until(lambda: not self.left(), END_S), self.left())


@slow
class Asked(HostsCase):
    """What is asked of the other hosts before anything starts there."""

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
        """Makes w1 alone see `by` in the place of a file or folder."""
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
        """Hosts with other processors have other builds of one version."""
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
            self.refused(f"host w1: it has no Hetu in {ROOT}/python/hetu; install the same at the same place$",
                         *self.cluster("w0", "w1"))

    def test_no_open_mpi(self):
        with self.hidden(command_line.Mpirun().daemon(), self.data / "vocab.txt"):
            self.refused(r"host w1: it has no \S+/(orted|prted); install Open MPI there as it is here$",
                         *self.cluster("w0", "w1"))

    def test_no_folder(self):
        only_there = "/dev/shm/of-w0"
        self.check(self.hosts.run("w0", "mkdir", "-p", only_there))
        self.refused(f"host w1: it has no folder {only_there}, where the job would run; ", *self.cluster("w0", "w1"),
                     cwd=only_there)

    def test_one_machine_under_two_names(self):
        self.refused(r"hosts w1 and other are one machine \(both call themselves w1\); write one node with their sums$",
                     *self.cluster("w0", "w1", "other"))

    def test_an_alias_of_the_ssh_configuration(self):
        done = self.check(self.launch(*self.cluster("w0", "other"), "sh", "-c", "echo $(hostname) $HETU_HOSTS"))
        self.assertIn("[w1] w1 w0:1,other:1\n", done.stdout)
        self.assertIn("other by ssh alone", done.stderr)

    def test_interface(self):
        done = self.check(self.launch(*self.cluster("w0", "w1"), "--interface", two_hosts.DEVICE, "hostname"))
        self.assertIn("heturun: interface hetu0, address 10.77.0.1\n", done.stderr)
        self.assertIn("[w1] w1\n", done.stdout)

    def test_workers_are_numbered_in_the_order_of_the_file(self):
        for hosts in (("w0", "w1"), ("w1", "w0")):
            path = self.folder / "cluster.yml"
            path.write_text("nodes:\n" + "".join(f"  - {{host: {host}, workers: 2, chief: {str(host == 'w0').lower()}}}\n"
                                                 for host in hosts))
            done = self.check(self.launch("-c", path, "hostname"))
            numbered = [f"[w{2 * i + j}] {host}" for i, host in enumerate(hosts) for j in range(2)]
            self.assertEqual(sorted(line for line in done.stdout.splitlines() if line.startswith("[w")), numbered)

    def test_a_slurm_allocation(self):
        self.env.update(SLURM_JOB_ID="7", SLURM_JOBID="7", SLURM_JOB_NODELIST="w[0-1]", SLURM_NODELIST="w[0-1]",
                        SLURM_JOB_NUM_NODES="2", SLURM_NNODES="2", SLURM_TASKS_PER_NODE="1,2")
        done = self.check(self.launch("sh", "-c", "echo $(hostname) $HETU_HOSTS"))
        self.assertEqual(sorted(line for line in done.stdout.splitlines() if line.startswith("[w")),
                         ["[w0] w0 w0:1,w1:2", "[w1] w1 w0:1,w1:2", "[w2] w1 w0:1,w1:2"])


@slow
class Killed(unittest.TestCase):
    """The test's own process is killed: nothing of the hosts may stay."""

    def test_nothing_is_left(self):
        if reason := two_hosts.problem():
            self.skipTest(reason)
        mark = "HOSTS_TEST_MARK=" + uuid.uuid4().hex
        name, value = mark.split("=")
        seconds = f"1000.{uuid.uuid4().int % 10**9}"  # known by its own argument: ssh hands on no environment

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
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
