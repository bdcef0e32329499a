"""A worker of plan_test.py: a model whose pieces wait, on machines of different speed.

torch_planned.py profile|run: profiles on one worker into model.json, or runs plan.json, with machines.json, and writes
trace.json. WAIT_SPEEDS has the speed of each worker: a wait of a piece is divided by it. So unequal machines can be emulated
on one host, whose processors are idle meanwhile."""

import os
import sys
import time

import torch
from torch import nn

import hetu.torch
from hetu import _hetu
from hetu.torch.live_bytes import LiveBytes

ROWS, WIDTH, STEPS = 16, 16, 4
MS = (60, 30, 30, 90, 30, 60, 30, 30)  # of each piece's forward of two samples


def speed():
    """Returns the speed of this worker; 1 in a single process."""
    return float(os.environ["WAIT_SPEEDS"].split(",")[_hetu.env()["worker"]]) if _hetu.env()["workers"] > 1 else 1.0


class Waits(torch.autograd.Function):
    """Waits in forward, and twice as long in backward."""

    @staticmethod
    def forward(ctx, x, seconds):
        """Returns a copy of x."""
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        """Returns the gradient."""
        time.sleep(2 * ctx.seconds)
        return gradient, None


class Block(nn.Module):
    """A piece whose forward of two samples takes about this many ms."""

    def __init__(self, ms, width):
        super().__init__()
        self.ms, self.linear = ms, nn.Linear(width, width)

    def forward(self, x):
        """Returns a tensor of the same shape."""
        return torch.tanh(self.linear(Waits.apply(x, self.ms * 1e-3 * len(x) / 2 / speed())))


def model(waits=True):
    """Returns the model of all workers."""
    torch.manual_seed(1)
    return nn.Sequential(*[Block(ms if waits else 0, WIDTH) for ms in MS])


def run(x):
    """Trains by the plan, and compares with one process."""
    pipe = hetu.torch.Pipeline(model(), nn.MSELoss(), plan="plan.json")
    optimizer = torch.optim.Adam(pipe.parameters())
    with LiveBytes() as live:
        pipe.step(x, x)
    optimizer.step()
    pipe.record()
    for _ in range(1, STEPS):
        pipe.step(x, x)
        optimizer.step()
    weights = sum(p.numel() * p.element_size() for p in pipe.parameters())
    promised, kept = pipe.plan.peak_bytes[pipe.transport.worker], 3 * weights + live.peak  # live: also the gradients
    print(f"place {pipe.transport.worker}: promised {promised:.0f} bytes, kept {kept}, {kept / promised:.2f} of it")
    pipe.write_trace("trace.json", costs="model.json", machines="machines.json")
    alone = model(waits=False)
    other = torch.optim.Adam(alone.parameters())
    for _ in range(STEPS):
        other.zero_grad()
        for part in x.split(ROWS // pipe.micro_batches):
            (nn.functional.mse_loss(alone(part), part) * (len(part) / ROWS)).backward()
        other.step()
    state = alone.state_dict()
    for name, p in pipe.named_parameters():
        assert torch.equal(p, state[name]), name
    print("the bits of one process")


if __name__ == "__main__":
    samples = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3))
    if sys.argv[1] == "profile":
        hetu.torch.profile(model(), nn.MSELoss(), samples, samples, (1, 2), "model.json", turns=3)
    else:
        run(samples)
