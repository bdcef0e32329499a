"""Trains a model by hetu.torch and by plain PyTorch over the same micro-batches, and compares all results after each step.

Used by torch_modes.py, torch_inside.py and torch_random.py, which heturun starts. exact=True: bit for bit. exact=False:
within 1e-6 and with models in float64, for gradients that are summed over copies of a stage, in another order."""

import contextlib
import sys
import traceback

import torch
from torch import nn

import hetu.torch

WIDTH = 4
ROWS = 11  # in four micro-batches of 3, the last one smaller


def linears(count=4):
    """Returns layers without random numbers or statistics."""
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]


def tied():
    """Returns pieces whose first and last one share a weight."""
    pieces = [nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)]
    pieces[3].weight = pieces[0].weight
    return pieces


def refuses(kind, call, text):
    """Raises AssertionError unless a call raises an error of this type, whose single line contains the text."""
    try:
        call()
    except kind as error:
        assert text in str(error) and "\n" not in str(error), str(error)
    else:
        raise AssertionError(f"nothing said '{text}'")


class Scaled(torch.autograd.Function):
    """A product as a custom function: Python code that computes both gradients at once, and counts its backwards."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        x, scale = ctx.saved_tensors
        Scaled.calls += 1
        return gradient * scale, (gradient * x).flatten(0, -2).sum(0)

    calls = 0


class Plain:
    """A training in one process: the pieces one after the other, with Hetu's seeds."""

    def __init__(self, pieces, loss, rule, weigh=len):
        self.pieces, self.loss, self.weigh, self.steps = pieces, loss, weigh, 0
        self.whole = nn.ModuleList(pieces)
        self.optimizer = rule(list(self.whole.parameters()))

    def forward(self, x):
        for piece in self.pieces:
            x = piece(x)
        return x

    def step(self, micro_batches):
        """Computes the gradients of a step, and returns its loss. Each micro-batch is (x, y)."""
        self.optimizer.zero_grad()
        rows = sum(self.weigh(y) for _, y in micro_batches)
        total = 0.0
        for micro, (x, y) in enumerate(micro_batches):
            for number, piece in enumerate(self.pieces):
                torch.manual_seed(hetu.torch.seed_of(0, self.steps, micro, number))
                x = piece(x)
            torch.manual_seed(hetu.torch.seed_of(0, self.steps, micro, len(self.pieces)))
            part = self.loss(x, y) * (self.weigh(y) / rows)
            part.backward()
            total += part.item()
        self.steps += 1
        return total

    def evaluate(self, micro_batches):
        """Returns the loss with all modules in eval(), and restores their modes."""
        modes = [module.training for module in self.whole.modules()]
        self.whole.eval()
        rows = sum(self.weigh(y) for _, y in micro_batches)
        with torch.no_grad():
            total = sum(float(self.loss(self.forward(x.clone()), y) * (self.weigh(y) / rows)) for x, y in micro_batches)
        for module, mode in zip(self.whole.modules(), modes, strict=True):
            module.training = mode
        return total


