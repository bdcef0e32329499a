"""Checks hetu.torch's split backward: a model of 8 equal blocks on 2 workers of one thread, by 1f1b, zb-h1 and zb-v.

    heturun -w 2 python3 tests/bench/torch_split.py                      # half a minute on two quiet cores
    heturun -w 2 python3 tests/bench/torch_split.py --size 64 --steps 3  # to check that it runs

Prints per method:
- the share of W in the time of I and W
- whether each worker ran F, B, I and W in the plan's order
- the largest memory that autograd kept for backwards, in micro-batches of a worker's part
- the plan's largest number of micro-batches between F and the end of W
- the plan's own count, in which a micro-batch between I and W counts half
- the bubble of the trace, and the bubble simulated with the medians of that trace
- the measured and the simulated step
Exits with 1 if the order differs, or if more memory is kept. Goal: the bubble of zb-v within 5 % of the step."""

from __future__ import annotations

import argparse
import collections
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hetu.schedule
import hetu.torch

MICROS, ROWS, BLOCKS = 8, 8 * 64, 8


class Kept:
    """Bytes that autograd keeps for backwards, without parameters. A tensor that is kept twice counts once."""

    def __init__(self, parameters: Any) -> None:
        self.skipped = {p.untyped_storage().data_ptr() for p in parameters}
        self.uses: collections.Counter[int] = collections.Counter()
        self.now = self.most = 0

    def hooks(self) -> Any:
        """Returns a context in which saved tensors count."""
        return torch.autograd.graph.saved_tensors_hooks(lambda tensor: _Box(self, tensor), lambda box: box.tensor)


class _Box:
    def __init__(self, kept: Kept, tensor: torch.Tensor) -> None:
        # detached, because its graph would form a reference cycle
        self.kept, self.tensor, self.at = kept, tensor.detach(), tensor.data_ptr()
        self.bytes = 0 if tensor.untyped_storage().data_ptr() in kept.skipped else tensor.nbytes
        if self.bytes:
            kept.uses[self.at] += 1
            kept.now += self.bytes if kept.uses[self.at] == 1 else 0
            kept.most = max(kept.most, kept.now)

    def __del__(self) -> None:
        if self.bytes:
            self.kept.uses[self.at] -= 1
            self.kept.now -= 0 if self.kept.uses[self.at] else self.bytes


def blocks(size: int) -> list[nn.Module]:
    """Returns equal blocks, whose products take nearly all of their time."""
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(size, size), nn.Tanh()) for _ in range(BLOCKS)]


def loss_of(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Returns a loss that keeps no tensor of the size of a block's values."""
    return out.mean() - target[0, 0]


def alive(row: list[str], chunks: int) -> float:
    """Returns the largest number of micro-batches of a worker's whole part of the model that are between F and the end of W,
    in a row."""
    now = most = 0
    for word in row:
        kind = word.lstrip("0123456789")[0]
        now += 1 if kind == "F" else -1 if kind in "BW" else 0
        most = max(most, now)
    return most / chunks


def bubble_of(events: list[dict[str, Any]]) -> tuple[float, float]:
    """Returns for one step the share of time in which workers don't compute, and the milliseconds from the first to the last
    instruction."""
    start, end = min(e["ts"] for e in events), max(e["ts"] + e["dur"] for e in events)
    workers = len({e["tid"] for e in events})
    return 1 - sum(e["dur"] for e in events) / (workers * (end - start)), (end - start) / 1e3


def check(method: str, size: int, steps: int, path: str) -> bool:
    """Checks one method. Worker 0 prints its line. Returns true if order and memory are as planned."""
    pipe = hetu.torch.Pipeline(blocks(size), loss_of, method, MICROS)
    x, target = torch.randn(ROWS, size), torch.randn(ROWS, size)
    pipe.step(x, target)
    kept = Kept(pipe.parameters())
    with kept.hooks():
        pipe.step(x, target)
    chunks = (1 + max(p["model_stage"] for p in pipe.schedule.placements)) // 2
    unit = (BLOCKS // 2 + chunks) * (ROWS // MICROS) * size * 4.0  # outputs of the blocks, and inputs of the stages
    most = pipe.sum([kept.most / unit if worker == pipe.row else 0.0 for worker in range(2)])
    left = pipe.sum([float(kept.now)])[0]
    pipe.record()
    for _ in range(steps):
        pipe.step(x, target)
    pipe.write_trace(path)
    good = torch.zeros(())
    if pipe.row == 0:
        good = torch.tensor(float(tell(method, pipe, path, most, chunks, left)))
    return bool(pipe.sum([float(good)])[0])


def tell(method: str, pipe: Any, path: str, most: list[float], chunks: int, left: float) -> bool:
    """Prints the line of a method. Returns true if order and memory are as planned."""
    measured = [e for e in json.loads(Path(path).read_text())["traceEvents"]
                if e.get("ph") == "X" and e["cat"] in ("F", "B", "I", "W") and e["pid"] == 1]  # 0 holds the predictions
    by_step: dict[int, list[dict[str, Any]]] = {}
    for event in measured:
        by_step.setdefault(event["args"]["step"], []).append(event)
    rows = [[word for word in row if word.lstrip("0123456789")[0] in "FBIW"] for row in pipe.schedule.rows]
    ordered = all([e["name"] for e in sorted(events, key=lambda e: e["ts"]) if e["tid"] == w] == rows[w]
                  for events in by_step.values() for w in (0, 1))
    seen = [bubble_of(events) for events in by_step.values()]
    simulated = hetu.schedule.simulate(pipe.schedule, costs=path)
    spent = {kind: sum(e["dur"] for e in measured if e["cat"] == kind) for kind in "IW"}
    part = f"W {spent['W'] / sum(spent.values()):.2f} of I and W, " if spent["W"] else ""
    bubble, step = (statistics.median(values) for values in zip(*seen, strict=True))
    planned = hetu.schedule.verify(pipe.schedule)["peak_activations"]
    whole = [alive(row, chunks) for row in rows]
    fits = all(m <= 1.02 * w for m, w in zip(most, whole, strict=True)) and left == 0
    print(f"{method:6} {part}order {'as planned' if ordered else 'NOT AS PLANNED'}; kept at most {told(most)} micro-batches"
          f"{'' if fits else ' (MORE)'}, {told(whole)} between F and W in the plan, whose W keeps half: {told(planned)}; "
          f"bubble {100 * bubble:.1f} %, simulated {100 * simulated['bubble_fraction']:.1f} %; step {step:.1f} ms, "
          f"simulated {simulated['makespan']:.1f}", flush=True)
    return ordered and fits


def told(numbers: Any) -> str:
    """Returns the numbers of the workers as text."""
    return " and ".join(f"{number:.2f}" for number in numbers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="of a block: its weight is SIZE x SIZE")
    parser.add_argument("--steps", type=int, default=15, help="that are noted")
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    good = [check(method, args.size, args.steps, os.path.join(folder, f"{method}.json"))
            for method in ("1f1b", "zb-h1", "zb-v")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
