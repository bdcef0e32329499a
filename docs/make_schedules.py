#!/usr/bin/env python3
"""Writes docs/schedules.md and its figures: every method of the build, drawn and measured by the code that runs it.

usage: docs/make_schedules.py [--check]   --check: exit 1 if the page or a figure is stale (a test calls this)

A method needs a paragraph in ABOUT. All other text comes from the tables, the verifier and the simulator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from figures import closed_forms

from hetu import schedule

DOCS = Path(__file__).resolve().parent
SIZES = {"stages": 4, "micro_batches": 8}
HEAD = """# Schedules

This page shows every method with a figure and its numbers. `docs/make_schedules.py` writes it from the code, and a test
checks that it is up to date.

All figures have 4 workers, 8 micro-batches and, for methods with `--chunks`, 2 chunks per worker. A forward and each
gradient take 1 time unit, and there is no latency. Asynchronous methods run 2 steps.
`hetu simulate METHOD --stages 4 --micro-batches 8` prints the same numbers. Add `--steps 2` for asynchronous methods, and
use `--stages 1` for dp. *Bubble* is the idle share of all workers' time, from the start of the step to its end. A method
without idle time between a worker's first and last instruction still has the two ends. *Messages* are sends per micro-batch.

*Peak* is the largest number of activations on a worker, in micro-batches: an F adds 1, a B takes 1, and I and W take 1/2
each; on a worker with V chunks, each of them counts 1/V. This is the count of the zero-bubble paper, in which I frees one
half. A real stage frees nothing before W. So the bytes of `hetu simulate`, `hetu choose` and `hetu plan`, and a
`--memory-limit` in bytes, count the whole activation until W, as the memory of a run does. A `--memory-limit` without a unit
limits the peak of this page, which promises no bytes.

P is the number of workers, M of micro-batches and V of chunks per worker. Methods with loops run the micro-batches in rounds
of k = M / max(1, M div P); here k = 4. F, I and W are the times of forward, input gradient and weight gradient, and T is
their sum; a whole backward B takes I + W. The *forms* give the bubble as a time (makespan - M T) and the peak, with the
range in which they hold. [reproduction.md](reproduction.md) compares them with the simulator.

