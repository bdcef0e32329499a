#!/usr/bin/env python3
"""Measures whether pipelines that share weights by other means than an all-reduce learn as well, and sooner if one is slow.

usage: group_convergence.py [--models resnet18,bert-tiny] [--methods "HetPipe, D = 1;…"] [--seeds 3] [--factor 2]
                            [--least SECONDS] [--keep FILE.json] [-o FILE.svg]

2 pipelines x 2 stages, pipeline 1 slower by --factor (`--slow`): ResNet-18 on generated images and BERT-tiny on sample
shards. All methods use the same number of samples and the same size of mini-batches, by train_resnet.py and train_bert.py
through heturun. An all-reduce, partial reduce and AD-PSGD use pipedream. hetpipe uses waves of two mini-batches. 1f1b, in
two micro-batches, uses an all-reduce and servers. Some methods add updates to shared weights instead of averaging (hetpipe,
SSP). For these, the learning rate is divided by the number of pipelines, so that the total update is as large. ResNet-18
under hetpipe has less momentum, because momentum overshoots when gradients are several updates old. Rates are the best of
three or four by seed 0, also for the all-reduce.

*Final loss* is that of the trained model on training samples, without augmentation and dropout, as the mean over all
pipelines. *Time to the same loss* is the training time until the loss is as low as the final loss of the worst method. For
ResNet-18 it is interpolated between the evaluations after each epoch. BERT-tiny is evaluated once, so the mean training loss
of the last steps is used, also in the figure. Both are relative to an all-reduce with the same order of forwards and
backwards. Prints both next to their bounds and draws the losses over time. Exit status 1: a mean over the seeds is beyond
its bound.

--least: the minimum duration of a forward or a backward in seconds, multiplied by --factor in pipeline 1. If it exceeds the
real duration on this machine, workers wait most of the time. Runs then take as long as if each worker had its own processor
of that speed. Machines with fewer cores than workers, or with other load, can't measure this otherwise.

--keep: every run is written to this file at once, and runs in the file are not repeated, so that an interrupted session can
continue. Runs of one seed follow each other, so that the state of the machine is about the same for all methods."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from figures import curves  # noqa: E402
from figures.convergence import BOUNDS, Run, Runs, panel, read, summary, write  # noqa: E402

PIPELINES = 2
SMOOTHED = 30  # mini-batches of one pipeline


@dataclass(frozen=True)
class Method:
    """A method's arguments. A step has `wave` mini-batches, and `rate` names its learning rate in the model."""

    words: tuple[str, ...]
    wave: int = 1
    rate: str = "all-reduce"


def hetpipe(staleness: int) -> Method:
    return Method(("--pipeline", "hetpipe", "--wave", "2", "--staleness", f"{staleness}"), wave=2, rate="hetpipe")


FLUSHED = ("--pipeline", "1f1b", "--micro-batches", "2")
METHODS = {
    "all-reduce": Method(("--pipeline", "pipedream")),
    "partial reduce": Method(("--pipeline", "pipedream", "--preduce")),
    "AD-PSGD": Method(("--pipeline", "pipedream", "--adpsgd")),
    "HetPipe, D = 0": hetpipe(0),
    "HetPipe, D = 1": hetpipe(1),
    "HetPipe, D = 4": hetpipe(4),
    "1f1b, all-reduce": Method(FLUSHED),
    "1f1b, SSP, s = 4": Method((*FLUSHED, "--sync-method", "ps", "--staleness", "4"), rate="ssp"),
}


@dataclass(frozen=True)
class Model:
    """A training: script, data and options. `prepare` completes `data` and `options`."""

    script: str
    sample: tuple[str, ...]
    options: tuple[str, ...]
    batch_size: int  # of a pipeline's mini-batch
    rates: dict[str, float]
    momenta: dict[str, float]  # of the optimizer, where a method needs another one
    steps: dict[str, int]  # options that count mini-batches

    def prepare(self, folder: Path) -> list[str]:
        """Writes the data into an empty folder. Returns the options that select it."""
        data = folder / "data"
        subprocess.run(["hetu", "data", "sample", *self.sample, str(data)], check=True, stdout=subprocess.DEVNULL)
        seen = folder / "seen"  # data on which the trained model is evaluated: training samples
        seen.mkdir()
        if self.script == "train_resnet.py":
            for name in ("train", "val"):
                (seen / name).symlink_to(data / "train")
            return ["--data", str(seen), *self.options]
        for name in ("vocab.txt", next(data.glob("*training_0.hdf5")).name):
            (seen / name).symlink_to(data / name)
        return ["--data", str(data), "--eval-data", str(seen), *self.options]

    def sizes(self, method: Method) -> list[str]:
        """Returns options that give every method the same number of samples and the same total progress."""
        counts = [word for name, count in self.steps.items() for word in (name, f"{count // method.wave}")]
        momentum = self.momenta.get(method.rate)
        return ["--batch-size", f"{self.batch_size * method.wave}", "--learning-rate", f"{self.rates[method.rate]:g}",
                *(["--momentum", f"{momentum:g}"] if momentum else []), *counts]


