#!/usr/bin/env python3
"""Compares planned and measured steps: `hetu profile` measures a model once, `hetu plan` predicts configurations that were
never profiled as such, and each is then trained with real kernels on two workers of this machine.

usage: plan_predictions.py [--models tiny,base,gpt] [--rounds 3] [--steps 8] [--limit 0.05] [--keep DIR]

A round is a new profile, and after it a run of each configuration in another order, because machines drift: the result is
the median over the rounds of measured / predicted. The figures say something only on two quiet cores; the script prints what
other programs took. Exit status 1: the median of a configuration is further than the limit from 1."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from turns import OtherWork

PYTHON = Path(__file__).resolve().parents[2] / "python"
WARM_UP = 2  # steps of a run that don't count


class Model(NamedTuple):
    """A training script with the flags of a model, the micro-batch sizes to profile, and the global batch to plan."""

    script: str
    flags: list[str]
    sizes: str
    batch: int


MODELS = {
    "tiny": Model("train_bert.py", ["--model", "tiny"], "2,4,8", 64),
    "base": Model("train_bert.py", ["--model", "base"], "1,2", 8),
    "gpt": Model("train_gpt.py", [], "1,2", 8),
}
# Restrictions of the plan: method, stages, pipelines, and which of the model's micro-batch sizes (from 1).
CONFIGURATIONS = (("gpipe", 1, 1, 2), ("1f1b", 2, 1, 1), ("1f1b", 2, 1, 2), ("gpipe", 2, 1, 2), ("zb-h1", 2, 1, 1),
                  ("interleaved-1f1b", 2, 1, 1), ("zb-v", 2, 1, 2), ("chimera", 2, 1, 1), ("1f1b", 1, 2, 2),
                  ("gpipe", 1, 2, 1))


def run(*words: Any) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def training(model: Model, data: Path) -> list[Any]:
    file = data / "text.txt" if model.script == "train_gpt.py" else data
    return [PYTHON / model.script, "--data", file, *model.flags, "--threads", "1", "--points-every", "0"]


def profiled(model: Model, data: Path, folder: Path) -> Path:
    """Measures the model's blocks and the link on two workers. Returns the profile."""
    file = folder / "profile.json"
    file.unlink(missing_ok=True)
    run("hetu", "profile", "-w", "2", "--sizes", model.sizes, "-o", file, *training(model, data))
    return file


def size_of(model: Model, number: int) -> int:
    return int(model.sizes.split(",")[number - 1])


def predicted(profile: Path, model: Model, configuration: tuple[str, int, int, int], plan: Path) -> float:
    """Writes the best plan of a configuration. Returns the seconds of a step that it promises."""
    method, stages, pipelines, number = configuration
    size = size_of(model, number)
    words = ["hetu", "plan", "--costs", profile, "--workers", stages * pipelines, "--global-batch", model.batch, "--methods",
             method, "--stages", stages, "--pipelines", pipelines, "--micro-batch-sizes", size, "--no-recompute"]
    found = json.loads(run(*words, "--format", "json"))["plan"]
    if found is None:
        raise SystemExit(f"no plan for {configuration}")
    run(*words, "-o", plan)
    return float(found["step_time"]) * 1e-3


def measured(model: Model, data: Path, plan: Path, workers: int, steps: int) -> float:
    """Trains by a plan. Returns the median seconds of a step."""
    log = plan.with_suffix(".jsonl")
    run("heturun", "-w", workers, sys.executable, *training(model, data), "--config", plan, "--steps", steps + WARM_UP,
        "--log", log)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    log.unlink()
    return statistics.median(record["seconds"] for record in records if record["step"] >= WARM_UP)


def round_of(name: str, data: Path, args: argparse.Namespace, number: int, folder: Path) -> dict[Any, tuple[float, float]]:
    model, seen = MODELS[name], {}
    profile = profiled(model, data, folder)
    order = list(CONFIGURATIONS)
    random.Random(number).shuffle(order)
    for configuration in order:
        plan = folder / "plan.yml"
        seconds = predicted(profile, model, configuration, plan)
        seen[configuration] = seconds, measured(model, data, plan, configuration[1] * configuration[2], args.steps)
    return seen


def summary(name: str, rounds: list[dict[Any, tuple[float, float]]], limit: float) -> bool:
    """Prints a line for each configuration. Returns true if all are within the limit."""
    print(f"\n{name}\n{'method':<18}{'grid':>8}{'size':>6}{'predicted ms':>14}{'measured ms':>13}{'ratio':>8}{'from':>8}"
          f"{'to':>8}")
    good = True
    for configuration in CONFIGURATIONS:
        method, stages, pipelines, number = configuration
        size = size_of(MODELS[name], number)
        pairs = [seen[configuration] for seen in rounds]
        ratios = [real / promised for promised, real in pairs]
        middle = statistics.median(ratios)
        good = good and abs(middle - 1) <= limit
        print(f"{method:<18}{f'{pipelines} x {stages}':>8}{size:>6}{1e3 * statistics.median(p for p, _ in pairs):>14.1f}"
              f"{1e3 * statistics.median(m for _, m in pairs):>13.1f}{middle:>8.3f}{min(ratios):>8.3f}{max(ratios):>8.3f}",
              flush=True)
    return good


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="tiny,base,gpt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--limit", type=float, default=0.05)
    parser.add_argument("--keep", type=Path, help="folder for the last profile and plan")
    args = parser.parse_args()
    names = args.models.split(",")
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"--models: unknown {', '.join(unknown)}; known: {', '.join(MODELS)}")
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        run("hetu", "data", "sample", folder / "data")
        draw = random.Random(1)
        (folder / "data" / "text.txt").write_text("".join(draw.choices("abcdefghij \n", k=200_000)))
        other = OtherWork()
        for name in names:
            rounds = []
            for number in range(args.rounds):
                rounds.append(round_of(name, folder / "data", args, number, folder))
                print(f"{name}: round {number + 1} of {args.rounds}", file=sys.stderr)
            good = summary(name, rounds, args.limit) and good
        used, stolen = other.seen()
        print(f"\nprocessors that other programs used: {used:.2f}, that the host took: {stolen:.2f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
