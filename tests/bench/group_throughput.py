#!/usr/bin/env python3
"""Measures throughput with slow pipelines: real processes, coordinator and averages, and devices that wait.

usage: group_throughput.py [--window 20] [--cases WORD,…] [--attempts 3] [--csv FILE] [--json FILE] [-o FILE.svg]
                           [--logs FOLDER] [--sample]

Forward 30 ms, backward 60 ms, averaging 5 ms. Each case of docs/figures/heterogeneity.py is rehearsed (`hetu rehearse`)
until its steady part takes --window seconds. The all-reduce sums gradients of all pipelines after every backward of
pipedream's order, and each stage waits for it, so that equal pipelines lose its 5 ms. Figures are relative to as many equal
pipelines that never wait. The result of `hetu simulate` for the same run and the ideal are printed next to them. *To
all-reduce* is relative to the all-reduce of equal pipelines that was measured in this run (with pauses: the one with
pauses). A bound must hold for both. Every figure is the median of --attempts runs, with the minimum and the maximum,
whatever the simulator predicts. Exit status 1: a median is more than 5 % from the simulated figure, or beyond its bound.

--sample: two small cases, to check that the benchmark works; no bounds apply."""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from turns import OtherWork

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))
from figures import bars, heterogeneity  # noqa: E402
from figures.heterogeneity import AVERAGING, BACKWARD, CASES, FORWARD, METHODS, PAUSES, Case  # noqa: E402

NEAR = 0.05  # limit of the difference between measured and simulated figures
# Upper bounds for the all-reduce, lower bounds for the others, relative to equal pipelines by the stricter measure (see
# `parts`).
BOUNDS = {
    (4, 4, 1.0): {"partial reduce": 0.97, "AD-PSGD": 0.96},
    (4, 4, 2.0): {"all-reduce": 0.55, "partial reduce": 0.86, "AD-PSGD": 0.85},
    (4, 4, 4.0): {"all-reduce": 0.30, "partial reduce": 0.79, "AD-PSGD": 0.79},
    (1, 8, 4.0): {"all-reduce": 0.30, "partial reduce": 0.89, "AD-PSGD": 0.89},
    (4, 16, 2.0): {"partial reduce": 0.955},
    (4, 64, 2.0): {"partial reduce": 0.98},
}
PAUSED = 1.22  # partial reduce with pauses, relative to a blocking all-reduce with pauses
OVERLAPPED = "overlapped all-reduce"
SAMPLE = [Case(2, 2, "equal"), Case(2, 2, "one pipeline 2x slower", slower=2)]


@dataclass
class Figure:
    """One run, with its throughput relative to equal pipelines that never wait."""

    case: Case
    method: str
    simulated: float
    measured: float | None = None  # None: simulated only
    to_all_reduce: float | None = None
    bound: float | None = None
    held: bool = True
    attempts: int = 0
    least: float | None = None  # of the attempts; `measured` is their median
    most: float | None = None
    others: float = 0.0  # processors that other load used
    wanted: int = 0  # updates of each pipeline
    updates: list[int] = field(default_factory=list)  # actual updates of each, where numbers may differ
    mean_drift: float = 0.0

    @property
    def ratio(self) -> float | None:
        return None if self.measured is None else self.measured / self.simulated


def sync_words(method: str) -> list[str]:
    return ["--sync-method", "allreduce", "--overlap"] if method == OVERLAPPED else ["--sync-method", METHODS[method]]


def updates_for(case: Case, method: str, window: float) -> int:
    """Returns the updates per pipeline whose steady part takes `window` seconds. The steady part is from the time when all
    pipelines are full to the first end, or the middle half where all have one pace."""
    rate = heterogeneity.throughput(case, *sync_words(method)) / case.pipelines  # per ms and pipeline
    seconds = 2 * window + 2 if method == "all-reduce" else window + 3
    return max(2 * case.stages + 4, math.ceil(1000 * seconds * rate))


