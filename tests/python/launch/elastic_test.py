"""heturun --elastic: layouts for other numbers of workers, lists of machines, and trainings whose machines change or die
with the bits of an undisturbed run."""
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from elastic_case import ElasticCase
from hetu.launch import elastic
from hetu.launch.elastic import MachinesError, read_machines, use
from hetu.launch.elastic_layout import Layout, LayoutError, best_layout, given_layout, layout_of
from hetu.launch.elastic_trainings import FlagTraining, Notes
from train_cases import HETURUN, MANY_S, MODEL, TRAIN, write_shards

STEPS = 300


class Layouts(unittest.TestCase):
    def test_reads_the_flags_of_a_command(self):
        right = ["python3", "t.py", "--devices", "pipe_2_3", "--pipeline=1f1b", "--batch-size", "8", "--micro-batches", "4",
                 "--checkpoint", "ck"]
        self.assertEqual(layout_of(right), Layout(2, 3, 4, 8, (), "1f1b"))
        with tempfile.TemporaryDirectory() as folder:
            plan = pathlib.Path(folder, "plan.yml")
            plan.write_text("# by hetu plan\ndevices: pipe_1_2\npipeline: zb-h1\nbatch-size: 6\nmicro-batches: 3\n")
            by_plan = layout_of(["t.py", "--config", str(plan), "--checkpoint", "ck"])
            self.assertEqual(by_plan, Layout(1, 2, 3, 6, (), "zb-h1"))
            plan.write_text("devices: pipe_1_2\npipeline: zb-h1\nbatch-size: 6\nmicro-batches: 3\npartition: 2,2\n")
            with self.assertRaisesRegex(LayoutError, "leave out --partition"):
                layout_of(["t.py", "--config", str(plan), "--checkpoint", "ck"])
        for change, says in (({"--devices": None}, "--devices pipe_<pipelines>_<stages>"), ({"--devices": "all"}, "got all"),
                             ({"--checkpoint": None}, "needs --checkpoint"), ({"--batch-size": "x"}, "--batch-size N"),
                             ({"--micro-batches": None}, "--micro-batches N .* got none"),
                             ({"--pipeline": "pipedream"}, "pipedream has none"),
                             ({"--pipeline": "pipedream-2bw"}, "2bw has none"),
                             ({"--pipeline": None}, "pipedream has none"), ({"--preduce": "1"}, "synchronously"),
                             ({"--config": "no.yml"}, "no.yml can't be read")):
            flags = {"--devices": "pipe_2_3", "--pipeline": "1f1b", "--batch-size": "8", "--micro-batches": "4",
                     "--checkpoint": "ck", **change}
            words = [word for flag, value in flags.items() if value is not None for word in (flag, value)]
            with self.assertRaisesRegex(LayoutError, says):
                layout_of(["t.py", *words])

    def test_reads_a_layout(self):
        self.assertEqual(given_layout("2x4x8")[:3], (2, 4, 8))
        self.assertEqual(best_layout(given_layout("2x4x8"), 5)[:3], (1, 4, 16))
        for wrong in ("2x4", "0x1x1", "2x4x8x1", "2 x 4 x 8", "2x-4x8", ""):
            with self.assertRaisesRegex(LayoutError, "expected <pipelines>x<stages>x<micro-batches of each pipeline>"):
                given_layout(wrong)

    def test_only_a_checkpoint_is_progress(self):
        """Otherwise a training that always fails before its first checkpoint would never end."""
        with tempfile.TemporaryDirectory() as folder:
            training = FlagTraining(["t.py", "--devices", "pipe_1_1", "--pipeline", "1f1b", "--batch-size", "1",
                                     "--micro-batches", "1", "--checkpoint", folder])
            for name in (".hetu-lock", "step-7"):
                pathlib.Path(folder, name).mkdir()
                self.assertIsNone(training.newest_checkpoint(), name)
            pathlib.Path(folder, "step-7", "manifest.json").write_text("{}")
            first = training.newest_checkpoint()
            self.assertIsNotNone(first)
            pathlib.Path(folder, ".hetu-lock", "new").write_text("")
            self.assertEqual(training.newest_checkpoint(), first)
            pathlib.Path(folder, "step-9").mkdir()
            pathlib.Path(folder, "step-9", "manifest.json").write_text("{}")
            self.assertNotEqual(training.newest_checkpoint(), first)

    def test_reads_lists_of_machines(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "machines")
            self.assertEqual(read_machines(path), {})
            path.write_text("# two hosts\nw0 4\n\nw1   # one worker\nw0 1\n10.0.0.7 0\n")
            self.assertEqual(read_machines(path), {"w0": 5, "w1": 1})
            for wrong in ("w0 x", "w0 1 2", "w 0;rm", "-oProxyCommand=x y"):
                path.write_text("ok 1\n" + wrong)
                with self.assertRaisesRegex(MachinesError, "line 2: expected HOST or HOST WORKERS"):
                    read_machines(path)
        self.assertEqual(use({"a": 2, "b": 3, "c": 1}, 4), {"a": 2, "b": 2})

    def test_a_half_written_list_counts_once_it_has_settled(self):
        """Shells empty a file before they write it."""
        with tempfile.TemporaryDirectory() as folder:
            path, said = pathlib.Path(folder, "machines"), []
            machines = elastic.Machines(str(path), None, None, said.append)
            path.write_text("w0 2\nw1 2\n")
            self.assertEqual(machines.listed(), {"w0": 2, "w1": 2})
            path.write_text("")
            self.assertEqual(machines.listed(), {"w0": 2, "w1": 2})
            path.write_text("w0 2\nw1 2\n")
            time.sleep(elastic.SETTLED_S)
            self.assertEqual(machines.listed(), {"w0": 2, "w1": 2}, "it is the same again")
            path.write_text("w0 2\nw1 1\n")
            self.assertEqual(machines.listed(), {"w0": 2, "w1": 1}, "a whole list counts at once")
            for text in ("w0 2", "", None):
                path.unlink() if text is None else path.write_text(text)
                before = machines.listed()
                time.sleep(elastic.SETTLED_S)
                self.assertEqual(machines.listed(), {"w0": 2} if text else {})
                self.assertEqual(before, {"w0": 2, "w1": 1} if text else {} if text is None else {"w0": 2})
            self.assertEqual(said, [])

    def test_a_machine_under_two_names_is_a_wrong_list(self):
        with tempfile.TemporaryDirectory() as folder:
            path, said = pathlib.Path(folder, "machines"), []
            machines = elastic.Machines(str(path), None, None, said.append)
            path.write_text("localhost 2\n127.0.0.1 2\n")
            with self.assertRaisesRegex(MachinesError, "localhost and 127.0.0.1 are the same machine; write one line"):
                machines.listed()
            path.write_text("localhost 2\n")
            machines.listed()
            path.write_text("localhost 2\n127.0.0.1 2\n")
            self.assertEqual(machines.listed(), {"localhost": 2}, "a running job keeps its machines")
            self.assertEqual(len(said), 1)
            self.assertRegex(said[0], "are the same machine; write one line for it; the machines stay as they are$")


