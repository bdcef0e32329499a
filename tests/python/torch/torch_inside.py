"""Cases of modes_test.py, in a job of two workers: actions of modules, hooks and custom functions inside a step."""

import random

import torch
from torch import nn

import hetu.torch
from hetu import _hetu
from torch_plain import WIDTH, Scaled, compare, linears, tied


class Custom(nn.Module):
    """A custom function used twice, with one parameter."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.full((WIDTH,), 1.5))

    def forward(self, x):
        return Scaled.apply(torch.tanh(self.layer(Scaled.apply(x, self.scale))), self.scale)


class Checkpointed(nn.Module):
    """Computes its middle part again in the backward pass."""

    def __init__(self, reentrant):
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH), nn.Dropout(0.2)
        self.reentrant = reentrant

    def forward(self, x):
        def middle(value):
            return self.drop(torch.tanh(self.second(torch.tanh(self.first(value)))))

        return x + torch.utils.checkpoint.checkpoint(middle, x, use_reentrant=self.reentrant)


def compiled():
    """Compares pieces of torch.compile, whose backward is one custom function."""
    for schedule in ("1f1b", "zb-h1", "zb-v"):
        compare(f"compiled {schedule}", lambda: [torch.compile(nn.Sequential(*linears(2)), backend="aot_eager")
                                                 for _ in range(4)], schedule, steps=2)


class InPlace(nn.Module):
    """Changes its input in place, and uses it again."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.full((WIDTH,), 0.5))

    def forward(self, x):
        return x.mul_(0.5).add_(self.shift)


class View(nn.Module):
    """Returns a view of a layer's output."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.layer(x).view(-1, 1, WIDTH)


class Both(nn.Module):
    """Changes the second of two values in place, and returns both."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.full((WIDTH,), 0.5))

    def forward(self, values):
        values[1].add_(self.shift)
        return values


class Twice(nn.Module):
    """Returns two values from one."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.layer(x), 2 * x


class Sum(nn.Module):
    """Returns one value from two."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, values):
        return self.layer(values[0] + values[1])


SPLIT = ("1f1b", "zb-h1", "zb-v")


def functions():
    """Checks that custom autograd.Functions, each used twice, are called as often as in one process."""
    for schedule in SPLIT:
        Scaled.calls = 0
        pipe, _ = compare(f"functions {schedule}", lambda: [Custom() for _ in range(4)], schedule, steps=3)
        own = sum(len(stage.pieces) for stage in pipe.own.values())
        assert Scaled.calls == 3 * 4 * 2 * (4 + own), (schedule, Scaled.calls)


def checkpoints():
    """Compares torch.utils.checkpoint of both kinds, with dropout."""
    for schedule in SPLIT:
        for reentrant in (True, False):
            compare(f"checkpoint {schedule} {reentrant}",
                    lambda kind=reentrant: [nn.Linear(WIDTH, WIDTH), *[Checkpointed(kind) for _ in range(3)]], schedule,
                    steps=2)


def in_place():
    """Compares modules that change their input in place, at the start of a stage or as its only module."""
    makers = {
        "alone": lambda: [nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, WIDTH), InPlace()],
        "of the batch": lambda: [InPlace(), nn.Linear(WIDTH, WIDTH), InPlace(), InPlace()],
        "beside": lambda: [Twice(), Both(), Both(), Sum()],
        "of a view": lambda: [View(), InPlace(), View(), nn.Sequential(InPlace(), nn.Flatten())],
    }
    for name, make in makers.items():
        for schedule, options in (("1f1b", {}), ("zb-v", {}), ("zb-h1", {"with_recompute": True}),
                                  ("interleaved-1f1b", {"chunks": 2})):
            compare(f"in place {name} {schedule}", make, schedule, **options)
        compare(f"in place {name} pipelines", make, "zb-h1", pipelines=2, exact=False)


