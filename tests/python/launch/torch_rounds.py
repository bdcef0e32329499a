"""The workers of elastic_torch_test.py. torch_rounds.py FOLDER STEPS [CASE]

CASE is "plain" without --elastic, or the mistake of a script. The folder may have these files:
    block       the first worker that computes layer 3 in a step renames it, and waits for ever
    evaluate    the next evaluation takes 12 s
"""
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

import hetu.torch

CASES = {"plain": {"sums": "tree"}, "micro_batches": {"micro_batches": 3, "pipelines": 2},
         "first_pieces": {"first_pieces": [0, 3]}, "whole_batches": {"whole_batches": False}}


class Layer(nn.Module):
    """A layer that looks for the files."""

    def __init__(self, folder, number):
        super().__init__()
        self.folder, self.number = folder, number
        self.linear, self.norm, self.dropout = nn.Linear(16, 16), nn.LayerNorm(16), nn.Dropout(0.1)

    def forward(self, x):
        if self.number == 3 and self.training and self.is_first("block"):
            while True:
                time.sleep(1)
        if self.number == 3 and not self.training and self.is_first("evaluate"):
            time.sleep(12)
        return self.dropout(self.norm(torch.tanh(self.linear(x))))

    def is_first(self, name):
        """Returns true for the first worker that renames a file."""
        try:
            os.rename(self.folder / name, self.folder / f"{name} done")
        except FileNotFoundError:
            return False
        return True


def main(folder, steps, case=""):
    torch.manual_seed(1)
    model = nn.Sequential(*[Layer(folder, number) for number in range(5)], nn.Linear(16, 4))
    options = {"micro_batches": 4, "pipelines": 2, "whole_batches": True, **CASES.get(case, {})}
    pipe = hetu.torch.Pipeline(model, nn.CrossEntropyLoss(), "1f1b", shard_optimizer=True, **options)
    optimizer = torch.optim.AdamW(pipe.parameters(), lr=0.01)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    x = torch.randn(256, 16)
    labels = x[:, :4].argmax(1)
    losses = open(folder / f"losses-{pipe.transport.worker}", "a", encoding="utf-8")  # noqa: SIM115
    turns = range(steps) if case == "loop" else hetu.torch.loop(
        pipe, optimizer, steps=steps, checkpoint=folder / "checkpoint", save_every=20, rates=rates)
    for step in turns:
        rows = torch.randint(256, (30,), generator=torch.Generator().manual_seed(step))
        loss = pipe.step(x[rows], labels[rows])
        pipe.clip_grad_norm_(1.0)
        optimizer.step()
        rates.step()
        time.sleep(0.02)
        print(step, loss, file=losses, flush=True)
        if step % 50 == 49:
            pipe.evaluate(x, labels)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
