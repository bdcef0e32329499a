#!/usr/bin/env python3
"""Measures the figures of docs/lab/speed.md, part by part, and writes that page.

usage: speed.py [--only PART,…] [--again] [--steps N] [--no-compile] [--opencv PYTHON] [--page docs/lab/speed.md]
                [--results build/bench]

The result of a part stays in --results, so that an interrupted measurement can continue: a part with a result is not
measured again unless --again is given. The page has every part that has a result. PyTorch is that of the Python that runs
this script; without it only Hetu is timed. Parts take 1 to 15 minutes each, most with torch.compile."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speed_steps import ON_CPU, WORKLOADS
from turns import OtherWork

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_S = 3600


@dataclass(frozen=True)
class Part:
    """A part of the page. `command` prints a line of JSON last, or, with `is_text`, text that the page shows unchanged."""

    doc: str
    command: list[str]
    is_text: bool = False


def parts(steps: int, compiles: bool, opencv: str) -> dict[str, Part]:
    program = [sys.executable, str(HERE / "speed_steps.py")]
    options = ["--steps", str(steps), *([] if compiles else ["--no-compile"])]
    found = {"products": Part("the matrix-product peak", [sys.executable, str(HERE / "products.py")])}
    found |= {name: Part(WORKLOADS[name].title, [*program, name, *options]) for name in ON_CPU}
    for name, sides in (("bert-8x128-float32", ("hetu", "torch eager, all positions", "torch eager, masked ones")),
                        ("resnet50-16x224-float32", ("hetu", "torch eager"))):
        found |= {f"memory-{name}-{side.replace(', ', '-').replace(' ', '-')}":
                  Part(f"peak resident memory: {WORKLOADS[name].title}, {side}",
                       [*program, name, "--no-compile", "--memory", side])
                  for side in sides}
    beside = "BERT-base on two workers beside torch.distributed.pipelining over gloo, logits of"
    for name, positions, methods in (("pipeline", "all", "gpipe,1f1b,interleaved-1f1b,zb-v"),
                                     ("pipeline-masked", "masked", "interleaved-1f1b,zb-v")):
        found[name] = Part(f"{beside} {positions}",
                           [sys.executable, str(HERE / "pipeline_step.py"), "--no-serial", "--steps", "3", "--methods",
                            methods, "--torch-positions", positions], is_text=True)
    found["images"] = Part("a folder of images to normalised tensors",
                           [sys.executable, str(HERE / "images.py"), "--opencv", opencv], is_text=True)
    return found


def machine() -> str:
    words = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":")[1].strip() for line in words.splitlines() if line.startswith("model name")]
    known = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "AVX-512-BF16", "amx_bf16": "AMX"}
    has = [name for flag, name in known.items() if f" {flag}" in words]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = names[0] if names else platform.machine()
    return f"{len(os.sched_getaffinity(0))} cores of {model} ({', '.join(has)}), {memory:.0f} GiB"


def measure(name: str, part: Part, results: Path) -> bool:
    """Runs a part and stores its result. Returns true if there is one."""
    print(f"{name}: {part.doc}", flush=True)
    began, others = time.monotonic(), OtherWork()
    done = subprocess.run(part.command, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT)
    busy, stolen = others.seen()
    # pipeline_step.py reports by its status that a method was less efficient. This is a result, too.
    if (done.returncode != 0 and not part.is_text) or not done.stdout.strip():
        said = done.stderr.strip().splitlines()[-1:] or ["nothing said"]
        print(f"  failed with status {done.returncode}: {said[0]}", file=sys.stderr)
        return False
    gave: Any = done.stdout if part.is_text else json.loads(done.stdout.strip().splitlines()[-1])
    record = {"when": time.strftime("%Y-%m-%d %H:%M"), "machine": machine(), "others": busy, "stolen": stolen, "gave": gave}
    (results / f"{name}.json").write_text(json.dumps(record))
    print(f"  {time.monotonic() - began:.0f} s; other work took {busy:.2f} processors", flush=True)
    return True


def spread(times: list[float]) -> str:
    return f"{1e3 * statistics.median(times):.0f} ({1e3 * min(times):.0f} to {1e3 * max(times):.0f})"


def rows_of(gave: dict[str, Any], peak: float | None) -> list[str]:
    """Returns the rows of a workload, one for each kind of PyTorch's sides. The fastest side of a kind counts."""
    sides: dict[str, list[float]] = gave["sides"]
    mine = sides.pop("hetu")
    rate = gave["flops"] / statistics.median(mine) * 1e-9
    reached = f"{rate:.0f} | {100 * rate / peak:.0f} %" if peak else f"{rate:.0f} | "
    if not sides:
        return [f"| {gave['title']} | {spread(mine)} | {gave.get('missing', '')} | | | {reached} |"]
    kinds: dict[str, dict[str, list[float]]] = {}
    for name, times in sides.items():
        mode, _, kind = name.removeprefix("torch ").partition(", ")
        kinds.setdefault(kind, {})[mode] = times
    rows = []
    for kind, modes in kinds.items():
        best = min(modes, key=lambda mode: statistics.median(modes[mode]))
        ratios = [a / b for a, b in zip(mine, modes[best], strict=True)]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        others = "; ".join(f"{mode} {spread(times)}" for mode, times in modes.items() if mode != best)
        title = gave["title"] + (f", PyTorch: {kind}" if kind else "")
        theirs = f"{best} {spread(modes[best])}" + (f"; {others}" if others else "")
        rows.append(f"| {title} | {spread(mine)} | {theirs} | {ratio} | {gave['threads']} | {reached} |")
    return rows


