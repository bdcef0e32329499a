#!/usr/bin/env python3
"""Checks if a change of the training runtime changed a bit of its results, or slowed it down: compares two built trees.

    python3 tests/bench/same_training.py BEFORE AFTER [--only TEXT] [--times] [--rounds N]

BEFORE and AFTER are folders of two clones, each built by its own `./run install`. Both train every configuration below with
the same options. All tensors of their checkpoints (weights, optimizer states, buffers) must have the same bits, and every
worker's measured instructions must have the same order. With --times the two are timed in turn instead, and the medians of
AFTER / BEFORE are printed. Exit status: 0, or 1 if a configuration differs or a ratio is over 1.02."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BOUND = 1.02
LIMIT_S = 600


@dataclass(frozen=True)
class Case:
    """A training of `script` over `devices` (pipelines, stages). With `stop`, it is saved at that step, and resumed to the
    end."""

    name: str
    script: str
    devices: tuple[int, int]
    options: str
    stop: int = 0
    ordered: bool = True  # no run-time rule and no group decides the order

    @property
    def workers(self) -> int:
        return self.devices[0] * self.devices[1]


BERT = "--model tiny --max-rows 512 --batch-size 8 --learning-rate 1e-3 --warmup-steps 2"
RESNET = "--dataset imagenet --size 32 --batch-size 8 --learning-rate 0.01"
CASES = [
    Case("alone", "bert", (1, 1), "--pipeline gpipe --micro-batches 4"),
    Case("gpipe", "bert", (1, 2), "--pipeline gpipe --micro-batches 4"),
    Case("gpipe, SGD, clipped", "bert", (2, 2), "--pipeline gpipe --micro-batches 4 --optimizer sgd --clip-norm 1"),
    Case("1f1b", "bert", (1, 3), "--pipeline 1f1b --micro-batches 8"),
    Case("1f1b, momentum, resumed", "bert", (2, 2), "--pipeline 1f1b --micro-batches 4 --optimizer momentum", stop=3),
    Case("1f1b, recompute", "bert", (1, 2), "--pipeline 1f1b --micro-batches 4 --with-recompute"),
    Case("1f1b, LAMB", "bert", (2, 1), "--pipeline 1f1b --micro-batches 4 --optimizer lamb"),
    Case("interleaved-1f1b, AdaGrad", "bert", (1, 2), "--pipeline interleaved-1f1b --micro-batches 4 --optimizer adagrad"),
    Case("looped-bfs", "bert", (1, 2), "--pipeline looped-bfs --micro-batches 4"),
    Case("gems", "bert", (1, 2), "--pipeline gems --micro-batches 4"),
    Case("chimera, sync at the end", "bert", (1, 2), "--pipeline chimera --micro-batches 4 --sync end"),
    Case("chimera halving", "bert", (1, 2), "--pipeline chimera --concat halving --micro-batches 4"),
    Case("chimera, two pipelines, eager", "bert", (2, 2), "--pipeline chimera --micro-batches 4 --sync eager"),
    Case("hanayo, Adam", "bert", (1, 2), "--pipeline hanayo --micro-batches 4 --optimizer adam"),
    Case("zb-h1", "bert", (1, 3), "--pipeline zb-h1 --micro-batches 4"),
    Case("zb-v, AMSGrad, resumed", "bert", (1, 2), "--pipeline zb-v --micro-batches 4 --optimizer amsgrad", stop=2),
    Case("dualpipe", "bert", (1, 2), "--pipeline dualpipe --micro-batches 4"),
    Case("dualpipev", "bert", (1, 2), "--pipeline dualpipev --micro-batches 4"),
    Case("varuna", "bert", (1, 2), "--pipeline varuna --micro-batches 4"),
    Case("dp", "bert", (2, 1), "--pipeline dp --micro-batches 4"),
    Case("pipedream", "bert", (1, 3), "--pipeline pipedream"),
    Case("pipedream, two pipelines, Nesterov", "bert", (2, 2), "--pipeline pipedream --optimizer nesterov"),
    Case("pipedream, resumed", "bert", (1, 2), "--pipeline pipedream", stop=3),
    Case("pipedream-2bw", "bert", (1, 2), "--pipeline pipedream-2bw --micro-batches 4"),
    Case("preduce of all", "bert", (2, 2), "--preduce --sync-period 1 --no-overlap", ordered=False),
    Case("AD-PSGD in lockstep", "bert", (2, 1), "--adpsgd lockstep --no-overlap", ordered=False),
    Case("ResNet-18, 1f1b", "resnet", (1, 2), "--pipeline 1f1b --micro-batches 4"),
    Case("ResNet-18, gpipe, two pipelines", "resnet", (2, 1), "--pipeline gpipe --micro-batches 2"),
    Case("ResNet-18, pipedream, resumed", "resnet", (1, 2), "--pipeline pipedream", stop=2),
    Case("ResNet-18, zb-h1, momentum", "resnet", (1, 2), "--pipeline zb-h1 --micro-batches 4 --optimizer momentum"),
]
STEPS = 6
TIMED = {  # timed commands of each tree, and the pattern of their figure in seconds; without a pattern: the whole command
    "step of BERT-tiny 2 x 2": ("train", Case("", "bert", (2, 2), "--pipeline 1f1b --micro-batches 4 --batch-size 32")),
    "step of BERT-base": ("train", Case("", "bert", (1, 1),
                                        "--pipeline gpipe --micro-batches 1 --batch-size 2 --model base")),
    "step of ResNet-18": ("train", Case("", "resnet", (1, 2), "--pipeline 1f1b --micro-batches 4 --batch-size 32")),
    "step of pipedream": ("train", Case("", "bert", (1, 2), "--pipeline pipedream --batch-size 32")),
    "rehearse of 16 workers": ("rehearse", None),
    "start of a job": ("start", Case("", "bert", (1, 2), "--pipeline 1f1b --micro-batches 4")),
}


class Tree:
    """A built clone, and the environment of its commands."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder).resolve()
        tools = self.folder / ".venv" / "bin"
        if not (tools / "heturun").exists() or not (tools / "hetu").exists():
            sys.exit(f"same_training.py: {folder} is not built: there is no {tools}/hetu; run `./run install` there")
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "OMP_WAIT_POLICY": "passive",
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                            "OMPI_MCA_rmaps_base_oversubscribe": "1"}

    def run(self, *command: object) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode:
            said = done.stderr[-2000:]
            sys.exit(f"same_training.py: in {self.folder}, status {done.returncode}: {' '.join(words)}\n{said}")
        return done.stdout

    def train(self, case: Case, data: Path, *options: object) -> str:
        pipelines, stages = case.devices
        start = ["heturun", "-w", case.workers] if case.workers > 1 else []
        defaults = BERT if case.script == "bert" else RESNET
        return self.run(*start, "python3", f"python/train_{case.script}.py", "--data", data / case.script,
                        "--devices", f"pipe_{pipelines}_{stages}", *defaults.split(), *case.options.split(), *options)


