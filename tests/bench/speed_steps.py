#!/usr/bin/env python3
"""Times the training steps of one workload of docs/lab/speed.md: Hetu and PyTorch's modes.

All run in one process with the same threads, one step of each in turn. Prints one line,
{"sides": {name: [seconds, …]}, "flops": of a step, …}; speed.py reads it.

usage: speed_steps.py WORKLOAD [--steps N] [--threads N] [--no-compile] [--sides A,B] [--lock FILE] [--memory SIDE]
                      [--kernels]

--memory SIDE runs three steps of that side only, and the line has its peak resident memory. Workloads that begin with gpu-
run on the first GPU: Hetu reads its batch from host memory at each step, and PyTorch's batch is on the GPU. --kernels also
prints, before the line, the GPU time of the kernels in a step of each side, by PyTorch's profiler. --lock: several processes
are prepared and warmed up at once, including compilation, and then timed one after the other while each holds the file's
lock."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import bert_step
import resnet_step
from hetu import _hetu
from hetu.graph import current
from turns import timed

Step = Callable[[], object]
WARM_UP = 2


BERTS = {"bert": bert_step.BASE, "bert-large": bert_step.LARGE}


@dataclass(frozen=True)
class Workload:
    title: str
    model: str  # bert, bert-large or resnet50
    rows: int
    length: int  # tokens, or pixels of a side
    dtype: str = "float32"
    device: str = "cpu"

    def batch(self) -> dict[str, Any]:
        make = bert_step.drawn_batch if self.model in BERTS else resnet_step.drawn_batch
        return make(self.rows, self.length)


WORKLOADS = {
    "bert-8x128-float32": Workload("BERT-base, 8 x 128, float32", "bert", 8, 128),
    "bert-8x128-bf16": Workload("BERT-base, 8 x 128, bf16", "bert", 8, 128, "bf16"),
    "bert-2x512-float32": Workload("BERT-base, 2 x 512, float32", "bert", 2, 512),
    "resnet50-16x224-float32": Workload("ResNet-50, 16 x 224, float32", "resnet50", 16, 224),
    "resnet50-16x224-bf16": Workload("ResNet-50, 16 x 224, bf16", "resnet50", 16, 224, "bf16"),
    "gpu-bert-large-32x128-bf16": Workload("BERT-large, 32 x 128, bf16", "bert-large", 32, 128, "bf16", "cuda"),
    "gpu-bert-large-128x128-bf16": Workload("BERT-large, 128 x 128, bf16", "bert-large", 128, 128, "bf16", "cuda"),
    "gpu-bert-large-8x512-bf16": Workload("BERT-large, 8 x 512, bf16", "bert-large", 8, 512, "bf16", "cuda"),
    "gpu-bert-32x128-float32": Workload("BERT-base, 32 x 128, float32", "bert", 32, 128, "float32", "cuda"),
    "gpu-bert-32x128-tf32": Workload("BERT-base, 32 x 128, TF32", "bert", 32, 128, "tf32", "cuda"),
    "gpu-resnet50-128x224-bf16": Workload("ResNet-50, 128 x 224, bf16", "resnet50", 128, 224, "bf16", "cuda"),
}
ON_CPU = [name for name, of in WORKLOADS.items() if of.device == "cpu"]


def step_flops() -> int:
    """Returns the operations of the graph that was built last, forward and backward, with one sample."""
    return sum(node["flops"] for node in _hetu.graph_nodes(current().builder.finish()))


def rivals(of: Workload, batch: dict[str, Any], threads: int, compiles: bool) -> dict[str, Callable[[], Step]]:
    """Returns functions that build PyTorch's sides, by name."""
    narrow = of.dtype == "bf16"
    modes: dict[str, str | None] = {"eager": None}
    if compiles:
        modes["compiled"] = "default"
    if compiles and of.device != "cpu":
        modes["compiled with CUDA graphs"] = "reduce-overhead"
    if of.model not in BERTS:
        return {f"torch {mode}": lambda c=compiled: resnet_step.torch_step(of.model, batch, threads, narrow, c, of.device)
                for mode, compiled in modes.items()}
    heads = {"all positions": False, "masked ones": True} if of.device == "cpu" else {"masked ones": True}
    return {f"torch {mode}, {which}": lambda c=compiled, m=masked: bert_step.torch_step(
                batch, threads, m, narrow, c, BERTS[of.model], of.device)
            for mode, compiled in modes.items() for which, masked in heads.items()}


