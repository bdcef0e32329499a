#!/usr/bin/env python3
"""Loops of other libraries with a model in stages: the Trainer of transformers, Accelerate and Lightning, by the adapters of
docs/examples.

Each loop ends with the bits of the same loop with the whole model in one process, whose batches are the micro-batches.
Skipped where PyTorch or the library is not installed (`./run torch`)."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[2] / "docs"
LIBRARIES = {"trainer": "transformers", "tied": "transformers", "accelerate": "accelerate", "lightning": "lightning"}
MOST_LINES = 40
HAS_TORCH = find_spec("torch") is not None
if HAS_TORCH:
    import torch

    import torch_loops


def pages():
    """Returns the scripts of the section about loops, by the library that each uses."""
    section = (DOCS / "pytorch.md").read_text().split("\n## Loops of other libraries\n")[1].split("\n## ")[0]
    found = re.findall(r"```py\n(.*?)```", section, flags=re.S)
    return {"transformers" if "transformers" in text else "lightning": text for text in found}


def needed(library):
    """Skips a test with a printed reason where a library is not installed."""
    return unittest.skipUnless(find_spec(library), f"{library} is not there: pip install {library}")


@unittest.skipUnless(HAS_TORCH, "PyTorch is not there: ./run torch installs it")
class Loops(unittest.TestCase):
    """One job of two workers for all loops, and one process for the same loops without Hetu."""

    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        cls.folder = Path(place.name)
        cases = [name for name, library in LIBRARIES.items() if find_spec(library)]
        scripts = []
        for number, (library, text) in enumerate(pages().items()):
            if find_spec(library):
                scripts.append(f"page {number}")
                (cls.folder / f"page {number}.py").write_text(text)
        started = [cls.start(["heturun", "-w", "2", sys.executable], [*(n for n in cases if n != "accelerate"), *scripts])]
        if "accelerate" in cases:  # torchrun's variables make Accelerate start a process group
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            started.append(cls.start(torchrun, ["accelerate"]))
        torch_loops.run(cls.folder, "whole", 0, cases)
        cls.said = [cls.finished(run) for run in started]

    @classmethod
    def start(cls, command, cases):
        return subprocess.Popen([*command, HERE / "torch_loops.py", cls.folder, *cases], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"})

    @classmethod
    def finished(cls, run):
        said, _ = run.communicate(timeout=300)
        if run.returncode:
            raise AssertionError(said)
        return said

    def results(self, name):
        """Yields the results of both workers, and those of the one process without Hetu."""
        plain = torch.load(self.folder / f"{name}-whole-0.pt", weights_only=False)
        for worker in range(2):
            staged = torch.load(self.folder / f"{name}-stages-{worker}.pt", weights_only=False)
            for part, found in staged.items():
                yield f"{name} {part}, worker {worker}", found, plain.get(part, plain["first"])

    def same_bits(self, name):
        for case, found, want in self.results(name):
            self.assertEqual(list(found["weights"]), list(want["weights"]), case)
            for key, tensor in want["weights"].items():
                self.assertTrue(torch.equal(found["weights"][key], tensor), f"{case}: {key}")

    def same_numbers(self, found, want, case):
        """Compares logged numbers, which are float32 sums in another order."""
        self.assertEqual(list(found), list(want), case)
        for key, value in want.items():
            self.assertAlmostEqual(found[key], value, delta=1e-5 * max(1, abs(value)), msg=f"{case}: {key}")

    @needed("transformers")
    def test_trainer(self):
        """Covers a collator, callbacks, a schedule of rates, accumulation, clipping, metrics, the best model, and resuming.
        """
        self.same_bits("trainer")
        for name in ("trainer", "tied"):
            for case, found, want in self.results(name):
                self.assertEqual(found["steps"], want["steps"], case)
                self.assertEqual(len(found["history"]), len(want["history"]), case)
                for mine, theirs in zip(found["history"], want["history"], strict=True):
                    self.same_numbers(dict(sorted(mine.items())), dict(sorted(theirs.items())), case)
        for case, found, want in self.results("tied"):  # the gradient of its head is a sum over two stages
            for key, tensor in want["weights"].items():
                self.assertLess(float((found["weights"][key] - tensor).abs().max()), 1e-5, f"{case}: {key}")

    @needed("transformers")
    def test_trainer_saves_a_whole_model(self):
        """from_pretrained() reads the model, also with a tied head. Only one worker writes and prints."""
        from transformers import GPT2LMHeadModel

        for name in ("trainer", "tied"):
            want = torch.load(self.folder / f"{name}-stages-0.pt", weights_only=False)["first"]["weights"]
            found = GPT2LMHeadModel.from_pretrained(self.folder / f"{name}-stages").state_dict()
            self.assertEqual(set(found), set(want))
            self.assertTrue(all(torch.equal(found[key], tensor) for key, tensor in want.items()))
        saved = self.folder / "trainer-stages" / "checkpoint-3"
        self.assertFalse((saved / "optimizer.pt").exists())
        self.assertTrue((saved / "pipeline" / "step-00000006" / "manifest.json").is_file())
        logged = [line for line in self.said[0].splitlines() if "'eval_loss'" in line]
        self.assertTrue(logged and all(line.startswith("[0] ") for line in logged), self.said[0])
        state = json.loads((saved / "trainer_state.json").read_text())
        self.assertEqual(state["global_step"], 3)

    @needed("accelerate")
    def test_accelerate(self):
        """The unchanged example works under torchrun. Training that continues from its saved state ends with the same bits.
        """
        self.same_bits("accelerate")
        printed = re.findall(r"^update (\d+): loss", self.said[-1], flags=re.M)
        self.assertEqual(printed, [str(n) for n in [*range(1, 9), *range(5, 9)]], self.said[-1])
        self.assertEqual(sorted(path.name for path in (self.folder / "accelerate" / "4").glob("random*")),
                         ["random_states_0.pkl", "random_states_1.pkl"])

    @needed("lightning")
    def test_lightning(self):
        """Covers accumulation, clipping, a schedule of rates, validation, metrics, top checkpoints, and resuming."""
        self.same_bits("lightning")
        for case, found, want in self.results("lightning"):
            self.same_numbers(found["metrics"], want["metrics"], case)
        kept = sorted(path.name for path in (self.folder / "lightning-stages").glob("*.ckpt*"))
        self.assertEqual(kept, sorted([*(name for name in kept if name.endswith(".ckpt")),
                                       *(f"{name}.pipeline" for name in kept if name.endswith(".ckpt"))]))
        whole = torch.load(self.folder / "lightning-stages" / kept[0], weights_only=False)["state_dict"]
        self.assertEqual(len(whole), 10)

    def test_examples_are_short(self):
        found = sorted((DOCS / "examples").glob("torch_*.py"))
        self.assertEqual(len(found), 4)
        for path in found:
            lines = [line for line in path.read_text().splitlines() if line.strip()]
            self.assertLessEqual(len(lines), MOST_LINES, path.name)

    def test_scripts_of_the_page(self):
        self.assertEqual(sorted(pages()), ["lightning", "transformers"])
        for number, library in enumerate(pages()):
            if find_spec(library):
                self.assertEqual(len(re.findall(rf"RAN page {number} stages", self.said[0])), 2, self.said[0])


@unittest.skipUnless(HAS_TORCH, "PyTorch is not there: ./run torch installs it")
class SingleProcess(unittest.TestCase):
    """hetu.torch.single_process(), and errors without it."""

    def test_hides_and_restores_the_variables(self):
        import hetu.torch

        given = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "here", "SLURM_NTASKS": "2",
                 "OMPI_COMM_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x", "MY_RANK": "1"}
        script = ("import os, hetu.torch\n"
                  "import json, sys\n"
                  "given = json.loads(sys.argv[1])\n"
                  "with hetu.torch.single_process() as worker:\n"
                  "    os.environ.update(given)\n"
                  "with hetu.torch.single_process() as worker:\n"
                  "    print(worker, sorted(set(given) & set(os.environ)))\n"
                  "print(all(os.environ[name] == value for name, value in given.items()))\n")
        self.assertTrue(callable(hetu.torch.single_process))
        done = subprocess.run([sys.executable, "-c", script, json.dumps(given)], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "0 ['MASTER_ADDR', 'MY_RANK']\nTrue\n")

    @needed("accelerate")
    def test_accelerate_that_is_set_up_already(self):
        """An Accelerate that is set up for several processes is refused. Otherwise it would wrap and shard."""
        script = ("import accelerate.state, hetu.torch\n"
                  "accelerate.state.PartialState()\n"
                  "accelerate.state.PartialState._shared_state['num_processes'] = 2\n"
                  "with hetu.torch.single_process():\n"
                  "    pass\n")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        self.assertRegex(done.stderr.splitlines()[-1], "^RuntimeError: Accelerate has been set up for 2 processes")


if __name__ == "__main__":
    unittest.main(verbosity=2)
