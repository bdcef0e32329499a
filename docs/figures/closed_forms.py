"""Closed forms of bubbles and memory, where they hold, and their comparison with the simulator over a grid.

P workers, M micro-batches, V chunks per worker; F, I, W (in a Point: f, b, w) the times of forward, input gradient and
weight gradient per worker and micro-batch, T their sum; no latency. The zero-bubble paper writes B for I.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hetu import schedule


class Point(NamedTuple):
    """One plan of the grid."""

    p: int
    m: int
    v: int
    f: float
    b: float
    w: float

    @property
    def t(self) -> float:
        return self.f + self.b + self.w

    @property
    def round(self) -> int:
        """Returns the micro-batches per round of the interleaved methods."""
        return self.m // max(1, self.m // self.p)

    @property
    def equal(self) -> bool:
        return self.f == self.b == self.w


Form = Callable[[Point], float | None]


class Law(NamedTuple):
    """A published form. `form` returns None where it isn't valid. `most`: an upper bound, not a value."""

    method: str
    options: dict[str, Any]
    figure: str  # makespan, span: bubbles in time; peak: activations; steady: idle share
    text: str
    where: str
    form: Form
    most: bool = False


TIMES = [(1.0, 1.0, 1.0), (2.0, 1.5, 1.0), (1.0, 1.25, 0.5), (1.5, 1.0, 2.0), (1.0, 2.0, 1.5), (3.0, 1.0, 0.5)]
TIMES += [(1.0, 2.0, 1.0)]
SIZES = [(p, m) for p in (1, 2, 3, 4, 6, 8) for m in (1, 2, 3, 4, 7, 8, 12, 16, 24, 32)]


def _h1(x: Point) -> float:
    return (x.p - 1) * max(x.f + x.b - x.w, x.f, x.b)


def _h2(x: Point) -> float:
    return x.f + x.b - 2 * x.w


def _small(x: Point) -> bool:
    return x.w <= x.f and x.w <= x.b


