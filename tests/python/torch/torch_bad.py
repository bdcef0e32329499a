"""Wrong cases of torch_worker.py: every worker reports the same line, and none has computed anything."""

import os
from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import hetu.torch

ROWS, WIDTH = 8, 6
computed = []


class Piece(nn.Linear):
    """A linear layer that records real inputs."""

    def __init__(self):
        super().__init__(WIDTH, WIDTH)

    def forward(self, x):
        """Returns a tensor of the same shape."""
        if not isinstance(x, FakeTensor):
            computed.append(x)
        return super().forward(x)


def made(schedule="1f1b", seed=1, **options):
    """Returns a pipeline of four pieces."""
    torch.manual_seed(seed)
    return hetu.torch.Pipeline([Piece() for _ in range(4)], nn.MSELoss(), schedule, 2, **options)


def step(pipe, rows=ROWS, scaler=None):
    """Runs one step on tensors of ones."""
    pipe.step(torch.ones(rows, WIDTH), torch.ones(rows, WIDTH), scaler)


def versions(worker, _):
    """Pretends that worker 1 has another version of PyTorch."""
    known, torch.__version__ = torch.__version__, torch.__version__ if worker == 0 else "2.6.0"
    try:
        step(made())
    finally:
        torch.__version__ = known


def weights(worker, _):
    """Gives the copies of a stage different initial weights."""
    step(made(seed=worker, pipelines=2, schedule="gpipe"))


def rows(worker, _):
    """Gives worker 1 another number of samples."""
    step(made(), ROWS + worker)


def values(worker, _, which=0):
    """Gives worker 1 other values of one input: the rows of the batch in another order, as from DataLoaders that shuffle."""
    x = torch.arange(4.0 * ROWS * WIDTH).view(4 * ROWS, WIDTH)
    batch = [x, x.clone()]
    batch[which] = batch[which].flip(0) if worker else batch[which]
    made().step(*batch)


def targets(worker, _):
    """Gives worker 1 other values of the target."""
    values(worker, _, 1)


def evaluated(worker, _):
    """Changes one of many elements, inside a dict, in an evaluation."""
    x = torch.ones(256, 64, 6)
    y = {"a": x.clone(), "b": x.clone()}
    y["b"][200, 7, 3] += 0.5 * worker
    pipe = hetu.torch.Pipeline([Piece() for _ in range(4)], lambda out, y: nn.functional.mse_loss(out, y["b"]), "zb-v", 2)
    pipe.evaluate(x, y)


def scales(worker, _):
    """Gives worker 1 another loss scale."""
    pipe = made()
    step(pipe, scaler=hetu.torch.GradScaler(pipe, init_scale=2.0**(4 + worker)))


def seeds(worker, _):
    """Gives worker 1 another dropout seed."""
    step(hetu.torch.Pipeline([Piece() for _ in range(4)], nn.MSELoss(), "zb-v", 2, seed=worker))


def types(worker, _):
    """Enables torch.autocast on worker 1 only."""
    with torch.autocast("cpu", torch.bfloat16, enabled=worker == 1):
        step(made())


def part(worker, folder):
    """Loads from a separate folder per worker. Worker 1's folder lacks its file, and worker 0's folder is complete."""
    place = Path(folder, f"part-{worker}")
    (step_folder,) = Path(folder, "whole").glob("step-*")
    (place / step_folder.name).mkdir(parents=True)
    for file in step_folder.iterdir():
        os.link(file, place / step_folder.name / file.name)
    if worker == 1:
        next(place.glob("*/model-worker-00001.safetensors")).unlink()
    made().load(place)


def names(worker, _):
    """Gives worker 1 other names of parameters, as when Python's hash seed changes the cuts of a model."""
    torch.manual_seed(1)
    pieces = {f"{'own' if worker else 'piece'}{number}": Piece() for number in range(4)}
    step(hetu.torch.Pipeline(nn.Sequential(OrderedDict(pieces)), nn.MSELoss(), "1f1b", 2))


def norms(worker, _):
    """Clips by the norm of one worker's gradients, both through PyTorch and through a library's method."""
    pipe = made()

    class Library:
        def clip_grad_norm_(self, parameters, most):
            return torch.nn.utils.clip_grad_norm_(list(parameters), most)

    try:
        Library().clip_grad_norm_(pipe.parameters(), 1.0)
    except ValueError as error:
        assert "each worker would clip by a norm of its own" in str(error)
    else:
        raise AssertionError("a library clips by a norm of its own")
    torch.optim.SGD(pipe.parameters(), lr=0.1)
    torch.nn.utils.clip_grad_norm_(pipe.parameters(), 1.0)


