"""run_on_gpu with stand-ins for a GPU and for the files of pack: ends of parts, exclusive timing, and output files."""
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "run_on_gpu"
SMI = "#!/bin/sh\necho 'A GPU, 580.1, 51200 MiB, 9.0'\n"
SANITIZER = "#!/bin/sh\nshift 4\nexec \"$@\"\n"
PASSES = "#!/bin/sh\necho \"$@\"\necho '[-----] 40 tests from GpuRows'\necho '[  PASSED  ] 40 tests.'\n"
BENCH = "#!/bin/sh\necho '{\"op\": \"linear\", \"us\": 17.5}'\n"
# A workload that is ready after a moment, and is timed while it holds the lock. It prints the times of both.
STEPS = """
WORKLOADS = {"gpu-one": 1, "gpu-a": 2, "gpu-b": 3, "gpu-resnet50-128x224-bf16": 4, "gpu-bert-32x128-tf32": 5}
import fcntl, json, sys, time
with open(sys.argv[sys.argv.index("--lock") + 1], "a") as lock:
    time.sleep(0.3)
    ready = time.monotonic()
    print("speed_steps: ready", flush=True)
    fcntl.flock(lock, fcntl.LOCK_EX)
    begin = time.monotonic()
    time.sleep(0.3)
    print(json.dumps({"title": sys.argv[1], "torch": "2", "flops": 4e12, "when": [ready, begin, time.monotonic()],
                      "sides": {"hetu": [0.25, 0.5, 0.125], "torch eager, x": [1.0], "torch compiled, x": [0.5]}}))
"""