| method | bubble | its form | peak | its form | weight versions | messages |
|---|---|---|---|---|---|---|
"""
ABOUT = {
    "gpipe": (
        "All forwards run before the first backward: a step is simple, and every worker keeps all M activations. "
        "The bubble is (P - 1)(F + I + W)."
    ),
    "1f1b": (
        "After a warm-up of P - 1 - s forwards, worker s alternates one forward and one backward. The bubble is "
        "GPipe's; the gain is memory: worker s keeps at most P - s activations, whatever M is."
    ),
    "interleaved-1f1b": (
        "Each worker holds V chunks of the model in loops, so that the pipeline fills V times faster. The bubble is (P - "
        "1)(F + I + W)/V for M >= P, at the cost of V times as many messages and a little more memory."
    ),
    "looped-bfs": (
        "The loops of interleaved 1F1B, breadth first: all micro-batches pass a chunk before the next chunk begins. The "
        "bubble is that of interleaved 1F1B, the memory is GPipe's, and gradient sums start early."
    ),
    "pipedream": (
        "There is no flush: a worker updates after each backward, and a micro-batch's backward uses the weights of its "
        "forward, which are kept. The steady state has no bubble. Worker s keeps P - s weight versions, and its gradients "
        "are up to P - 1 - s updates old."
    ),
    "pipedream-2bw": (
        "There is no flush, and one update per M micro-batches. All stages use the weights before the previous update, so "
        "two versions are enough: w(t+1) = w(t) - lr g(w(t-1))."
    ),
    "hetpipe": (
        "Waves of M micro-batches run on local updates: a forward's weights lack at most M - 1 updates of its own pipeline. "
        "The steady state has no bubble. Several pipelines meet at servers, each at its own pace. A pipeline pushes a wave "
        "(`2PUSH`) after the wave's last update, and pulls the servers' weights (`2PULL`) before the first forward that "
        "needs them. A pipeline that is more than `--staleness D` waves ahead of the slowest waits there. Weights then lack "
        "at most (D + 1) M + M - 2 updates of another pipeline."
    ),
    "gems": (
        "Two copies of the model run in opposite directions, and a worker holds one micro-batch at a time. This takes the "
        "least memory for activations and has the largest bubble. It is for models that don't fit otherwise."
    ),
    "chimera": (
        "Two pipelines (or more, `--pairs`) in opposite directions share the workers, and each fills the other's bubbles. "
        "The bubble is (P - 2)/(2M + P - 2) in equal slots, half of 1F1B's. Weights are stored twice. `--concat` sets how "
        "units of P micro-batches follow each other: direct, doubling (two forwards at a time) or halving (backwards in "
        "halves)."
    ),
    "hanayo": (
        "The model goes down and up over the workers in V/2 waves: a repeated V placement, in the greedy order for unit "
        "times. More waves make the bubble smaller with one copy of the weights, but take more messages."
    ),
    "zb-h1": (
        "The backward is split: input gradients I run at once, and weight gradients W wait and fill bubbles. With 1F1B's "
        "memory the makespan bubble is (P - 1) max(F + I - W, F, I), a third of 1F1B's for equal times."
    ),
    "zb-h2": (
        "The warm-up is twice that of ZB-H1, with up to 2P - 1 activations. For equal times there is no idle time between "
        "a worker's first and last instruction, only the staircase at both ends."
    ),
    "zb-v": (
        "Two chunks per worker in a V: worker w holds stages w and 2P - 1 - w. With 1F1B's memory there is no idle "
        "time between a worker's first and last instruction, for equal times."
    ),
    "v-half": (
        "The V placement with repeating blocks that keep about half of 1F1B's activations, for a bubble of at most "
        "(3P - 7)/2 (P even) in equal times."
    ),
    "v-min": (
        "The V placement at about a third of 1F1B's activations, for a bubble near 1F1B's."
    ),
    "interleaved-zb": (
        "ZB-H1 in the loops of interleaved 1F1B. The bubble is (P - 1) max(F + I - W, F, I)/V, at the cost of V times as "
        "many messages."
    ),
    "dualpipe": (
        "Micro-batches run in two directions. In the middle of a step, a forward of one direction runs with a backward of "
        "the other, so that the messages of each hide behind the other's work. `--pair-semantics atomic` runs such a pair "
        "as one instruction, `split` as two."
    ),
    "dualpipev": (
        "DualPipe cut in half: one copy of the model on a V placement."
    ),
    "varuna": (
        "A worker recomputes a micro-batch's forward while its gradient is still on the way, and runs forwards where no "
        "backward is ready. `--runtime-rule` lets a worker run what is ready at run time."
    ),
    "zb-1p": (
        "A greedy scheduler for given costs. It puts weight gradients where they fit, and keeps at most P activations."
    ),
    "zb-2p": (
        "The scheduler of zb-1p with at most 2P activations. It gives the bubble of the zero-bubble paper's best column."
    ),
    "auto": (
        "A search over orders, warm-up depths and positions of W for given costs, speeds and a memory limit. With `--chunks "
        "2` it also searches looped and V placements. The result is never worse than the plan it starts from."
    ),
    "dp": (
        "Plain data parallelism, for comparison: one stage, with `--pipelines` copies. It is drawn on one worker."
    ),
}
# Forms of bubble and peak that are bounds, or apply to one family only. They are therefore not among the laws.
FORMS = {
    "chimera": ("P F + (2P-2)(I+W) - M T (M = P)", "P/2 + 1 to P (M = P)"),
    "v-half": ("at most (3P-7)/2, odd P (3P-4)/2 (F = I = W = 1, M > P/2)", "at most (P+2) div 2"),
    "v-min": ("at most 2P - 2.5, 3 divides P: 2P - 3.5 (F = I = W = 1, M >= P)", "at most (P+4) div 3"),
    "varuna": ("", "min(M, 3(P-1)) (P > 1)"),
    "zb-1p": ("", "at most P"),
    "zb-2p": ("", "at most 2P"),
}


def form_of(method: str, *figures: str) -> str:
    """Returns the first law for one of these figures of the method in its drawn form, and the range in which it holds."""
    for law in closed_forms.LAWS:
        if law.method == method and law.figure in figures and law.options.get("pair_semantics") != "atomic":
            return f"{'at most ' if law.most else ''}{law.text} ({law.where})"
    return ""


def plan_of(method: dict[str, Any]) -> schedule.Schedule:
    sizes: dict[str, Any] = {**SIZES, "stages": 1} if method["stages"] == "P = 1" else dict(SIZES)
    if "steps" in method["options"]:
        sizes["steps"] = 2
    return schedule.generate(method["name"], **sizes)


def part(method: dict[str, Any], picture: str) -> tuple[str, str]:
    """Returns the row of the table, and the section."""
    plan = plan_of(method)
    figures, report = schedule.simulate(plan), schedule.verify(plan)
    sends = sum("SEND" in cell for row in schedule.lower(plan).rows for cell in row)
    messages = sends / (figures["micro_batches"] * figures.get("steps", 1))
    bubble = figures.get("steady_bubble", figures["bubble_fraction"])
    kind = " (steady state)" if "steady_bubble" in figures else ""
    peak, versions = max(report["peak_activations"]), max(report["weight_versions"])
    name = method["name"]
    forms = FORMS.get(name) or (form_of(name, "makespan", "steady"), form_of(name, "peak"))
    cells = [f"{100 * bubble:.1f} %{kind}", forms[0], f"{peak:g}", forms[1], f"{versions}", f"{messages:g}"]
    row = f"| [{name}](#{name}) | {' | '.join(cells)} |\n"
    rule = method["micro_batches"]
    legal = f"Legal: {method['stages']}{f'; M must be {rule}' if rule.startswith('a multiple') else f', {rule}'}."
    also = f" Also called {', '.join(method['aliases'])}." if method["aliases"] else ""
    return row, f"## {name}\n\n{method['doc']} {legal}{also}\n\n{ABOUT[name]}\n\n![{name}](pictures/schedules/{picture})\n\n"


def made() -> dict[Path, str]:
    """Returns every file of the gallery."""
    rows, sections, files = [], [], {}
    for method in schedule.methods():
        picture = f"{method['name']}.svg"
        row, section = part(method, picture)
        rows.append(row)
        sections.append(section)
        files[DOCS / "pictures" / "schedules" / picture] = schedule.render(plan_of(method), "svg")
    files[DOCS / "schedules.md"] = HEAD + "".join(rows) + "\n" + "".join(sections).rstrip() + "\n"
    return files


def main() -> int:
    files = made()
    if sys.argv[1:] != ["--check"]:
        for path, text in files.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return 0
    stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
    stale += [p.name for p in (DOCS / "pictures" / "schedules").glob("*") if p not in files]
    if stale:
        print(f"stale: {', '.join(stale)}; make them again: python3 docs/make_schedules.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
