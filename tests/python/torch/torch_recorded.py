"""Runs a schedule of torch.distributed.pipelining under hetu.torch.record(); started by torchrun.

torch_recorded.py TRACE CLASS: two ranks over gloo."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

import hetu.torch

MICROS, ROWS, WIDTH = 6, 4, 32
PLACED = {"ScheduleZBVZeroBubble": ([0, 3], [1, 2]), "ScheduleInterleavedZeroBubble": ([0, 2], [1, 3]),
          "ScheduleInterleaved1F1B": ([0, 2], [1, 3])}


def main():
    """Runs three steps, of which two are recorded."""
    path, name = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mine = PLACED.get(name, ([0], [1]))[rank]
    count = 2 * len(mine)
    stages = [PipelineStage(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()), s, count, torch.device("cpu")) for s in mine]
    kind = getattr(schedules, name)
    schedule = kind(stages if len(mine) > 1 else stages[0], MICROS, loss_fn=nn.functional.mse_loss)
    x = torch.ones(MICROS * ROWS, WIDTH)

    def step():
        schedule.step(*([x] if 0 in mine else []), **({"target": x, "losses": []} if count - 1 in mine else {}))

    step()
    with hetu.torch.record(schedule, path):
        step()
        step()
    assert not any("noted" in repr(value) for stage in stages for value in vars(stage).values())
    try:
        with hetu.torch.record(schedule, path + ".none"):
            pass
    except ValueError as error:
        assert "rank 0 computed nothing" in str(error)
    else:
        raise AssertionError("nothing was said")
    dist.destroy_process_group()
    trains(rank)


def trains(rank):
    """Checks that processes started by torchrun can also be a job of hetu.torch."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    x = torch.randn(4, WIDTH)
    with torch.no_grad():
        plain = sum(nn.functional.mse_loss(model(half), half).item() / 2 for half in x.split(2))
    pipe = hetu.torch.Pipeline(model, nn.functional.mse_loss, "1f1b", 2)
    assert (pipe.transport.workers, pipe.row) == (2, rank)
    assert abs(pipe.step(x, x) - plain) < 1e-6 * plain


main()
