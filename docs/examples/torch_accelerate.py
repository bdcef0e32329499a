"""A loop of Accelerate, with its model trained in stages: heturun -w 2 python3 docs/examples/torch_accelerate.py FOLDER"""
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hetu.torch


def train(folder, save_at=(4, 8), resume=None):
    with hetu.torch.single_process():
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2,
                                  dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    set_seed(1)  # all workers make the same model and read the same samples
    model = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)], nn.Linear(16, 4))
    data = TensorDataset(torch.randn(256, 16), torch.randint(0, 4, (256,)))
    pipe = hetu.torch.Pipeline(model, nn.CrossEntropyLoss(), "zb-h1", 4)
    optimizer = torch.optim.AdamW(pipe.parameters(), lr=0.01)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    loader = accelerator.prepare(DataLoader(data, batch_size=16, shuffle=True))  # neither the model nor the optimizer
    accelerator.register_save_state_pre_hook(lambda _, __, to: pipe.save(f"{to}/pipeline", optimizer, rates=rates))
    accelerator.register_load_state_pre_hook(lambda _, at: pipe.load(f"{at}/pipeline", optimizer, rates=rates))
    if resume:
        accelerator.load_state(resume)
    for x, y in accelerator.skip_first_batches(loader, pipe.steps):
        with accelerator.accumulate():
            loss = pipe.step(x, y, accumulate=True, factor=1 / accelerator.gradient_accumulation_steps)
        if accelerator.sync_gradients:
            norm = pipe.clip_grad_norm_(1.0)  # accelerator.clip_grad_norm_() would use the gradients of one worker
            optimizer.step()
            rates.step()
            pipe.zero_grad()
            accelerator.print(f"update {rates.last_epoch}: loss {loss:.6f}, norm {norm:.4f}")
            if rates.last_epoch in save_at:
                accelerator.save_state(f"{folder}/{rates.last_epoch}")
    return pipe


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: torch_accelerate.py FOLDER")
    train(sys.argv[1])