def rehearse(case: Case, method: str, steps: int, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the report of one run."""
    with tempfile.TemporaryDirectory(prefix="hetu-groups-") as folder:
        report = Path(folder) / "report.json"
        words = ["heturun", "-w", str(case.stages * case.pipelines), "hetu", "rehearse", "pipedream",
                 "--stages", str(case.stages), "--pipelines", str(case.pipelines), "--micro-batches", "1",
                 "--steps", str(steps), "--forward", str(FORWARD), "--backward", str(BACKWARD),
                 "--allreduce", str(AVERAGING), "--time-unit", "1ms", "--repeat", "1",
                 *sync_words(method), *case.stragglers(), "--format", "json", "-o", str(report)]
        if args.logs and method != "all-reduce":
            args.logs.mkdir(parents=True, exist_ok=True)
            name = f"{case.stages}x{case.pipelines} {case.words} {method}.jsonl".replace(" ", "-")
            words += ["--group-log", str(args.logs / name)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        answer: dict[str, Any] = json.loads(report.read_text())
        return answer


def parts(case: Case, per_ms: float) -> float:
    """Returns a throughput relative to as many equal pipelines that never wait."""
    return per_ms * (FORWARD + BACKWARD) / case.pipelines


def judge(figure: Figure, base: float) -> bool:
    """Sets the figure's bound and to_all_reduce. Returns true if the bound holds. `base` is the equal pipelines' all-reduce.
    """
    value = figure.simulated if figure.measured is None else figure.measured
    figure.to_all_reduce = value / base
    case = figure.case
    if case.hetero:
        figure.bound = PAUSED if figure.method == "partial reduce" else None
        ok = figure.bound is None or figure.to_all_reduce >= figure.bound
    else:
        figure.bound = BOUNDS.get((case.stages, case.pipelines, float(case.slower)), {}).get(figure.method)
        if figure.bound is None:
            ok = True
        elif figure.method == "all-reduce":
            ok = max(value, figure.to_all_reduce) <= figure.bound
        else:
            ok = min(value, figure.to_all_reduce) >= figure.bound
    near = figure.ratio is None or abs(figure.ratio - 1) <= NEAR
    figure.held = ok and near
    return figure.held


def median_of(figures: list[Figure]) -> Figure:
    """Returns the figure with the median measured value; for an even number, the lower of the middle two. It includes the
    number of attempts, their minimum and their maximum."""
    ranked = sorted(figures, key=lambda figure: figure.measured or 0.0)
    middle = ranked[(len(ranked) - 1) // 2]
    return replace(middle, attempts=len(figures), least=ranked[0].measured, most=ranked[-1].measured)


def measure(case: Case, method: str, args: argparse.Namespace, base: float | None) -> Figure:
    """Returns the median of all attempts."""
    figures = []
    steps = updates_for(case, method, args.window)
    for _ in range(1 if args.sample else args.attempts):
        work = OtherWork()
        report = rehearse(case, method, steps, args)
        groups = report.get("groups", {})
        figures.append(Figure(
            case, method, parts(case, report["predicted"]["throughput"]), parts(case, report["measured"]["throughput"]),
            others=work.seen()[0], wanted=steps, updates=groups.get("updates", []),
            mean_drift=groups.get("mean_drift", 0.0)))
    figure = median_of(figures)
    judge(figure, base or figure.measured or 1.0)
    return figure


def simulated_only(case: Case, method: str, base: float) -> Figure:
    figure = Figure(case, method, parts(case, heterogeneity.throughput(case, *sync_words(method))))
    judge(figure, base)
    return figure


def line(figure: Figure) -> str:
    """Returns a row of the table."""
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    case = figure.case
    sign = "<=" if figure.method == "all-reduce" else ">="
    bound = "" if figure.bound is None else f"{sign} {figure.bound:g}"
    return (f"{case.stages} x {case.pipelines:<4}{case.words[:34]:<36}{figure.method:<23}{number(figure.measured):>9}"
            f"{number(figure.simulated):>10}{number(figure.ratio):>8}{case.ideal():>8.3f}{number(figure.to_all_reduce):>15}"
            f"{bound:>10}{number(figure.least):>8}{number(figure.most):>8}{figure.others:>8.2f}"
            f"{'' if figure.held else '  beyond'}")


HEAD = (f"{'grid':<8}{'case':<36}{'method':<23}{'measured':>9}{'simulated':>10}{'ratio':>8}{'ideal':>8}"
        f"{'to all-reduce':>15}{'bound':>10}{'least':>8}{'most':>8}{'others':>8}")


def is_simulated(case: Case) -> bool:
    """Returns true if the case has too many processes for one machine."""
    return case.pipelines > 8


def run_case(case: Case, args: argparse.Namespace, base: float | None, done: list[Figure]) -> list[Figure]:
    """Runs every method of one case except those that are done. Prints each figure as soon as it is known."""
    figures = []
    for method in [*METHODS, OVERLAPPED] if case.hetero else list(METHODS):
        if any(f.case == case and f.method == method for f in done):
            continue
        if is_simulated(case):
            figure = simulated_only(case, method, base or 1.0)
        else:
            figure = measure(case, method, args, base)
        figures.append(figure)
        if base is None:  # the all-reduce of this case comes first, and the others are compared with it
            base = figure.measured
        print(line(figure), flush=True)
    return figures


def draw(figures: list[Figure]) -> str:
    rows, marks = [], []
    for case in dict.fromkeys(f.case for f in figures):
        here = {f.method: f for f in figures if f.case == case}
        values = [here[m].measured or here[m].simulated for m in METHODS]
        words = case.words if here["all-reduce"].measured is not None else f"{case.words} (simulated)"
        rows.append([f"{case.stages} x {case.pipelines}", words, *(f"{v:.3f}" for v in values), f"{case.ideal():.3f}"])
        marks.append([f"{here[m].simulated:.3f}" for m in METHODS])
    return bars.chart(list(METHODS), rows, marks)


def write(figures: list[Figure], args: argparse.Namespace) -> None:
    rows = [asdict(f) | {"ratio": f.ratio, "ideal": f.case.ideal(), "case": f.case.words, "stages": f.case.stages,
                         "pipelines": f.case.pipelines} for f in figures]
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    if args.csv:
        with args.csv.open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    if args.picture:
        args.picture.write_text(draw(figures))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=float, default=20, help="seconds (default %(default)s)")
    parser.add_argument("--cases", default="", help="only those whose grid or words have one of these, as in 4x4,pause")
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("-o", dest="picture", type=Path, metavar="FILE.svg")
    parser.add_argument("--logs", type=Path, help="keep the group logs in this folder")
    parser.add_argument("--sample", action="store_true", help="two small cases without bounds")
    args = parser.parse_args()
    wanted = args.cases.split(",")
    cases = [c for c in (SAMPLE if args.sample else [*CASES, PAUSES])
             if any(word in f"{c.stages}x{c.pipelines} {c.words}" for word in wanted)]
    figures: list[Figure] = []
    bases: dict[tuple[int, int], float] = {}  # equal pipelines by all-reduce
    print(HEAD)
    for case in cases:
        grid = (case.stages, case.pipelines)
        if grid not in bases and is_simulated(case):
            bases[grid] = parts(case, heterogeneity.throughput(replace(case, slower=1), *sync_words("all-reduce")))
        elif grid not in bases:
            equal = measure(replace(case, words="equal", slower=1, hetero=0), "all-reduce", args, None)
            bases[grid] = equal.measured or 1.0
            print(line(equal), flush=True)
            figures += [equal] if equal.case in cases else []
        figures += run_case(case, args, None if case.hetero else bases[grid], figures)
    write(figures, args)
    return 0 if args.sample or all(f.held for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
