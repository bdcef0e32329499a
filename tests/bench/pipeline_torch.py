"""PyTorch's side of pipeline_step.py: torch.distributed.pipelining over gloo, two processes of one thread, the cut where
Hetu makes it. Arguments: steps, rows, micro-batches."""

import json
import os
import socket
import sys
import time

import numpy
import torch
import torch.distributed as dist
import transformers
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

VOCABULARY, LAYERS_BELOW = 30522, 8


class Below(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.embeddings = model.bert.embeddings
        self.layers = torch.nn.ModuleList(model.bert.encoder.layer[:LAYERS_BELOW])

    def forward(self, ids):
        x = self.embeddings(input_ids=ids)
        for layer in self.layers:
            out = layer(x)
            x = out[0] if isinstance(out, tuple) else out
        return x


class Above(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.layers = torch.nn.ModuleList(model.bert.encoder.layer[LAYERS_BELOW:])
        self.pooler = model.bert.pooler
        self.heads = model.cls

    def forward(self, x):
        for layer in self.layers:
            out = layer(x)
            x = out[0] if isinstance(out, tuple) else out
        return self.heads(x, self.pooler(x))


def worker(rank, port, steps, rows, micros):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, max_position_embeddings=128, hidden_act="relu", tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
    model = transformers.BertForPreTraining(config).train()
    part = Below(model) if rank == 0 else Above(model)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    random = numpy.random.default_rng(0)
    ids = torch.from_numpy(random.integers(5, VOCABULARY, (rows, 128)))
    labels = torch.where(torch.from_numpy(random.random((rows, 128)) < 0.15), ids, -100)
    target = torch.cat([labels, torch.zeros(rows, 1, dtype=torch.int64)], dim=1)

    def loss_fn(output, wanted):
        logits, order = output
        tokens = torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), wanted[:, :128].reshape(-1))
        return tokens + torch.nn.functional.cross_entropy(order, wanted[:, 128])

    stage = PipelineStage(part, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, micros, loss_fn=loss_fn)
    times = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(ids)
        else:
            schedule.step(target=target, losses=[])
        optimizer.step()
        dist.barrier()
        times.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"steps": times[1:]}), flush=True)
    dist.destroy_process_group()


def main():
    steps, rows, micros = map(int, sys.argv[1:4])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.start_processes(worker, (port, steps, rows, micros), nprocs=2, start_method="spawn")


if __name__ == "__main__":
    main()
