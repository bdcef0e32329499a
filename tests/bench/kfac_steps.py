#!/usr/bin/env python3
"""Measures whether K-FAC needs fewer steps than LAMB: BERT-tiny on the text of `hetu data sample`, in one process.

Each optimizer is tuned over the same number of trials: LAMB over eight learning rates, K-FAC before LAMB over four rates by
two dampings.

usage: kfac_steps.py --keep FILE.json [--steps 150] [--batch-size 16] [--every 5] [--threads 1] [-o FILE.svg]

*Steps to the goal*: steps until the mean masked-LM loss of the last 20 steps is as low as at the end of LAMB's best trial. A
trial that doesn't reach it has a dash. *Processor*: user and system time of the trial per step, including its start. For one
thread on an idle machine it equals the wall-clock time. Prints all trials, and the best of each optimizer together; draws
the best curves. Trials run one after the other, alternating between LAMB and K-FAC, so that the state of the machine is
about the same for both. Each is written to --keep at once, and trials in the file are not repeated, so that an interrupted
session can continue."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from figures import curves  # noqa: E402

SMOOTHED = 20
LAMB_RATES = (2e-3, 4e-3, 7e-3, 1e-2, 1.5e-2, 2e-2, 3e-2, 5e-2)
KFAC_RATES, DAMPINGS = (5e-3, 1e-2, 2e-2, 4e-2), (1e-3, 1e-2)


@dataclass(frozen=True)
class Trial:
    rate: float
    damping: float | None = None  # None: LAMB only

    @property
    def name(self) -> str:
        if self.damping is None:
            return f"LAMB, rate {self.rate:g}"
        return f"K-FAC, rate {self.rate:g}, damping {self.damping:g}"

    def options(self, every: int) -> list[str]:
        if self.damping is None:
            return ["--optimizer", "lamb", "--learning-rate", f"{self.rate:g}"]
        return ["--optimizer", "kfac", "--inner", "lamb", "--learning-rate", f"{self.rate:g}",
                "--damping", f"{self.damping:g}", "--curvature-every", f"{every}"]


LAMB = [Trial(rate) for rate in LAMB_RATES]
KFAC = [Trial(rate, damping) for damping in DAMPINGS for rate in KFAC_RATES]


def smoothed(losses: list[float]) -> list[float]:
    return [sum(losses[max(0, i - SMOOTHED):i]) / min(i, SMOOTHED) for i in range(1, len(losses) + 1)]


def processor_s() -> float:
    """Returns the CPU time of all child processes that have ended. Other load on the machine doesn't lengthen it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(trial: Trial, data: Path, args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hetu-kfac-") as folder:
        log = Path(folder) / "log.jsonl"
        command = [sys.executable, str(ROOT / "python" / "train_bert.py"), "--data", str(data), "--model", "tiny",
                   "--pipeline", "1f1b", "--batch-size", str(args.batch_size), "--steps", str(args.steps),
                   "--warmup-steps", "10",
                   "--threads", str(args.threads), "--log", str(log), *trial.options(args.every)]
        before = processor_s()
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        records = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        if done.returncode != 0 and "lower the learning rate" not in done.stderr:
            raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        seconds = sorted(record["seconds"] for record in records)
        return {"losses": [round(record["mlm_loss"], 4) for record in records],
                "median_ms": round(1000 * seconds[len(seconds) // 2], 1),
                "processor_ms": round(1000 * (processor_s() - before) / max(1, len(records)), 1),
                "diverged": done.returncode != 0}


def final(run: dict[str, Any]) -> float:
    return float("inf") if run["diverged"] else smoothed(run["losses"])[-1]


def steps_to(run: dict[str, Any], goal: float) -> int | None:
    """Returns the number of steps to the goal, counted from the first whole window on."""
    return next((i + 1 for i, loss in enumerate(smoothed(run["losses"])) if i + 1 >= SMOOTHED and loss <= goal), None)


def show(runs: dict[str, dict[str, Any]], picture: Path | None) -> None:
    mine = {kind: [trial.name for trial in trials if trial.name in runs]
            for kind, trials in (("LAMB", LAMB), ("K-FAC", KFAC))}
    if not all(mine.values()):
        return
    goal = min(final(runs[name]) for name in mine["LAMB"])
    print(f"goal: MLM loss {goal:.4f}, mean of {SMOOTHED} steps\n"
          f"{'trial':<34}{'loss at the end':>16}{'steps to the goal':>19}{'ms per step':>13}"
          f"{'processor ms':>14}{'processor s to the goal':>25}")
    for name in [*mine["LAMB"], *mine["K-FAC"]]:
        steps = steps_to(runs[name], goal)
        print(f"{name:<34}{final(runs[name]):>16.4f}{'-' if steps is None else steps:>19}{runs[name]['median_ms']:>13.1f}"
              f"{runs[name]['processor_ms']:>14.1f}"
              f"{'-' if steps is None else round(steps * runs[name]['processor_ms'] / 1000, 1):>25}")
    far = 10 ** 9
    best = {kind: min(names, key=lambda name: (steps_to(runs[name], goal) or far, final(runs[name])))
            for kind, names in mine.items()}
    for name in best.values():
        print(f"best: {name}, {steps_to(runs[name], goal)} steps")
    if picture:
        lines = [curves.Curve(name, [float(i) for i in range(SMOOTHED, len(runs[name]["losses"]) + 1)],
                              smoothed(runs[name]["losses"])[SMOOTHED - 1:]) for name in best.values()]
        picture.write_text(curves.draw([curves.Panel("BERT-tiny, masked-LM loss", "step", "loss", lines)]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="FILE.json", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--every", type=int, default=5, help="updates between refreshes of K-FAC's inverses (default 5)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", dest="picture", metavar="FILE.svg", type=Path)
    args = parser.parse_args()
    sizes = {"steps": args.steps, "batch_size": args.batch_size, "every": args.every}
    kept = json.loads(args.keep.read_text()) if args.keep.exists() else {"sizes": sizes, "runs": {}}
    if kept["sizes"] != sizes:
        raise SystemExit(f"{args.keep}: its runs are of {kept['sizes']}, asked is {sizes}")
    with tempfile.TemporaryDirectory(prefix="hetu-kfac-data-") as folder:
        data = Path(folder) / "bert"
        missing = [trial for pair in zip(LAMB, KFAC, strict=True) for trial in pair if trial.name not in kept["runs"]]
        if missing:
            subprocess.run(["hetu", "data", "sample", "--rows", "2000", "--sequence-length", "64", "--max-predictions", "10",
                            str(data)], check=True, stdout=subprocess.DEVNULL)
        for trial in missing:
            kept["runs"][trial.name] = train(trial, data, args)
            args.keep.write_text(json.dumps(kept))
            print(f"{trial.name}: {final(kept['runs'][trial.name]):.4f}", file=sys.stderr, flush=True)
    show(kept["runs"], args.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
