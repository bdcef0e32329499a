"""Generates random small models and trains each by a schedule, compared with plain PyTorch. heturun starts it.

Arguments: the seed of the first model, the number of models, the number of pipelines, and schedules. A model has 5 to 12
pieces of the kinds below. Parts are frozen and unfrozen, modules are put into eval() and back, and batches are uneven."""

import random
import sys
import traceback
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hetu.torch
from torch_plain import WIDTH, Scaled, compare

WORDS, LENGTH, IGNORED = 9, 3, -100
OPTIONS = {"interleaved-1f1b": {"chunks": 2}}


class First(nn.Module):
    """Works on the first of several values, and passes the others on."""

    def forward(self, value):
        if isinstance(value, torch.Tensor):
            return self.compute(value)
        return (self.compute(value[0]), *value[1:])


class Layer(First):
    """A layer, optionally followed by dropout."""

    def __init__(self, drop=0.0, bias=True):
        super().__init__()
        self.layer, self.drop = nn.Linear(WIDTH, WIDTH, bias=bias), nn.Dropout(drop)

    def compute(self, x):
        return self.drop(torch.tanh(self.layer(x)))


class Plain(First):
    """A layer whose output the next piece may change in place."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def compute(self, x):
        return self.layer(x)


class InPlace(First):
    """Changes its input."""

    def __init__(self, relu):
        super().__init__()
        self.relu, self.shift = nn.ReLU(inplace=True) if relu else None, nn.Parameter(torch.full((WIDTH,), 0.3))

    def compute(self, x):
        return self.relu(x) * self.shift if self.relu else x.mul_(0.7).add_(self.shift)


class Norm(First):
    """Batch norm or layer norm."""

    def __init__(self, batch):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH) if batch else nn.LayerNorm(WIDTH)

    def compute(self, x):
        return self.norm(x)


class Mean(First):
    """Keeps a running mean in a buffer, and reads it. Each update replaces the buffer by another tensor."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def compute(self, x):
        x = self.layer(x)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().flatten(0, -2).mean(0)
        return x - self.mean


class Custom(First):
    """A custom function, used twice with the same parameter."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.full((WIDTH,), 1.2))

    def compute(self, x):
        return Scaled.apply(torch.tanh(self.layer(Scaled.apply(x, self.scale))), self.scale)


class Again(First):
    """Computes its middle part again in the backward pass."""

    def __init__(self, reentrant):
        super().__init__()
        self.layer, self.drop, self.reentrant = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1), reentrant

    def compute(self, x):
        return x + checkpoint(lambda value: self.drop(torch.tanh(self.layer(value))), x, use_reentrant=self.reentrant)


class Lora(First):
    """A frozen layer with a trained addition, and an unused part."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)
        self.unused = nn.Linear(WIDTH, WIDTH)

    def compute(self, x):
        return torch.tanh(self.base(x) + self.up(self.down(x)))


class Fork(nn.Module):
    """Keeps its input for later, as a skip connection."""

    def __init__(self, aside):
        super().__init__()
        self.layer, self.aside = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH) if aside else None

    def forward(self, value):
        x, *rest = (value,) if isinstance(value, torch.Tensor) else value
        return (torch.tanh(self.layer(x)), self.aside(x) if self.aside else x, *rest)


class Join(nn.Module):
    """Adds the value that a Fork has kept, or leaves it out."""

    def __init__(self, leave):
        super().__init__()
        self.layer, self.leave = nn.Linear(WIDTH, WIDTH), leave

    def forward(self, value):
        x, skip, *rest = value
        x = self.layer(x) if self.leave else self.layer(x) + skip
        return (x, *rest) if rest else x


class Words(nn.Module):
    """An embedding table, for models of words."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)

    def forward(self, ids):
        return self.table(ids)


class Head(nn.Module):
    """Computes scores of words, optionally by the table's weight."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        return self.head(x)