def ours(of: Workload, batch: dict[str, Any], threads: int, **told: Any) -> Step:
    if of.model in BERTS:
        return bert_step.hetu_step(batch, threads, of.dtype, model=BERTS[of.model], **told)
    return resnet_step.hetu_step(of.model, batch, threads, of.dtype, **told)


def sides_of_hetu(of: Workload, batch: dict[str, Any], threads: int) -> dict[str, Callable[[], Step]]:
    if of.device == "cpu":
        return {"hetu": lambda: ours(of, batch, threads)}
    return {name: lambda g=graphs: ours(of, batch, threads, device=of.device, cuda_graphs=g)
            for name, graphs in (("hetu", "off"), ("hetu graphs", "on"))}


def chosen(makers: dict[str, Callable[[], Step]], words: str) -> dict[str, Callable[[], Step]]:
    """Returns the sides whose names, up to a comma, are among the words."""
    names = words.split(",")
    found = {name: make for name, make in makers.items() if name.partition(",")[0] in names}
    unknown = set(names) - {name.partition(",")[0] for name in makers}
    if unknown and "torch" in sys.modules:  # without PyTorch, its sides don't exist
        raise SystemExit(f"speed_steps: --sides: there is no {', '.join(sorted(unknown))}; there are: {', '.join(makers)}")
    return found


def print_kernels(name: str, step: Step, most: int = 40) -> None:
    """Prints the GPU time of kernels by name, in one step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_device_time_total)
    print(f"{name}: {sum(row.self_device_time_total for row in rows) / 1e3:.2f} ms on the card")
    for row in rows[:most]:
        print(f"  {row.self_device_time_total / 1e3:9.3f} ms {row.count:5} x {row.key[:150]}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--kernels", action="store_true", help="what each kernel of a step took, too, on a card")
    parser.add_argument("--sides", metavar="A,B", help="these alone, as: hetu,torch eager")
    parser.add_argument("--lock", metavar="FILE", help="wait for this file's lock before timing")
    parser.add_argument("--memory", metavar="SIDE", help="hetu, or one of PyTorch's sides")
    return parser.parse_args()


def measure_memory(makers: dict[str, Any], side: str, line: dict[str, Any]) -> None:
    """Prints `line` with the peak memory of three steps of one side."""
    if side not in makers:
        raise SystemExit(f"speed_steps: --memory: there is no side '{side}'; there are: {', '.join(makers)}")
    step = makers[side]()
    for _ in range(3):
        step()
    line["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(line))


def main() -> int:
    args = parse()
    of = WORKLOADS[args.workload]
    if of.device == "cuda" and (problem := _hetu.cuda_problem()):
        raise SystemExit(f"speed_steps: {args.workload} is for a GPU: {problem}")
    if of.device == "cpu" and of.dtype == "bf16" and (lacks := _hetu.lacks_for_bfloat16()):
        print(json.dumps({"skipped": f"this processor has no {lacks}"}))
        return 0
    batch = of.batch()
    makers = sides_of_hetu(of, batch, args.threads)
    line: dict[str, Any] = {"title": of.title, "threads": args.threads}
    if args.memory != "hetu":  # PyTorch's libraries would count as Hetu's memory
        try:
            import torch
            import torchvision  # noqa: F401
            import transformers  # noqa: F401

            line["torch"] = torch.__version__
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = of.dtype == "tf32"
            makers |= rivals(of, batch, args.threads, not args.no_compile)
        except ImportError as error:
            line["missing"] = f"{error.name} is not installed in {sys.executable}"
    if args.memory:
        measure_memory(makers, args.memory, line)
        return 0
    if args.sides:
        makers = chosen(makers, args.sides)
    sides: dict[str, Step] = {}
    for name, make in makers.items():
        sides[name] = make()
        if name == "hetu":
            line["flops"] = of.rows * step_flops()
    if args.lock:
        for step in sides.values():
            for _ in range(WARM_UP):
                step()
        print("speed_steps: ready", file=sys.stderr, flush=True)
        lock = open(args.lock, "a")  # noqa: SIM115  # held until the process ends
        fcntl.flock(lock, fcntl.LOCK_EX)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.steps + WARM_UP):
        for name, step in sides.items():
            times[name].append(timed(step))
    if args.kernels:
        for name, step in sides.items():
            print_kernels(name, step)
    line["sides"] = {name: of_side[WARM_UP:] for name, of_side in times.items()}
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
