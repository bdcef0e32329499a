"""The hetu.torch workers of reliability_test.py. drill_rounds.py FOLDER STEPS SAVE_EVERY METHOD

Each epoch uses every sample once. Worker 0 writes a line for each step that ends: process id, step, loss, samples."""
import os
import sys
from pathlib import Path

import torch
from torch import nn

import hetu.torch

SAMPLES, BATCH = 48, 12  # an epoch is 4 steps


def main(folder, steps, save_every, method):
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Tanh(), nn.Dropout(0.1)) for _ in range(4)]
    # Without --elastic, the layout of the undisturbed job.
    fixed = {} if os.environ.get("HETU_ELASTIC") else {"micro_batches": 4, "pipelines": 1, "sums": "tree"}
    pipe = hetu.torch.Pipeline(nn.Sequential(*layers, nn.Linear(16, 4)), nn.CrossEntropyLoss(), method, whole_batches=True,
                               **fixed)
    optimizer = torch.optim.AdamW(pipe.parameters(), lr=0.01)
    x = torch.randn(SAMPLES, 16)
    labels = x[:, :4].argmax(1)
    for step in hetu.torch.loop(pipe, optimizer, steps=steps, checkpoint=folder / "checkpoint", save_every=save_every):
        epoch, place = divmod(step * BATCH, SAMPLES)
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        rows = order[place:place + BATCH]
        loss = pipe.step(x[rows], labels[rows])
        optimizer.step()
        if pipe.transport.worker == 0:
            with open(folder / "log", "a", encoding="utf-8") as log:
                print(os.getpid(), step, loss, *rows.tolist(), file=log)
        if step % 8 == 7:
            pipe.evaluate(x, labels)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
