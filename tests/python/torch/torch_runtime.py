"""Runs plans of Hetu by PyTorch's own pipelining runtime; started by torchrun with four ranks over gloo.

torch_runtime.py FOLDER: FOLDER holds NAME.compute.csv and NAME.lowered.csv for each method. Prints a line per method: the
largest difference between each file's gradients and those of the model in one process, or the error."""

import re
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

MICROS, ROWS, WIDTH = 8, 2, 16


def stages_of(text):
    """Returns the number of stages, and the stages in the row of each rank."""
    placed = [sorted({int(stage) for stage in re.findall(r"(\d+)F0\b", row)}) for row in text.splitlines()]
    return 1 + max(map(max, placed)), placed


def difference(path, form, rank):
    """Returns the difference between the gradients of this rank's stages and those of one process."""
    count, placed = stages_of(path.read_text())
    torch.manual_seed(3)
    whole = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]
    x, y = torch.randn(MICROS * ROWS, WIDTH), torch.randn(MICROS * ROWS, WIDTH)
    alone = nn.Sequential(*whole)
    nn.functional.mse_loss(alone(x), y).backward()
    expected = [p.grad.clone() for p in alone.parameters()]
    alone.zero_grad()
    runtime = schedules._PipelineScheduleRuntime(
        [PipelineStage(whole[s], s, count, torch.device("cpu")) for s in placed[rank]], MICROS, nn.functional.mse_loss)
    runtime._load_csv(str(path), format=form)
    kept = {"target": y, "losses": []} if count - 1 in placed[rank] else {}
    runtime.step(*([x] if 0 in placed[rank] else []), **kept)
    most = 0.0
    for stage in placed[rank]:
        for number, parameter in enumerate(whole[stage].parameters()):
            most = max(most, (parameter.grad - expected[2 * stage + number]).abs().max().item())
    return most


def main():
    """Runs every method of the folder, each file in turn."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for path in sorted(Path(sys.argv[1]).glob("*.lowered.csv")):
        name = path.name.removesuffix(".lowered.csv")
        mine = [difference(path.with_name(f"{name}.compute.csv"), "compute_only", rank),
                difference(path, "compute_comms", rank)]
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, mine)
        if rank == 0:
            print("RESULT", name, *(f"{max(one[n] for one in every):.1e}" for n in (0, 1)), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