def _laws() -> Iterator[Law]:
    both = {"gpipe": "M", "1f1b": "min(M, P)"}
    for method, peak in both.items():
        yield Law(method, {}, "makespan", "(P-1) T", "any M", lambda x: (x.p - 1) * x.t)
        yield Law(method, {}, "peak", peak, "any M", lambda x, g=method: x.m if g == "gpipe" else min(x.m, x.p))
    for v in (2, 4):
        loops = {"chunks": v}
        for method in ("interleaved-1f1b", "looped-bfs"):
            yield Law(method, loops, "makespan", "(P-1) T/V", "M >= P",
                      lambda x: (x.p - 1) * x.t / x.v if x.m >= x.p else None)  # fmt: skip
            yield Law(method, loops, "makespan", "(VP+M-1) T/V - M T", "M < P",
                      lambda x: (x.v * x.p + x.m - 1) * x.t / x.v - x.m * x.t if x.m < x.p else None)  # fmt: skip
        yield Law("interleaved-1f1b", loops, "peak", "min(M, ((V-1) k + 2P - 1)/V)", "any legal M",
                  lambda x: min(x.m, ((x.v - 1) * x.round + 2 * x.p - 1) / x.v))  # fmt: skip
        yield Law("looped-bfs", loops, "peak", "M", "any M", lambda x: x.m)
        yield Law("interleaved-zb", loops, "makespan", "(P-1) max(F+I-W, F, I)/V", "M > P",
                  lambda x: _h1(x) / x.v if x.m > x.p else None)  # fmt: skip
        yield Law("interleaved-zb", loops, "peak", "min(M, ((V-1) k + P)/V)", "any legal M",
                  lambda x: min(x.m, ((x.v - 1) * x.round + x.p) / x.v))  # fmt: skip
    yield Law("zb-h1", {}, "makespan", "(P-1) max(F+I-W, F, I)", "M > P", lambda x: _h1(x) if x.m > x.p else None)
    yield Law("zb-h1", {}, "span", "the same", "M > P, W <= F, W <= I",
              lambda x: _h1(x) if x.m > x.p and _small(x) else None)  # fmt: skip
    yield Law("zb-h1", {}, "makespan", "(M+P-1)(F+I) + W - M T", "M <= P, W <= F, W <= I",
              lambda x: (x.m + x.p - 1) * (x.f + x.b) + x.w - x.m * x.t if x.m <= x.p and _small(x) else None)  # fmt: skip
    yield Law("zb-h1", {}, "peak", "min(M, P)", "any M", lambda x: min(x.m, x.p))
    for figure, least in (("span", "0"), ("makespan", "F")):
        yield Law("zb-h2", {}, figure, f"(P-1) max({least}, F+I-2W)", "M >= 2P-1, I <= F",
                  lambda x, s=figure: (x.p - 1) * max(0 if s == "span" else x.f, _h2(x))
                  if x.m >= 2 * x.p - 1 and x.b <= x.f else None)  # fmt: skip
        yield Law("zb-h2", {}, figure, f"(P-1) max({least}, F+I-2W, I-F)", "M >= 2P-1",
                  lambda x, s=figure: (x.p - 1) * max(0 if s == "span" else x.f, _h2(x), x.b - x.f)
                  if x.m >= 2 * x.p - 1 else None)  # fmt: skip
    yield Law("zb-h2", {}, "peak", "2P-1", "M >= 2P-1", lambda x: 2 * x.p - 1 if x.m >= 2 * x.p - 1 else None)
    yield Law("zb-v", {}, "span", "0", "F = I = W, M >= 2P-1",
              lambda x: 0 if x.equal and x.m >= 2 * x.p - 1 else None)  # fmt: skip
    yield Law("zb-v", {}, "makespan", "(P-1) F/2", "F = I = W, M >= 2P-1",
              lambda x: (x.p - 1) * x.f / 2 if x.equal and x.m >= 2 * x.p - 1 else None)  # fmt: skip
    yield Law("zb-v", {}, "makespan", "(M+P-1)(F+I) + W - M T", "F = W <= I, M <= P",
              lambda x: (x.m + x.p - 1) * (x.f + x.b) + x.w - x.m * x.t
              if x.f == x.w <= x.b and x.m <= x.p else None)  # fmt: skip
    yield Law("zb-v", {}, "peak", "P", "F = I = W, any M", lambda x: x.p if x.equal else None, most=True)
    for v in (2, 4):
        yield Law("hanayo", {"chunks": v}, "makespan", "(P-1)(F + K (I+W-F))/(V/2)", "M = K P, I+W >= F",
                  lambda x: (x.p - 1) * (x.f + x.m // x.p * (x.b + x.w - x.f)) / (x.v / 2)
                  if x.m % x.p == 0 and x.b + x.w >= x.f else None)  # fmt: skip
        yield Law("hanayo", {"chunks": v}, "peak", "P", "any M", lambda x: x.p, most=True)
    yield Law("gems", {}, "makespan", "M (2P+1) + P - 1 - M T", "F = 1, I + W = 2",
              lambda x: x.m * (2 * x.p + 1) + x.p - 1 - 3 * x.m if x.equal else None)  # fmt: skip
    yield Law("gems", {}, "peak", "1", "even M", lambda x: 1)
    yield Law("dualpipe", {"pair_semantics": "atomic"}, "makespan", "(P/2-1)(2F+I-W)", "W <= I <= F",
              lambda x: (x.p / 2 - 1) * (2 * x.f + x.b - x.w) if x.w <= x.b <= x.f else None)  # fmt: skip
    yield Law("dualpipe", {"pair_semantics": "split"}, "makespan", "(P/2-1)(F+I-W)", "W <= I <= F <= I+W",
              lambda x: (x.p / 2 - 1) * (x.f + x.b - x.w) if x.w <= x.b <= x.f <= x.b + x.w else None)  # fmt: skip
    for pairs in ("atomic", "split"):
        yield Law("dualpipe", {"pair_semantics": pairs}, "peak", "P+1", "any legal M", lambda x: x.p + 1)
    yield Law("dualpipev", {}, "makespan", "(P-1) F/2", "F = I = W", lambda x: (x.p - 1) * x.f / 2 if x.equal else None)
    yield Law("dualpipev", {}, "peak", "P + 1/2", "any legal M", lambda x: x.p + 0.5)
    for method in ("pipedream", "pipedream-2bw", "hetpipe"):
        yield Law(method, {"steps": 8}, "steady", "0", "M >= 2P, F = I = W",
                  lambda x: 0 if x.m >= 2 * x.p and x.equal else None)  # fmt: skip
        yield Law(method, {"steps": 8}, "peak", "P", "M >= 2P", lambda x: x.p if x.m >= 2 * x.p else None)


LAWS = list(_laws())


def figures(x: Point, method: str, options: dict[str, Any]) -> dict[str, float] | None:
    """Returns the four figures of a plan from the simulator, or None for sizes that the method refuses."""
    try:
        plan = schedule.generate(method, stages=x.p, micro_batches=x.m, **options)
    except ValueError:
        return None
    run = schedule.simulate(plan, forward=x.f, input_grad=x.b, weight_grad=x.w)
    return {
        "makespan": run["makespan"] - x.m * x.t,
        "span": run["span"] - x.m * x.t,
        "peak": max(worker["peak_activations"] for worker in run["workers"]),
        "steady": run.get("steady_bubble", 0.0),
    }


def compared(law: Law, known: dict[tuple[Any, ...], dict[str, float] | None]) -> tuple[int, float]:
    """Returns the number of plans tried, and the largest difference (above, for an upper bound). `known` caches figures for
    other laws."""
    tried, worst = 0, 0.0
    for p, m in SIZES:
        for f, b, w in TIMES:
            x = Point(p, m, law.options.get("chunks", 1), f, b, w)
            expected = law.form(x)
            if expected is None:
                continue
            key = (x, law.method, tuple(law.options.items()))
            if key not in known:
                known[key] = figures(x, law.method, law.options)
            found = known[key]
            if found is None:
                continue
            tried += 1
            above = found[law.figure] - expected
            worst = max(worst, above if law.most else abs(above))
    return tried, worst
