"""A PyTorch training that goes on while machines come and go (docs/elastic.md):

    heturun --elastic --layout 2x2x4 -w 4 python3 docs/examples/torch_elastic.py FOLDER [STEPS]
"""
import os
import sys

import torch
from torch import nn

import hetu.torch


def train(folder, steps):
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(1)  # all workers make the same model
    layers = [nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1)) for _ in range(6)]
    model = nn.Sequential(*layers, nn.Linear(32, 4))
    pipe = hetu.torch.Pipeline(model, nn.CrossEntropyLoss(), "1f1b", whole_batches=True)
    optimizer = torch.optim.AdamW(pipe.parameters(), lr=1e-3)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    x = torch.randn(512, 32)
    labels = x[:, :4].argmax(1)
    with open(f"{folder}/losses-{pipe.transport.worker}", "a", encoding="utf-8") as losses:
        for step in hetu.torch.loop(pipe, optimizer, steps=steps, checkpoint=f"{folder}/checkpoint", save_every=20,
                                    rates=rates):
            rows = torch.randint(512, (30,), generator=torch.Generator().manual_seed(step))  # of all pipelines
            loss = pipe.step(x[rows], labels[rows])
            pipe.clip_grad_norm_(1.0)
            optimizer.step()
            rates.step()
            print(step, loss, file=losses, flush=True)
    evaluated = pipe.evaluate(x, labels)
    if pipe.transport.worker == 0:
        print(f"after {pipe.steps} steps: {evaluated:.6f}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: torch_elastic.py FOLDER [STEPS]")
    train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 200)