def cut(x, micro_batches):
    """Splits a pipeline's samples into micro-batches."""
    return list(x.split(-(-len(x) // micro_batches)))


def adamw(parameters):
    """Returns an optimizer that moves a parameter with a zero gradient, and leaves a parameter without a gradient alone."""
    return torch.optim.AdamW(parameters or [torch.zeros(())], lr=0.01, weight_decay=0.1)  # a worker may have no parameter


def sgd(parameters):
    """Returns an optimizer like adamw, but without its division by the roots of gradients that are zero except for rounding.
    """
    return torch.optim.SGD(parameters or [torch.zeros(())], lr=0.05, momentum=0.9, weight_decay=0.1)


def compare(name, make, schedule, *, steps=4, micro_batches=4, pipelines=1, exact=True, change=None, loss=None, rule=None,
            seed=1, copied_buffers=False, batches=None, rows=ROWS, settings=contextlib.nullcontext, weigh=len, **options):
    """Trains both and raises AssertionError where they differ. Returns the Pipeline and the plain training.

    make(): returns the pieces, a list of modules. change(step, pieces): is called before each step on both. weigh(y):
    returns the weight of a micro-batch. batches(generator, pipelines): returns inputs and targets of a step, by pipeline.
    settings(): returns a context that is entered around each step of both."""
    dtype = torch.float32 if exact else torch.float64
    rule = rule or (adamw if exact else sgd)
    trainings = []
    for _ in range(2):
        torch.manual_seed(seed)
        trainings.append([piece.to(dtype) for piece in make()])
    pieces, others = trainings
    plain = Plain(others, loss or nn.MSELoss(), rule, weigh)
    pipe = hetu.torch.Pipeline(pieces, loss or nn.MSELoss(), schedule, micro_batches, pipelines=pipelines, **options)
    optimizer = rule(list(pipe.parameters()))
    draw = torch.Generator().manual_seed(seed)
    for step in range(steps):
        if batches:
            x, y = batches(draw, pipelines)
        else:
            x, y = (torch.randn(pipelines, rows, WIDTH, generator=draw, dtype=dtype) for _ in range(2))
        if change:
            change(step, pieces)
            change(step, others)
        micros = [pair for d in range(pipelines)
                  for pair in zip(cut(x[d], micro_batches), cut(y[d], micro_batches), strict=True)]
        with settings():
            found = pipe.step(x[pipe.pipeline].clone(), y[pipe.pipeline])
        with settings():
            expected = plain.step([(a.clone(), b) for a, b in micros])
        where = f"{name}, worker {pipe.transport.worker}, step {step}, seed {seed}"
        check_numbers(f"loss: {where}", found, expected, exact)
        check_gradients(where, pipe, plain, exact)
        optimizer.step()
        plain.optimizer.step()
        check_weights(where, pipe, plain, exact, copied_buffers)
    if not copied_buffers:
        evaluated = pipe.evaluate(x[pipe.pipeline].clone(), y[pipe.pipeline])
        check_numbers(f"evaluate: {where}", evaluated, plain.evaluate(micros), exact)
    return pipe, plain


def check_numbers(where, found, expected, exact):
    """Raises AssertionError where two numbers differ."""
    close = found == expected or (not exact and abs(found - expected) <= 1e-6 * max(1e-6, abs(expected)))
    assert close, f"{where}: {found!r}, plain PyTorch {expected!r}"


def check_tensors(where, found, expected, exact):
    """Raises AssertionError where two tensors differ."""
    if torch.equal(found, expected):
        return
    apart = float((found - expected).double().norm() / expected.double().norm().clamp_min(1e-6))
    assert not exact and apart <= 1e-6, f"{where}: apart by {apart:.2e}"


def _named(pipe, plain):
    """Returns the plain training's parameters and buffers by their names in the Pipeline."""
    known = {}
    for number, piece in enumerate(plain.pieces):
        for name, tensor in [*piece.named_parameters(remove_duplicate=False), *piece.named_buffers(remove_duplicate=False)]:
            known[f"{number}.{name}"] = tensor
    return known


def check_gradients(where, pipe, plain, exact):
    """Compares gradients, and checks that the same parameters have none."""
    known = _named(pipe, plain)
    for name, parameter in pipe.named_parameters():
        other = known[name].grad
        assert (parameter.grad is None) == (other is None), \
            f"gradient of '{name}', {where}: {'None' if parameter.grad is None else 'a tensor'}, plain PyTorch " \
            f"{'None' if other is None else 'a tensor'}"
        if other is not None:
            check_tensors(f"gradient of '{name}', {where}", parameter.grad, other, exact)


def check_weights(where, pipe, plain, exact, copied_buffers):
    """Compares parameters, and buffers unless copies of a stage have separate buffers."""
    known = _named(pipe, plain)
    for name, parameter in pipe.named_parameters():
        check_tensors(f"'{name}', {where}", parameter.detach(), known[name].detach(), exact)
    if not copied_buffers:
        for stage in pipe.own.values():
            for buffer in stage.buffers():
                name = pipe.pieces.names[id(buffer)]
                check_tensors(f"buffer '{name}', {where}", buffer, known[name], exact)


def main(cases):
    """Runs the functions in `cases` that the command line names."""
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        try:
            cases[name]()
        except Exception:
            print(f"FAILED {name}: {traceback.format_exc()}", flush=True)
            raise
        print(f"PASSED {name}", flush=True)