MODELS = {
    "resnet18": Model(  # 1280 images: 20 mini-batches of each pipeline, 10 waves
        "train_resnet.py", ("--kind", "images", "--classes", "20", "--train", "64", "--size", "64"),
        ("--dataset", "imagenet", "--size", "32", "--model", "resnet18", "--schedule", "cosine", "--warmup-epochs", "1",
         "--epochs", "6"), 32, {"all-reduce": 0.005, "hetpipe": 0.0024, "ssp": 0.0025}, {"hetpipe": 0.8}, {}),
    "bert-tiny": Model(
        "train_bert.py", ("--rows", "2000", "--shards", "4", "--sequence-length", "64", "--max-predictions", "10"),
        ("--model", "tiny"), 16,
        {"all-reduce": 1e-3, "hetpipe": 5e-4, "ssp": 5e-4}, {}, {"--warmup-steps": 40, "--steps": 200}),
}


def smoothed(losses: list[float], steps: int) -> list[float]:
    """Returns the mean of the last steps at each step, from the first whole window on."""
    return [sum(losses[i - steps:i]) / steps for i in range(steps, len(losses) + 1)]


def slowness(factor: float, least: float) -> list[str]:
    """Returns the options that make pipeline 1 slower."""
    if not least:
        return ["--slow", f"pipeline=1,factor={factor:g}"]
    return [word for d in range(PIPELINES) for word in ("--slow", f"pipeline={d},least={least * (factor if d else 1):g}")]


def train(model: Model, options: list[str], method: Method, seed: int, slow: list[str], folder: Path) -> Run:
    log = folder / "log.jsonl"
    command = ["heturun", "-w", "4", sys.executable, str(ROOT / "python" / model.script), *options, *model.sizes(method),
               *method.words, "--devices", f"pipe_{PIPELINES}_2", "--seed", str(seed), "--log", str(log), *slow]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    evaluations = [float(loss) for loss in re.findall(r"EVAL  loss (\d+\.\d+)", done.stdout)]
    records = [json.loads(line) for line in log.read_text().splitlines()]
    if any(record["loss"] is None for record in records):
        raise SystemExit(f"{' '.join(command)}: the loss is not a number in some step, so the runs cannot be compared")
    elapsed, seconds = 0.0, []
    for record in records:
        elapsed += record["seconds"]
        seconds.append(elapsed)
    window = SMOOTHED // method.wave
    ends = [round(seconds[len(seconds) * (n + 1) // len(evaluations) - 1], 2) for n in range(len(evaluations))]
    evaluated = [list(one) for one in zip(ends, evaluations, strict=True)] if len(evaluations) > 1 else []
    return Run(evaluations[-1], seconds[window - 1:], smoothed([record["loss"] for record in records], window), evaluated)


def show(name: str, runs: Runs) -> bool:
    """Prints one model's table. Returns true if its bounds hold."""
    print(f"\n{name}: {'method':<18}{'final loss by seed':<28}{'mean':>8}{'ratio':>8}{'bound':>7}{'same loss after':>17}"
          f"{'ratio':>8}")
    rows = summary(runs)
    for row in rows:
        losses = " ".join(f"{final:.4f}" for final in row.finals)
        print(f"{'':{len(name) + 2}}{row.method:<18}{losses:<28}{row.mean:>8.4f}{row.ratio:>8.3f}{BOUNDS[row.method]:>7.2f}"
              f"{row.seconds:>15.1f} s{row.seconds_ratio:>8.3f}{'' if row.held else '  beyond the bound'}", flush=True)
    return all(row.held for row in rows)


class Kept:
    """All runs, in memory and in the file of --keep."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.models: dict[str, Runs] = read(path) if path and path.exists() else {}

    def has(self, model: str, method: str, seed: int) -> bool:
        return seed in self.models.get(model, {}).get(method, {})

    def add(self, model: str, method: str, seed: int, run: Run) -> None:
        self.models.setdefault(model, {}).setdefault(method, {})[seed] = run
        if self._path:
            write(self._path, self.models)
            self.models = read(self._path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--methods", default=";".join(METHODS), help='";" between them (default: all)')
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--factor", type=float, default=2)
    parser.add_argument("--least", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--keep", metavar="FILE.json", type=Path, help="write all curves there, with fewer points; "
                        "runs that are there are not run again")
    parser.add_argument("-o", dest="picture", metavar="FILE.svg", type=Path)
    args = parser.parse_args()
    kept = Kept(args.keep)
    with tempfile.TemporaryDirectory(prefix="hetu-converge-") as folder:
        places = {name: Path(folder) / name for name in args.models.split(",")}
        options: dict[str, list[str]] = {}
        for seed in range(args.seeds):
            for name, place in places.items():
                for method in args.methods.split(";"):
                    if kept.has(name, method, seed):
                        continue
                    if name not in options:
                        place.mkdir()
                        options[name] = MODELS[name].prepare(place)
                    run = train(MODELS[name], options[name], METHODS[method], seed,
                                slowness(args.factor, args.least), place)
                    kept.add(name, method, seed, run)
                    print(f"{name}, seed {seed}, {method}: {run.final:.4f} after {run.seconds[-1]:.1f} s",
                          file=sys.stderr, flush=True)
    held = [show(name, kept.models[name]) for name in places]
    if args.picture:
        args.picture.write_text(curves.draw([panel(name, kept.models[name]) for name in places]))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
