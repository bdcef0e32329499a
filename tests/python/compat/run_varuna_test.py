#!/usr/bin/env python3
"""Varuna's launcher, with the command line of its README: the arguments of the script, a list of machines that changes, a
worker that is killed, and wrong input. The training is that of varuna_megatron.py."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from hetu.compat.varuna import node, run_varuna
from processes import process_of, processes_with

HERE = Path(__file__).resolve().parent
SCRIPT = HERE / "varuna_megatron.py"
STEPS = 80
MANY_S = 250.0


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.list = self.folder / "available_machines.out"


class WrongInput(Case):
    def says(self, text, *words, script=str(SCRIPT)):
        self.addCleanup(os.chdir, os.getcwd())
        with contextlib.redirect_stderr(io.StringIO()) as said:
            code = run_varuna.main(["--machine_list", str(self.list), "--batch-size", "8", "--code_dir", str(self.folder),
                                    *words, script])
        self.assertEqual(code, 2)
        self.assertRegex(said.getvalue(), rf"\Arun_varuna: {text}")
        self.assertEqual(said.getvalue().count("\n"), 1, said.getvalue())

    def test_is_one_line(self):
        grid = ("--nstages", "2", "--chunk_size", "2")
        self.says("--machine_list .*: no such file; write an address per line", *grid)
        self.list.write_text("127.0.0.1\n10.0.0.1; rm\n")
        self.says("--machines .*, line 2: expected HOST", *grid)
        self.list.write_text("127.0.0.1\n")
        self.says("nothing.py: no such script in ", *grid, script="nothing.py")
        self.says("give both --nstages and --chunk_size", "--nstages", "2")
        self.says("profiles/compute-profile-0|profiles: ")  # nothing to choose from
        self.says("--batch-size 8 isn't a multiple of --chunk_size 3, and every layout keeps the batch: choose 6 or 9",
                  "--nstages", "2", "--chunk_size", "3")
        self.says("--nstages 0: it must be at least 1", "--nstages", "0", "--chunk_size", "2")
        self.says("--nstages 5 needs as many workers, and the list has 4", "--nstages", "5", "--chunk_size", "2",
                  "--no_morphing")
        self.says("--resume: no job with the log folder .* has saved a checkpoint", *grid, "--resume")
        self.says("--manager_ip 192.0.2.1: the manager runs on this machine", *grid, "--manager_ip", "192.0.2.1")
        (self.folder / "varuna.env").write_text("A=1\nB\n")
        self.says("varuna.env, line 2: expected NAME=VALUE, got 'B'", *grid)


class Node(Case):
    def test_gives_a_rank_what_varuna_gives(self):
        given = node.flags().parse_args(["--stages", "2", "--replicas", "3", "--chunk_size", "4", "--batch_size", "24",
                                         "--resume_step", "7", "train.py", "--lr", "0.1"])
        self.assertEqual(node.arguments_of(given, 3, 1), [
            "--rank=3", "--local_rank=1", "--chunk_size=4", "--stage_to_rank_map=0,2,4;1,3,5;", "--batch-size=8",
            "--resume_step=7", "--lr", "0.1"])
        file = self.folder / "varuna.env"
        file.write_text("# of the cluster\nexport GLOO_SOCKET_IFNAME=eth0\nA='b c'\n\nNCCL_DEBUG=INFO\n")
        self.assertEqual(node.read_variables(file), {"GLOO_SOCKET_IFNAME": "eth0", "A": "b c", "NCCL_DEBUG": "INFO"})


class Alone(Case):
    def test_no_morphing_passes_signals_on(self):
        """A signal to the launcher ends the job, and leaves no process behind."""
        self.list.write_text("127.0.0.1\n")
        (self.folder / "waits.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(300)\n")
        mark = f"varuna-{uuid.uuid4()}"
        process = subprocess.Popen(
            [sys.executable, "-m", "varuna.run_varuna", "--machine_list", str(self.list), "--gpus_per_node", "2",
             "--batch-size", "4", "--nstages", "2", "--chunk_size", "2", "--code_dir", str(self.folder), "--no_morphing",
             "waits.py"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "MARK": mark})
        for _ in range(2):
            self.assertIn("up", process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 143, error)
        self.assertIn("heturun: SIGTERM: ending 2 workers", error)
        self.assertEqual(list(processes_with(mark)), [])


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Training(Case):
    def start(self, name, *words):
        """Starts the launcher as its README does, with the logs in the folder `name`."""
        self.mark = f"varuna-{uuid.uuid4()}"
        self.said = self.folder / f"{name}.said"
        with open(self.said, "w", encoding="utf-8") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "varuna.run_varuna", "--machine_list", str(self.list), "--gpus_per_node", "1",
                 "--batch-size", "8", "--nstages", "2", "--chunk_size", "2", "--code_dir", str(HERE), "--log_dir",
                 str(self.folder / name), *words, "varuna_megatron.py", "--save", str(self.folder / f"{name}.store"),
                 "--iterations", str(STEPS), "--share"], stdout=subprocess.DEVNULL, stderr=said,
                env={**os.environ, "MARK": self.mark, "VARUNA_TEST_PAUSE_S": "0.05"})
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def losses(self, name):
        """Returns (step, loss) of the lines of worker 0, in their order."""
        path = self.folder / name / "worker-0.out"
        return [(int(step), loss) for step, loss in re.findall(r"ITERATION (\d+) LOSS (\S+)\n", path.read_text())
                ] if path.exists() else []

    def await_true(self, process, is_true):
        until = time.monotonic() + MANY_S
        while not is_true():
            self.assertIsNone(process.poll(), self.said.read_text())
            self.assertLess(time.monotonic(), until, self.said.read_text())
            time.sleep(0.05)

    def await_steps(self, process, name, number, steps=10):
        """Waits until `steps` further steps are done after the begin of round `number`."""
        self.await_true(process, lambda: f"round {number}: " in self.said.read_text())
        before = len(self.losses(name))
        self.await_true(process, lambda: len(self.losses(name)) >= before + steps)

    def finish(self, process):
        self.assertEqual(process.wait(MANY_S), 0, self.said.read_text())
        self.assertNotIn("Exception", self.said.read_text())
        return [line[len("run_varuna: "):] for line in self.said.read_text().splitlines() if line.startswith("run_varuna")]

    def test_goes_on_when_machines_come_and_go(self):
        """Four workers, two, a killed worker, four: each step has the loss of a training that nothing disturbs."""
        self.list.write_text("127.0.0.1\n" * 4)
        self.finish(self.start("plain"))
        plain = dict(self.losses("plain"))
        self.assertEqual(list(plain), list(range(1, STEPS + 1)))
        process = self.start("morphs")
        self.await_steps(process, "morphs", 1)
        self.list.write_text("127.0.0.1\n" * 2)
        self.await_steps(process, "morphs", 2)
        os.kill(process_of(self.mark, "hetu.compat.varuna.node", 1), signal.SIGKILL)
        self.await_steps(process, "morphs", 3)
        self.list.write_text("127.0.0.1\n" * 4)
        lines = self.finish(process)
        seen = self.losses("morphs")
        self.assertEqual([one for one in seen if plain[one[0]] != one[1]], [])
        self.assertEqual({step for step, _ in seen}, set(plain))
        self.assertEqual([line for line in lines if line.startswith("round ")], [
            "round 1: 2 pipelines x 2 stages on 127.0.0.1 4", "round 2: 1 pipeline x 2 stages on 127.0.0.1 2",
            "round 3: 1 pipeline x 2 stages on 127.0.0.1 2", "round 4: 2 pipelines x 2 stages on 127.0.0.1 4"])
        saved = [int(step) for line in lines for step in re.findall(r"continues from step (\d+) in ", line)]
        self.assertEqual(len(saved), 3, lines)
        self.assertEqual(saved[0], saved[1])  # the killed worker's round had saved nothing
        self.assertIn(" again, because no checkpoint was saved since", "\n".join(lines))
        repeated = [step for step, count in Counter(step for step, _ in seen).items() if count > 1]
        self.assertEqual(repeated, list(range(saved[0] + 1, saved[0] + 1 + len(repeated))))  # since the last save
        self.assertGreaterEqual(len(repeated), 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