class Counted(nn.Module):
    """Counts its calls by all means that a user may choose."""

    total = {"calls": 0}

    def __init__(self):
        super().__init__()
        self.layer, self.calls, self.outputs, self.notes = nn.Linear(WIDTH, WIDTH), 0, [], {"calls": {0}}

    def forward(self, x):
        global COUNT
        COUNT += 1
        self.calls += 1
        self.total["calls"] += 1
        self.notes["calls"].add(self.calls)
        x = torch.tanh(self.layer(x))
        self.outputs.append(x.detach())
        return x


COUNT = 0
SEEN = []


def calls():
    """Checks that forwards, hooks and losses are called as often as in one process, and only get tensors with values."""
    for schedule in SPLIT:
        before = COUNT
        torch.manual_seed(1)
        model = [Counted() for _ in range(4)]
        seen, losses = [], []
        for piece in model:
            piece.register_forward_hook(lambda module, given, out, seen=seen: (seen.append(out), SEEN.append(out))[0])

        def loss(out, y, losses=losses):
            losses.append(out)
            return nn.functional.mse_loss(out, y)

        pipe = hetu.torch.Pipeline(model, loss, schedule, 2)
        random.seed(3)
        state = random.getstate()
        Counted.total["calls"] = 0
        SEEN.clear()
        pipe.step(torch.ones(6, WIDTH), torch.ones(6, WIDTH))
        pipe.step(torch.ones(3, WIDTH), torch.ones(3, WIDTH))
        pipe.evaluate(torch.ones(6, WIDTH), torch.ones(6, WIDTH))
        own = [piece for stage in pipe.own.values() for piece in stage.pieces]
        assert random.getstate() == state
        found = [len(seen), len(SEEN), COUNT - before, Counted.total["calls"]]
        assert found == 4 * [6 * len(own)], found
        assert len(losses) == 6 * any(piece is model[-1] for piece in own)
        for piece in model:
            count = 6 if any(piece is one for one in own) else 0
            assert piece.calls == len(piece.outputs) == count and piece.notes["calls"] == set(range(count + 1)), vars(piece)
        assert all(type(out) is torch.Tensor and bool(torch.isfinite(out).all()) for out in [*seen, *losses])


def hooked(pieces, counts):
    """Registers hooks of every kind, which change gradients or count."""
    def halve(gradient):
        counts["parameter"] = counts.get("parameter", 0) + 1
        return gradient * 0.5

    def after(parameter):
        counts["accumulated"] = counts.get("accumulated", 0) + 1

    def module(one, gradients, outputs):
        counts["module"] = counts.get("module", 0) + 1
        return tuple(None if g is None else g * 1.5 for g in gradients)

    def before(one, outputs):
        counts["before"] = counts.get("before", 0) + 1
        return tuple(g.clamp(-0.1, 0.1) for g in outputs)

    def value(one, given, out):
        if out.requires_grad:
            out.register_hook(halve)

    for piece in pieces:
        layer = piece[0]
        layer.weight.register_hook(halve)
        layer.bias.register_hook(halve)
        layer.register_full_backward_hook(module)
        piece.register_full_backward_pre_hook(before)
        layer.register_forward_hook(value)


def hooks():
    """Checks that gradient hooks of parameters, values and modules run once, also when a step registers more."""
    for schedule, options in (("1f1b", {}), ("zb-h1", {}), ("zb-v", {}), ("chimera", {}), ("1f1b", {"pipelines": 2})):
        exact = schedule != "chimera" and not options
        counts = [{}, {}]  # counts of this worker, and of one process

        def change(step, pieces, counts=counts):
            if step == 1:
                hooked(pieces, counts[change.turn % 2])
            change.turn += 1

        change.turn = 0
        pipe, plain = compare(f"hooks {schedule}", linears, schedule, change=change, exact=exact, steps=3, **options)
        told = [eval(text) for text in pipe.exchange(repr(counts[0]).encode())]
        sums = {name: sum(one.get(name, 0) for one in told) for name in counts[1]}
        assert sums == counts[1], (schedule, sums, counts[1])


