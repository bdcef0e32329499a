#!/usr/bin/env python3
"""A Pipeline used like a module: several optimizers, averages of weights, modes, clipping, copies.

Skipped where PyTorch is not installed (`./run torch`)."""

import copy
import math
import re
import subprocess
import sys
import unittest
import warnings
from pathlib import Path

from torch_saved import HAS_TORCH, CheckpointCase

HERE = Path(__file__).resolve().parent
if HAS_TORCH:
    import torch
    from torch import nn

    import hetu.torch
    import torch_checkpoint_worker as worker


class Optimizers(CheckpointCase):
    """Several optimizers and an average in one checkpoint."""

    def saved(self):
        subprocess.run(["heturun", "-w", "2", sys.executable, HERE / "torch_checkpoint_worker.py", "continued", self.folder],
                       check=True, capture_output=True, text=True, timeout=200)

    def test_two_workers_save_and_one_continues(self):
        """Muon and AdamW, a schedule of rates and an exponential moving average continue with the same bits."""
        self.saved()
        want = torch.load(self.folder / "after.pt", weights_only=True)
        pipe, rules, rates, ema = made = worker.several("zb-v")
        pipe.load(self.folder, rules, rates=rates, ema=ema)
        self.assertEqual((pipe.steps, ema.n_averaged, rates.last_epoch), (3, 3, 3))
        found = worker.train(made, range(3, 5))
        self.assertEqual(list(found), list(want))
        for name, tensor in want.items():
            self.assertTrue(torch.equal(found[name], tensor), name)
        self.assertFalse(torch.equal(found["0.0.weight"], found["ema 0.0.weight"]))

        self.refused(r"optimizers \['adamw', 'muon'\], but load\(\) was given optimizers \['0', '1'\]",
                     lambda: pipe.load(self.folder, list(rules.values()), rates=rates, ema=ema), ValueError)

    def test_a_list_of_optimizers(self):
        torch.manual_seed(1)
        pipe = hetu.torch.Pipeline([nn.Linear(4, 4), nn.Linear(4, 4)], nn.MSELoss(), "zb-v", 2)
        parameters = list(pipe.parameters())
        rules = [torch.optim.SGD(parameters[:1], lr=0.1, momentum=0.9), torch.optim.LBFGS(parameters[1:], history_size=2)]
        for step in range(3):
            pipe.step(torch.ones(4, 4) * step, torch.ones(4, 4))
            rules[0].step()
            rules[1].step(lambda: torch.ones(()))
        want = [copy.deepcopy(rule.state_dict()) for rule in rules]
        pipe.save(self.folder, rules)
        for rule in rules:
            rule.state.clear()
        pipe.load(self.folder, rules)
        for rule, state in zip(rules, want, strict=True):
            self.assertEqual(repr(sorted_state(rule.state_dict())), repr(sorted_state(state)))

    def test_a_name_twice(self):
        pipe, optimizer = self.made()
        self.refused("ema: an optimizer has this name already",
                     lambda: pipe.save(self.folder, {"ema": optimizer}, ema=hetu.torch.AveragedModel(pipe)), ValueError)

    def test_averages_are_pytorchs(self):
        """Means and moving averages equal those of torch.optim.swa_utils on the whole model."""
        for how in ({}, {"multi_avg_fn": torch.optim.swa_utils.get_ema_multi_avg_fn(0.8)}, {"use_buffers": True}):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 4))
            whole = copy.deepcopy(model)
            pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "zb-v", 2)
            mine = hetu.torch.AveragedModel(pipe, **how)
            self.refused("there are no averages yet", mine.applied().__enter__, RuntimeError)
            plain = torch.optim.swa_utils.AveragedModel(whole, **how)
            for step in range(3):
                state = {name: tensor + step if tensor.is_floating_point() else tensor + 1
                         for name, tensor in whole.state_dict().items()}
                whole.load_state_dict(state)
                pipe.load_state_dict(state)
                mine.update_parameters(pipe)
                plain.update_parameters(whole)
            with mine.applied():
                found = pipe.state_dict()
            for name, tensor in plain.module.state_dict().items():
                self.assertTrue(torch.equal(found[name], tensor), f"{name} {how}")
            self.assertEqual({name for name, _ in mine.named_parameters()}, {name for name, _ in whole.named_parameters()})


class Versions(CheckpointCase):
    """The version of PyTorch."""

    def test_check(self):
        from hetu.torch import versions

        for version in ("2.5.1", "1.13.0a0+git", "2.0"):
            self.refused(rf"needs PyTorch 2.6 or newer, found {re.escape(version)}; pip install 'torch>=2.6'",
                         lambda version=version: versions.check(version, 0), ImportError)
        self.refused("this one says version 'unknown'", lambda: versions.check("unknown", 0), ImportError)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for version in ("2.6.0", "2.10.0.dev1", f"{'.'.join(map(str, versions.NEWEST_TESTED))}.0+cpu"):
                versions.check(version, 0)
            versions.check("9.0.0", 1)
        with self.assertWarnsRegex(UserWarning, "tested with PyTorch 2.6 to .*, and this is 9.0.0"):
            versions.check("9.0.0", 0)

    def test_import(self):
        """An old version is refused before anything that it lacks is imported."""
        script = "import torch; torch.__version__ = '2.5.1'; import torch.optim.swa_utils as s; del s.AveragedModel; " \
                 "import hetu.torch"
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        self.assertRegex(run.stderr.splitlines()[-1], "^ImportError: hetu.torch needs PyTorch 2.6 or newer, found 2.5.1")


