"""Files and folders that users name. A path that isn't a regular file is refused without waiting. Files are replaced through
links. Deep JSON gives a one-line error. The checkpoint folder is created and locked before the first step."""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import hetu as ht
from hetu import files
from hetu.job import checkpoint
from hetu.sample import vocabulary
from hetu.sample.folder import made_whole

HETU = pathlib.Path(os.environ["HETU_BUILD_DIR"]) / "bin" / "hetu"
# Trains one step per line of its input. Its argument names the checkpoint folder.
TRAINS = """
import sys, numpy as np, hetu as ht
data = ht.data.Batches([{"x": np.ones((4, 1), np.float32)}] * 6, batch_size=4)
weight = ht.parameter("w", [1, 1], ht.graph.constant(1.0))
loss = ht.step_mean(ht.ops.matmul(data.x, weight), "l")
job = ht.Executor({"t": [loss, ht.optim.SGD(0.1).minimize(loss)]})
for step in job.run("t", steps=3, checkpoint=sys.argv[1]):
    print(step.index, flush=True)
    sys.stdin.readline()
"""


def within(case, seconds, call):
    """Returns the result or the exception of a call. The test fails if the call takes longer."""
    told = []

    def work():
        try:
            told.append(call())
        except Exception as error:
            told.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    case.assertFalse(thread.is_alive(), f"still waits after {seconds} s")
    return told[0]


class InFolder(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory(prefix="hetu-files-")
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)


