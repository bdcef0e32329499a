"""Small training jobs for tests: shards of a few kilobytes, a model of 4 layers x 32, and functions that run train_bert.py.
"""
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

from processes import process_of, processes_with, wait_until, without_block

ROOT = pathlib.Path(__file__).resolve().parents[3]
HETURUN = [sys.executable, str(ROOT / "python" / "heturun")]
TRAIN = [sys.executable, str(ROOT / "python" / "train_bert.py")]
END_S = 10.0  # seconds after a death or a signal until everything must have ended
MANY_S = 180.0  # seconds that a job may take on a busy machine
KILLED_STEPS = 150  # steps of a job whose servers are killed; even a fast job then trains at the third kill
TOKENS, MASKED, VOCABULARY, ROWS, SHARDS = 16, 3, 90, 48, 2

MODEL = {
    "num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64,
    "max_position_embeddings": TOKENS, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "tie_word_embeddings": True,
}


def columns(rows, tokens, seed):
    """Returns one shard's datasets in the published form: random ids, padding at the end, 1 to MASKED masked positions per
    row."""
    import numpy as np

    random = np.random.default_rng(seed)
    out = {
        "input_ids": random.integers(5, VOCABULARY, (rows, tokens), np.int32),
        "input_mask": np.ones((rows, tokens), np.int8),
        "segment_ids": np.zeros((rows, tokens), np.int8),
        "masked_lm_positions": np.zeros((rows, MASKED), np.int32),
        "masked_lm_ids": np.zeros((rows, MASKED), np.int32),
        "next_sentence_labels": random.integers(0, 2, rows, np.int8),
    }
    for row in range(rows):
        length = int(random.integers(tokens // 2, tokens + 1))
        out["input_mask"][row, length:] = 0
        out["input_ids"][row, length:] = 0
        out["segment_ids"][row, length // 2:length] = 1
        count = int(random.integers(1, MASKED + 1))
        places = np.sort(random.choice(np.arange(1, length), count, replace=False))
        out["masked_lm_positions"][row, :count] = places
        out["masked_lm_ids"][row, :count] = random.integers(5, VOCABULARY, count)
    return out


def write_shard(path, data):
    """Writes datasets as one shard."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, values in data.items():
            file.create_dataset(name, data=values, compression="gzip")


def write_shards(folder, seed=1):
    """Writes SHARDS training shards of ROWS rows, and a vocabulary."""
    folder.mkdir(parents=True)
    for number in range(SHARDS):
        write_shard(folder / f"small_training_{number}.hdf5", columns(ROWS, TOKENS, (seed, number)))
    (folder / "vocab.txt").write_text("".join(f"word{i}\n" for i in range(VOCABULARY)))


def manifest_of(folder):
    """Returns (path of the newest step's folder, its manifest)."""
    newest = sorted(p for p in pathlib.Path(folder).glob("step-*") if (p / "manifest.json").exists())[-1]
    return newest, json.loads((newest / "manifest.json").read_text())["checkpoint"]


def checksums(folder):
    """Returns {(parameter, state): checksum} of the newest checkpoint. Checksums are equal only if all tensors are, bit for
    bit."""
    return {(t["name"], t["state"]): t["crc32c"] for t in manifest_of(folder)[1]["tensors"]}


def tensors(folder):
    """Returns {(parameter, state): array} of the newest checkpoint."""
    import numpy as np

    newest, manifest = manifest_of(folder)
    out, files = {}, {}
    for row in manifest["tensors"]:
        data = files.setdefault(row["file"], (newest / row["file"]).read_bytes())
        length = int.from_bytes(data[:8], "little")
        entry = json.loads(data[8:8 + length])[row["name"] + (f"#{row['state']}" if row["state"] else "")]
        begin, end = entry["data_offsets"]
        narrow = entry["dtype"] == "BF16"
        flat = np.frombuffer(data[8 + length + begin:8 + length + end], np.uint16 if narrow else np.float32)
        if narrow:
            flat = (flat.astype(np.uint32) << 16).view(np.float32)
        out[row["name"], row["state"]] = flat.reshape(row["shape"])
    return out




class Done:
    """The result of a job: exit status, output, error output, and the losses of --log."""

    def __init__(self, command, code, out, err, log):
        self.command, self.code, self.out, self.err = command, code, out, err
        self.records = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        self.steps = [record["step"] for record in self.records]
        self.losses = [record["loss"] for record in self.records]

    def words(self):
        """Returns the job's own errors on standard error, without prefixes, progress, heturun's messages and the device."""
        # a single process, or refused before the start
        text = without_block(self.err) if "Cluster: {" in self.err else self.err
        lines = [re.sub(r"^\[\d+\] ", "", line) for line in text.splitlines()]
        return [line for line in lines if not re.match(r"heturun: |hetu: computing on |step \d+/", line)]

    def __str__(self):
        return f"{' '.join(self.command)}\nstatus {self.code}\n{self.out}\n{self.err}"


class TrainCase(unittest.TestCase):
    """A test with a folder that has shards and a model. At its end, no process of the test may be left."""

    shared = None  # the folder with files that all tests read

    @classmethod
    def setUpClass(cls):
        missing = [name for name in ("h5py", "numpy") if importlib.util.find_spec(name) is None]
        if missing:
            raise unittest.SkipTest(f"not installed: {', '.join(missing)}")
        cls.shared = tempfile.TemporaryDirectory(prefix="hetu-train-")
        cls.addClassCleanup(cls.shared.cleanup)
        cls.data = pathlib.Path(cls.shared.name) / "data"
        cls.model = pathlib.Path(cls.shared.name) / "model.json"
        write_shards(cls.data)
        cls.model.write_text(json.dumps(MODEL))

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hetu-train-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.mark = "TRAIN_TEST_MARK=" + uuid.uuid4().hex
        self.addCleanup(self.check_nothing_runs)
        name, value = self.mark.split("=")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("OMPI_MCA_rmaps")}
        paths = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
        self.env.update({name: value, "PYTHONPATH": paths, "OMP_WAIT_POLICY": "passive"})
        self.jobs = 0

    def check_nothing_runs(self):
        gone = wait_until(lambda: not processes_with(self.mark), END_S)
        left = processes_with(self.mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertTrue(gone, f"processes left: {left}")

    def command(self, grid, *options, before=()):
        """Returns (arguments, log file) of a job on a grid of (pipelines, stages). Options come after the defaults and
        override them."""
        self.jobs += 1
        log = self.folder / f"log{self.jobs}.jsonl"
        pipelines, stages = grid
        workers = pipelines * stages
        words = [*before, *(HETURUN + ["-w", str(workers)] if workers > 1 else []), *TRAIN,
                 "--data", str(self.data), "--model", str(self.model), "--threads", "1", "--batch-size", "8",
                 "--micro-batches", "4", "--learning-rate", "1e-2", "--warmup-steps", "3", "--seed", "5", "--log", str(log),
                 "--pipeline", "1f1b"]
        words += ["--devices", f"pipe_{pipelines}_{stages}"] if workers > 1 else []
        return [*words, *map(str, options)], log

    def run_job(self, grid, *options, before=()):
        """Runs a job to its end."""
        words, log = self.command(grid, *options, before=before)
        ended = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=MANY_S, stdin=subprocess.DEVNULL,
                               cwd=self.folder)
        return Done(words, ended.returncode, ended.stdout, ended.stderr, log)

    def train(self, grid, *options, before=()):
        """Runs a job that must succeed."""
        done = self.run_job(grid, *options, before=before)
        self.assertEqual(done.code, 0, str(done))
        return done

    def start(self, grid, *options, heturun=()):
        """Starts a job. Returns (process, log file). `heturun` holds additional flags for heturun."""
        words, log = self.command(grid, *options)
        at = words.index("-w") if heturun else 0
        words[at:at] = heturun
        process = subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   stdin=subprocess.DEVNULL, cwd=self.folder)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process, log

    def kill_servers_of(self, process, log, draw):
        """Kills a server of a job of 60 steps or more three times: each time shortly after the log has more than 4, 12 or
        20 lines."""
        def reached(lines):
            return process.poll() is not None or (log.exists() and log.read_text().count("\n") > lines)

        for lines in (4, 12, 20):
            wait_until(lambda n=lines: reached(n))
            time.sleep(draw.random() * 0.1)
            wait_until(lambda: process.poll() is not None or process_of(self.mark, "hetu.launch.server"))
            self.assertIsNone(process.poll(), f"the job ended before its server could be killed after {lines} steps")
            os.kill(process_of(self.mark, "hetu.launch.server"), signal.SIGKILL)

    def refused_in_plan(self, grid, *options, says=""):
        """Checks like refused() for errors that occur before a worker computes. Runs in one process, as heturun's check
        before a start does."""
        words, _ = self.command(grid, *options)
        words = words[words.index(TRAIN[1]) - 1:]
        env = {**self.env, "HETU_CHECK": str(grid[0] * grid[1])}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=MANY_S, cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stdout + done.stderr)
        self.assertRegex(done.stderr, says)

    def refused(self, grid, *options, status=2, says="", before=()):
        """Runs a job that must end with `status` and one line that matches `says`. Returns its result."""
        done = self.run_job(grid, *options, before=before)
        self.assertEqual(done.code, status, str(done))
        words = done.words()
        self.assertEqual(len(words), 1, str(done))
        self.assertRegex(words[0], says, str(done))
        return done