def own_lines(worker, _):
    """Uses the script's model where the Pipeline is meant: all lines that would be wrong on a worker without an error. Lines
    that are right stay allowed."""
    torch.manual_seed(1)
    model = nn.Sequential(*[nn.Sequential(Piece(), nn.BatchNorm1d(WIDTH)) for _ in range(4)])
    old = list(model.parameters())
    before = torch.optim.AdamW(old)
    pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "1f1b", 2)
    step(pipe)
    state, optimizer = pipe.state_dict(), "give the optimizer pipe.parameters(), or groups of pipe.named_parameters()"
    by_decay = [{"params": [p for _, p in model.named_parameters() if p.dim() == d]} for d in (1, 2)]
    lines = [(lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0), "pipe.clip_grad_norm_(max_norm)"),
             (lambda: nn.utils.clip_grad_norm_(old, 1.0), "pipe.clip_grad_norm_(max_norm)"),
             (lambda: nn.utils.clip_grad_value_(model.parameters(), 1.0), "pipe.clip_grad_value_(clip_value)"),
             (lambda: [p.grad for p in model.parameters()], "read pipe.parameters()"),
             (lambda: torch.save(model.state_dict(), os.devnull), "call pipe.state_dict() on all workers"),
             (lambda: torch.save(model, os.devnull), "save the result of pipe.state_dict()"),
             (lambda: model.load_state_dict(state), "call pipe.load_state_dict(state)"),
             (lambda: torch.optim.AdamW(model.parameters()), optimizer), (lambda: torch.optim.AdamW(by_decay), optimizer),
             (before.step, optimizer),
             (lambda: model(torch.ones(ROWS, WIDTH)), "call pipe.predict(inputs)"),
             (lambda: torch.optim.swa_utils.AveragedModel(model), "hetu.torch.AveragedModel(pipe)"),
             (lambda: [p.detach().clone() for p in model.parameters()], "read pipe.parameters()"),
             (lambda: nn.utils.parameters_to_vector(model.parameters()), "read pipe.parameters()"),
             (lambda: [b.clone() for b in model.buffers()], "read pipe.parameters()"),
             (lambda: [nn.init.zeros_(p) for p in model.parameters()], "read pipe.parameters()"),
             (lambda: model.half(), "before you make the Pipeline")]  # the last: it has changed this worker's stage
    for number, (line, text) in enumerate(lines):
        try:
            line()
        except ValueError as error:
            assert "is on another worker" in str(error) and text in str(error), f"line {number}: {error}"
        else:
            raise AssertionError(f"line {number} is accepted")
    assert sum(p.numel() for p in model.parameters()) == 4 * (WIDTH * WIDTH + 3 * WIDTH)
    model.train().requires_grad_(True).zero_grad()
    before.zero_grad()
    assert str(old) and str(model) and torch.optim.AdamW(pipe.parameters())
    computed.clear()
    hetu.torch.Pipeline(model, nn.MSELoss(), "1f1b", 2, first_pieces=[0, 1 if worker else 3])


def folders(worker, folder):
    """Saves to another folder on worker 1."""
    made().save(Path(folder, f"folder-{worker}"))


CASES = {"folders": (folders, "save: worker 1 was given the folder 'folder-1' and worker 0 'folder-0'"),
         "own_lines": (own_lines, "an earlier Pipeline of this model has left '[23].0.weight|'1.0.weight"),
         "norms": (norms, r"clip_grad_norm_\(pipe.parameters\(\)\): .* Call pipe.clip_grad_norm_\(max_norm\)"),
         "names": (names, "worker 1 has different parameter names than worker 0"),
         "versions": (versions, "worker 1 has PyTorch 2.6.0, worker 0 has"),
         "weights": (weights, "stage 0 begins with different weights on worker 1 than on worker 0"),
         "rows": (rows, "begins a step with"), "scales": (scales, "scale of the loss"), "types": (types, "bfloat16"),
         "seeds": (seeds, "worker 1 begins a step with seed 1, worker 0 with 0"),
         "values": (values, "worker 1 begins a step with different values of inputs than worker 0"),
         "targets": (targets, "different values of target than"),
         "evaluated": (evaluated, r"different values of target\['b'\] than"),
         "part": (part, "worker 1: .*model-worker-00001.safetensors.*No such file")}


def run(folder):
    """Runs all cases in one job."""
    import re

    good = made()
    step(good)
    good.save(Path(folder, "whole"))
    assert computed
    worker = good.transport.worker
    for name, (case, text) in CASES.items():
        computed.clear()
        try:
            case(worker, folder)
        except (OSError, ValueError) as error:
            assert re.search(text, str(error)) and "\n" not in str(error), f"{name}: {error}"
        else:
            raise AssertionError(f"{name}: nothing was said")
        assert not computed, f"{name}: worker {worker} has computed"
        print(f"BAD {name}: worker {worker}", flush=True)
