#!/usr/bin/env python3
"""Checkpoints of hetu.torch: a checkpoint that doesn't match isn't loaded, and saved values are restored exactly.

Skipped where PyTorch is not installed (`./run torch`)."""

import json
import math
import shutil
import subprocess
import unittest
from importlib.util import find_spec

from torch_saved import HAS_TORCH, CheckpointCase, equal, values

if HAS_TORCH:
    import torch
    from torch import nn

    import hetu.torch


class Strict(CheckpointCase):
    """Checkpoints that don't match."""

    def test_each_case(self):
        def sgd(p):
            return torch.optim.SGD(p, lr=0.1, momentum=0.9)

        def groups(p):
            every = list(p)
            return torch.optim.AdamW([{"params": every[:3]}, {"params": every[3:]}])

        def fewer(p):
            return torch.optim.AdamW(list(p)[1:])

        pipe, optimizer = self.made()
        rates = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        pipe.save(self.folder, optimizer, rates=rates)
        cases = [("checkpoint's optimizer is AdamW, and this one is SGD", {"rule": sgd}, {}),
                 (r"optimizer has 1 group of parameters, this one 2", {"rule": groups}, {}),
                 ("'0.weight' is in group 0 of the optimizer only in the checkpoint", {"rule": fewer}, {}),
                 ("has '2.bias' and 3 more, which the model does not have", {"layers": 2}, {}),
                 ("has no '4.weight' and 3 more, which the model has", {"layers": 6}, {}),
                 (r"'0.weight' is \[8, 8\] in the checkpoint and \[6, 6\] here", {"width": 6}, {}),
                 ("no '1.weight' and 1 more, which the model has", {"norms": False}, {}),
                 ("also has the state of 'rates'; pass rates=", {}, {"rates": None}),
                 ("no state of 'scaler'; besides the optimizer, it holds 'rates'", {}, {"scaler": "new"}),
                 (r"has a single optimizer, but load\(\) was given optimizers \['a'\]", {"name": "a"}, {})]
        for pattern, how, more in cases:
            with self.subTest(pattern):
                name = how.pop("name", None)
                other, second = self.made(seed=2, **how)
                given = {"rates": torch.optim.lr_scheduler.ExponentialLR(second, 0.5)}
                given |= {key: hetu.torch.GradScaler(other) for key, value in more.items() if value}
                given = {key: value for key, value in given.items() if more.get(key, 1) is not None}
                before = values(other, second)
                rule = {name: second} if name else second
                self.refused(pattern, lambda o=other, r=rule, g=given: o.load(self.folder, r, **g), ValueError)
                self.assertTrue(equal(values(other, second), before), "a refused load has changed something")
                skipped = other.load(self.folder, rule, strict=False, **given)
                self.assertRegex("; ".join(skipped), pattern)
                self.assertEqual(other.steps, 1)

    def test_a_checkpoint_without_an_optimizer(self):
        pipe, optimizer = self.made()
        pipe.save(self.folder)
        self.refused("has no optimizer state", lambda: pipe.load(self.folder, optimizer), ValueError)
        self.assertEqual(pipe.load(self.folder), [])
        self.assertEqual(len(pipe.load(self.folder, optimizer, strict=False)), 1)

    def test_another_seed(self):
        """Another seed is refused when a training resumes, because it would draw other numbers. It is accepted when only
        weights are read."""
        pipe, optimizer = self.made(norms=False)
        pipe.save(self.folder, optimizer)
        other = hetu.torch.Pipeline([nn.Linear(8, 8) for _ in range(4)], nn.MSELoss(), "zb-v", 2, seed=5)
        second = torch.optim.AdamW(other.parameters())
        self.assertEqual(other.load(self.folder), [])
        pattern = r"the checkpoint's training has seed=0, and this Pipeline has seed=5, .* give Pipeline\(seed=0\)"
        self.refused(pattern, lambda: other.load(self.folder, second), ValueError)
        self.assertEqual(second.state_dict()["state"], {})
        self.assertRegex("; ".join(other.load(self.folder, second, strict=False)), pattern)
        self.assertEqual(len(second.state_dict()["state"]), 8)

    def test_another_dtype(self):
        pipe, _ = self.made(norms=False)
        pipe.save(self.folder)
        other = hetu.torch.Pipeline([nn.Linear(8, 8).bfloat16() for _ in range(4)], nn.MSELoss(), "zb-v", 2)
        self.refused("is float32 in the checkpoint and bfloat16 here", lambda: other.load(self.folder), ValueError)
        other.load(self.folder, strict=False)
        self.assertTrue(all(torch.equal(a.bfloat16(), b) for a, b in
                            zip(pipe.state_dict().values(), other.state_dict().values(), strict=True)))

    def test_folders_of_others(self):
        pipe, optimizer = self.made()
        self.refused("holds no checkpoint", lambda: pipe.load(self.folder, optimizer))
        self.folder.mkdir()
        (self.folder / "model.safetensors.index.json").write_text("{}")
        for call in (pipe.load, pipe.save):
            self.refused("of an earlier version, without checksums", lambda call=call: call(self.folder, optimizer))

    def test_what_save_refuses(self):
        pipe, optimizer = self.made()
        outside = torch.optim.AdamW([nn.Parameter(torch.zeros(3))])
        self.refused(r"parameter of shape \[3\] in its group 0 is not", lambda: pipe.save(self.folder, outside), ValueError)
        self.refused(r"expected a torch.optim.Optimizer.*got int", lambda: pipe.save(self.folder, 3), ValueError)
        self.refused(r"ema: expected an object with state_dict\(\)", lambda: pipe.save(self.folder, ema={}), ValueError)
        self.assertFalse(self.folder.exists())
        self.refused("the state has no '0.weight'", lambda: pipe.load_state_dict({}), ValueError)
        self.refused("has 'x', which", lambda: pipe.load_state_dict({**pipe.state_dict(), "x": torch.ones(1)}), ValueError)
        pipe.load_state_dict({**pipe.state_dict(), "x": torch.ones(1)}, strict=False)


