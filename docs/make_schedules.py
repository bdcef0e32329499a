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

Every figure shows 4 workers and 8 micro-batches, without latency. A forward (F), an input gradient (I) and a weight gradient
(W) take 1 time unit each. A whole backward (B) is I and W in one instruction, and takes 2. Methods with `--chunks` have 2
chunks per worker: parts of the model, each of which is a stage. Asynchronous methods, which have no flush (no end of a step
at which all workers wait), run 2 steps. To print the same numbers, type `hetu simulate METHOD --stages 4 --micro-batches 8`.
Add `--steps 2` for asynchronous methods, and use `--stages 1` for dp.

Two placements of chunks have names. *Looped*: worker w holds the stages w, w + P, w + 2P and so on. *V*: worker w holds the
stages w and 2P - 1 - w, so that the model goes down and up over the workers.

The columns of the table:

- *Bubble* is the idle share of all workers' time, from the start of the step to its end. It includes the idle time before a
  worker's first and after its last instruction.
- *Peak* is the largest number of activations on a worker, in micro-batches. An F adds 1, a B removes 1, and I and W remove
  1/2 each. On a worker with V chunks, each of them counts 1/V.
- *Formula* gives the bubble as a time, makespan - M T, or the peak. The condition for which it holds is in parentheses.
  [reproduction.md](reproduction.md) compares the formulas with the simulator.
- *Weight versions* is the largest number of versions of its weights that a worker keeps.
- *Messages* is the number of sends per micro-batch.

In the formulas, P is the number of workers, M of micro-batches, and V of chunks per worker. F, I and W are the times of
forward, input gradient and weight gradient, and T = F + I + W. Looped methods run the micro-batches in rounds of k = M /
max(1, M div P). In the figures, k is 4.

**Peak and memory.** The peak follows the zero-bubble paper, in which I frees half of an activation. A real stage frees
nothing before W. A memory limit in bytes, and the bytes of `hetu simulate`, `hetu choose` and `hetu plan`, therefore count
the whole activation until W. A `--memory-limit` without a unit limits the peak, and promises no number of bytes.

| method | bubble | formula | peak | formula | weight versions | messages |
|---|---|---|---|---|---|---|
"""
ABOUT = {
    "gpipe": (
        "All forwards run before the first backward. The order is simple, but every worker keeps all M activations. "
        "The bubble is (P - 1)(F + I + W)."
    ),
    "1f1b": (
        "After a warm-up of P - 1 - s forwards, worker s alternates one forward and one backward. The bubble is "
        "that of GPipe, but worker s keeps at most P - s activations, however large M is."
    ),
    "interleaved-1f1b": (
        "Each worker holds V chunks of the model in loops, so that the pipeline fills V times faster. The bubble is (P - "
        "1)(F + I + W)/V for M >= P, at the cost of V times as many messages and a little more memory."
    ),
    "looped-bfs": (
        "The placement is that of interleaved 1F1B, but all micro-batches pass a chunk before the next chunk begins. The "
        "bubble is that of interleaved 1F1B, the memory is GPipe's, and gradient sums start early."
    ),
    "pipedream": (
        "There is no flush: a worker updates its weights after each backward. The backward of a micro-batch uses the "
        "weights of its forward, so a worker keeps them until then. The steady state has no bubble. Worker s keeps P - s "
        "weight versions, and its gradients are up to P - 1 - s updates old."
    ),
    "pipedream-2bw": (
        "There is no flush, and one update per M micro-batches. Gradients are computed from the weights before the previous "
        "update, so a worker keeps two versions: w(t+1) = w(t) - lr g(w(t-1))."
    ),
    "hetpipe": (
        "A wave is M micro-batches. Each pipeline updates its own copy of the weights, and a forward lacks at most the "
        "last M - 1 of these updates. The steady state has no bubble. Several pipelines exchange weights over parameter "
        "servers, each at its own pace. A pipeline pushes a wave (`2PUSH`) after the wave's last update, and pulls the "
        "servers' weights (`2PULL`) before the first forward that needs them. A pipeline that is more than `--staleness "
        "D` waves ahead of the slowest waits there. Weights then lack at most (D + 1) M + M - 2 updates of another "
        "pipeline."
    ),
    "gems": (
        "Two copies of the model run in opposite directions, and a worker holds one micro-batch at a time. This takes the "
        "least memory for activations and has the largest bubble. It is for models that don't fit otherwise."
    ),
    "chimera": (
        "Two pipelines (or more, `--pairs`) in opposite directions share the workers, and each fills the other's bubbles."
        " If forwards and backwards take equally long, the bubble is (P - 2)/(2M + P - 2), about half of 1F1B's. Weights "
        "are stored twice. `--concat` sets how units of P micro-batches follow each other: direct, doubling (two forwards"
        " at a time) or halving (backwards in halves)."
    ),
    "hanayo": (
        "The model goes down and up over the workers V/2 times (waves), which is a repeated V placement. The order is the"
        " one that a greedy scheduler finds for equal times. More waves make the bubble smaller with one copy of the "
        "weights, but take more messages."
    ),
    "zb-h1": (
        "The backward is split. Input gradients I run at once, because the stage before waits for them. Weight gradients W "
        "run later, in otherwise idle time. The memory is 1F1B's. If F = I = W, the bubble is a third of 1F1B's."
    ),
    "zb-h2": (
        "The warm-up is twice that of ZB-H1, with up to 2P - 1 activations. If F = I = W, a worker is never idle "
        "between its first and last instruction."
    ),
    "zb-v": (
        "Two chunks per worker in a V placement. The memory is 1F1B's. If F = I = W, a worker is never idle between its "
        "first and last instruction."
    ),
    "v-half": (
        "A V placement with an order that repeats for every micro-batch and keeps about half of 1F1B's activations. If "
        "F = I = W = 1 and P is even, the bubble is at most (3P - 7)/2."
    ),
    "v-min": (
        "As v-half, but with about a third of 1F1B's activations. The bubble is near 1F1B's."
    ),
    "interleaved-zb": (
        "ZB-H1 with the looped chunks of interleaved 1F1B. The bubble is (P - 1) max(F + I - W, F, I)/V, at the cost of V"
        " times as many messages."
    ),
    "dualpipe": (
        "Micro-batches run in two directions. In the middle of a step, a worker runs a forward of one direction "
        "together with a backward of the other, so that the messages of each travel while the other computes. "
        "`--pair-semantics atomic` treats such a pair as one instruction, and `split` as two."
    ),
    "dualpipev": (
        "DualPipe on half as many workers, with one copy of the model on a V placement."
    ),
    "varuna": (
        "A worker recomputes a micro-batch's forward while its gradient is still on the way, and runs forwards where no "
        "backward is ready. With `--runtime-rule`, a worker whose next gradient is late runs the next forward first."
    ),
    "zb-1p": (
        "A greedy scheduler for given costs. It runs weight gradients in otherwise idle time, and keeps at most P "
        "activations."
    ),
    "zb-2p": (
        "The scheduler of zb-1p with at most 2P activations. It reproduces the column ZB-2p of the zero-bubble "
        "paper, which has the smallest bubbles."
    ),
    "auto": (
        "A search for given costs, speeds and a memory limit. It varies the order, the number of forwards before the first "
        "backward, and the positions of W. With `--chunks "
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
