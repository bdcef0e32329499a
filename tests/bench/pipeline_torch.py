"""PyTorch's side of pipeline_step.py: torch.distributed.pipelining over gloo, two processes of one thread, with Hetu's cuts.

Arguments: method, steps, rows, micro-batches, the serial plan's file or -, its micro-batches, the first block of each stage
(embeddings, 12 layers, heads are blocks 0 to 13), positions of the computed logits: all or masked. Runs in turn a step of
the serial plan, if there is one, and one of the method, ending with the serial plan. Prints {"steps": seconds of the
method's steps, "run": milliseconds of each stage in each of them, "serial": milliseconds of each stage in the serial steps}.
"""

import json
import os
import socket
import statistics
import sys
import time

import numpy
import torch
import torch.distributed as dist
import transformers
from torch.distributed.pipelining import PipelineStage, schedules

VOCABULARY, LAYERS = 30522, 12
CLASSES = {
    "gpipe": schedules.ScheduleGPipe,
    "1f1b": schedules.Schedule1F1B,
    "interleaved-1f1b": schedules.ScheduleInterleaved1F1B,
    "looped-bfs": schedules.ScheduleLoopedBFS,
    "interleaved-zb": schedules.ScheduleInterleavedZeroBubble,
    "zb-v": schedules.ScheduleZBVZeroBubble,
    "dualpipev": schedules.ScheduleDualPipeV,
}
V_SHAPED = ("zb-v", "dualpipev")


class Part(torch.nn.Module):
    """Blocks first to end - 1 of the model."""

    def __init__(self, model, first, end):
        super().__init__()
        self.embeddings = model.bert.embeddings if first == 0 else None
        self.layers = torch.nn.ModuleList(model.bert.encoder.layer[max(0, first - 1):end - 1])
        self.pooler, self.heads = (model.bert.pooler, model.cls) if end == LAYERS + 2 else (None, None)

    def forward(self, x, positions=None):
        """Computes the blocks. positions [rows, P] selects the positions for the heads; None selects all."""
        if self.embeddings is not None:
            x = self.embeddings(input_ids=x)
        for layer in self.layers:
            out = layer(x)
            x = out[0] if isinstance(out, tuple) else out
        if self.heads is None:
            return x
        needed = x if positions is None else x.gather(1, positions.unsqueeze(2).expand(-1, -1, x.shape[2]))
        return self.heads(needed, self.pooler(x))


class Times:
    """Milliseconds of a stage's computations within a step."""

    def __init__(self):
        self.of = {}

    def measured(self, kind_of, function):
        def timed(*args, **kwargs):
            start = time.perf_counter()
            result = function(*args, **kwargs)
            self.of.setdefault(kind_of(kwargs), []).append((time.perf_counter() - start) * 1e3)
            return result

        return timed

    def watch(self, stage):
        stage.forward_one_chunk = self.measured(lambda _: "F", stage.forward_one_chunk)
        stage.backward_one_chunk = self.measured(
            lambda how: "B" if how.get("full_backward", True) else "I", stage.backward_one_chunk)
        stage.backward_weight_one_chunk = self.measured(lambda _: "W", stage.backward_weight_one_chunk)

    def mean(self, kind):
        return statistics.mean(self.of[kind]) if self.of.get(kind) else 0.0

    def end_step(self, update):
        """Returns the means of the step, as in a file of costs, and resets them for the next step."""
        half = self.mean("B") / 2
        stage = {"forward": self.mean("F") + self.mean("loss"), "input_grad": self.mean("I") or half,
                 "weight_grad": self.mean("W") or half, "update": update}
        self.of.clear()
        return stage


