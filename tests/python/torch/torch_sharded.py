"""Models and trainings of torch_zero.py: a training whose optimizer states are sharded over the workers, compared with the
same training with all states on each worker."""

import io

import torch
from torch import nn

import hetu.torch

WIDTH, ROWS, MICROS = 6, 10, 4


class Sometimes(nn.Module):
    """A layer with one part that some steps don't use, and one part that no step uses."""

    def __init__(self):
        super().__init__()
        self.always, self.some, self.never = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.uses_some = True

    def forward(self, x):
        x = torch.tanh(self.always(x))
        return x + self.some(x) if self.uses_some else x


def plain():
    """Returns layers of several sizes, with dropout. Workers can't own them evenly."""
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH * k), nn.Tanh(), nn.Linear(WIDTH * k, WIDTH), nn.Dropout(0.1))
            for k in (1, 3, 2, 4)]


class Odd(nn.Module):
    """A parameter in another memory order, a scalar, and a parameter without elements."""

    def __init__(self):
        super().__init__()
        self.turned, self.scalar, self.empty = (nn.Parameter(t) for t in (torch.randn(WIDTH, WIDTH).t(), torch.ones(()),
                                                                          torch.ones(0, 3)))

    def forward(self, x):
        return self.scalar * (x @ self.turned) + self.empty.sum()


def odd():
    return [nn.Linear(WIDTH, WIDTH), Odd(), Odd(), nn.Linear(WIDTH, WIDTH)]


def partly():
    """Returns layers with parameters that have no gradient in some steps, and a frozen layer."""
    made = [nn.Linear(WIDTH, WIDTH), Sometimes(), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)]
    made[2].requires_grad_(False)
    return made


def change(step, pieces):
    """Applies the script's changes between steps: an unused part, and layers that are frozen and unfrozen."""
    pieces[1].uses_some = step % 2 == 0
    pieces[2].requires_grad_(step > 1)
    pieces[3].requires_grad_(step != 2)


def tied():
    """Returns layers with a weight shared by the first and the last piece, and one shared by the middle two."""
    made = [nn.Linear(WIDTH, WIDTH) for _ in range(4)]
    made[3].weight, made[2].weight = made[0].weight, made[1].weight
    return made


def adamw(parameters):
    return {"rule": torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.1)}


def sgd(parameters):
    return {"rule": torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1)}


def adagrad(parameters):
    """Returns an optimizer that creates its states in the constructor."""
    return {"rule": torch.optim.Adagrad(parameters, lr=0.05)}


def adafactor(parameters):
    """Returns an optimizer that keeps statistics of rows and columns of matrices."""
    return {"rule": torch.optim.Adafactor(parameters, lr=0.05)}


def several(parameters):
    """Returns an optimizer for matrices that needs whole ones, and another optimizer with two groups for the rest."""
    parameters = list(parameters)
    matrices = [p for p in parameters if p.dim() == 2]
    rest = [p for p in parameters if p.dim() != 2]
    muon = getattr(torch.optim, "Muon", torch.optim.NAdam)
    return {"muon": muon(matrices, lr=0.02),
            "adamw": torch.optim.AdamW([{"params": rest[::2], "weight_decay": 0.0}, {"params": rest[1::2], "lr": 0.01}])}


class Training:
    """A Pipeline and its optimizers."""

    def __init__(self, make, rule, schedule, shard, dtype=torch.float32, micros=MICROS, **options):
        torch.manual_seed(1)
        self.pieces = [piece.to(dtype) for piece in make()]
        self.pipe = hetu.torch.Pipeline(self.pieces, nn.MSELoss(), schedule, micros, shard_optimizer=shard, **options)
        self.rules = rule(self.pipe.parameters())
        self.dtype = dtype

    def batch(self, step):
        draw = torch.Generator().manual_seed(step)
        x, y = torch.randn(2, self.pipe.pipelines, ROWS, WIDTH, generator=draw, dtype=self.dtype)
        return x[self.pipe.pipeline], y[self.pipe.pipeline]

    def step(self, step, clip=None):
        """Runs one step. Returns the numbers that the script gets."""
        out = [self.pipe.step(*self.batch(step))]
        if clip:
            out.append(float(self.pipe.clip_grad_norm_(0.1, clip)))
        for rule in self.rules.values():
            rule.step()
        return out

    def states(self):
        """Returns the states of all workers by parameter name, optimizer and key. For copies, any worker's state is used."""
        names = {id(p): self.first_name(n) for n, p in self.pipe.named_parameters()}
        mine = {(names[id(p)], name, key): value.cpu() if isinstance(value, torch.Tensor) else value
                for name, rule in self.rules.items() for p, state in rule.state.items() for key, value in state.items()}
        found = {}
        packed = io.BytesIO()
        torch.save(mine, packed)
        for text in self.pipe.exchange(packed.getvalue()):
            found |= torch.load(io.BytesIO(text), weights_only=False)
        return found

    def first_name(self, name):
        """Returns the name of a tied parameter's first copy."""
        return {tie.names[1]: tie.names[0] for tie in self.pipe.ties}.get(name, name)

    def elements(self):
        """Returns the number of elements of this worker's states, without step counts."""
        return sum(value.numel() for rule in self.rules.values() for state in rule.state.values()
                   for value in state.values() if isinstance(value, torch.Tensor) and value.dim())


def same(one, other):
    """Returns true if two values have the same bits."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one == other


def expect_same(where, one, other):
    """Compares weights and states of two trainings."""
    for (name, a), (_, b) in zip(one.pipe.named_parameters(), other.pipe.named_parameters(), strict=True):
        assert torch.equal(a, b), f"{where}: '{name}' differs"
    states, expected = one.states(), other.states()
    assert set(states) == set(expected), f"{where}: states {sorted(set(states) ^ set(expected))}"
    for key, value in expected.items():
        assert same(states[key], value), f"{where}: state {key} differs"


def compare(name, make, rule, schedule, steps=3, change=None, clip=None, **options):
    """Trains with and without shards. Both must have the same bits after each step."""
    sharded, whole = (Training(make, rule, schedule, shard, **options) for shard in (True, False))
    for step in range(steps):
        if change:
            change(step, sharded.pieces)
            change(step, whole.pieces)
        found, expected = sharded.step(step, clip), whole.step(step, clip)
        assert found == expected, f"{name}, step {step}: {found}, without shards {expected}"
        expect_same(f"{name}, step {step}", sharded, whole)
    x, y = whole.batch(0)
    assert sharded.pipe.evaluate(x, y) == whole.pipe.evaluate(x, y), name
    return sharded, whole
