"""The scripts that train BERT and ResNet, under heturun: on emulated GPUs, one for each worker, or on the GPUs of the
machine.

Losses equal the CPU's, for several methods, for partial reduce, and from checkpoints that the other device has written.
ResNet uses cuDNN. Where each worker has its own GPU, messages, gradient sums and means go directly between GPUs by NCCL,
with the bits of host memory.

training_test.py FOLDER [unittest's arguments]: the module is in FOLDER/hetu. GPU_TEST_CARDS is the number of real GPUs, on
which tests run more steps; without it the module's GPUs are emulated."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "python" / "small_jobs"))

from hetu import _hetu  # noqa: E402
from processes import process_of, processes_with, wait_until  # noqa: E402

PART = 1e-4  # of a loss
CARDS = int(os.environ.get("GPU_TEST_CARDS", "0"))  # 0: emulated GPUs, as many as needed
# After a hundred steps at 1e-3, the CPU's own two kernels of each operator differ by 4e-4 of the loss. At 1e-4 they agree in
# five digits.
RATE = "1e-4" if CARDS else "1e-3"
SMALL = ["--model", "tiny", "--batch-size", "4", "--sequence-length", "16", "--warmup-steps", "1", "--learning-rate", RATE]
BY_NCCL = "messages and gradient sums between GPUs go over NCCL"
# Runs train_resnet.py with two blocks of ResNet-50 as a model, and checks that cuDNN was used.
RESNET = """
import sys
sys.path.insert(0, "python")
import train_resnet
from hetu.models.resnet import CONFIGS, ResNetConfig
CONFIGS["small"] = ResNetConfig((1, 1, 0, 0), (1, 0, 1, 0), True)
failed = train_resnet.main(sys.argv[1:])
maps = open("/proc/self/maps").read()
print("cuDNN is", "emulated" if "emulated/cudnn/" in maps else "NVIDIA's" if "libcudnn" in maps else "not there")
sys.exit(failed)
"""
FOLDER = sys.argv.pop(1)


def steps_of(few):
    """Returns the number of steps for this kind of GPU."""
    return 100 if CARDS else few


class Training(unittest.TestCase):
    """heturun, the scripts, and workers on GPUs."""

    def setUp(self):
        held = tempfile.TemporaryDirectory(prefix="hetu-cards-")
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)
        self.env = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{FOLDER}:{os.environ.get('PYTHONPATH', '')}"}
        self.data = self.folder / "data"
        self.run_one([sys.executable, "-m", "hetu.sample", "--rows", "64", "--shards", "1", str(self.data)])

    def run_one(self, command):
        """Returns the output of a command, which must succeed."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        return done.stdout + done.stderr

    def bert(self, device, workers, steps, *options):
        """Returns the command that trains BERT, with two layers by default."""
        return ["heturun", "-w", str(workers), sys.executable, str(ROOT / "python" / "train_bert.py"), *SMALL,
                "--data", str(self.data), "--device", device, "--steps", str(steps), *options]

    def loss(self, device, workers, steps, *options, says=""):
        """Returns the loss of the last step of a BERT training, whose output must contain `says`."""
        return self.loss_of(self.bert(device, workers, steps, *options), device, workers, steps, says)

    def loss_of(self, command, device, workers, steps, says):
        """Returns the loss of the last step of any command."""
        told = self.run_one(command)
        self.assertEqual("device cuda: GPU" in told, device == "cuda", told[-2000:])
        self.assertEqual("emulated card" in told, device == "cuda" and not CARDS, told[-2000:])
        self.assertEqual(BY_NCCL in told, self.goes_by_nccl(command, device, workers), told[-2000:])
        self.assertIn(says, told)
        found = re.search(rf"step {steps}/{steps} .*loss ([0-9.]+)", told)
        self.assertIsNotNone(found, told[-2000:])
        return float(found[1])

    @staticmethod
    def goes_by_nccl(command, device, workers):
        """Returns true if each worker has its own GPU, and the options don't select host memory."""
        return device == "cuda" and "host" not in command and (CARDS == 0 or CARDS >= workers)

    def same(self, workers, steps, *options, says=""):
        """Checks that both devices give the same loss."""
        want = self.loss("cpu", workers, steps, *options, says=says)
        self.assertAlmostEqual(self.loss("cuda", workers, steps, *options, says=says), want, delta=PART * want)

    def test_four_stages(self):
        """1f1b and chimera on four stages give the CPU's loss, and the trace has each GPU's computations in order."""
        for method, way in (("1f1b", "host"), ("chimera", "auto")):
            with self.subTest(method):
                trace = self.folder / f"{method}.json"
                steps = steps_of(3)
                self.same(4, steps, "--pipeline", method, "--devices", "pipe_1_4", "--micro-batches", "4",
                          "--gpu-messages", way, "--trace", str(trace))
                measured = [e for e in json.loads(trace.read_text())["traceEvents"] if e["pid"] == 1]
                events = [e for e in measured if re.fullmatch(r"\d+[FB]\d+", e["name"])]
                self.assertEqual(len(events), steps * 4 * 4 * 2)
                for worker in range(4):
                    mine = sorted((e for e in events if e["tid"] == worker), key=lambda e: e["ts"])
                    self.assertEqual(len(mine), steps * 4 * 2)
                    for one, following in itertools.pairwise(mine):
                        self.assertGreater(one["dur"], 0)
                        self.assertLessEqual(one["ts"] + one["dur"], following["ts"] + 0.01)

    def test_a_v_of_stages(self):
        """Each worker has two stages, whose gradients come in halves."""
        if CARDS:  # sixteen layers, because four workers have eight stages
            workers, size = 4, "deep"
        else:
            workers, size = 2, "tiny"
        self.same(workers, steps_of(3), "--model", size, "--pipeline", "zb-v", "--devices", f"pipe_1_{workers}",
                  "--micro-batches", "4")

    def test_partial_reduce(self):
        """Both pipelines average at each update, so that the groups don't depend on timing."""
        steps = steps_of(4)
        self.same(4, steps, "--pipeline", "pipedream", "--devices", "pipe_2_2", "--micro-batches", "1", "--preduce",
                  "--sync-period", "1", says=f"groups by size 2: {steps}")

    def test_nccl_has_the_bits_of_host_memory(self):
        """Messages of two stages and gradient sums of two pipelines by NCCL have the bits of host memory."""
        if CARDS and CARDS < 4:
            self.skipTest(f"NCCL wants a card for each of four workers, and this machine has {CARDS}")
        told = []
        for way in ("host", "nccl"):
            log = self.folder / way
            self.loss("cuda", 4, 2, "--pipeline", "1f1b", "--devices", "pipe_2_2", "--micro-batches", "2",
                      "--gpu-messages", way, "--log", str(log))
            steps = [json.loads(line) for line in log.read_text().splitlines()]
            told.append([(step["loss"], step["gradient_norm"]) for step in steps])
        self.assertEqual(told[0], told[1])

    def test_checkpoints_of_either_device(self):
        """Two steps on one device and two on the other give the loss of four steps."""
        how = ("--pipeline", "1f1b", "--devices", "pipe_1_2", "--micro-batches", "2")
        want = self.loss("cpu", 2, 4, *how)
        for first, second in (("cpu", "cuda"), ("cuda", "cpu")):
            with self.subTest(first):
                kept = ("--checkpoint", str(self.folder / first))
                self.loss(first, 2, 2, *how, *kept)
                resumed = self.loss(second, 2, 4, *how, *kept, "--resume", says="Resumed from")
                self.assertAlmostEqual(resumed, want, delta=PART * want)

    def test_resnet_by_cudnn(self):
        """Blocks of ResNet-50 on two stages run as CUDA graphs."""
        if os.environ.get("GPU_TEST_CUDNN", "0") == "0":
            self.skipTest("a build without cuDNN's header, or no cuDNN here")
        if not _hetu.reads_images():
            self.skipTest("a build without libjpeg")
        # On a GPU, the whole model trains for two steps. After these, the CPU's own two kernels of each operator also
        # differ: in bfloat16 by 6e-2 of the second loss at a rate of 0.01, and by 1.3e-3 at 0.001.
        model, rows, rate, of_bf16 = ("resnet18", 32, "0.001", 1e-2) if CARDS else ("small", 4, "0.01", 2e-3)
        images = str(self.folder / "images")
        self.run_one([sys.executable, "-m", "hetu.sample", "--kind", "images", images, "--classes", "4",
                      "--train", str(rows), "--val", str(rows // 2), "--size", "32"])

        def loss(device, says, *options):
            command = ["heturun", "-w", "2", sys.executable, "-c", RESNET, "--dataset", "imagenet", "--data", images,
                       "--size", "32", "--model", model, "--batch-size", str(rows), "--micro-batches", "2", "--pipeline",
                       "1f1b", "--devices", "pipe_1_2", "--learning-rate", rate, "--seed", "5", "--threads", "1",
                       "--steps", "2"]
            return self.loss_of([*command, "--device", device, *options], device, 2, 2, says)

        for dtype, part in (("float32", PART), ("bf16", of_bf16)):
            with self.subTest(dtype):
                on_cpu = "bf16-emulated" if dtype == "bf16" and _hetu.lacks_for_bfloat16() else dtype
                want = loss("cpu", "cuDNN is not there", "--dtype", on_cpu)
                cudnn = "[1] cuDNN is " + ("NVIDIA's" if CARDS else "emulated")
                got = loss("cuda", cudnn, "--dtype", dtype, "--cuda-graphs", "on")
                self.assertAlmostEqual(got, want, delta=part * want)

    def test_a_killed_worker(self):
        """The other workers end and name the killed one. None waits for its GPU, which is in the middle of a computation."""
        mark = f"cards-{os.getpid()}"
        steps = self.folder / "killed.jsonl"
        command = self.bert("cuda", 2, 100000, "--pipeline", "1f1b", "--devices", "pipe_1_2", "--micro-batches", "2",
                            "--log", str(steps))
        env = {**self.env, "HETU_TEST_MARK": mark}
        job = subprocess.Popen(command, env=env, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(job.kill)
        wait_until(lambda: job.poll() is not None or (steps.exists() and steps.read_text().count("\n") >= 2), 300)
        killed = process_of(mark, "train_bert.py", 1)
        self.assertIsNotNone(killed, job.poll())
        since = time.monotonic()
        os.kill(killed, signal.SIGKILL)
        out, err = job.communicate(timeout=60)
        self.assertEqual(BY_NCCL in out + err, self.goes_by_nccl(command, "cuda", 2))
        self.assertLess(time.monotonic() - since, 10)
        self.assertEqual(job.returncode, 128 + signal.SIGKILL, err)
        self.assertRegex(err, rf"heturun: worker 1 \(\S+, pid {killed}\) was killed by SIGKILL; ending the other 1 worker\n")
        self.assertEqual(processes_with(mark), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