def rows_of(trace: Path) -> dict[int, list[tuple[object, ...]]]:
    """Returns each worker's measured computes and updates in order."""
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("ph") == "X" and e["pid"] == 1]
    rows: dict[int, list[tuple[object, ...]]] = {}
    for e in sorted(events, key=lambda e: (e["tid"], e["ts"])):
        a = e["args"]
        if a["kind"] in ("F", "B", "I", "W", "R", "UPDATE"):
            rows.setdefault(e["tid"], []).append((a["step"], a["kind"], a["stage"], a["micro"]))
    return rows


def trained(tree: Tree, case: Case, data: Path, out: Path) -> dict[int, list[tuple[object, ...]]]:
    """Trains `case` into `out`. Returns the instructions of each worker, in order."""
    state: tuple[object, ...] = ("--threads", 1, "--checkpoint", out / "ckpt")
    if case.stop:
        tree.train(case, data, *state, "--steps", case.stop)
        state = (*state, "--resume")
    tree.train(case, data, *state, "--steps", STEPS, "--trace", out / "trace.json")
    return rows_of(out / "trace.json") if case.ordered else {}


def differences(trees: list[Tree], cases: list[Case], data: Path, folder: Path) -> Iterator[str]:
    """Trains every case in both trees and yields the differences."""
    for number, case in enumerate(cases):
        outs = [folder / str(number) / side for side in ("before", "after")]
        for out in outs:
            out.mkdir(parents=True)
        rows = [trained(tree, case, data, out) for tree, out in zip(trees, outs, strict=True)]
        diff = subprocess.run(["hetu", "checkpoint", "diff", *(str(out / "ckpt") for out in outs)], env=trees[1].environment,
                              capture_output=True, text=True)
        found = [] if diff.returncode == 0 else [f"the checkpoints differ: {(diff.stdout or diff.stderr).strip()[-300:]}"]
        found += [] if rows[0] == rows[1] else ["the workers did their instructions in another order"]
        count = sum(map(len, rows[1].values()))
        grid = f"{case.devices[0]} x {case.devices[1]}"
        print(f"{'differs' if found else 'equal  '}  {case.name} ({grid}, {count} instructions)", flush=True)
        yield from (f"{case.name}: {what}" for what in found)


