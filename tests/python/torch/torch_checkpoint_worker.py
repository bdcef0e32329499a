"""Workers of checkpoint_test.py. torch_checkpoint_worker.py ACTION FOLDER [ARGUMENT]"""

import os
import random
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

import hetu.torch
from hetu.torch import checkpoint


def made(value):
    """Returns a model of four pieces and an optimizer. All weights and states are `value`."""
    pipe = hetu.torch.Pipeline([nn.Linear(64, 64) for _ in range(4)], nn.MSELoss(), "1f1b", 2)
    optimizer = torch.optim.SGD(pipe.parameters(), lr=0.1, momentum=0.9)
    fill(pipe, optimizer, value)
    return pipe, optimizer


def fill(pipe, optimizer, value):
    """Sets the training to its state after `value` steps."""
    pipe.steps = value
    for parameter in pipe.parameters():
        parameter.data.fill_(value)
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, value)


def die():
    """Ends this process by SIGKILL, like kill -9."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed(folder, seed):
    """Saves step after step until a random worker dies at a random moment."""
    draw = random.Random(seed)
    worker, seconds = draw.randrange(2), draw.uniform(0.01, 0.4)
    pipe, optimizer = made(1)
    pipe.save(folder, optimizer)
    print("saved", flush=True)
    pipe.state.agreed("one checkpoint is there")
    if pipe.transport.worker == worker:
        threading.Timer(seconds, die).start()
    for step in range(2, 10**6):
        fill(pipe, optimizer, step)
        pipe.save(folder, optimizer)


def cut(folder, _):
    """Saves step 1, and then another training. Worker 1 dies before it writes its part of that one."""
    pipe, optimizer = made(1)
    pipe.save(folder, optimizer)
    fill(pipe, optimizer, 1)
    for parameter in pipe.parameters():
        parameter.data.fill_(7)
    if pipe.transport.worker == 1:
        def late(tensor):
            time.sleep(1)
            die()

        checkpoint.bytes_of = late
    pipe.save(folder, optimizer)


def hold(folder, _):
    """Saves, waits until the file `end` exists, and saves again."""
    pipe, optimizer = made(1)
    pipe.save(folder, optimizer)
    print("saved", flush=True)
    while not Path(folder, "end").exists():
        time.sleep(0.02)
    pipe.save(folder, optimizer)


def memory(folder, _):
    """Checks that saving 12 tensors of 16 MiB needs less additional memory than one of them."""
    pipe = hetu.torch.Pipeline([nn.Linear(2048, 2048, bias=False) for _ in range(6)], nn.MSELoss(), "1f1b", 2)
    optimizer = torch.optim.SGD(pipe.parameters(), lr=0.1, momentum=0.9)
    for parameter in pipe.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.ones_like(parameter)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.save(folder, optimizer)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 16, f"a save of {12 * 16} MiB took {grown:.0f} MiB"
    print(f"MEMORY {grown:.1f} MiB", flush=True)


def several(schedule):
    """Returns a pipeline with two optimizers, a schedule of rates and an exponential moving average."""
    torch.manual_seed(1)
    pieces = [nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh()) for _ in range(4)]
    pipe = hetu.torch.Pipeline(pieces, nn.MSELoss(), schedule, 2)
    torch.set_num_threads(1)  # as in a worker of a job of two on two processors: sums of batch norms depend on it
    matrices = [p for p in pipe.parameters() if p.dim() == 2]
    others = [p for p in pipe.parameters() if p.dim() != 2]
    muon = torch.optim.Muon(matrices, lr=0.02) if hasattr(torch.optim, "Muon") else torch.optim.NAdam(matrices)
    rules = {"muon": muon, "adamw": torch.optim.AdamW(others, lr=0.01)}
    rates = torch.optim.lr_scheduler.StepLR(rules["adamw"], 2)
    ema = hetu.torch.AveragedModel(pipe, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)
    return pipe, rules, rates, ema


def train(made, steps):
    """Trains steps on batches that depend on the number of the step."""
    pipe, rules, rates, ema = made
    for step in steps:
        draw = torch.Generator().manual_seed(step)
        x = torch.randn(8, 8, generator=draw)
        pipe.step(x, -x)
        for rule in rules.values():
            rule.step()
        rates.step()
        ema.update_parameters()
    out = dict(pipe.state_dict())
    with ema.applied():
        out |= {f"ema {name}": tensor for name, tensor in pipe.state_dict().items()}
    assert all(torch.equal(out[name], tensor) for name, tensor in pipe.state_dict().items()), "weights are not back"
    return out


def continued(folder, _):
    """Saves after 3 steps. The file after.pt holds the result of 2 more steps."""
    made = several("1f1b")
    train(made, range(3))
    pipe, rules, rates, ema = made
    pipe.save(folder, rules, rates=rates, ema=ema)
    found = train(made, range(3, 5))
    if pipe.transport.worker == 0:
        torch.save(found, Path(folder, "after.pt"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