class Named(InFolder):
    def test_a_fifo_is_refused_without_waiting(self):
        fifo = self.folder / "x.txt"
        os.mkfifo(fifo)
        (self.folder / "x.csv").symlink_to(fifo)
        reads = [lambda: files.read_bytes(fifo), lambda: files.read_json(fifo), lambda: files.check_regular(fifo),
                 lambda: ht.data.Lines(str(fifo), batch_size=1, length=4), lambda: ht.load_weights(str(fifo)),
                 lambda: ht.text.WordPiece(str(fifo))]
        for number, read in enumerate(reads):
            with self.subTest(number):
                error = within(self, 20, read)
                self.assertIsInstance(error, (OSError, ValueError))
        self.assertIn("is not a regular file", str(within(self, 20, reads[0])))

    def test_a_fifo_among_the_texts_of_a_folder(self):
        (self.folder / "a.txt").write_text("some text " * 20)
        os.mkfifo(self.folder / "b.txt")
        error = within(self, 20, lambda: ht.text.Text(str(self.folder), batch_size=1, length=4))
        self.assertIsInstance(error, OSError)

    def test_a_fifo_among_data_files(self):
        for name in ("day_0", "text", "vocab.txt", "shards/x_training.hdf5", "train/a/1.png"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.mkfifo(self.folder / name)
        reads = [lambda: ht.data.Criteo(str(self.folder / "day_0"), 1),
                 lambda: ht.data.BertHdf5(str(self.folder / "shards"), 1),
                 lambda: ht.text.BertText(str(self.folder / "text"), str(self.folder / "vocab.txt"), 1)]
        for number, read in enumerate(reads):
            with self.subTest(number):
                error = within(self, 20, read)
                self.assertIsInstance(error, (OSError, ValueError))
                self.assertNotIn("\n", str(error))
                self.assertIn("is a FIFO", str(error))
        checked = subprocess.run([HETU, "data", "check", self.folder / "train"], capture_output=True, text=True, timeout=60)
        self.assertIn("1.png: is a FIFO", checked.stdout + checked.stderr)

    def test_links_stay_and_devices_are_written_into(self):
        (self.folder / "real").write_text("old")
        (self.folder / "real").chmod(0o640)
        (self.folder / "link").symlink_to("real")
        files.write_text(self.folder / "link", "new")
        self.assertTrue((self.folder / "link").is_symlink())
        self.assertEqual((self.folder / "real").read_text(), "new")
        self.assertEqual((self.folder / "real").stat().st_mode & 0o777, 0o640)
        vocabulary.write_vocabulary(self.folder / "link", ["[PAD]"])
        self.assertTrue((self.folder / "link").is_symlink())
        (self.folder / "dangling").symlink_to("made")
        files.write_text(self.folder / "dangling", "made")
        self.assertEqual((self.folder / "made").read_text(), "made")
        (self.folder / "nothing").symlink_to("/dev/null")
        files.write_text(self.folder / "nothing", "text")
        self.assertTrue((self.folder / "nothing").is_char_device())
        with self.assertRaisesRegex(OSError, "is a directory; name a file"):
            files.write_text(self.folder, "")
        self.assertEqual(sorted(os.listdir(self.folder)), ["dangling", "link", "made", "nothing", "real"])

    def test_a_sample_folder_is_made_where_a_link_leads(self):
        (self.folder / "real").mkdir()
        (self.folder / "link").symlink_to("real")
        (self.folder / "dangling").symlink_to("made")
        for name, target in (("link", "real"), ("dangling", "made")):
            with made_whole(self.folder / name) as folder:
                (folder / "text").write_text("x")
            self.assertTrue((self.folder / name).is_symlink())
            self.assertEqual(os.listdir(self.folder / target), ["text"])

    def test_an_error_leaves_the_old_file(self):
        (self.folder / "file").write_text("old")
        with self.assertRaisesRegex(RuntimeError, "half"), files.replaced(self.folder / "file") as beside:
            pathlib.Path(beside).write_text("new")
            raise RuntimeError("half")
        self.assertEqual((self.folder / "file").read_text(), "old")
        self.assertEqual(os.listdir(self.folder), ["file"])

    def test_deep_or_damaged_json_is_one_line(self):
        path = self.folder / "config.json"
        for text, says in (("[" * 200_000, "nest too deeply"), ('{"a":' * 200_000, "nest too deeply"),
                           ("{", r"config\.json:1: not JSON"), (b"\xff\xfe{", "config.json")):
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            with self.subTest(says), self.assertRaisesRegex(ValueError, says) as caught:
                ht.models.Gpt.from_config(str(path))
            self.assertNotIn("\n", str(caught.exception))


class Checkpoints(InFolder):
    def executor(self, rate=0.1):
        ht.new_graph()
        data = ht.data.Batches([{"x": np.ones((4, 1), np.float32)}] * 6, batch_size=4)
        loss = ht.step_mean(ht.ops.matmul(data.x, ht.parameter("w", [1, 1], ht.graph.constant(1.0))), "l")
        return ht.Executor({"t": [loss, ht.optim.SGD(rate).minimize(loss)]}, threads=1)

    def test_a_plateau_at_infinity_is_saved_and_goes_on(self):
        folder = str(self.folder / "ckpt")
        for mode, measure in (("min", math.inf), ("max", -math.inf), ("min", -math.inf), ("max", math.nan)):
            with self.subTest(mode=mode, measure=measure):
                plateau = ht.lr.ReduceOnPlateau(1.0, mode=mode, patience=1)
                own = f"{folder}-{mode}-{measure}"
                for step in self.executor(plateau).run("t", steps=4, checkpoint=own, every=2):
                    if step.index == 0:
                        plateau.report(measure)
                again = ht.lr.ReduceOnPlateau(1.0, mode=mode, patience=1)
                list(self.executor(again).run("t", until=5, checkpoint=own, resume=True))
                self.assertEqual(again.state, plateau.state)
                for manifest in pathlib.Path(own).rglob("manifest.json"):  # strictly JSON: no Infinity, no NaN
                    json.loads(manifest.read_text(), parse_constant=self.fail)

    def test_numbers_of_a_manifest_come_back(self):
        run = {"a": [1.5, math.inf, {"b": -math.inf}], "number": 3, "c": {"number": 1.0, "d": None}}
        text = checkpoint._as_text(run)
        self.assertEqual(json.loads(text, object_hook=checkpoint._as_number, parse_constant=self.fail), run)
        self.assertTrue(math.isnan(json.loads(checkpoint._as_text({"x": math.nan}), object_hook=checkpoint._as_number)["x"]))

    def test_a_folder_that_cannot_be_saved_into_is_refused_before_the_first_step(self):
        (self.folder / "dangling").symlink_to("nowhere/else")
        (self.folder / "file").write_text("x")
        (self.folder / "to-file").symlink_to("file")
        os.mkfifo(self.folder / "fifo")
        for name in ("dangling", "dangling/below", "file", "file/below", "to-file", "fifo"):
            with self.subTest(name), self.assertRaisesRegex(OSError, f"{name}: checkpoints can't be saved there"):
                next(iter(self.executor().run("t", steps=1, checkpoint=str(self.folder / name))))
        self.assertEqual(sorted(os.listdir(self.folder)), ["dangling", "fifo", "file", "to-file"])

    def test_a_trace_goes_through_links(self):
        (self.folder / "link.json").symlink_to("real.json")
        (self.folder / "nothing").symlink_to("/dev/null")
        job = self.executor()
        for name in ("link.json", "nothing"):
            list(job.run("t", steps=2, trace=str(self.folder / name)))
            self.assertTrue((self.folder / name).is_symlink())
        self.assertIn("traceEvents", json.loads((self.folder / "real.json").read_text()))
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())

    def test_a_link_to_a_folder_is_followed(self):
        (self.folder / "real").mkdir()
        (self.folder / "link").symlink_to("real")
        list(self.executor().run("t", steps=1, checkpoint=str(self.folder / "link")))
        self.assertEqual(os.listdir(self.folder / "real"), ["step-00000001"])

    def test_a_second_job_in_one_folder_is_refused_and_free_after_the_first(self):
        own = str(self.folder / "ckpt")
        first = subprocess.Popen([sys.executable, "-c", TRAINS, own], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 text=True)
        self.addCleanup(first.stdout.close)
        try:
            while "0" not in (line := first.stdout.readline()):
                self.assertTrue(line, "the first job ended early")
            with self.assertRaisesRegex(OSError, f"process {first.pid} on host .* is saving there; wait .* choose another"):
                next(iter(self.executor().run("t", steps=1, checkpoint=own)))
            first.kill()
        finally:
            first.kill()
            first.wait()
            first.stdin.close()
        list(self.executor().run("t", steps=2, checkpoint=own))
        self.assertEqual(os.listdir(own), ["step-00000002"])

    def test_a_folder_is_free_after_each_run(self):
        own = str(self.folder / "ckpt")
        job = self.executor()
        list(job.run("t", steps=1, checkpoint=own))
        self.assertEqual(os.listdir(own), ["step-00000001"])
        with self.assertRaisesRegex(ValueError, "holds a checkpoint already"):
            next(iter(job.run("t", steps=1, checkpoint=own)))
        done = subprocess.run([sys.executable, "-c", TRAINS.replace("checkpoint=", "resume=True, checkpoint="), own],
                              input="\n" * 5, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
