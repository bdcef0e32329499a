"""Shared parts of tests with two hosts: the hosts, data, and SD-PIPE's two command lines from `python/`, reduced in size.

Without the right to make namespaces a test is skipped with the reason."""
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python" / "small_jobs"))
import two_hosts  # noqa: E402

from hetu import _hetu  # noqa: E402
from processes import wait_until  # noqa: E402
from train_cases import MANY_S, TOKENS, TrainCase, columns, write_shard  # noqa: E402

WHOLE = "--whole" in sys.argv
WORKERS = 2  # of each host; the README has 8
ROWS = 160
FOREVER = 1000000
END_S = 30.0  # a lost host is reported within 10 s; then 6 s remain to end by force, also there
# Columns inside a host, as in the README; and pipelines over both hosts.
LISTS = {
    "pipe_2_2": '[[rgpu("w0", 0), rgpu("w1", 0)], [rgpu("w0", 1), rgpu("w1", 1)]]',
    "pipe_across": '[[rgpu("w0", 0), rgpu("w0", 1)], [rgpu("w1", 0), rgpu("w1", 1)]]',
}


def line_of(script):
    """Returns the command line of SD-PIPE's README for a script, as in docs/coming-from.md."""
    blocks = re.findall(r"^```bash\n(.*?)^```", (ROOT / "docs" / "coming-from.md").read_text(), re.M | re.S)
    return next(block.replace("\\\n", " ") for block in blocks if script in block).strip()


AVERAGED = {script: line_of(script) for script in ("train_bert.py", "train_resnet.py")}  # with --preduce
README_BERT, README_RESNET = (line.removesuffix("--preduce") for line in AVERAGED.values())
BERT = README_BERT.replace("--pipeline pipedream", "--pipeline 1f1b")
slow = unittest.skipUnless(WHOLE, "takes long; --whole runs it")


def cut_to_fit(folder):
    """Returns the path of a copy of `python/` in the form of SD-PIPE's, with fewer workers and devices."""
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
    """A test class whose tests share two hosts. At the end of each test, no process may run on them."""

    called = None  # other names of the hosts, as TwoHosts takes them

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
        cls.hosts = two_hosts.TwoHosts(root / "hosts", cls.called).__enter__()
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
        """Returns the arguments of a README's command line, with the ssh key, and with `more` at the end."""
        words = shlex.split(line)
        return [words[0], "-i", str(self.hosts.key), *words[1:], *map(str, more)]

    def bert(self, *more):
        return ["--data", self.data, "--model", self.model, "--threads", "1", "--warmup-steps", "3", "--seed", "5", *more]

    def resnet(self, images, *more):
        """Returns options for `images` images of each of 4 classes. Their folders are passed in the environment."""
        if not _hetu.reads_images():
            self.skipTest("this build cannot read images")
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
