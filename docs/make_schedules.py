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

Made by `docs/make_schedules.py` from the code; a test keeps it fresh. All pictures: 4 workers, 8 micro-batches, a forward of
1 and each gradient of 1 time unit, no latency; asynchronous methods over 2 steps. `hetu simulate METHOD --stages 4
--micro-batches 8` prints the same; add `--steps 2` for asynchronous methods, and use `--stages 1` for dp. *Bubble* is
idle time over all workers; *peak* counts activations in micro-batches on the
fullest worker; *messages* are sends per micro-batch.

P workers, M micro-batches, V chunks per worker, M = K P; F, B, W the times of forward, input gradient and weight gradient,
T their sum. The forms give the bubble in time, makespan - M T, and the peak, where they hold; k micro-batches per round
([reproduction.md](reproduction.md) compares them with the simulator).

| method | bubble | its form | peak | its form | weight versions | messages |
|---|---|---|---|---|---|---|
"""
ABOUT = {
    "gpipe": (
        "All forwards run before the first backward: a step is simple, and every worker keeps all M activations. "
        "The bubble is (P - 1)(F + B + W)."
    ),
    "1f1b": (
        "After a warm-up of P - 1 - s forwards, worker s alternates one forward and one backward. The bubble is "
        "GPipe's; the gain is memory: worker s keeps at most P - s activations, whatever M is."
    ),
    "interleaved-1f1b": (
        "Each worker holds V chunks of the model in loops, so that the pipeline fills V times faster: the bubble "
        "is (P - 1)(F + B + W)/V for M >= P, for V times as many messages and a little more memory."
    ),
    "looped-bfs": (
        "The loops of interleaved 1F1B, breadth first: all micro-batches pass a chunk before the next chunk "
        "begins. The same bubble as interleaved 1F1B, GPipe's memory, and reductions that start early."
    ),
    "pipedream": (
        "No flush: a worker updates after each backward, and a micro-batch's backward uses the weights of its "
        "forward, which are kept. No bubble in the steady state; P - s weight versions on worker s, gradients up "
        "to P - 1 - s updates old."
    ),
    "pipedream-2bw": (
        "No flush, one update per M micro-batches, and all stages use the weights of one update before: two "
        "versions are enough. w(t+1) = w(t) - lr g(w(t-1))."
    ),
    "hetpipe": (
        "Waves of M micro-batches run on local updates: a forward's weights lack at most M - 1 of its own pipeline's. "
        "No bubble in the steady state. Several pipelines meet at servers, each at its own pace: a wave is pushed "
        "(`2PUSH`) when its last update is done, and the servers' weights are pulled (`2PULL`) before the first "
        "forward that counts on them; who is more than `--staleness D` waves ahead of the slowest waits there. "
        "Weights then lack at most (D + 1) M + M - 2 updates of another pipeline."
    ),
    "gems": (
        "Two copies of the model in opposite directions; one micro-batch is alive on a worker at a time. The least "
        "memory for activations and the largest bubble, for models that fit no other way."
    ),
    "chimera": (
        "Two (or more, `--pairs`) pipelines in opposite directions share the workers, and one fills the other's "
        "bubbles: (P - 2)/(2M + P - 2) in equal slots, half of 1F1B's. Weights stand twice. `--concat` says how "
        "units of P micro-batches follow each other: direct, doubling (two forwards at a time) or halving "
        "(backwards in halves)."
    ),
    "hanayo": (
        "The model goes down and up over the workers in V/2 waves: a V placement repeated, in the greedy order of "
        "unit times. More waves make the bubble smaller, at one copy of the weights, for more messages."
    ),
    "zb-h1": (
        "The backward is split: input gradients I go at once, weight gradients W wait and fill bubbles. With "
        "1F1B's memory the makespan bubble is (P - 1) max(F + B - W, F, B), a third of 1F1B's in equal times."
    ),
    "zb-h2": (
        "Twice the warm-up of ZB-H1 and up to 2P - 1 activations: no idle time within a worker's span for equal "
        "times, only the staircase at both ends."
    ),
    "zb-v": (
        "Two chunks per worker in a V: worker w holds stages w and 2P - 1 - w. With 1F1B's memory there is no "
        "bubble within a worker's span for equal times."
    ),
    "v-half": (
        "The V placement with repeating blocks that keep about half of 1F1B's activations, for a bubble of at most "
        "(3P - 7)/2 (P even) in equal times."
    ),
    "v-min": (
        "The V placement at about a third of 1F1B's activations, for a bubble near 1F1B's."
    ),
    "interleaved-zb": (
        "ZB-H1 in the loops of interleaved 1F1B: (P - 1) max(F + B - W, F, B)/V, for V times as many messages."
    ),
    "dualpipe": (
        "Two directions, and in the middle a forward of one beside a backward of the other, so that their messages "
        "hide behind the other's work. `--pair-semantics atomic` runs such a pair as one, `split` as two."
    ),
    "dualpipev": (
        "DualPipe cut in half: one copy of the model on a V placement."
    ),
    "varuna": (
        "Recomputes a micro-batch's forward while its gradient is still on the way; forwards run where a backward "
        "is not ready. `--runtime-rule` lets a worker take what is ready at run time."
    ),
    "zb-1p": (
        "A greedy scheduler: for given costs, weight gradients are put where they fit, within P activations."
    ),
    "zb-2p": (
        "The same within 2P activations: the bubble of the zero-bubble paper's best column."
    ),
    "auto": (
        "A search over orders, warm-up depths and places of W for given costs, speeds and a memory limit; with "
        "`--chunks 2` over looped and V placements too. Never worse than what it starts from."
    ),
    "dp": (
        "Plain data parallelism for comparison: one stage; copies are `--pipelines`. Drawn on one worker."
    ),
}
# Forms of bubble and peak that are bounds, or apply to one family only. They are therefore not among the laws.
FORMS = {
    "chimera": ("P F + (2P-2)(B+W) - M T (M = P)", "P/2 + 1 to P (M = P)"),
    "v-half": ("at most (3P-7)/2, odd P (3P-4)/2 (F = B = W = 1, M > P/2)", "at most (P+2) div 2"),
    "v-min": ("at most 2P - 2.5, 3 divides P: 2P - 3.5 (F = B = W = 1, M >= P)", "at most (P+4) div 3"),
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
    legal = f"Legal: {method['stages']}, {method['micro_batches']}."
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
