#!/usr/bin/env python3
"""Cases of PyTorch's own tests of pipelining (test/distributed/pipelining) for which Hetu has no other test.

docs/pytorch-tests.md lists all cases with their counterparts. The last tests here compare that page with the existing tests.
Skipped where PyTorch is not installed (`./run torch`)."""

import contextlib
import copy
import os
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

from hetu import schedule

ROOT = Path(__file__).resolve().parents[3]
HAS_TORCH = find_spec("torch") is not None
SPLIT = ("1f1b", "zb-h1", "zb-v")
# Stages per rank, micro-batches and ranks: the sizes that PyTorch's tests of orders use.
SIZES = ((2, 2, 2), (2, 4, 4), (2, 8, 2), (2, 8, 4), (2, 8, 8), (4, 4, 4), (4, 8, 4), (4, 8, 8), (4, 16, 4), (4, 32, 4),
         (4, 64, 4), (4, 16, 16), (4, 32, 32), (4, 128, 64), (3, 2, 2), (3, 8, 2), (3, 12, 4), (4, 6, 3), (4, 10, 5),
         (2, 3, 4), (2, 10, 4), (2, 15, 4))
OWN_ROWS = {  # as in PyTorch's registry of unusual schedules
    "V-shaped": [["0F0", "3F0", "3B0", "0B0"], ["1F0", "2F0", "2B0", "1B0"]],
    "unbalanced": [["0F0", "1F0", "4F0", "4B0", "1B0", "0B0"], ["2F0", "3F0", "3B0", "2B0"]],
    "backwards later": [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1F1", "1B0", "1B1"]],
    "split": [["0F0", "0F1", "2F0", "2F1", "2I0", "2W0", "0I0", "2I1", "0W0", "0I1", "2W1", "0W1"],
              ["1F0", "1F1", "3F0", "3I0", "3F1", "1I0", "3I1", "3W0", "1I1", "1W0", "3W1", "1W1"]],
}
WITH_MESSAGES = ("0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1\n"
                 "1RECV_F0,1RECV_F1,1F0,1F1,1B0,1B1,1SEND_B0,1SEND_B1\n")
if HAS_TORCH:
    import torch
    from torch import nn

    import hetu.torch
    import torch_case_models as models
    from torch_case_models import WIDTH


@unittest.skipUnless(HAS_TORCH, "PyTorch is not there: ./run torch installs it")
class Case(unittest.TestCase):
    """Trainings in stages compared with plain PyTorch, on workers that are threads."""

    def setUp(self):
        torch.set_num_threads(1)
        torch.manual_seed(7)
        self.x, self.y = torch.randn(16, WIDTH), torch.randn(16, WIDTH)
        self.sum = nn.MSELoss(reduction="sum")

    def pipe(self, model, plan, micros, workers=2, loss=None, **options):
        return hetu.torch.Pipeline(model, loss or self.sum, plan, micros, devices=f"threads:{workers}", **options)

    def plain(self, pieces, inputs, micros, steps=1):
        """Trains pieces one after the other. Returns the losses of the last step and the gradients by name."""
        whole = nn.ModuleList(pieces)
        losses = []
        for _ in range(steps):
            whole.zero_grad()
            losses = []
            for number in range(micros):
                rows = slice(number * len(self.y) // micros, (number + 1) * len(self.y) // micros)
                value = {k: t[rows] if isinstance(t, torch.Tensor) and len(t) > 1 else t for k, t in inputs.items()} \
                    if isinstance(inputs, dict) else inputs[rows]
                for piece in pieces:
                    value = piece(value)
                loss = self.sum(value, self.y[rows])
                loss.backward()
                losses.append(loss.item())
        return sum(losses), {name: p.grad for name, p in whole.named_parameters()}

    def same(self, make, plans=SPLIT, micros=4, inputs=None, steps=2, **options):
        """Compares losses and gradients, bit for bit."""
        for plan in plans:
            with self.subTest(schedule=getattr(plan, "__name__", plan)):
                torch.manual_seed(3)
                pieces = make()
                given = self.x if inputs is None else inputs
                want, gradients = self.plain(copy.deepcopy(pieces), given, micros, steps)
                pipe = self.pipe(pieces, plan, micros, **options)
                for _ in range(steps):
                    loss = pipe.step(given, self.y)
                self.assertEqual(loss, want)
                self.assertEqual({name for name, _ in pipe.named_parameters()}, set(gradients))
                for name, parameter in pipe.named_parameters():
                    self.assertTrue(torch.equal(parameter.grad, gradients[name]), name)


class Backward(Case):
    """test_backward.py: the backward steps I and W of a stage, compared with a single backward."""

    def test_several_micro_batches(self):
        self.same(lambda: [models.two_layers() for _ in range(4)], micros=8)

    def test_an_output_that_is_a_view(self):
        self.same(lambda: [models.EndsInAView() for _ in range(4)])

    def test_a_custom_function(self):
        self.same(lambda: [models.OwnProduct() for _ in range(4)])

    def test_a_weight_that_is_used_twice(self):
        self.same(lambda: [models.WeightTwice() for _ in range(4)])

    def test_a_node_with_two_results(self):
        self.same(lambda: [models.Halves() for _ in range(4)])

    def test_outputs_without_a_gradient(self):
        self.same(lambda: [models.ThreeOutputs(), models.TakesThree(), models.ThreeOutputs(), models.TakesThree()])

    def test_values_that_are_no_tensors(self):
        self.same(lambda: [models.WithText("a"), models.WithText("b"), models.WithText("c"), models.WithoutText()],
                  inputs={"x": self.x, "text": "none"})


class Pipes(Case):
    """test_pipe.py, test_unflatten.py and test_transformer.py: models that torch.distributed.pipelining.pipeline() has cut.
    """

    def trained(self, model, given, stages, plan, y=None, **how):
        """Trains the stages of a Pipe and the uncut model. Returns the difference of each gradient by name."""
        from torch.distributed.pipelining import pipeline

        y = self.y if y is None else y
        whole = copy.deepcopy(model)
        cut = pipeline(model, tuple(value[:4] for value in given), **how)
        self.assertEqual(cut.num_stages, stages)
        pipe = self.pipe(hetu.torch.split(cut), plan, 4)
        loss = pipe.step(given if len(given) > 1 else given[0], y)
        want = 0.0
        for number in range(4):
            rows = slice(4 * number, 4 * number + 4)
            one = self.sum(whole(*(value[rows] for value in given)), y[rows])
            one.backward()
            want += one.item()
        self.assertEqual(loss, want)
        named = dict(whole.named_parameters(remove_duplicate=False))
        self.assertLessEqual(set(pipe.state_dict()), set(whole.state_dict()))
        return {name: float((one.grad - named[name].grad).norm() / named[name].grad.norm())
                for name, one in pipe.named_parameters()}

    def test_a_parameter_that_two_stages_read(self):
        for plan in ("interleaved-1f1b", "zb-v"):
            apart = self.trained(models.ReadsTwice(), (self.x, self.y), 4, plan)
            self.assertLess(apart.pop("shared"), 1e-5)  # a sum over two stages
            self.assertEqual(set(apart.values()), {0.0})

    def test_several_modules(self):
        for plan in ("interleaved-1f1b", "zb-v"):
            self.assertEqual(set(self.trained(models.FourModules(), (self.x, self.y), 4, plan).values()), {0.0})

    def test_two_names_of_one_parameter(self):
        """PyTorch keeps one of the names, or both with an unread copy. Python's hash seed decides."""
        if "PYTHONHASHSEED" not in os.environ:
            runs = [subprocess.Popen([sys.executable, __file__, "Pipes.test_two_names_of_one_parameter"], text=True,
                                     stderr=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": seed}) for seed in "12"]
            for run in runs:
                _, said = run.communicate(timeout=120)
                self.assertEqual(run.returncode, 0, said)
        for plan in ("gpipe", "zb-h1"):
            apart = self.trained(models.TwoNames(), (self.x, self.y), 2, plan)
            self.assertTrue({"name", "other_name"} & set(apart))
            self.assertLess(max(apart.values()), 1e-5)

    def test_cuts_inside_modules_and_changes_in_place(self):
        images, added = torch.randn(16, 2, WIDTH, WIDTH), torch.ones(16, 2, WIDTH, WIDTH)
        apart = self.trained(models.NestedBlocks(), (images, added), 4, "zb-v", torch.randn(16, 2, WIDTH, WIDTH))
        self.assertLess(max(apart.values()), 1e-5)

    def test_cut_before_a_layer(self):
        """Cuts by PyTorch's split_spec and by names give the same layers, each once."""
        from torch.distributed.pipelining import SplitPoint

        model = models.Layers()
        apart = self.trained(copy.deepcopy(model), (self.x,), 2, "1f1b", split_spec={"layers.4": SplitPoint.BEGINNING})
        self.assertEqual((set(apart.values()), len(apart)), ({0.0}, 32))
        want, gradients = self.plain([copy.deepcopy(model)], self.x, 4)
        pipe = self.pipe(hetu.torch.split(model, at=["layers.4"], example=self.x), "1f1b", 4)
        self.assertEqual(pipe.step(self.x, self.y), want)
        for name, parameter in pipe.named_parameters():
            self.assertTrue(torch.equal(parameter.grad, gradients[f"0.{name}"]), name)


class Schedules(Case):
    """test_schedule.py and test_schedule_multiproc.py."""

    def layers(self, count=4):
        return [nn.Linear(WIDTH, WIDTH) for _ in range(count)]

    def test_one_stage(self):
        self.same(lambda: self.layers(1), ("1f1b", "gpipe"), 2, workers=1)
        self.same(lambda: self.layers(1), ("interleaved-1f1b", "interleaved-zb", "looped-bfs"), 2, workers=1, chunks=1)

    def test_many_steps(self):
        self.same(self.layers, ("gpipe", "1f1b"), steps=20)

    def test_evaluate_and_then_train(self):
        """Evaluation computes no gradients in any gradient mode of the script, and training afterwards does."""
        for plan in ("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "interleaved-zb"):
            for mode in (contextlib.nullcontext, torch.no_grad, torch.inference_mode):
                with self.subTest(schedule=plan, mode=mode.__name__):
                    torch.manual_seed(3)
                    pipe = self.pipe(self.layers(), plan, 4)
                    with mode():
                        evaluated = pipe.evaluate(self.x, self.y)
                    self.assertTrue(all(parameter.grad is None for parameter in pipe.parameters()))
                    trained = pipe.step(self.x, self.y)
                    self.assertIs(type(trained), float)
                    self.assertEqual(evaluated, trained)
                    self.assertTrue(all(parameter.grad is not None for parameter in pipe.parameters()))

    def test_forward_only(self):
        """Predictions are fed back as inputs twenty times."""
        pieces = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4)]
        whole = copy.deepcopy(pieces)
        pipe = self.pipe(pieces, "1f1b", 8, workers=4)
        found, want = self.x, self.x
        for _ in range(20):
            found = pipe.predict(found)
            want = torch.cat([nn.Sequential(*whole)(part) for part in want.split(2)]).detach()
        self.assertTrue(torch.equal(found, want))

    def test_inputs_that_no_loss_depends_on(self):
        for unused in (torch.ones(1), object()):
            self.same(lambda: [*(models.PassesOn() for _ in range(3)), models.Ends()],
                      ("interleaved-1f1b", "interleaved-zb"), inputs={"x": self.x, "unused": unused})

    def test_rows_of_ones_own(self):
        for name, rows in OWN_ROWS.items():
            with self.subTest(name):
                stages = 1 + max(int(action[0]) for row in rows for action in row)
                micros = 1 + max(int(action[2]) for row in rows for action in row)
                self.same(lambda stages=stages: self.layers(stages), [lambda stages, micro_batches, rows=rows: rows], micros)

    def test_a_file_with_messages(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "plan.csv")
            path.write_text(WITH_MESSAGES)
            self.same(lambda: self.layers(2), [str(path)], 2)

    def test_sizes(self):
        """All sizes of PyTorch's tests are verified before and after lowering, also with micro-batches that the ranks don't
        divide."""
        for method in ("interleaved-1f1b", "looped-bfs", "interleaved-zb"):
            for chunks, micros, ranks in SIZES:
                with self.subTest(method=method, chunks=chunks, micros=micros, ranks=ranks):
                    plan = schedule.named(method, stages=ranks, micro_batches=micros, chunks=chunks)
                    schedule.verify(plan)
                    schedule.verify(schedule.lower(plan))

    def test_sizes_of_v_schedules(self):
        """V schedules have two stages on each rank. DualPipeV has at least as many micro-batches as stages."""
        for method in ("zb-v", "dualpipev"):
            with self.assertRaisesRegex(ValueError, f"chunks does not apply to {method}"):
                schedule.named(method, stages=2, micro_batches=4, chunks=3)
            for ranks, micros in sorted({(ranks, micros) for _, micros, ranks in SIZES}):
                with self.subTest(method=method, micros=micros, ranks=ranks):
                    if method == "dualpipev" and micros < 2 * ranks:
                        with self.assertRaisesRegex(ValueError, "micro-batches"):
                            schedule.named(method, stages=ranks, micro_batches=micros)
                    else:
                        schedule.verify(schedule.named(method, stages=ranks, micro_batches=micros))

    def test_unknown_names(self):
        with self.assertRaisesRegex(ValueError, "unknown method 'ScheduleThatDoesNotExist'; .*the methods, .*: gpipe"):
            self.pipe(self.layers(), "ScheduleThatDoesNotExist", 4)

    def test_plans_that_lack_something(self):
        for rows in ([["0F0", "0B0"]], [["0F0"], ["1F0"]]):
            with self.assertRaises(ValueError):
                self.pipe(self.layers(2), lambda stages, micro_batches, rows=rows: rows, 1).step(self.x, self.y)


class Inputs(Case):
    """test_stage.py and test_microbatch.py."""

    def test_other_shapes_in_a_later_step(self):
        """Another number of samples is accepted. A hook that changes a message is refused, as in PyTorch's stages."""
        def made():
            pieces = [nn.Linear(WIDTH, WIDTH) for _ in range(4)]
            pipe = self.pipe(pieces, "gpipe", 4)
            pipe.step(self.x, self.y)
            return pieces, pipe

        _, pipe = made()
        pipe.step(torch.randn(17, WIDTH), torch.randn(17, WIDTH))
        with self.assertRaisesRegex(RuntimeError, "same dtype"):
            pipe.step(self.x.int(), self.y)
        for change, message in ((lambda module, given, output: output.flatten(), r"stage 0 returned float32\[32\]"),
                                (lambda module, given, output: output.bfloat16(), r"stage 0 returned bfloat16\[4, 8\]")):
            pieces, pipe = made()
            pieces[1].register_forward_hook(change)
            with self.assertRaisesRegex(ValueError, message):
                pipe.step(self.x, self.y)

    def test_masks_of_flex_attention(self):
        """PyTorch splits a BlockMask. Hetu refuses it, like any object that hides tensors with a row for each sample."""
        from torch.nn.attention.flex_attention import create_block_mask

        class Hides:
            def __init__(self, tensor):
                self.inner = {"tensor": tensor}

        mask = create_block_mask(lambda b, h, q, k: q >= k, B=16, H=1, Q_LEN=128, KV_LEN=128, device="cpu")
        for hidden, name in ((mask, "BlockMask"), (Hides(self.x), "Hides")):
            pipe = self.pipe([models.PassesOn(), models.Ends()], "1f1b", 4)
            for call in (pipe.step, pipe.evaluate):
                with self.assertRaisesRegex(ValueError, f"inputs: a {name} holds tensors that can't be cut"):
                    call({"x": self.x, "unused": hidden}, self.y)


class Table(unittest.TestCase):
    """The table of docs/pytorch-tests.md."""

    PAGE = ROOT / "docs" / "pytorch-tests.md"

    def rows(self):
        for line in self.PAGE.read_text().splitlines():
            if line.startswith("| `"):
                yield [cell.strip() for cell in line.strip("|").split(" | ")]

    def test_every_test_is_there(self):
        """Each row names tests that exist, or a reason for having none."""
        seen = 0
        for case, counterpart, result in self.rows():
            with self.subTest(case):
                names = re.findall(r"`([^`]+)`", counterpart)
                self.assertTrue(names or result.startswith("none: "), "neither a test nor a reason")
                for name in names:
                    path, _, test = name.partition(": ")
                    text = (ROOT / path).read_text()
                    suite, _, short = test.partition(".")
                    pattern = rf"TEST(_P)?\({suite}, {short}\)" if path.endswith(".cpp") else rf"def {test}\("
                    self.assertRegex(text, pattern, name)
                    seen += 1
                self.assertRegex(result, r"^(same bits|same|proved|refused|none)\b")
        self.assertGreater(seen, 60)

    def test_every_test_of_this_file_is_listed(self):
        listed = self.PAGE.read_text()
        for name in re.findall(r"    def (test_\w+)\(", Path(__file__).read_text()):
            if name not in ("test_every_test_is_there", "test_every_test_of_this_file_is_listed"):
                self.assertIn(f"cases_test.py: {name}`", listed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
