#!/usr/bin/env python3
"""hetu.torch compared with plain PyTorch: losses, weights and norms after five steps, checkpoints, traces, and refused
settings.

Skipped where PyTorch is not installed (`./run torch`). A sample by default. --whole tries every case, four workers, the
models of transformers, and a part of the grid of methods and models. --every tries the whole grid (hours), and nothing else.
--seed N selects other weights and samples."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from torch_cases import EXACT, FOUR, SAMPLE, SUMMED, TWO, snippets

HERE = Path(__file__).resolve().parent
SEED = sys.argv[sys.argv.index("--seed") + 1] if "--seed" in sys.argv else "7"
WHOLE = "--whole" in sys.argv
EVERY = "--every" in sys.argv
LINE = re.compile(r"CASE (.+): worker (\d+) bits (\w+) weights (\S+) numbers (\S+)")


def job(workers, folder, cases, most_s=600):
    """Returns the output of torch_worker.py. Raises an error with it if the job fails."""
    run = subprocess.run(["heturun", "-w", str(workers), sys.executable, HERE / "torch_worker.py", folder, SEED, *cases],
                         capture_output=True, text=True, timeout=most_s)
    if run.returncode or "leaked" in run.stderr:
        raise AssertionError(f"seed {SEED}: {run.stdout}\n{run.stderr}")
    return run.stdout


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Torch(unittest.TestCase):
    """Complete trainings in processes."""

    def expect(self, printed, workers, cases):
        """Checks for equal bits, or for errors within 1e-6 of the norm where sums go over copies."""
        found = LINE.findall(printed)
        self.assertEqual({(name, int(w)) for name, w, *_ in found},
                         {(name, w) for name in cases for w in range(workers)}, printed)
        for name, worker, bits, weights, numbers in found:
            with self.subTest(case=name, worker=worker, seed=SEED):
                if any(word in name for word in SUMMED) and name not in EXACT:
                    self.assertLess(float(weights), 1e-6)
                    self.assertLess(float(numbers), 1e-6)
                else:
                    self.assertEqual(bits, "True", printed)

    def same_after(self, folder, one, other):
        """Checks that one more step of the trainings that saved and loaded ends with the same bits."""
        import torch

        first, second = (torch.load(Path(folder, f"after_{name}.pt"), weights_only=True) for name in (one, other))
        self.assertEqual(list(first), list(second))
        self.assertTrue(all(torch.equal(first[name], second[name]) for name in first))

    @unittest.skipIf(WHOLE, "a sample of --whole")
    def test_sample(self):
        """One job covers methods, a tie, a checkpoint that continues in four stages instead of two, and the page's unchanged
        code blocks."""
        with tempfile.TemporaryDirectory() as folder:
            pages = [f"page {number}" for number in range(len(snippets()))]
            for name, text in zip(pages, snippets(), strict=True):
                Path(folder, f"{name}.py").write_text(text)
            printed = job(2, folder, [*SAMPLE, "bad", "empty", "loaded", "dcp", "varuna overflow 2 1", *pages])
            for word, lines in (("BAD ", 14), ("EMPTY ", 3), ("OVERFLOW", 1), ("LOADED", 1),
                                ("DCP: ", 1)):
                self.assertEqual(printed.count(word), 2 * lines, printed)
            self.expect(printed, 2, SAMPLE[:-2])
            self.same_after(folder, "save_2", "load_2")
            self.same_after(folder, "dcp_2", "dcp_again_2")
            for name in pages:
                self.assertEqual(printed.count(f"RAN {name}"), 2, printed)

    @unittest.skipUnless(WHOLE, "--whole")
    def test_equals_plain_torch(self):
        """All cases equal plain PyTorch. A checkpoint of two workers continues with four by another schedule, to the same
        bits."""
        with tempfile.TemporaryDirectory() as folder:
            self.expect(job(2, folder, TWO), 2, TWO[:-3])
            self.same_after(folder, "save_2", "load_2")
            trace = json.loads(Path(folder, "trace.json").read_text())
            kinds = {event.get("name", "") for event in trace["traceEvents"]}
            self.assertTrue(any("W" in kind for kind in kinds) and any("I" in kind for kind in kinds), kinds)
            self.expect(job(4, folder, FOUR), 4, FOUR[:-1])
            self.same_after(folder, "save_2", "load_4")
            next(Path(folder).glob("*/model-worker-00001.safetensors")).unlink()
            with self.assertRaisesRegex(AssertionError, "model-worker-00001.safetensors.*No such file"):
                job(4, folder, ["load"])

    @unittest.skipUnless(WHOLE, "--whole")
    @unittest.skipUnless(find_spec("transformers"), "transformers is not there: ./run torch installs it")
    def test_models_of_transformers(self):
        """Unmodified models of transformers and torchvision, including tied heads and masks, equal their own forward. Also
        on 4 workers."""
        import torch_models

        for workers in (2, 4):
            with self.subTest(workers=workers):
                self.models(job(workers, tempfile.gettempdir(), torch_models.MODELS), workers * len(torch_models.MODELS))

    @unittest.skipUnless(WHOLE or EVERY, "--whole tries a part, --every all")
    @unittest.skipUnless(find_spec("transformers"), "transformers is not there: ./run torch installs it")
    def test_grid(self):
        """Every method that flushes trains these models: 2 and 4 stages, with and without recomputation, 1 and 2 pipelines.
        """
        import torch_grid

        for stages, pipelines in ((2, 1), (4, 1), (2, 2), (4, 2)):
            cases = torch_grid.cases(stages, pipelines, EVERY)
            with self.subTest(stages=stages, pipelines=pipelines):
                printed = job(stages * pipelines, tempfile.gettempdir(), cases, 7200)
                found = LINE.findall(printed)
                self.assertEqual(len(found), stages * pipelines * len(cases), printed)
                print(f"grid {stages} stages, {pipelines} pipelines: {len(cases)} cases, "
                      f"{len({name for name, *_ in found if torch_grid.exact(name)})} of them to the bit", flush=True)
                for name, worker, bits, weights, numbers in found:
                    with self.subTest(case=name, worker=worker, seed=SEED):
                        self.assertTrue(bits == "True" or not torch_grid.exact(name), name)
                        self.assertLess(float(weights), 1e-6)
                        self.assertLess(float(numbers), 1e-6)

    def models(self, printed, lines):
        """Checks the output of torch_models.py."""
        found = LINE.findall(printed)
        self.assertEqual(len(found), lines, printed)
        for name, _, bits, weights, numbers in found:
            self.assertTrue(bits == "True" or name.startswith(("bert", "gpt2", "t5")), printed)  # these have tied heads
            self.assertLess(float(weights), 1e-5, name)
            self.assertLess(float(numbers), 1e-6, name)
        self.assertEqual(printed.count("names True"), lines, printed)

    def test_refuses_in_one_line(self):
        """Wrong uses are refused in one process, whose plan has enough stages."""
        import torch
        from torch import nn

        import hetu.torch

        class Merge(nn.Module):
            def forward(self, x):
                return x.reshape(-1, 2)

        class Counts(nn.Module):
            def forward(self, x):
                return x[x > 0]

        class Scale(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(4))

            def forward(self, x):
                return x * self.scale

        def without_memory():
            with hetu.torch.empty():
                return [nn.Linear(4, 4), Scale()]

        x, loss = torch.ones(8, 4), nn.MSELoss()
        line = nn.Linear(4, 4)
        tied = nn.Sequential(line, nn.Linear(4, 4), nn.Linear(4, 4))
        tied[1].weight = tied[2].weight = line.weight
        three = {"schedule": "interleaved-1f1b", "micro_batches": 3, "chunks": 3}
        two = {"schedule": "zb-v", "micro_batches": 2}  # two stages on one worker
        cases = [
            (lambda: hetu.torch.Pipeline([line], loss, **two), "has 1 piece.* for 2 model stages: 0 cut"),
            (lambda: hetu.torch.Pipeline(tied, loss, **three), "'0.weight' is used on model stages 0 and 1 and 2, and"),
            (lambda: hetu.torch.Pipeline([line, lambda v: v], loss, **two), "piece 1 of the model is not an nn.Module but "
                                                                            "function"),
            (lambda: hetu.torch.Pipeline(nn.Sequential(nn.Sequential(line, hetu.torch.CutPoint()), line), loss, **two),
             "CutPoint '1' is inside a Sequential"),
            (lambda: hetu.torch.Pipeline([line, line], loss, **two), "is used on model stages 0 and 1"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], loss, "pipedream", 2).step(x, x), "updates stages "
                                                                                                    "one by one"),
            (lambda: hetu.torch.Pipeline([line, Merge()], loss, **two).step(x, x), r"stage 1 \(Merge\).* the number "
                                                                                    r"of samples"),
            (lambda: hetu.torch.Pipeline([line, Counts()], loss, **two).step(x, x), r"stage 1 \(Counts\).* number of "
                                                                                     r"samples"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], loss, "gpipe", 5).step(x[:0], x[:0]), "a batch of 0"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], nn.MSELoss(reduction="none"), **two).step(x, x),
             "must be a scalar"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], loss, first_pieces=[0, 2], **two), r"first_pieces "
                                                                                                      r"\[0, 2\]"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], loss, pipelines=2, **two), "1 workers can't be divided "
                                                                                             "into 2 pipelines"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], loss, **two).load("/nowhere"), "holds no checkpoint"),
            (lambda: hetu.torch.Pipeline(without_memory(), loss, **two),
             r"'1.scale' of a model made in empty\(\) has no value: Scale has no reset_parameters"),
        ]
        for make, message in cases:
            with self.subTest(message=message), self.assertRaisesRegex(Exception, message) as caught:
                make()
            self.assertNotIn("\n", str(caught.exception).strip())

    def test_varuna_readme(self):
        """The form of Varuna's README works: CutPoints in a plain list, local_rank as the device, a bool in the batch, two
        values."""
        import torch
        from torch import nn

        from varuna import CutPoint, Varuna

        class SampleModel(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
                self.lm_head_weight = nn.Parameter(self.blocks[0].weight.detach().clone())
                self.cutpoints = [CutPoint() for _ in range(3)]

            def forward(self, inputs, mask, extra_norm=False):
                x = inputs
                for block, cut in zip(self.blocks, self.cutpoints, strict=True):
                    x = cut(torch.tanh(block(x)) * mask)
                out = nn.functional.linear(x, self.lm_head_weight)
                return (out.norm() * 0 if extra_norm else 0) + ((out - inputs) ** 2).mean()

        def get_batch_fn(size, device=None):
            inputs, mask = [t.to(device or "cpu") for t in (torch.ones(size, 4), torch.ones(size, 1))]
            return {"inputs": inputs, "mask": mask, "extra_norm": True}

        torch.manual_seed(1)
        device = "cpu" if torch.cuda.is_available() else 0
        model = Varuna(SampleModel(), "0;", get_batch_fn, 8, 2, False, local_rank=0, device=device,
                       shared_weights=[("blocks.0.weight", "lm_head_weight")], step_values=2)
        self.assertEqual(len(model.pipe.pieces.pieces), 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        model.set_optimizer(optimizer)
        losses = []
        for _ in range(12):
            loss, overflow = model.step(get_batch_fn(8))
            losses.append(float(torch.Tensor([loss])))
            if not overflow:
                optimizer.step()
            model.zero_grad()
        self.assertLess(losses[-1], losses[0])

    def test_varuna_profiles(self):
        """Profiles are written by both calling conventions. Sizes that are already in a file can be kept."""
        import torch_varuna
        from varuna import Profiler

        def get_batch(size):
            return torch_varuna.batch_of(size, "cpu")

        with tempfile.TemporaryDirectory() as folder:
            profiler = Profiler(torch_varuna.Model(tied=False), "cpu", fp16=False)
            with self.assertRaisesRegex(ValueError, r"call initialize\(get_batch\) first"):
                profiler.profile_all([1])
            profiler.initialize(get_batch)
            self.assertEqual(list(profiler.profile_all(get_batch, [1, 2], out_folder=folder)), [0, 1, 2, 3])
            more = Profiler(torch_varuna.Model(tied=False), torch_varuna.batch_of, out_folder=folder, pstages_to_profile=[1],
                            add_to_existing=True)
            more.profile_all([4])
            told = [json.loads(Path(folder, f"compute-profile-{n}").read_text()) for n in range(4)]
            self.assertEqual([sorted(one) for one in told], [["1", "2"], ["1", "2", "4"], ["1", "2"], ["1", "2"]])
            for size, found in told[1].items():
                self.assertEqual(sorted(found), ["acts_size", "bwd", "copy", "fwd", "max_memory"])
                self.assertGreater(min(found["bwd"], found["fwd"]), 0)
                self.assertGreaterEqual(found["acts_size"], int(size) * 7 * 16 * 4)

    def test_varuna_refuses_in_one_line(self):
        """Wrong uses are refused on one worker."""
        import torch
        from torch import nn

        from hetu.varuna import CutPoint, Varuna, get_this_rank_config_varuna, get_varuna_config

        class Twice(nn.Module):
            def __init__(self, other=False, reads=False):
                super().__init__()
                self.line, self.cut, self.other, self.reads = nn.Linear(4, 4), CutPoint(), other, reads

            def forward(self, x):
                if self.reads and x.sum() > 0:
                    return x
                return self.line(self.cut(self.cut(x)) if not self.other or self.training else self.cut(x)).mean()

        def varuna(model=None, text="0;", size=8, chunk=2, **more):
            return lambda: Varuna(model or Twice(), text, lambda rows, _: {"x": torch.ones(rows, 4)}, size, chunk, **more)

        cases = [
            (varuna(fp16=True, bf16=True), "fp16 and bf16"),
            (varuna(text="0;1;"), "names 2 ranks, but the job has 1 workers"), (varuna(text="0;1"), "names 2 ranks"),
            (varuna(text="0,1;2;"), "stages have 2, 1 ranks"), (varuna(text="0;0;"), r"names the ranks 0, 0"),
            (varuna(text="a;"), "expected ranks separated by commas"), (varuna(size=0), "batch_size 0"),
            (varuna(chunk=0), "chunk_size 0"),
            (varuna(step_values=1), "step_values 1"), (varuna(), "CutPoint 'cut' is used 2 times"),
            (varuna(Twice(other=True)), r"Twice: its forward takes different paths in train\(\)"),
            (varuna(Twice(reads=True)), "Twice: its forward cannot be traced from cut to cut"),
            (lambda: get_this_rank_config_varuna("0,2;1,3;", 4), "has no rank 4"),
        ]
        for make, message in cases:
            with self.subTest(message=message), self.assertRaisesRegex(Exception, message) as caught:
                make()
            self.assertNotIn("\n", str(caught.exception).strip())
        self.assertEqual(get_varuna_config("0,2;1,3;"), (2, 2))
        self.assertEqual([get_this_rank_config_varuna("0,2;1,3;", r) for r in range(4)], [(0, 0), (1, 0), (0, 1), (1, 1)])

    @unittest.skipUnless(WHOLE, "--whole")
    def test_varuna_beside_one_process(self):
        """Loss and every gradient equal one process, over stages, replicas and sizes of micro-batches. An overflow occurs in
        one stage of one replica."""
        for workers in (2, 4):
            sizes = [(p, workers // p) for p in (1, 2, 4) if p <= workers]
            printed = job(workers, tempfile.gettempdir(),
                          [*(f"varuna grid {p} {d}" for p, d in sizes), f"varuna overflow 2 {workers // 2}"])
            found = re.findall(r"GRID .*: worker \d far (\S+)", printed)
            self.assertEqual(len(found), workers * len(sizes) * 4, printed)
            self.assertLess(max(map(float, found)), 1e-5, printed)
            self.assertEqual(printed.count("OVERFLOW"), workers, printed)

    @unittest.skipUnless(WHOLE, "--whole")
    def test_varuna_goes_on_elsewhere(self):
        """A job saves at 4 stages and 2 replicas, and continues for 20 steps at other sizes. The same size gives the same
        bits. A job that is killed in the middle of a save leaves the previous checkpoint."""
        from hetu.varuna import checkpoint

        with tempfile.TemporaryDirectory() as folder:
            printed = job(8, folder, ["varuna on 4,2 4,2 2,4 1,8 8,1"]) + job(3, folder, ["varuna from 3,1"])
            found = re.findall(r"ON (\d) (\d): worker \d bits (\w+) far (\S+)", printed)
            self.assertEqual(len(found), 8 * 5 + 3, printed)
            for stages, replicas, bits, far in found:
                self.assertTrue(bits == "True" or (stages, replicas) != ("4", "2"), printed)
                self.assertLess(float(far), 1e-4, printed)
            with self.assertRaises(AssertionError):
                job(2, folder, ["varuna killed"])
            self.assertEqual(checkpoint.latest(Path(folder, "killed")), 1)

    def _check_clocks(self, forwards):
        """No stage computes before its input exists, so that the ranks' times have one origin."""
        begins = {tuple(e["args"][key] for key in ("step", "micro", "stage")): e["ts"] for e in forwards}
        for e in forwards:
            step, micro, stage = (e["args"][key] for key in ("step", "micro", "stage"))
            self.assertGreaterEqual(begins.get((step, micro, stage + 1), float("inf")), e["ts"] + e["dur"], e["name"])

    @unittest.skipIf(find_spec("torch") and version("torch").startswith(("2.6.", "2.11.")),
                     "ScheduleZBVZeroBubble of this PyTorch fails by itself on two ranks over gloo")
    def test_records_pipelining(self):
        """A trace of PyTorch's own run, which torchrun starts, is drawn, compared and simulated. All of its schedules with
        --whole."""
        names = ["ScheduleZBVZeroBubble"]
        if WHOLE:
            names += ["ScheduleGPipe", "Schedule1F1B", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble"]
        for name in names:
            with self.subTest(schedule=name), tempfile.TemporaryDirectory() as folder:
                trace = str(Path(folder, "trace.json"))
                run = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                                      HERE / "torch_recorded.py", trace, name], capture_output=True, text=True, timeout=300)
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
                events = json.loads(Path(trace).read_text())["traceEvents"]
                seen = [[e["name"] for e in events if e["ph"] == "X" and e["pid"] == pid and e["cat"] in "FBIW"]
                        for pid in (0, 1)]
                self.assertEqual(sorted(seen[0]), sorted(seen[1]))
                self.assertEqual(len([e for e in seen[1] if "F" in e]), 2 * 6 * (4 if "Z" in name or "I" in name else 2))
                self._check_clocks([e for e in events if e["ph"] == "X" and e["pid"] == 1 and e["cat"] == "F"])
                for words in (["compare", trace], ["timeline", trace, "-o", folder + "/run.html"],
                              ["simulate", "zb-v", "--stages", "2", "--micro-batches", "6", "--costs", trace]):
                    if words[0] == "simulate" and name != "ScheduleZBVZeroBubble":
                        continue
                    tool = subprocess.run(["hetu", *words], capture_output=True, text=True)
                    self.assertEqual(tool.returncode, 0, f"{words}: {tool.stderr}")

    @unittest.skipUnless(WHOLE, "--whole")
    def test_page(self):
        """Every code block of docs/pytorch.md runs as a separate script, on two workers."""
        for number, snippet in enumerate(snippets()):
            with tempfile.TemporaryDirectory() as folder:
                script = Path(folder, "script.py")
                script.write_text(snippet)
                run = subprocess.run(["heturun", "-w", "2", sys.executable, script], capture_output=True, text=True,
                                     cwd=folder, timeout=300)
                self.assertEqual(run.returncode, 0, f"snippet {number}: {run.stdout}{run.stderr}")
                self.assertNotIn("leaked", run.stderr)
                self.assertIn("loss", run.stdout)


if __name__ == "__main__":
    if "--seed" in sys.argv:
        at = sys.argv.index("--seed")
        del sys.argv[at:at + 2]
    sys.argv = [word for word in sys.argv if word not in ("--whole", "--every")]
    print(f"seed {SEED}", flush=True)
    unittest.main(verbosity=2)  # prints the reason for a skip
