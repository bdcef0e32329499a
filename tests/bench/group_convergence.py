#!/usr/bin/env python3
"""Do pipelines that average weights learn as well as with an all-reduce, and sooner where one of them is slow?

usage: group_convergence.py [--models resnet18,bert-tiny] [--seeds 3] [--factor 2] [--keep FILE.json] [-o FILE.svg]

2 pipelines x 2 stages by pipedream, pipeline 1 slower by --factor (`--slow`): ResNet-18 on drawn images and BERT-tiny on
sample shards, all methods on as many samples, by train_resnet.py and train_bert.py through heturun. *Final loss* is that of
the trained model, the mean over all pipelines, on training samples, without augmentation and dropout. *Time to the same
loss*: seconds of training until the mean loss of the last steps is as low as that of the worst method at its end. Prints
both beside their bounds and draws the losses over time. Exit status 1: a mean over the seeds is beyond its bound.
"""

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
from figures.convergence import BOUNDS, Run, panel, summary, write  # noqa: E402

METHODS: dict[str, list[str]] = {"all-reduce": [], "partial reduce": ["--preduce"], "AD-PSGD": ["--adpsgd"]}
SMOOTHED = 30  # steps of one pipeline


@dataclass(frozen=True)
class Model:
    """What is trained, and on what; `data` and `options` are completed by `prepare`."""

    script: str
    sample: tuple[str, ...]
    options: tuple[str, ...]

    def prepare(self, folder: Path) -> list[str]:
        """Makes the data in an empty folder; the options that lead there."""
        data = folder / "data"
        subprocess.run(["hetu", "data", "sample", *self.sample, str(data)], check=True, stdout=subprocess.DEVNULL)
        seen = folder / "seen"  # what the trained model is evaluated on: training samples
        seen.mkdir()
        if self.script == "train_resnet.py":
            for name in ("train", "val"):
                (seen / name).symlink_to(data / "train")
            return ["--data", str(seen), *self.options]
        for name in ("vocab.txt", next(data.glob("*training_0.hdf5")).name):
            (seen / name).symlink_to(data / name)
        return ["--data", str(data), "--eval-data", str(seen), *self.options]


MODELS = {
    "resnet18": Model(
        "train_resnet.py", ("--kind", "images", "--classes", "20", "--train", "50", "--size", "64"),
        ("--dataset", "imagenet", "--size", "48", "--model", "resnet18", "--batch-size", "32", "--learning-rate", "0.01",
         "--schedule", "cosine", "--warmup-epochs", "1", "--epochs", "8")),
    "bert-tiny": Model(
        "train_bert.py", ("--rows", "2000", "--shards", "4", "--sequence-length", "64", "--max-predictions", "10"),
        ("--model", "tiny", "--batch-size", "16", "--learning-rate", "1e-3", "--warmup-steps", "40", "--steps", "200")),
}


def smoothed(losses: list[float]) -> list[float]:
    """Mean of the last steps at each step from the first whole window on."""
    return [sum(losses[i - SMOOTHED:i]) / SMOOTHED for i in range(SMOOTHED, len(losses) + 1)]


def train(model: Model, options: list[str], method: list[str], seed: int, factor: float, folder: Path) -> Run:
    log = folder / "log.jsonl"
    command = ["heturun", "-w", "4", sys.executable, str(ROOT / "python" / model.script), *options, *method,
               "--devices", "pipe_2_2", "--pipeline", "pipedream", "--seed", str(seed), "--log", str(log),
               "--slow", f"pipeline=1,factor={factor:g}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    evaluations = re.findall(r"EVAL  loss (\S+)", done.stdout)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    elapsed, seconds = 0.0, []
    for record in records:
        elapsed += record["seconds"]
        seconds.append(elapsed)
    return Run(float(evaluations[-1]), seconds[SMOOTHED - 1:], smoothed([record["loss"] for record in records]))


def show(name: str, runs: dict[str, list[Run]]) -> bool:
    """Prints one model's table; whether its bounds hold."""
    print(f"\n{name}: {'method':<16}{'final loss by seed':<28}{'mean':>8}{'ratio':>8}{'bound':>7}{'same loss after':>17}"
          f"{'ratio':>8}")
    rows = summary(runs)
    for row in rows:
        losses = " ".join(f"{final:.4f}" for final in row.finals)
        print(f"{'':{len(name) + 2}}{row.method:<16}{losses:<28}{row.mean:>8.4f}{row.ratio:>8.3f}{BOUNDS[row.method]:>7.2f}"
              f"{row.seconds:>15.1f} s{row.seconds_ratio:>8.3f}{'' if row.held else '  beyond the bound'}", flush=True)
    return all(row.held for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--factor", type=float, default=2)
    parser.add_argument("--keep", metavar="FILE.json", type=Path, help="write all curves there, with fewer points")
    parser.add_argument("-o", dest="picture", metavar="FILE.svg", type=Path)
    args = parser.parse_args()
    held = True
    models: dict[str, dict[str, list[Run]]] = {}
    for name in args.models.split(","):
        with tempfile.TemporaryDirectory(prefix="hetu-converge-") as folder:
            options = MODELS[name].prepare(Path(folder))
            runs: dict[str, list[Run]] = {method: [] for method in METHODS}
            for seed in range(args.seeds):  # in turn: the machine's mood is the same for all
                for method, words in METHODS.items():
                    runs[method].append(train(MODELS[name], options, words, seed, args.factor, Path(folder)))
                    print(f"{name}, seed {seed}, {method}: {runs[method][-1].final:.4f} after "
                          f"{runs[method][-1].seconds[-1]:.1f} s", file=sys.stderr, flush=True)
        held = show(name, runs) and held
        models[name] = runs
        if args.keep:
            write(args.keep, models)
    if args.picture:
        args.picture.write_text(curves.draw([panel(name, runs) for name, runs in models.items()]))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
