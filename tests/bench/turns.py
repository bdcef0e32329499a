"""Shared parts of the benchmarks: timing in turn (medians, spread and ratios of one run, because machines drift), and the
other load on the machine."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path


def timed(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def in_turn(ours: Callable[[], object], theirs: Callable[[], object] | None, steps: int) -> tuple[list[float], list[float]]:
    """Returns the seconds of `steps` steps of each side, one of each in turn, after two to warm up. The seconds are nan
    where there is no other side."""
    a, b = [], []
    for _ in range(steps + 2):
        a.append(timed(ours))
        b.append(timed(theirs) if theirs else float("nan"))
    return a[2:], b[2:]


def compare(title: str, ours: Callable[[], object], make_theirs: Callable[[], Callable[[], object]], steps: int,
            names: tuple[str, str] = ("Hetu", "PyTorch")) -> None:
    """Times both sides in turn and prints them. Times only Hetu where the other side's packages are not installed."""
    theirs = None
    try:
        theirs = make_theirs()
    except ImportError as error:
        print(f"{title}: {error.name} is not installed here; only Hetu is timed", file=sys.stderr)
    print(f"{title}, {steps} steps in turn")
    report(*in_turn(ours, theirs, steps), names)


def report(ours: list[float], theirs: list[float], names: tuple[str, str] = ("Hetu", "PyTorch")) -> None:
    """Prints three lines: each side's median and spread, then the ratio."""
    for name, times in zip(names, (ours, theirs), strict=True):
        middle, low, high = 1e3 * statistics.median(times), 1e3 * min(times), 1e3 * max(times)
        print(f"  {name:8} median {middle:8.1f} ms, {low:.1f} to {high:.1f}")
    ratios = [x / y for x, y in zip(ours, theirs, strict=True)]
    print(f"  ratio {names[0]} / {names[1]}: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


def processor_seconds() -> tuple[float, float]:
    """Returns the CPU seconds of the whole machine so far: used ones, and ones that the host took."""
    ticks = os.sysconf("SC_CLK_TCK")
    user, nice, system, _, _, irq, soft, stolen = (int(x) for x in Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft) / ticks, stolen / ticks


class OtherWork:
    """Measures the processors that other load and the host use from its construction on. Commands that this process runs
    don't count."""

    def __init__(self) -> None:
        self.before, self.started, self.own = processor_seconds(), time.monotonic(), os.times()

    def seen(self) -> tuple[float, float]:
        after, seconds, end = processor_seconds(), time.monotonic() - self.started, os.times()
        mine = end.children_user + end.children_system - self.own.children_user - self.own.children_system
        return max(0.0, after[0] - self.before[0] - mine) / seconds, (after[1] - self.before[1]) / seconds
