"""Timing in turn: what the step benchmarks share. Medians, spread and ratios of one run, because machines drift."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable


def timed(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def in_turn(ours: Callable[[], object], theirs: Callable[[], object] | None, steps: int) -> tuple[list[float], list[float]]:
    """Seconds of `steps` steps of each, one of each in turn, after two to warm up; nan where there is no other side."""
    a, b = [], []
    for _ in range(steps + 2):
        a.append(timed(ours))
        b.append(timed(theirs) if theirs else float("nan"))
    return a[2:], b[2:]


def compare(title: str, ours: Callable[[], object], make_theirs: Callable[[], Callable[[], object]], steps: int) -> None:
    """Times both sides in turn and prints them; only ours where the other side's packages are not installed."""
    theirs = None
    try:
        theirs = make_theirs()
    except ImportError as error:
        print(f"{title}: {error.name} is not installed here; only Hetu is timed", file=sys.stderr)
    print(f"{title}, {steps} steps in turn")
    report(*in_turn(ours, theirs, steps))


def report(ours: list[float], theirs: list[float]) -> None:
    """Three lines: each side's median and spread, then the ratio."""
    for name, times in (("Hetu", ours), ("PyTorch", theirs)):
        middle, low, high = 1e3 * statistics.median(times), 1e3 * min(times), 1e3 * max(times)
        print(f"  {name:8} median {middle:8.1f} ms, {low:.1f} to {high:.1f}")
    ratios = [x / y for x, y in zip(ours, theirs, strict=True)]
    print(f"  ratio Hetu / PyTorch: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")
