#!/usr/bin/env python3
"""hetu.torch beside plain PyTorch: losses, weights and norms after five steps, checkpoints, traces, and what is refused.

Skipped where PyTorch is not there (`./run torch`). A sample by default; --whole tries every case, four workers and the
models of transformers. --seed N draws other weights and samples."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEED = sys.argv[sys.argv.index("--seed") + 1] if "--seed" in sys.argv else "7"
WHOLE = "--whole" in sys.argv
SAMPLE = ["gpipe", "zb-h1", "tied", "varuna 2 1", "save", "load"]
TWO = ["gpipe", "1f1b", "zb-h1", "zb-v", "interleaved", "chimera", "varuna", "recomputed", "zb-h1 recomputed",
       "norms", "norms recomputed", "skips", "skips zb-v", "told cuts", "tied", "tied zb-v", "tied chimera",
       "pipelines", "varuna 2 1", "varuna tied 2 1", "varuna pipelines 1 2", "save", "trace", "load"]
FOUR = ["1f1b", "zb-h1", "chimera", "cuts", "tied pipelines", "varuna 4 1", "varuna tied pipelines 2 2", "load"]
SUMMED = ("chimera", "tied", "pipelines", "varuna 4")  # the last: a skip that two stages read
LINE = re.compile(r"CASE (.+): worker (\d+) bits (\w+) weights (\S+) numbers (\S+)")


def job(workers, folder, cases):
    """What torch_worker.py prints; its error where it fails."""
    run = subprocess.run(["heturun", "-w", str(workers), sys.executable, HERE / "torch_worker.py", folder, SEED, *cases],
                         capture_output=True, text=True, timeout=600)
    if run.returncode or "leaked" in run.stderr:
        raise AssertionError(f"seed {SEED}: {run.stdout}\n{run.stderr}")
    return run.stdout


def snippets():
    """Of docs/pytorch.md."""
    found = re.findall(r"```python\n(.*?)```", (HERE.parent.parent / "docs" / "pytorch.md").read_text(), flags=re.S)
    assert found, "the page has no snippet"
    return found


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Torch(unittest.TestCase):
    """The whole path, in processes."""

    def expect(self, printed, workers, cases):
        """Bits where nothing is summed over copies, else within 1e-6 of the norm."""
        found = LINE.findall(printed)
        self.assertEqual({(name, int(w)) for name, w, *_ in found},
                         {(name, w) for name in cases for w in range(workers)}, printed)
        for name, worker, bits, weights, numbers in found:
            with self.subTest(case=name, worker=worker, seed=SEED):
                if any(word in name for word in SUMMED):
                    self.assertLess(float(weights), 1e-6)
                    self.assertLess(float(numbers), 1e-6)
                else:
                    self.assertEqual(bits, "True", printed)

    def same_after(self, folder, one, other):
        """One more step of the trainings that saved and loaded ends at the same bits."""
        import torch

        first, second = (torch.load(Path(folder, f"after_{name}.pt"), weights_only=True) for name in (one, other))
        self.assertEqual(list(first), list(second))
        self.assertTrue(all(torch.equal(first[name], second[name]) for name in first))

    @unittest.skipIf(WHOLE, "a sample of --whole")
    def test_sample(self):
        """One job: methods, a tie, a checkpoint that goes on in four stages instead of two, and the page's snippets as they
        stand."""
        with tempfile.TemporaryDirectory() as folder:
            pages = [f"page {number}" for number in range(len(snippets()))]
            for name, text in zip(pages, snippets(), strict=True):
                Path(folder, f"{name}.py").write_text(text)
            printed = job(2, folder, SAMPLE + pages)
            self.expect(printed, 2, SAMPLE[:-2])
            self.same_after(folder, "save_2", "load_2")
            for name in pages:
                self.assertEqual(printed.count(f"RAN {name}"), 2, printed)

    @unittest.skipUnless(WHOLE, "--whole")
    def test_equals_plain_torch(self):
        """Also: a checkpoint of two workers goes on with four by another schedule, to the same bits."""
        with tempfile.TemporaryDirectory() as folder:
            self.expect(job(2, folder, TWO), 2, TWO[:-3])
            self.same_after(folder, "save_2", "load_2")
            trace = json.loads(Path(folder, "trace.json").read_text())
            kinds = {event.get("name", "") for event in trace["traceEvents"]}
            self.assertTrue(any("W" in kind for kind in kinds) and any("I" in kind for kind in kinds), kinds)
            self.expect(job(4, folder, FOUR), 4, FOUR[:-1])
            self.same_after(folder, "save_2", "load_4")
            next(Path(folder).glob("*worker00001.safetensors")).unlink()
            with self.assertRaisesRegex(AssertionError, "worker00001.safetensors is not there, a worker's part"):
                job(4, folder, ["load"])

    @unittest.skipUnless(WHOLE, "--whole")
    @unittest.skipUnless(find_spec("transformers"), "transformers is not there: ./run torch installs it")
    def test_models_of_transformers(self):
        """And of torchvision, as they are, tied heads and masks included, beside their own forward; on 4 workers, too."""
        import torch_models

        for workers in (2, 4):
            with self.subTest(workers=workers):
                self.models(job(workers, tempfile.gettempdir(), torch_models.MODELS), workers * len(torch_models.MODELS))

    def models(self, printed, lines):
        """What torch_models.py has printed."""
        found = LINE.findall(printed)
        self.assertEqual(len(found), lines, printed)
        for name, _, bits, weights, numbers in found:
            self.assertTrue(bits == "True" or name.startswith(("bert", "gpt2", "t5")), printed)  # whose heads are tied
            self.assertLess(float(weights), 1e-5, name)
            self.assertLess(float(numbers), 1e-6, name)
        self.assertEqual(printed.count("names True"), lines, printed)

    def test_refuses_in_one_line(self):
        """In one process, whose plan has stages enough."""
        import torch
        from torch import nn

        import hetu.torch

        class Merge(nn.Module):
            def forward(self, x):
                return x.reshape(-1, 2)

        class Counts(nn.Module):
            def forward(self, x):
                return x[x > 0]

        x, loss = torch.ones(8, 4), nn.MSELoss()
        line = nn.Linear(4, 4)
        tied = nn.Sequential(line, nn.Linear(4, 4))
        tied[1].weight = line.weight
        two = {"schedule": "zb-v", "micro_batches": 2}  # two stages on one worker
        cases = [
            (lambda: hetu.torch.Pipeline([line], loss, **two), "has 2 stages, and the model 1 piece"),
            (lambda: hetu.torch.Pipeline(tied, loss, **two), r"'0.weight' is used on stages 0 and 1: "
                                                              r".*tied=\[\('0.weight', '1.w"),
            (lambda: hetu.torch.Pipeline([line, lambda v: v], loss, **two), "piece 1 of the model is no nn.Module but "
                                                                            "function"),
            (lambda: hetu.torch.Pipeline(nn.Sequential(nn.Sequential(line, hetu.torch.CutPoint()), line), loss, **two),
             "CutPoint '1' stands inside of a Sequential"),
            (lambda: hetu.torch.Pipeline([line, line], loss, **two), "is used on stages 0 and 1"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], loss, "pipedream", 2).step(x, x), "updates stages "
                                                                                                    "one by one"),
            (lambda: hetu.torch.Pipeline([line, Merge()], loss, **two).step(x, x), r"stage 1 \(Merge\).* the number "
                                                                                    r"of samples"),
            (lambda: hetu.torch.Pipeline([line, Counts()], loss, **two).step(x, x), r"stage 1 \(Counts\) fails where "
                                                                                     r"it is looked"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], loss, "gpipe", 5).step(x, x), "8 samples give 4 "
                                                                                                "micro-batches"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], nn.MSELoss(reduction="none"), **two).step(x, x),
             "must be a scalar"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], loss, first_pieces=[0, 2], **two), r"first_pieces "
                                                                                                      r"\[0, 2\]"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], loss, pipelines=2, **two), "1 workers do not make 2 "
                                                                                             "pipelines"),
            (lambda: hetu.torch.Pipeline([line, nn.Linear(4, 4)], loss, **two).load("/nowhere"), "no complete checkpoint"),
        ]
        for make, message in cases:
            with self.subTest(message=message), self.assertRaisesRegex(Exception, message) as caught:
                make()
            self.assertNotIn("\n", str(caught.exception).strip())

    def test_cut_points(self):
        """Of 12 pieces: the stages' parameters are a partition, also where the pieces do not come out even."""
        import torch_varuna
        from hetu.torch.cuts import Pieces
        from hetu.torch.tracing import split

        for stages in (1, 2, 3, 4, 5, 6, 12):
            model = torch_varuna.Model(tied=False, blocks=11)
            pieces = Pieces(split(model, ["ids", "labels", "mask"], {"doubled": False}))
            self.assertEqual(len(pieces.pieces), 12)
            cut = pieces.stages(pieces.cut(stages, None))
            names = [pieces.names[id(p)] for stage in cut for p in stage.parameters()]
            self.assertEqual(len(cut), stages)
            self.assertEqual(sorted(names), sorted(name for name, _ in model.named_parameters()))

    def test_varuna_refuses_in_one_line(self):
        """On one worker."""
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
            (varuna(fp16=True), "fp16=True"), (varuna(device=0), "device 0: tensors are on the CPU"),
            (varuna(text="0;1;"), "is of 2 ranks, and 1 workers run"), (varuna(text="0;1"), "is of 2 ranks"),
            (varuna(text="0,1;2;"), "stages have 2, 1 ranks"), (varuna(text="0;0;"), r"names ranks \[0, 0\]"),
            (varuna(text="a;"), "ranks are numbers"), (varuna(size=0), "batch_size 0"), (varuna(chunk=0), "chunk_size 0"),
            (varuna(step_values=1), "step_values 1"), (varuna(), "CutPoint 'cut' is used 2 times"),
            (varuna(Twice(other=True)), r"Twice: its forward goes other ways in train\(\)"),
            (varuna(Twice(reads=True)), "Twice: its forward cannot be traced from CutPoint to CutPoint"),
            (lambda: get_this_rank_config_varuna("0,2;1,3;", 4), "has no rank 4"),
        ]
        for make, message in cases:
            with self.subTest(message=message), self.assertRaisesRegex(Exception, message) as caught:
                make()
            self.assertNotIn("\n", str(caught.exception).strip())
        self.assertEqual(get_varuna_config("0,2;1,3;"), (2, 2))
        self.assertEqual([get_this_rank_config_varuna("0,2;1,3;", r) for r in range(4)], [(0, 0), (1, 0), (0, 1), (1, 1)])

    @unittest.skipUnless(WHOLE, "--whole")
    def test_page(self):
        """Every snippet of docs/pytorch.md runs as a script of its own, on two workers."""
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
    sys.argv = [word for word in sys.argv if word != "--whole"]
    print(f"seed {SEED}", flush=True)
    unittest.main(verbosity=2)  # which prints why a test is skipped