class RunOnGpu(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory(prefix="hetu-run-on-gpu-")
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)
        self.out = self.folder / "out"
        (self.folder / "run_on_gpu").write_bytes(SCRIPT.read_bytes())
        (self.folder / "version").write_text("abc1234\ncpython-311\nlibcublasLt.so.99\n")
        (self.folder / "cuda" / "lib64").mkdir(parents=True)
        for name in ("libcublasLt.so.99", "libcudnn.so.9"):
            (self.folder / "cuda" / "lib64" / name).touch()
        self.packed = {"bin/gpu_test": PASSES, "bin/gpu_bench": BENCH, "tests/bench/speed_steps.py": STEPS,
                       "tests/cuda/training_test.py": "", "tests/bench/images.py": "print('fast')",
                       "tests/cuda/torch_table.py": "print('| gpt | equal |')",
                       "python/hetu/__init__.py": "", "python/hetu/_hetu.py": "", "python/numpy.py": "",
                       "python/h5py.py": ""}
        self.tools = {"nvidia-smi": SMI, "compute-sanitizer": SANITIZER}
        self.lacks = ""  # a file of pack or a program of the machine to remove

    def run_it(self, *words):
        """Returns (exit status, standard error, record of the run)."""
        tree, tools = self.folder / "tree", self.folder / "tools"
        for root, files in ((tree, self.packed), (tools, self.tools)):
            root.mkdir()
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
                (root / name).chmod(0o755)
        with tarfile.open(self.folder / "packed.tar.xz", "w:xz") as packed:
            packed.add(tree, ".")
        if self.lacks:
            (self.folder / self.lacks).unlink()
        env = {**os.environ, "PATH": f"{tools}:/usr/bin:/bin", "CUDA_HOME": str(self.folder / "cuda")}
        done = subprocess.run([sys.executable, str(self.folder / "run_on_gpu"), "--out", str(self.out), *words], env=env,
                              capture_output=True, text=True, timeout=60, check=False)
        record = self.out / "gpu.json"
        return done.returncode, done.stderr, json.loads(record.read_text()) if record.exists() else None

    def test_all_parts(self):
        status, error, record = self.run_it("--speed", "gpu-one")
        self.assertEqual(status, 0, error)
        parts = record["parts"]
        self.assertEqual({part["result"] for part in parts.values()}, {"passed"})
        self.assertEqual(len(parts), 10)
        told = [record[name] for name in ("hetu", "module", "gpus", "cudnn")]
        self.assertEqual(told, ["abc1234", "cpython-311", 1, True])
        self.assertEqual(parts["bench"]["figures"], [{"op": "linear", "us": 17.5}])
        self.assertEqual(parts["images"]["lines"], ["fast"])
        one = parts["speed"]["figures"]["gpu-one"]
        self.assertEqual(one["hetu"], {"ms": 250.0, "from": 125.0, "to": 500.0})
        self.assertEqual((one["ratio"], one["tflops"]), (0.5, 16.0))
        self.assertIn("fused_attention_grad", (self.out / "gpu.log").read_text())

    def test_workloads_are_timed_alone(self):
        """Workloads of 30 and 20 GiB on a GPU of 50, of which ten are reserved for tests, run in turn. Small ones run with
        the second."""
        big = ("gpu-resnet50-128x224-bf16", "gpu-bert-32x128-tf32")
        status, error, _ = self.run_it("--only", "speed,images", "--speed", ",".join((*big, "gpu-a", "gpu-b")))
        self.assertEqual(status, 0, error)
        log = (self.out / "gpu.log").read_text().splitlines()
        lines = [json.loads(line) for line in log if line.startswith('{"title"')]
        self.assertEqual(sorted(line["title"] for line in lines), sorted((*big, "gpu-a", "gpu-b")))
        when = {line["title"]: line["when"] for line in lines}
        self.assertLess(when[big[0]][2], when[big[1]][0])  # the second doesn't fit before the first has ended
        spans = sorted(when.values(), key=lambda times: times[1])
        for before, after in zip(spans, spans[1:], strict=False):
            self.assertLessEqual(before[2], after[1] + 0.05)
        for name in ("gpu-a", "gpu-b"):  # prepared with the second, and none is timed before all are ready
            self.assertLess(when[name][0], min(when[n][1] for n in (big[1], "gpu-a", "gpu-b")))

    def test_what_fails_and_what_hangs(self):
        self.packed["bin/gpu_test"] = ("#!/bin/sh\ncase \"$1\" in *Training*) sleep 50 & echo $!; wait;; "
                                       "*GpuRows*) exit 3;; esac\n")
        self.tools.pop("compute-sanitizer")
        status, error, record = self.run_it("--only", "grid,training,memcheck,bench", "--seconds", "20")
        self.assertEqual(status, 1, error)
        told = {name: part["result"] for name, part in record["parts"].items()}
        self.assertEqual(told, {"memcheck": "not run", "grid": "failed (3)", "training": "out of time", "bench": "not run"})
        self.assertEqual(record["parts"]["memcheck"]["why"], "compute-sanitizer not found on this machine")
        self.assertEqual(record["parts"]["bench"]["why"], "no time left")
        child = record["parts"]["training"]["lines"][0]
        state = Path(f"/proc/{child}/stat")
        self.assertTrue(not state.exists() or state.read_text().split()[2] == "Z", child)

    def test_what_runs_nothing_shows_nothing(self):
        for told in ("[  SKIPPED ] a test", "[==========] Running 0 tests from 0 test suites."):
            with self.subTest(told):
                self.packed["bin/gpu_test"] = f"#!/bin/sh\necho '{told}'\n"
                status, _, record = self.run_it("--only", "grid")
                self.assertEqual((status, record["parts"]["grid"]["result"]), (1, "failed (-1)"))
                self.afresh()

    def test_another_python(self):
        self.packed["python/hetu/_hetu.py"] = "raise ImportError('made for another')"
        status, _, record = self.run_it("--only", "scripts,speed,bench", "--speed", "gpu-one")
        self.assertEqual(status, 1)
        for name in ("scripts", "speed"):
            self.assertRegex(record["parts"][name]["why"], "built for cpython-311 and can't run with .*made for another")
        self.assertEqual(record["parts"]["bench"]["result"], "passed")

    def afresh(self):
        for name in ("tree", "tools"):
            subprocess.run(["rm", "-r", str(self.folder / name)], check=True)

    def test_what_lacks_is_told_in_a_line(self):
        for what, words, status, says in (
                ("packed.tar.xz", (), 2, "packed.tar.xz not found in .*; make such a folder with tests/cuda/pack"),
                ("", ("--speed", "gpu-none"), 2, "--speed: unknown workload 'gpu-none'; use gpu-one, gpu-a"),
                ("", ("--out", "/proc/none"), 2, "--out /proc/none: cannot create the folder: "),
                ("cuda/lib64/libcublasLt.so.99", (), 3, "cannot run on this machine: libcublasLt.so.99 not found, neither")):
            with self.subTest(what or words):
                self.lacks = what
                done = self.run_it(*words)
                self.assertEqual(done[0], status, done[1])
                self.assertRegex(done[1].splitlines()[-1], says)
                self.afresh()

    def test_no_card_and_wrong_words(self):
        status, error, _ = self.run_it("--only", "gird")
        self.assertEqual(status, 2)
        self.assertIn("--only: unknown part 'gird'; use memcheck", error)
        self.tools["nvidia-smi"] = "#!/bin/sh\necho 'no devices were found'\nexit 6\n"
        self.afresh()
        status, error, record = self.run_it()
        self.assertEqual((status, record["problem"]), (3, "nvidia-smi: no devices were found"))
        self.assertEqual(error, "run_on_gpu: no GPU found: nvidia-smi: no devices were found\n")


if __name__ == "__main__":
    unittest.main()