class OtherFormats(CheckpointCase):
    """Checkpoints of torch.distributed.checkpoint and of Varuna are as strict."""

    def test_dcp(self):
        from hetu.torch import load_dcp, save_dcp

        pipe, optimizer = self.made()
        save_dcp(pipe, self.folder, optimizer)
        other, second = self.made(seed=2)
        load_dcp(other, self.folder, second)
        self.assertTrue(equal(values(other, second), values(pipe, optimizer)))

        def sgd(p):
            return torch.optim.SGD(p, lr=0.1, momentum=0.9)

        for pattern, how in (("are of different classes", {"rule": sgd}), ("has 'model.2.bias', which", {"layers": 2}),
                             ("has no 'model.4.weight', which", {"layers": 6}), (r"is \[8, 8\] in the", {"width": 6})):
            with self.subTest(pattern):
                other, second = self.made(seed=2, **how)
                before = values(other, second)
                self.refused(pattern, lambda o=other, r=second: load_dcp(o, self.folder, r), ValueError)
                self.assertTrue(equal(values(other, second), before))
                self.assertRegex("; ".join(load_dcp(other, self.folder, second, strict=False)), pattern)
        other, second = self.made(seed=2)
        save_dcp(pipe, self.folder.with_name("weights"))
        self.refused("has no optimizer state", lambda: load_dcp(other, self.folder.with_name("weights"), second), ValueError)

    def test_varuna(self):
        from hetu.varuna import CutPoint, Varuna

        class Model(nn.Module):
            def __init__(self, layers):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(layers)])
                self.cut = CutPoint()

            def forward(self, x):
                for number, layer in enumerate(self.layers):
                    x = layer(x)
                    if number == 0:
                        x = self.cut(x)
                return x.pow(2).mean()

        def made(layers, rule):
            def batch(size, device):
                return {"x": torch.ones(size, 4)}

            model = Varuna(Model(layers), "0;", batch, batch_size=4, chunk_size=2)
            model.set_optimizer(rule(model.parameters()))
            return model

        def adam(p):
            return torch.optim.AdamW(p)

        made(3, adam).checkpoint(self.folder)
        made(3, adam).load_checkpoint(self.folder, 0)
        other = made(2, adam)
        self.refused("has 'layers.2.bias', which the model does not have", lambda: other.load_checkpoint(self.folder, 0))
        other = made(3, lambda p: torch.optim.SGD(p, lr=0.1))
        self.refused("optimizer is AdamW, but this one is SGD", lambda: other.load_checkpoint(self.folder, 0))