def seconds_of(tree: Tree, kind: str, case: Case | None, data: Path) -> float:
    """Returns one figure of one tree."""
    if case is None:
        text = tree.run("heturun", "-w", 16, "hetu", "rehearse", "1f1b", "--stages", 16, "--micro-batches", 32,
                        "--forward", 4, "--backward", 8, "--repeat", 3, "--format", "json")
        return float(json.loads(text)["measured"]["step_time"])
    if kind == "start":
        from_s = time.monotonic()
        tree.train(case, data, "--steps", 1)
        return time.monotonic() - from_s
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        tree.train(case, data, "--steps", 20 if "base" not in case.options else 6, "--log", log)
        steps = [json.loads(line)["seconds"] for line in log.read_text().splitlines()]
    return statistics.median(steps[2:])


def timed(trees: list[Tree], only: str, rounds: int, data: Path) -> Iterator[str]:
    """Times both trees in turn. Yields the figures that are over the bound."""
    for name, (kind, case) in TIMED.items():
        if only not in name:
            continue
        pairs = []
        for turn in range(rounds):
            order = trees if turn % 2 == 0 else trees[::-1]
            times = {id(tree): seconds_of(tree, kind, case, data) for tree in order}
            pairs.append(times[id(trees[1])] / times[id(trees[0])])
        middle = statistics.median(pairs)
        print(f"{name}: after / before {middle:.3f} ({min(pairs):.3f} to {max(pairs):.3f}, {rounds} rounds)", flush=True)
        if middle > BOUND:
            yield f"{name}: {middle:.3f}, over {BOUND}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Tree, help="folder of a built clone")
    parser.add_argument("after", type=Tree, help="folder of a built clone")
    parser.add_argument("--only", default="", metavar="TEXT", help="configurations whose name holds TEXT")
    parser.add_argument("--times", action="store_true", help="compare times in place of bits")
    parser.add_argument("--rounds", type=int, default=5, help="of --times (default %(default)s)")
    args = parser.parse_args()
    cases = [case for case in CASES if args.only in case.name]
    if not (any(args.only in name for name in TIMED) if args.times else cases):
        known = "; ".join(TIMED if args.times else [case.name for case in CASES])
        parser.error(f"--only: no configuration's name holds '{args.only}'; there are: {known}")
    trees = [args.before, args.after]
    with tempfile.TemporaryDirectory(prefix="same_training.") as folder:
        data = Path(folder) / "data"
        trees[1].run("hetu", "data", "sample", data / "bert")
        trees[1].run("hetu", "data", "sample", "--kind", "images", data / "resnet")
        found = list(timed(trees, args.only, args.rounds, data) if args.times
                     else differences(trees, cases, data, Path(folder)))
    for line in found:
        print(f"same_training.py: {line}", file=sys.stderr)
    if not args.times and not found:
        print(f"{len(cases)} configurations: every tensor has the same bits, every worker did the same in the same order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