def memory_rows(known: dict[str, dict[str, Any]]) -> list[str]:
    rows = []
    for name in ON_CPU:
        sides = {of.removeprefix(f"memory-{name}-"): record["gave"]["peak_mib"] for of, record in known.items()
                 if of.startswith(f"memory-{name}-")}
        mine = sides.pop("hetu", None)
        if mine is None:
            continue
        for side, theirs in sides.items():
            rows.append(f"| {WORKLOADS[name].title} | {mine:.0f} | {side}: {theirs:.0f} | {mine / theirs:.2f} |")
        if not sides:
            rows.append(f"| {WORKLOADS[name].title} | {mine:.0f} | | |")
    return rows


def page(known: dict[str, dict[str, Any]], asked: dict[str, Part]) -> str:
    """Returns the page with all measured parts. It also states the parts that weren't measured."""
    first = next(iter(known.values()))
    torch = next((record["gave"]["torch"] for record in known.values()
                  if isinstance(record["gave"], dict) and "torch" in record["gave"]), "none installed")
    peaks = known["products"]["gave"]["gflops"] if "products" in known else {}
    reached = ", ".join(f"{rate:.0f} in {dtype}" for dtype, rate in peaks.items()) or "not measured"
    days = sorted(record["when"].split()[0] for record in known.values())
    busiest = max(record["others"] + record["stolen"] for record in known.values())
    lines = [
        "# Speed beside PyTorch", "",
        "This page compares the time of a training step with PyTorch's on one machine. `./run bench`",
        "(`tests/bench/speed.py`) writes it. Hetu and PyTorch train in one process and take one step each in turn,",
        "after two steps to warm up. Times are medians, with the smallest and the largest in brackets. PyTorch runs",
        "eagerly and by torch.compile, with its fused optimizers, and ResNets channels-last. In bf16 it runs under",
        "autocast. Its faster mode counts. Ratios are Hetu's time divided by PyTorch's, step by step. ResNets' 3 x 3",
        "convolutions need a quarter of the multiplications that the graph counts (`ops/cpu/winograd.h`).", "",
        f"Machine: {first['machine']}. PyTorch {torch}.",
        f"Date: {' to '.join(dict.fromkeys((days[0], days[-1])))}. Other work took up to {busiest:.2f} processors.", "",
        "## Training steps", "",
        "Milliseconds per step. GFLOP/s are the operations of the graph, forward and backward, over the median; the peak is",
        f"what products of 2048 x 2048 matrices reach here, PyTorch's or Hetu's: {reached}.", "",
        "| workload | Hetu | PyTorch | ratio | threads | GFLOP/s | of the peak |", "|---|---|---|---|---|---|---|",
    ]
    for name, of in WORKLOADS.items():
        gave = known.get(name, {}).get("gave", {})
        if "sides" in gave:
            lines += rows_of(json.loads(json.dumps(gave)), peaks.get(of.dtype))
        elif "skipped" in gave:
            lines.append(f"| {of.title} | not measured: {gave['skipped']} | | | | | |")
    lines += ["", "## Peak resident memory", "", "MiB of a process that makes three steps.", "",
              "| workload | Hetu | PyTorch | ratio |", "|---|---|---|---|", *memory_rows(known)]
    for name, title in (("pipeline", "Two stages"),
                        ("pipeline-masked", "Two stages, PyTorch given the masked positions alone"),
                        ("images", "Reading images")):
        if name in known:
            lines += ["", f"## {title}", "", "```text", known[name]["gave"].rstrip(), "```"]
    missing = [f"{name} ({part.doc})" for name, part in asked.items() if name not in known]
    if missing:
        lines += ["", f"Not measured in this run: {'; '.join(missing)}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="PART,…", help="parts, or beginnings of their names")
    parser.add_argument("--again", action="store_true", help="measure what is there already, too")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--opencv", default=sys.executable, help="a Python that has cv2 and numpy (default: this one)")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "lab" / "speed.md")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "bench")
    args = parser.parse_args()
    known_parts = parts(args.steps, not args.no_compile, args.opencv)
    wanted = tuple(word for word in args.only.split(",") if word) or ("",)
    for word in wanted:
        if not any(name.startswith(word) for name in known_parts):
            parser.error(f"--only: no part is called '{word}'; there are: {', '.join(known_parts)}")
    args.results.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, part in known_parts.items():
        if not name.startswith(wanted) or ((args.results / f"{name}.json").exists() and not args.again):
            continue
        if not measure(name, part, args.results):
            failed.append(name)
    known = {name: json.loads((args.results / f"{name}.json").read_text()) for name in known_parts
             if (args.results / f"{name}.json").exists()}
    if known:
        args.page.write_text(page(known, known_parts))
        print(f"wrote {args.page}")
    if failed:
        print(f"speed.py: nothing from: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