class Contents(CheckpointCase):
    """The contents of checkpoints."""

    def test_values_that_json_does_not_have(self):
        pipe, optimizer = self.made()

        def made(optimizer):
            return {"plateau": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
                    "rates": torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4, 4])}

        kept = made(optimizer)
        self.assertEqual(kept["plateau"].best, math.inf)
        pipe.save(self.folder, optimizer, **kept)

        def never(text):
            raise AssertionError(f"{text} in a manifest")

        json.loads((self.step_folder() / "manifest.json").read_text(), parse_constant=never)
        other, second = self.made(seed=2)
        back = made(second)
        back["plateau"].best = 3.0
        other.load(self.folder, second, **back)
        for name, one in kept.items():
            self.assertEqual(back[name].state_dict(), one.state_dict())
            self.assertIs(type(getattr(back[name], "milestones", None)), type(getattr(one, "milestones", None)))

    def test_values_come_back_as_they_were(self):
        from collections import Counter, OrderedDict

        class Any:
            def __init__(self, state):
                self.state = state

            def state_dict(self):
                return self.state

            def load_state_dict(self, state):
                self.state = state

        state = {"a": (1, [2.5, None, True], {"b": -0.0}), "inf": [math.inf, -math.inf], "big": 2**100, 3: {}, "$x": "y",
                 "bytes": b"\x00\xff", "counter": Counter({4: 2}), "ordered": OrderedDict(b=1, a=(2,)), "0.weight": "a name",
                 "tensors": [torch.arange(3), torch.ones(40, dtype=torch.uint8), torch.zeros(0, 2),
                             torch.tensor(1.5).bfloat16()]}
        pipe, _ = self.made()
        pipe.save(self.folder, kept=Any(state))
        back = Any(None)
        pipe.load(self.folder, kept=back)
        tensors = [back.state.pop("tensors"), state.pop("tensors")]
        self.assertEqual(back.state, state)
        self.assertEqual(repr(back.state["a"]), repr(state["a"]))
        self.assertEqual([type(v) for v in back.state.values()], [type(v) for v in state.values()])
        for one, other in zip(*tensors, strict=True):
            self.assertTrue(one.dtype == other.dtype and torch.equal(one, other))
        pipe.save(self.folder, kept=Any(torch.arange(100)))
        pipe.load(self.folder, kept=back)
        self.assertTrue(torch.equal(back.state, torch.arange(100)))

    def test_both_copies_of_a_tied_parameter(self):
        """On one worker, each copy of a tied parameter has a separate optimizer state after a load."""
        def made():
            torch.manual_seed(1)
            model = nn.Sequential(*[nn.Linear(4, 4, bias=False) for _ in range(4)])
            model[3].weight = model[0].weight
            pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "zb-v", 2, tied=[("0.weight", "3.weight")])
            return pipe, torch.optim.AdamW(pipe.parameters())

        def step(pipe, optimizer):
            pipe.step(torch.eye(4), torch.ones(4, 4))
            optimizer.step()

        pipe, optimizer = made()
        step(pipe, optimizer)
        pipe.save(self.folder, optimizer)
        other, second = made()
        other.load(self.folder, second)
        for one in (pipe, optimizer), (other, second):
            step(*one)
        self.assertTrue(equal(values(other, second), values(pipe, optimizer)))
        states = [second.state[parameter]["exp_avg"].data_ptr() for parameter in other.parameters()]
        self.assertEqual(len(set(states)), 4)

    def test_every_dtype(self):
        class Buffers(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)
                for name, dtype in hetu.torch.checkpoint.TYPES.items():
                    self.register_buffer(name, torch.arange(6).view(2, 3).to(torch.float32).to(dtype))
                self.register_buffer("turned", torch.arange(6.0).view(2, 3).t())

            def forward(self, x):
                return self.linear(x)

        pipe = hetu.torch.Pipeline([Buffers(), nn.Linear(4, 4)], nn.MSELoss(), "zb-v", 2)
        pipe.save(self.folder)
        want = {name: checkpoint_bytes(tensor) for name, tensor in pipe.state_dict().items()}
        for tensor in [*pipe.parameters(), *(b for stage in pipe.own.values() for b in stage.buffers())]:
            tensor.data.zero_()
        pipe.load(self.folder)
        self.assertEqual({name: checkpoint_bytes(tensor) for name, tensor in pipe.state_dict().items()}, want)
        self.assertIn("0.turned", want)

    @unittest.skipUnless(find_spec("safetensors"), "safetensors is not there: ./run torch installs it")
    def test_other_tools_read_the_weights(self):
        from safetensors import safe_open

        pipe, optimizer = self.made()
        pipe.save(self.folder, optimizer)
        index = json.loads((self.step_folder() / "model.safetensors.index.json").read_text())
        self.assertEqual(set(index["weight_map"]), set(pipe.state_dict()))
        for name, tensor in pipe.state_dict().items():
            with safe_open(self.step_folder() / index["weight_map"][name], "pt") as file:
                self.assertEqual(file.metadata(), {"format": "pt"})
                self.assertTrue(torch.equal(file.get_tensor(name), tensor))

    def test_hetu_checkpoint(self):
        pipe, optimizer = self.made()
        pipe.save(self.folder, optimizer)
        first = shutil.copytree(self.folder, self.folder.with_name("first"))

        def hetu(*words):
            return subprocess.run(["hetu", "checkpoint", *words], capture_output=True, text=True, check=False)

        show = hetu("show", self.folder).stdout
        self.assertRegex(show, r"0\.weight +\[8, 8\] +256 bytes +exp_avg +exp_avg_sq +step")
        same = hetu("diff", first, self.folder)
        self.assertEqual(same.returncode, 0, same.stdout)
        with torch.no_grad():
            next(pipe.parameters())[0, 0] += 1
        pipe.save(self.folder, optimizer)
        other = hetu("diff", first, self.folder)
        self.assertEqual(other.returncode, 1)
        self.assertRegex(other.stdout, r"0\.weight +largest difference 1, in 1 of 64 elements")


def checkpoint_bytes(tensor):
    """Returns a tensor's bytes."""
    return hetu.torch.checkpoint.bytes_of(tensor).tobytes()


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