class Buffers(CheckpointCase):
    """Buffers that a module replaces."""

    def test_a_buffer_that_is_another_tensor_after_each_step(self):
        class Counts(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)
                self.register_buffer("count", torch.zeros(()))
                self.register_buffer("passing", torch.zeros(()), persistent=False)

            def forward(self, x):
                self.count = self.count + 1
                self.passing = x.detach().sum()
                return self.linear(x)

        def made():
            pipe = hetu.torch.Pipeline([Counts(), Counts()], nn.MSELoss(), "zb-v", 1)
            return pipe, hetu.torch.AveragedModel(pipe)

        pipe, ema = made()
        for _ in range(3):
            pipe.step(torch.ones(2, 4), torch.ones(2, 4))
            ema.update_parameters()
        want = pipe.state_dict()
        self.assertEqual({name for name, _ in pipe.named_buffers()}, {"0.count", "1.count"})
        self.assertGreaterEqual(float(want["1.count"]), 3)
        pipe.save(self.folder, ema=ema)
        other, again = made()
        other.load(self.folder, ema=again)
        self.assertEqual(repr(other.state_dict()), repr(want))
        self.assertEqual(repr(again.state_dict()), repr(ema.state_dict()))


class LooksLikeAModule(CheckpointCase):
    """Methods that torch.nn.Module has, too."""

    def pair(self, dtype=None):
        """Returns a Pipeline and the plain model after the same step."""
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 4)).to(dtype)
        whole = copy.deepcopy(model)
        pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "zb-v", 1)
        x = torch.randn(8, 4, dtype=dtype)
        pipe.step(x, -x)
        nn.functional.mse_loss(whole(x), -x).backward()
        return pipe, whole

    def test_norms(self):
        """Norms of every order equal those of clip_grad_norm_ on the whole model, to the bit."""
        for dtype in (torch.float32, torch.float64):
            for norm_type in (1, 2, 3.5, math.inf):
                pipe, whole = self.pair(dtype)
                mine = pipe.clip_grad_norm_(0.1, norm_type, error_if_nonfinite=True)
                plain = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.1, norm_type)
                self.assertEqual((mine.dtype, float(mine)), (plain.dtype, float(plain)))
                for (name, one), other in zip(pipe.named_parameters(), whole.parameters(), strict=True):
                    self.assertTrue(torch.equal(one.grad, other.grad), name)

    def test_an_infinite_norm(self):
        pipe, _ = self.pair()
        first = next(pipe.parameters())
        first.grad.fill_(math.inf)
        before = [p.grad.clone() for p in pipe.parameters()]
        self.refused("norm of order 2.0 of the gradients is inf", lambda: pipe.clip_grad_norm_(1, error_if_nonfinite=True),
                     RuntimeError)
        self.assertTrue(all(torch.equal(a, p.grad) for a, p in zip(before, pipe.parameters(), strict=True)))
        pipe.clip_grad_value_(0.5)
        self.assertEqual(float(max(p.grad.max() for p in pipe.parameters())), 0.5)
        first.grad.fill_(math.inf)
        self.assertEqual(float(pipe.clip_grad_norm_(1)), math.inf)

    def test_modes_gradients_and_names(self):
        pipe, whole = self.pair()
        self.assertIs(pipe.eval(), pipe)
        self.assertFalse(pipe.training or any(module.training for module in pipe.modules()))
        self.assertIs(pipe.train(), pipe)
        self.assertTrue(pipe.training and all(module.training for module in pipe.modules()))
        pipe.zero_grad(set_to_none=False)
        self.assertTrue(all(p.grad is not None and not p.grad.any() for p in pipe.parameters()))
        pipe.zero_grad()
        self.assertTrue(all(p.grad is None for p in pipe.parameters()))
        for kind in ("parameters", "buffers"):
            mine, plain = (dict(getattr(one, f"named_{kind}")()) for one in (pipe, whole))
            self.assertEqual(list(mine), list(plain))
            self.assertEqual([id(t) for t in mine.values()], [id(t) for t in getattr(pipe, kind)()])
        self.assertEqual([type(m) for m in pipe.modules()], [type(m) for m in whole])
        self.assertFalse(any(p.requires_grad for p in pipe.requires_grad_(False).parameters()))

    def test_what_cannot_be(self):
        pipe, _ = self.pair()
        for call in (copy.copy, copy.deepcopy, torch.optim.swa_utils.AveragedModel, lambda p: torch.save(p, self.folder)):
            self.refused("can't be copied or pickled.*AveragedModel", lambda call=call: call(pipe), TypeError)
        for name in ("half", "cuda", "apply", "register_buffer"):
            self.refused(rf"Call {name}\(\) on the model before", lambda name=name: getattr(pipe, name), AttributeError)
        self.refused("has no attribute 'nothing'$", lambda: pipe.nothing, AttributeError)


def sorted_state(value):
    """Returns the state with the keys of dicts in order."""
    if isinstance(value, dict):
        return [(key, sorted_state(value[key])) for key in sorted(value, key=str)]
    return [sorted_state(item) for item in value] if isinstance(value, (list, tuple)) else value


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