class Gain(nn.Module):
    """A parameter without dimensions, one without elements, and a buffer without dimensions."""

    def __init__(self):
        super().__init__()
        self.gain, self.none = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.ones(0, 2))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        self.count += 1
        return x * self.gain + self.none.sum()


def scalars():
    """Compares parameters and buffers without dimensions or elements."""
    def make():
        return [*linears(2), Gain(), Gain(), *linears(1)]

    for schedule, options in (("1f1b", {}), ("zb-h1", {}), ("chimera", {}), ("1f1b", {"pipelines": 2})):
        exact = schedule != "chimera" and not options
        compare(f"scalars {schedule}", make, schedule, exact=exact, copied_buffers=not exact, **options)


def old_hooks():
    """Checks that hooks of register_backward_hook run in whole backwards, and are refused where I and W are separate."""
    def double(module, gradients, outputs):
        return tuple(None if g is None else 2 * g for g in gradients)

    def change(step, pieces):
        if step == 1:
            pieces[1][0].register_backward_hook(double)

    compare("old hooks", linears, "1f1b", change=change, steps=3)
    for schedule in ("zb-h1", "zb-v"):
        for register, text in (
                (lambda pieces: pieces[1][0].register_backward_hook(double), "'1.0' (Linear) has a hook of register_backw"),
                (lambda _: nn.modules.module.register_module_backward_hook(double),
                 "register_module_backward_hook() has registered a hook")):
            pieces = linears()
            handle = register(pieces)
            pipe = hetu.torch.Pipeline(pieces, nn.MSELoss(), schedule, 4)
            pipe.evaluate(torch.ones(8, WIDTH), torch.zeros(8, WIDTH))
            is_here = any(name.startswith("1.") for name, _ in pipe.named_parameters())
            try:
                if is_here or "module_backward" in text:
                    pipe.step(torch.ones(8, WIDTH), torch.zeros(8, WIDTH))
            except ValueError as error:
                assert text in str(error) and "\n" not in str(error), str(error)
            else:
                assert not is_here, f"{schedule}: nothing said '{text}'"
            handle.remove()
            pipe.step(torch.ones(8, WIDTH), torch.zeros(8, WIDTH))


def accumulated():
    """Checks that post-accumulation hooks get the sum so far after each micro-batch. Over copies of a stage they are
    refused."""
    norms = [[], []]

    def change(step, pieces):
        if step == 0:
            found = norms[change.turn]
            for piece in pieces:
                piece[0].bias.register_post_accumulate_grad_hook(
                    lambda p, found=found: found.append(float(p.grad.mul_(0.5).norm())))
            change.turn += 1

    change.turn = 0
    pipe, _ = compare("accumulated", linears, "zb-h1", change=change, steps=2)
    assert len(norms[0]) == 2 * 4 * 2 and len(norms[1]) == 2 * 4 * 4
    for name, schedule, options, register, text in (
            ("copies", "chimera", {}, lambda p: p.register_post_accumulate_grad_hook(print), "before it is summed over the"),
            ("tied", "1f1b", {"tied": [("0.weight", "3.weight")]}, lambda p: p.register_hook(print), "by two stages")):
        torch.manual_seed(1)
        model = tied() if name == "tied" else linears()
        pipe = hetu.torch.Pipeline(model, nn.MSELoss(), schedule, 4, **options)
        register((model[0] if name == "tied" else model[0][0]).weight)
        try:
            pipe.step(torch.ones(8, WIDTH), torch.zeros(8, WIDTH))
        except ValueError as error:
            assert text in str(error), str(error)
        except _hetu.CommError:  # raised by the worker that has the other of the two stages
            assert name == "tied" and pipe.row == 1
        else:
            raise AssertionError(f"{name}: nothing was said")