class LastStep(unittest.TestCase):
    def test_is_not_before_the_checkpoint(self):
        """A worker that is killed between its checkpoint and its report has done the step."""
        notes = Notes("no such file")
        self.assertEqual(notes.last_step(None), "")
        notes.step = 159
        self.assertEqual([notes.last_step(saved) for saved in (None, 120, 160)],
                         [" after step 159", " after step 159", " after step 160"])


class Trainings(ElasticCase):
    """BERT of 4 layers with dropout and tied weights. The undisturbed training is on 4 workers."""

    SCRIPT = "train_bert.py"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_shards(cls.folder / "data")
        (cls.folder / "model.json").write_text(json.dumps(MODEL))
        subprocess.run([*HETURUN, "-w", "4", *cls.command("plain"), "--sums", "tree"], check=True, capture_output=True,
                       timeout=MANY_S)

    @classmethod
    def command(cls, name):
        return [*TRAIN, "--data", str(cls.folder / "data"), "--model", str(cls.folder / "model.json"),
                "--devices", "pipe_2_2", "--pipeline", "1f1b", "--batch-size", "4", "--micro-batches", "2",
                "--steps", str(STEPS), "--threads", "1", "--points-every", "0", "--save-every", "40",
                "--checkpoint", str(cls.folder / name), "--log", str(cls.folder / f"{name}.jsonl")]

    def await_step(self, process, name, step):
        """Waits until the log has a step."""
        log = self.folder / f"{name}.jsonl"
        self.await_text(process, log, re.compile(rf'"step": ?{step},'))

    def same(self, name):
        """Checks weights, optimizer states and losses of all steps against the undisturbed training."""
        self.same_checkpoints(self.folder / "plain", self.folder / name)
        losses = []
        for one in ("plain", name):
            records = [json.loads(line) for line in (self.folder / f"{one}.jsonl").read_text().splitlines()]
            losses.append([(record["step"], record["loss"]) for record in records])
        self.assertEqual([step for step, _ in losses[1]], list(range(STEPS)))
        self.assertEqual(*losses)

    def test_goes_on_without_a_killed_worker(self):
        process = self.start("killed", "-w", "4")
        for step in (70, 160):
            self.await_step(process, "killed", step)
            self.signal_worker(step % 4, signal.SIGKILL)
        lines = self.finish(process)
        found = [re.fullmatch(r"the round ended with status 137 after step (\d+); the training continues from its "
                              r"checkpoint of step (\d+)", line) for line in lines if "continues" in line]
        self.assertEqual(len(found), 2, lines)
        for one in found:
            last, saved = map(int, one.groups())
            self.assertTrue(saved <= last < saved + 41 and saved % 40 == 0, one.group())
        self.assertEqual(sum(line.startswith("round ") for line in lines), 3, lines)
        self.same("killed")

    def test_goes_on_without_a_stopped_worker(self):
        """With any limit, the other workers notice a stopped process themselves."""
        process = self.start("stopped", "-w", "4", "--hang-limit", "20")
        self.await_step(process, "stopped", 70)
        self.signal_worker(1, signal.SIGSTOP)
        lines = self.finish(process)
        self.assertTrue(any(line.startswith("worker 1 (") and "is stopped by a signal" in line for line in lines), lines)
        self.assertEqual(sum(line.startswith("round ") for line in lines), 2, lines)
        self.same("stopped")

    def test_follows_the_list_of_machines(self):
        machines = self.folder / "machines"
        machines.write_text("localhost 4\n")
        process = self.start("list", "--machines", str(machines))
        for number, (step, workers) in enumerate(((60, 6), (140, 3), (220, 1)), 2):
            self.await_step(process, "list", step)
            machines.write_text(f"localhost {workers}\n")
            self.await_line(process, f"round {number}: ")
        lines = self.finish(process)
        self.assertIn("the machines change: localhost has 3 workers (6 before); the workers save", lines)
        rounds = [line.partition(": ")[2] for line in lines if line.startswith("round ")]
        self.assertEqual(rounds, ["2 pipelines x 2 stages on localhost 4",
                                  "3 pipelines x 2 stages with 2 + 1 + 1 micro-batches on localhost 6",
                                  "1 pipeline x 2 stages on localhost 2; 1 worker idle",
                                  "1 pipeline x 1 stage on localhost 1"])
        self.same("list")

    def test_waits_for_machines_and_ends_by_signal(self):
        machines = self.folder / "late machines"
        machines.write_text("")
        process = self.start("late", "--machines", str(machines))
        self.await_line(process, f"no machine is left; the job waits for a line in {machines}")
        machines.write_text("localhost 2\n")
        self.await_step(process, "late", 6)
        machines.write_text("localhost two\n")  # said once, and ignored
        self.await_line(process, "the machines stay as they are")
        self.await_step(process, "late", 60)
        process.send_signal(signal.SIGUSR1)
        lines = self.finish(process)
        self.assertEqual(sum("the machines stay as they are" in line for line in lines), 1, lines)
        self.assertEqual(sum(line.startswith("round ") for line in lines), 1, lines)
        process = self.start("late", "--machines", str(machines))
        self.assertIn("expected HOST or HOST WORKERS", self.finish(process, 2)[-1])

    def test_ends_with_an_error_that_would_come_again(self):
        command = self.command("wrong")
        for words, status, says in (
                (["-w", "2", *command, "--optimizer", "none"], 2, "round 1"),
                (["-w", "4", sys.executable, "-c", "raise SystemExit(9)", *command[2:]], 9, "3 rounds in a row"),
                (["-w", "2", "--machines", "m", *command], 2, "--machines FILE, or -w N"),
                ([*command], 2, "--machines FILE, or -w N"), (["-w", "2", "-s", "1", *command], 2, "can't be used with"),
                (["-w", "2", *TRAIN, "--data", "x"], 2, "--elastic needs --devices")):
            done = subprocess.run([*HETURUN, "--elastic", *words], capture_output=True, text=True, timeout=MANY_S,
                                  check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(says, done.stderr)
        done = subprocess.run([*HETURUN, "-w", "2", "--machines", "m", *command], capture_output=True, text=True,
                              check=False)
        self.assertIn("--machines requires --elastic", done.stderr)
        done = subprocess.run([*HETURUN, "--elastic", "--machines", "missing", *command], capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "--machines /.*missing: no such file; write a line HOST")


if __name__ == "__main__":
    unittest.main()
