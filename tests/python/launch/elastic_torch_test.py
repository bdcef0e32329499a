#!/usr/bin/env python3
"""heturun --elastic with a script of hetu.torch: workers that die, are stopped or block, machines that come and go, with the
bits of an undisturbed training; and scripts that don't take part.

Skipped where PyTorch is not installed (`./run torch`). --whole: also workers that block."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest
from importlib.util import find_spec

from elastic_case import ElasticCase
from train_cases import HETURUN, MANY_S, ROOT

WORKER = pathlib.Path(__file__).resolve().parent / "torch_rounds.py"
EXAMPLE = ROOT / "docs" / "examples" / "torch_elastic.py"
STEPS = 200
LIMIT_S = 8  # --hang-limit
WHOLE = "--whole" in sys.argv


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class TorchRounds(ElasticCase):
    """A model of six pieces with dropout and sharded optimizer states. The undisturbed training is a job of 4 workers
    without --elastic."""

    SCRIPT = WORKER.name
    ENVIRONMENT = {"OMP_NUM_THREADS": "1"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        subprocess.run([*HETURUN, "-w", "4", *cls.command("plain", "plain")], check=True, capture_output=True,
                       timeout=MANY_S, env={**os.environ, **cls.ENVIRONMENT})

    FLAGS = ("--layout", "2x2x4", "--hang-limit", str(LIMIT_S))

    @classmethod
    def command(cls, name, *words):
        (cls.folder / name).mkdir(exist_ok=True)
        return [sys.executable, str(WORKER), str(cls.folder / name), str(STEPS), *words]

    def start(self, name, *flags):
        return super().start(name, *self.FLAGS, *flags)

    def await_step(self, process, name, step):
        """Waits until worker 0 has taken a step."""
        self.await_text(process, self.folder / name / "losses-0", re.compile(rf"^{step} ", re.M))

    def losses(self, name):
        """Returns the loss of each step. Steps that were trained again must have had the same loss."""
        found = {}
        for line in (self.folder / name / "losses-0").read_text().splitlines():
            step, loss = line.split()
            self.assertEqual(found.setdefault(int(step), loss), loss, f"step {step} of {name}")
        return found

    def same(self, name):
        """Checks weights, optimizer states and all losses against the undisturbed training."""
        self.same_checkpoints(self.folder / "plain" / "checkpoint", self.folder / name / "checkpoint")
        self.assertEqual(sorted(self.losses(name)), list(range(STEPS)))
        self.assertEqual(self.losses("plain"), self.losses(name))

    def test_goes_on_while_workers_die_and_machines_change(self):
        machines = self.folder / "machines"
        machines.write_text("localhost 4\n")
        process = self.start("list", "--machines", str(machines))
        self.await_step(process, "list", 30)
        self.signal_worker(2, signal.SIGKILL)
        self.await_line(process, "round 2: ")
        for number, (step, workers) in enumerate(((50, 3), (100, 4)), 3):
            self.await_step(process, "list", step)
            machines.write_text(f"localhost {workers}\n")
            self.await_line(process, f"round {number}: ")
        lines = self.finish(process)
        rounds = [line.partition(": ")[2] for line in lines if line.startswith("round ")]
        self.assertEqual(rounds, ["2 pipelines x 2 stages on localhost 4"] * 2
                         + ["1 pipeline x 2 stages on localhost 2; 1 worker idle", "2 pipelines x 2 stages on localhost 4"])
        self.assertEqual(sum("continues from its newest checkpoint" in line for line in lines), 1, lines)
        self.same("list")

    @unittest.skipUnless(WHOLE, "it waits for hang limits: --whole")
    def test_goes_on_without_a_blocked_and_a_stopped_worker(self):
        """A function of the script blocks in one worker, later a signal stops one, and the end of the training has an
        evaluation that takes longer than the limit."""
        process = self.start("hangs", "-w", "4")
        self.await_step(process, "hangs", 30)
        (self.folder / "hangs" / "block").touch()
        self.await_line(process, "round 2: ")
        blamed = [line for line in self.said() if "makes no progress" in line]
        self.assertEqual(len(blamed), 2, blamed)  # at half of the limit, and at the limit
        for line in blamed:
            self.assertRegex(line, r"^worker [13] \(.*, pid \d+\) makes no progress: it has been in step \d+, at 1F\d "
                                   r"\(stage 1, micro-batch \d, step \d+\) for \d+ s, and the others wait for it; "
                                   r"the slowest of the last steps took [0-9.e-]+ s")
        self.assertRegex(blamed[0], rf"; it is ended after [0-9.]+ s \(--hang-limit {LIMIT_S}\)$")
        self.await_step(process, "hangs", 80)
        self.signal_worker(1, signal.SIGSTOP)
        self.await_line(process, "round 3: ")
        self.assertTrue(any(re.match(r"worker 1 \(.*\) (is stopped|makes no progress)", line) for line in self.said()),
                        self.said())
        (self.folder / "hangs" / "evaluate").touch()
        lines = self.finish(process)
        self.assertTrue((self.folder / "hangs" / "evaluate done").exists())
        self.assertEqual(sum(line.startswith("round ") for line in lines), 3, lines)
        self.same("hangs")

    def test_refuses_scripts_that_do_not_take_part(self):
        for wrong, says in (("micro_batches", "trains 6 micro-batches per step, and heturun --layout defines 8"),
                            ("first_pieces", "first_pieces= fixes it"), ("whole_batches", "pass whole_batches=True"),
                            ("loop", "needs the loop `for step in hetu.torch.loop")):
            done = subprocess.run([*HETURUN, "--elastic", "--layout", "1x1x8", "-w", "1", *self.command("wrong", wrong)],
                                  capture_output=True, text=True, timeout=MANY_S, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(says, done.stderr)
            self.assertIn("another round would fail in the same way", done.stderr)
            self.assertEqual(done.stderr.count("round 1: "), 1, done.stderr)
            self.assertNotIn("round 2: ", done.stderr)

    def test_the_example_of_the_page(self):
        run = self.folder / "example"
        done = subprocess.run([*HETURUN, "--elastic", "--layout", "2x2x4", "-w", "2", sys.executable, str(EXAMPLE), str(run),
                               "30"], capture_output=True, text=True, timeout=MANY_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^\[0\] after 30 steps: \d\.\d+\n$")
        self.assertEqual(len((run / "losses-0").read_text().splitlines()), 30)

    def test_an_interrupted_training_continues(self):
        """SIGUSR1 ends the job after a save. The next job finishes it."""
        process = self.start("asked", "-w", "2")
        self.await_step(process, "asked", 10)
        process.send_signal(signal.SIGUSR1)
        self.finish(process)
        self.assertRegex(self.errors.read_text(), rf"stopped as asked after \d+ of {STEPS} steps; saved in ")
        process = self.start("asked", "-w", "4")
        self.finish(process)
        self.assertRegex(self.errors.read_text(), rf"continues from step \d+ of {STEPS} in ")
        self.same("asked")


if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