def draw(seed, copies):
    """Returns a function that makes a model, and a function that changes it before each step. With `copies`, no piece keeps
    statistics that the next micro-batch reads, because each copy of a stage processes some of the micro-batches."""
    dice = random.Random(seed)
    words = dice.random() < 0.4
    # Batch norm of words would transpose. A gradient crosses a boundary in the memory order of its value, and kernels for
    # another memory order add in another order.
    kinds = [Layer, partial(Layer, 0.2, bias=False), partial(Norm, not words), partial(Norm, False), Custom, Lora,
             partial(Again, True), partial(Again, False)]
    kinds += [] if copies else [Mean]
    makers, open_forks, last = [], 0, dice.randint(4, 7)
    while len(makers) < last:
        turn = dice.random()
        if turn < 0.15:
            makers.append(partial(Fork, dice.random() < 0.3))
            open_forks += 1
        elif turn < 0.3 and open_forks:
            makers.append(partial(Join, dice.random() < 0.3))
            open_forks -= 1
        elif turn < 0.5:
            makers += [Plain, partial(InPlace, dice.random() < 0.5)]
        else:
            makers.append(dice.choice(kinds))
    makers += [partial(Join, dice.random() < 0.3) for _ in range(open_forks)]
    makers = [Words, *makers, Head] if words else [*makers, Plain]
    tied = words and dice.random() < 0.5

    def make():
        pieces = [maker() for maker in makers]
        if tied:
            pieces[-1].head.weight = pieces[0].table.weight
        return pieces

    change_seed = dice.random()

    def change(step, pieces):
        """Freezes and unfreezes parameters, and switches modules to eval() and back. The last piece is always trained."""
        turns = random.Random(f"{change_seed} {step}")
        for piece in pieces[:-1]:
            for parameter in piece.parameters():
                if turns.random() < 0.2 and not (tied and piece is pieces[0]):
                    parameter.requires_grad_(not parameter.requires_grad)
            if turns.random() < 0.2 and not copies:
                piece.train(not piece.training)

    each = dice.randint(2, 3)
    return make, change, words, tied, 4 * each - dice.randint(0, each - 2)


def batches_of(words, rows):
    """Returns a function that generates a step's inputs and targets. Words at the end of a row are ignored."""
    def batches(generator, pipelines):
        ids = torch.randint(0, WORDS, (pipelines, rows, LENGTH), generator=generator)
        targets = torch.randint(0, WORDS, (pipelines, rows, LENGTH), generator=generator)
        lengths = torch.randint(1, LENGTH + 1, (pipelines, rows, 1), generator=generator)
        targets[torch.arange(LENGTH) >= lengths] = IGNORED
        return ids, targets

    return batches if words else None


def word_loss(out, target):
    """Returns a mean over words that are not ignored."""
    return nn.functional.cross_entropy(out.flatten(0, 1), target.flatten(), ignore_index=IGNORED)


def mean_of_rows(out, target):
    """Returns a mean over rows of the means over their words."""
    each = nn.functional.cross_entropy(out.flatten(0, 1), target.flatten(), ignore_index=IGNORED, reduction="none")
    counts = (target != IGNORED).sum(1)
    return (each.view(target.shape).sum(1) / counts).mean()


def run(seed, schedule, pipelines):
    """Trains one model by one schedule."""
    copies = pipelines > 1 or schedule == "chimera"
    make, change, words, tied, rows = draw(seed, copies)
    options = dict(OPTIONS.get(schedule, {}))
    if tied:
        options["tied"] = [("0.table.weight", f"{len(make()) - 1}.head.weight")]
    counted = words and hasattr(hetu.torch, "token_count") and seed % 2
    if counted:
        options["loss_weight"] = hetu.torch.token_count(IGNORED)
    if seed % 3 == 0 and schedule != "chimera":
        options["with_recompute"] = True
    compare(f"model {seed} by {schedule}", make, schedule, seed=seed, steps=3, pipelines=pipelines,
            exact=not copies and not tied, change=change, rows=rows, batches=batches_of(words, rows), copied_buffers=copies,
            loss=(word_loss if counted else mean_of_rows) if words else nn.MSELoss(),
            weigh=(lambda target: int((target != IGNORED).sum())) if counted else len, **options)


def main():
    """Runs the models and schedules on the command line."""
    torch.set_num_threads(1)
    first, count, pipelines, *schedules = sys.argv[1:]
    if not hasattr(hetu.torch, "token_count"):
        print("NOTE this hetu.torch has no token_count, so no model has a mean over words", flush=True)
    for seed in range(int(first), int(first) + int(count)):
        for schedule in schedules:
            try:
                run(seed, schedule, int(pipelines))
            except Exception:
                made = " ".join(type(piece).__name__ for piece in draw(seed, False)[0]())
                print(f"FAILED model {seed} by {schedule}, {pipelines} pipelines ({made}): {traceback.format_exc()}",
                      flush=True)
                raise
            print(f"SAME model {seed} by {schedule}", flush=True)


if __name__ == "__main__":
    main()
