"""A script for Varuna in the form of its README, with a small GPT that uses Megatron's names.

It has CutPoints in a plain list, a head whose weight is the embedding's, a mask with one row for all samples, a dict of five
inputs and a flag, `loss, overflow = model.step(...)`, and a handler of SIGUSR1 that saves and exits. varuna_test.py
runs it.

It takes the arguments that Varuna's launcher passes, and its own."""

import argparse
import math
import os
import signal
import time

import torch
from torch import nn

from varuna import CutPoint, Varuna

WORDS, WIDTH, LENGTH, LAYERS = 40, 16, 6, 4
TIED = [("language_model.embedding.word_embeddings.weight", "lm_head_weight")]


class Embedding(nn.Module):
    """The embeddings of words and positions."""

    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(WORDS, WIDTH)
        self.position_embeddings = nn.Embedding(LENGTH, WIDTH)

    def forward(self, input_ids, position_ids):
        """Returns [batch, length, width]."""
        return self.word_embeddings(input_ids) + self.position_embeddings(position_ids)


class Layer(nn.Module):
    """Attention and two products."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.second, self.wide, self.narrow = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        """Returns the layer's output. mask [1, 1, length, length] is true where nothing may be read, as in Megatron."""
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(1, 2)) / math.sqrt(WIDTH)
        x = x + self.out(scores.masked_fill(mask[:, 0], -1e4).softmax(-1) @ v)
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


class Transformer(nn.Module):
    """Layers with a CutPoint before each except the first."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.cutpoints = [CutPoint() for _ in range(LAYERS - 1)]

    def forward(self, x, mask):
        """Returns a tensor of the same shape."""
        for number, layer in enumerate(self.layers):
            if number > 0:
                x = self.cutpoints[number - 1](x)
            x = layer(x, mask)
        return x


class LanguageModel(nn.Module):
    """An embedding and a transformer."""

    def __init__(self):
        super().__init__()
        self.embedding, self.transformer = Embedding(), Transformer()

    def forward(self, input_ids, position_ids, mask):
        """Returns the hidden states."""
        return self.transformer(self.embedding(input_ids, position_ids), mask)


class GPT2Model(nn.Module):
    """A model that returns the loss."""

    def __init__(self):
        super().__init__()
        self.language_model = LanguageModel()
        self.lm_head_weight = nn.Parameter(self.language_model.embedding.word_embeddings.weight.detach().clone())

    def forward(self, input_ids, position_ids, attention_mask, loss_mask, labels, extra_norm=False):
        """Returns the loss of tensors [batch, length]. attention_mask has the shape [1, 1, length, length]."""
        hidden = self.language_model(input_ids, position_ids, attention_mask)
        logits = nn.functional.linear(hidden, self.lm_head_weight)
        losses = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return (losses * loss_mask.flatten()).sum() / loss_mask.sum() + (1e-4 * hidden.norm() if extra_norm else 0)


def batch_of(iteration, size, device=None):
    """Returns a batch that is the same on all ranks."""
    draw = torch.Generator().manual_seed(iteration)
    tokens = torch.randint(0, WORDS, (size, LENGTH + 1), generator=draw)
    mask = torch.ones(LENGTH, LENGTH).triu(1).bool()[None, None]
    return dict({
        "input_ids": tokens[:, :-1].contiguous(),
        "position_ids": torch.arange(LENGTH).expand(size, -1),
        "attention_mask": mask,
        "loss_mask": torch.ones(size, LENGTH),
        "labels": tokens[:, 1:].contiguous(),
        "extra_norm": False,
    })


def arguments(words=None):
    """Returns the launcher's arguments and the script's own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--local_rank", type=int, default=0)
    parser.add_argument("--stage_to_rank_map", required=True)
    parser.add_argument("--chunk_size", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--save")
    parser.add_argument("--resume_step", type=int)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--share", action="store_true", help="replicas share the samples of a step, and don't repeat them")
    parser.add_argument("--signal", type=int, help="the iteration in which rank 1 is sent SIGUSR1 in the middle of its step")
    return parser.parse_args(words)


def main(args):
    """Trains, and returns the losses by iteration."""
    torch.manual_seed(3)
    model = GPT2Model()

    def dry_run_input(size, device=None):
        return batch_of(0, size, device)

    shared_weights = TIED
    global_batch_size = args.batch_size * (args.stage_to_rank_map.split(";")[0].count(",") + 1)
    model = Varuna(model, args.stage_to_rank_map, dry_run_input, global_batch_size, args.chunk_size, args.fp16,
                   local_rank=args.local_rank, device=args.local_rank if torch.cuda.is_available() is False else "cpu",
                   shared_weights=shared_weights, step_values=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model.set_optimizer(optimizer)
    lr_scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    iteration = 0
    if args.resume_step is not None:
        model.load_checkpoint(args.save, args.resume_step)
        iteration = args.resume_step

    def save_checkpoint(iteration, model, optimizer, lr_scheduler):
        model.checkpoint(args.save, step=iteration, on_demand=True)
        print(f"SAVED {iteration}", flush=True)

    def handler(signum, _):
        save_checkpoint(iteration, model, optimizer, lr_scheduler)
        exit()

    signal.signal(signal.SIGUSR1, handler)
    losses = {}
    while iteration < args.iterations:
        inputs = batch_of(iteration + 1, global_batch_size if args.share else args.batch_size)
        if args.share:
            first = model.get_status()["replica"] * args.batch_size
            inputs = {name: value[first:first + args.batch_size] if torch.is_tensor(value) and len(value) > 1 else value
                      for name, value in inputs.items()}
        if args.signal == iteration and model.get_status()["stage"] == 1:  # arrives while a stage computes
            next(model.parameters()).register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGUSR1))
        loss, overflow = model.step(inputs)
        loss = torch.Tensor([loss])
        if not overflow:
            optimizer.step()
        model.zero_grad()
        iteration += 1
        losses[iteration] = float(loss)
        time.sleep(float(os.environ.get("VARUNA_TEST_PAUSE_S", "0")))
        print(f"ITERATION {iteration} LOSS {float(loss):.9g}", flush=True)
    return losses


if __name__ == "__main__":
    main(arguments())