class Worker:
    """The stages of one process, and their training by several schedules."""

    def __init__(self, rank, method, first):
        torch.manual_seed(0)
        config = transformers.BertConfig(
            vocab_size=VOCABULARY, max_position_embeddings=128, hidden_act="relu", tie_word_embeddings=False,
            attn_implementation="sdpa",
        )
        model = transformers.BertForPreTraining(config).train()
        self.count = len(first)
        ends = [*first[1:], LAYERS + 2]
        self.mine = [rank] if self.count == 2 else [rank, 3 - rank] if method in V_SHAPED else [rank, rank + 2]
        self.parts = [Part(model, first[s], ends[s]) for s in self.mine]
        weights = [p for part in self.parts for p in part.parameters()]
        self.optimizer = torch.optim.AdamW(weights, lr=1e-5, weight_decay=0.01, fused=True)

    def stages(self):
        cpu = torch.device("cpu")
        return [PipelineStage(part, s, self.count, cpu) for part, s in zip(self.parts, self.mine, strict=True)]

    def train(self, schedule, ids, target, positions):
        """Trains one step. Returns the milliseconds of the optimizer."""
        start = time.perf_counter()
        self.optimizer.zero_grad()
        cleared = time.perf_counter()
        given = {"target": target, "losses": []} if self.count - 1 in self.mine else {}
        if given and positions is not None:
            given["positions"] = positions
        schedule.step(*([ids] if 0 in self.mine else []), **given)
        ready = time.perf_counter()
        self.optimizer.step()
        done = time.perf_counter()
        dist.barrier()
        return (done - ready + cleared - start) * 1e3


class Job:
    """A schedule of the worker's stages that measures the times of each stage."""

    def __init__(self, worker, rows, masked, schedule_of):
        self.worker, self.batch = worker, batch(rows, masked)
        stages = worker.stages()
        self.times = {s: Times() for s in worker.mine}
        for stage, s in zip(stages, worker.mine, strict=True):
            self.times[s].watch(stage)
        last = self.times.get(worker.count - 1)
        self.schedule = schedule_of(stages, last.measured(lambda _: "loss", loss_fn) if last else loss_fn)

    def step(self):
        """Returns the means of each stage of this worker, as in a file of costs."""
        update = self.worker.train(self.schedule, *self.batch) / len(self.worker.mine)
        return {s: each.end_step(update) for s, each in self.times.items()}


def serial_schedule(stages, micros, loss, file):
    schedule = schedules._PipelineScheduleRuntime(stages, micros, loss_fn=loss)
    schedule._load_csv(file)
    return schedule


def batch(rows, masked):
    """Returns ids, labels and positions. The last label of a row is that of the sentences' order. With `masked`, positions
    are those of masked tokens, equally many per row, and labels are those of these positions."""
    random = numpy.random.default_rng(0)
    ids = torch.from_numpy(random.integers(5, VOCABULARY, (rows, 128)))
    labels = torch.where(torch.from_numpy(random.random((rows, 128)) < 0.15), ids, -100)
    positions = None
    if masked:
        most = int((labels >= 0).sum(1).max())
        positions = (labels >= 0).int().argsort(dim=1, descending=True, stable=True)[:, :most].contiguous()
        labels = labels.gather(1, positions)
    return ids, torch.cat([labels, torch.zeros(rows, 1, dtype=torch.int64)], dim=1), positions


def loss_fn(output, wanted):
    logits, order = output
    tokens = torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), wanted[:, :-1].reshape(-1))
    return tokens + torch.nn.functional.cross_entropy(order, wanted[:, -1])


def work(rank, arguments):
    port, method, steps, rows, micros, file, serial_micros, first, masked = arguments
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    worker = Worker(rank, method, first)
    many = worker.count > 2
    job = Job(worker, rows, masked,
              lambda stages, loss: CLASSES[method](stages if many else stages[0], micros, loss_fn=loss))
    serial = None
    if file != "-":
        serial = Job(worker, rows // micros * serial_micros, masked,
                     lambda stages, loss: serial_schedule(stages, serial_micros, loss, file))
        serial.step()
    job.step()  # both warm up
    seconds, told = [], {"run": [], "serial": [serial.step()] if serial else []}
    for _ in range(steps):
        start = time.perf_counter()
        told["run"].append(job.step())
        seconds.append(time.perf_counter() - start)
        if serial:
            told["serial"].append(serial.step())
    gathered = [None, None]
    dist.all_gather_object(gathered, told)
    if rank == 0:
        def together(which):
            found = [{**one, **other} for one, other in zip(gathered[0][which], gathered[1][which], strict=True)]
            return [[of_step[s] for s in range(worker.count)] for of_step in found]

        print(json.dumps({"steps": seconds, "run": together("run"), "serial": together("serial")}), flush=True)
    dist.destroy_process_group()


def main():
    method, steps, rows, micros, file, serial_micros, first, positions = sys.argv[1:9]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    blocks = [int(b) for b in first.split(",")]
    torch.multiprocessing.start_processes(
        work, ((port, method, int(steps), int(rows), int(micros), file, int(serial_micros), blocks, positions == "masked"),),
        nprocs=2, start_method="spawn")


if __name__ == "__main__":
    main()
