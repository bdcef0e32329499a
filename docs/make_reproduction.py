#!/usr/bin/env python3
"""Writes docs/reproduction.md: published figures next to those that this build computes. `./run reproduce` calls it.

usage: docs/make_reproduction.py [--check]   --check: exit 1 if the page or its figure is stale (a test calls this)

With or without --check, it exits 1 if a figure differs that DIFFERENT does not explain, or if an explained one no longer
differs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from figures import chimera, closed_forms, pipefisher, published
from figures.page import Page, command, peak, simulated, worst_of

from hetu import schedule

DOCS = Path(__file__).resolve().parent

# Figures that differ, by their names on the page, and the reasons.
DIFFERENT = {
    "interleaved-zb, P = 8, M = 16: send slots": (
        "Torch's order begins with additional rounds of warm-up forwards. With two chunks the ring then holds P/2 messages "
        "between neighbours: 2, 3 and 4 for P = 4, 6 and 8 with M = 2P and 4P. The order itself is torch's own (a test "
        "compares them)."
    ),
    "looped-bfs, P = 4, M = 16: send slots": (
        "A worker passes all M micro-batches to the next worker before it takes those that come around, so M div P messages "
        "wait. The specified 2 is right for M = 2P only. Tried: P = 4, 6 and 8 with M = 2P and 4P."
    ),
    **pipefisher.DIFFERENT,
}
HEAD = """# Published figures, recomputed

This page compares published figures with those that Hetu computes. `docs/make_reproduction.py` (`./run reproduce`) writes it
from the code. A test checks that it is up to date, and fails if another figure begins to differ. In every table a cell reads
*published / Hetu*, with Hetu's figure rounded to the printed digits. If they differ, the cell is bold and has the difference
in brackets. Each figure comes from one command. The commands that are shown print their figures with `--format json`.

"""


def zero_bubble(page: Page) -> None:
    page.section("Zero bubble: tables 5 and 6", f"Source: {published.ZERO_BUBBLE}")
    page.prose(
        "The span bubble rate is 1 - M (F + I + W) / span. Times are in ms, with a latency per hop. The command of the "
        "first figure:",
        command("1f1b", stages=8, micro_batches=24, forward=18.522, input_grad=18.086, weight_grad=9.337, latency=0.601),
        "→ `span_bubble_rate`. zb-1p and zb-2p keep at most P and 2P activations. `auto` with 2P must not exceed ZB-2p.",
    )
    methods = ["1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p"]
    rows, loops = [], []
    for k, row in enumerate(published.ZERO_BUBBLE_ROWS):
        p, m = row.stages, row.micro_batches
        costs = {"forward": row.forward, "input_grad": row.input_grad, "weight_grad": row.weight_grad}
        head = [row.model, str(p), str(m)]
        cells = []
        for method in methods:
            rate = simulated(method, stages=p, micro_batches=m, latency=row.latency, **costs)["span_bubble_rate"]
            cells.append(page.cell(f"{method}, {row.model}, M = {m}: span bubble rate", row.rates[method], rate, 4))
        two_p = row.rates["zb-2p"] or 0.0
        searched = simulated("auto", stages=p, micro_batches=m, memory_limit=2 * p, latency=row.latency, **costs)
        cells.append(page.bound(f"auto, {row.model}, M = {m}", two_p, round(searched["span_bubble_rate"], 4)))
        rows.append([*head, *(f"{t:g}" for t in (*costs.values(), row.latency)), *cells])
        v, total = row.layers // p, sum(costs.values())
        fitted = (p - 1) * total / v + (p * (2 * v - 1) - 2) * row.latency
        rate = fitted / (m * total + fitted)
        printed = row.rates["interleaved-1f1b"]
        name = f"interleaved-1f1b, {row.model}, M = {m}: fitted form"
        script = published.INTERLEAVED_BY_SCRIPT[k - 6] if printed is None else None
        run = simulated("interleaved-1f1b", stages=p, micro_batches=m, chunks=v, latency=row.latency, **costs)
        known = [page.cell(name, printed, rate, 4), "-"] if script is None else ["-", page.cell(name, script, rate, 4)]
        loops.append([*head, str(v), *known, f"{run['span_bubble_rate']:.4f}"])
    page.table(["model", "P", "M", "F", "B", "W", "c", *methods, "auto: at most ZB-2p"], rows)
    page.prose(
        "**Interleaved 1F1B.** The paper's column does not follow from one latency per hop, which gives an extra time of",
        "(P-1)(F+I+W)/V + 2(PV-1)c. A closed form *fitted* to the printed rows, (P-1)(F+I+W)/V + (P(2V-1)-2)c, gives it. "
        "The",
        "authors' script, run once over all twelve rows, gives the printed six and, for the others, what the fitted form "
        "gives: it",
        "makes only the first micro-batch of each round of P wait for the message around the ring. `simulate` pays "
        "latency on",
        "every hop; its figure stands beside.",
    )
    page.table(["model", "P", "M", "V", "published / fitted form", "authors' script / fitted form", "simulated"], loops)


def unit_times(page: Page) -> None:
    page.section(
        "Unit times",
        "The table has the makespan bubble, makespan - 3M, and the largest peak of activations. F = I = W = 1, P = 4, no "
        "latency.",
        "The sources are the methods' papers. The bubbles do not depend on M. One of the commands:",
        command("zb-v", stages=4, micro_batches=8, backward=2),
        "→ `makespan`, `peak_activations`.",
    )
    rows = []
    for method, options, bubble, most in published.UNIT_TIMES:
        title = " ".join([method, *(f"--{k.replace('_', '-')} {v}" for k, v in options.items())])
        cells = []
        for m in (8, 12, 24):
            run = simulated(method, stages=4, micro_batches=m, forward=1, backward=2, **options)
            name = f"{title}, P = 4, M = {m}"
            cells.append(page.cell(f"{name}: makespan bubble", bubble, run["makespan"] - 3 * m))
            cells.append(page.cell(f"{name}: peak", m if most is None else most, peak(run)))
        rows.append([title, *cells])
    page.table(["method", *(f"{what}, M = {m}" for m in (8, 12, 24) for what in ("bubble", "peak"))], rows)


def forms(page: Page) -> None:
    listed = ["{" + ", ".join(map(str, sorted(set(sizes)))) + "}" for sizes in zip(*closed_forms.SIZES, strict=True)]
    page.section(
        "Closed forms",
        "The table has makespan and span bubbles as times, and peaks in micro-batches on the fullest worker, each over all "
        "legal",
        f"plans with P in {listed[0]}, M in {listed[1]} and {len(closed_forms.TIMES)} triples (F, I, W), no latency.",
        "T = F + I + W, and k is the number of micro-batches per round. *Steady* is the idle share of worker 0 in the "
        "middle of 8 steps. The sources are",
        "those of the methods, in [schedules.md](schedules.md). The command:",
        command("zb-h1", stages="P", micro_batches="M", forward="F", input_grad="I", weight_grad="W") + ".",
    )
    known: dict[tuple[Any, ...], dict[str, float] | None] = {}
    rows = []
    for law in closed_forms.LAWS:
        plans, worst = closed_forms.compared(law, known)
        title = " ".join([law.method, *(f"--{k.replace('_', '-')} {v}" for k, v in law.options.items())])
        page.figures += plans
        if worst > 1e-9 or plans == 0:
            page.different.append(f"{title}: {law.figure} {law.text}")
        difference = "none" if worst <= 1e-9 else f"**{worst:g}**"
        rows.append([title, law.figure, ("at most " if law.most else "") + law.text, law.where, str(plans), difference])
    page.table(["method", "figure", "published", "where", "plans", "largest difference"], rows)


def v_shapes(page: Page) -> None:
    page.section(
        "V-Half and V-Min",
        "Source: Qi et al., Pipeline Parallelism with Controllable Memory, 2024. For F = I = W = 1, the table has upper "
        "bounds of the",
        "makespan bubble and of the peak of activations, next to the largest value over M = P, 2P and 4P. One of the "
        "commands:",
        command("v-half", stages=8, micro_batches=32, backward=2) + ".",
    )
    rows = []
    # where the bound of the bubble fails: published, found
    over: dict[str, list[tuple[float, bool]]] = {"v-half": [], "v-min": []}
    for p in range(2, 17):
        half = 0.5 if p == 2 else (3 * p - 7) / 2 if p % 2 == 0 else (3 * p - 4) / 2
        least = max(0.0, 2 * p - 3.5 if p % 3 == 0 else 2 * p - 2.5)
        cells = []
        for method, bubble, most in (("v-half", half, (p + 2) // 2), ("v-min", least, (p + 4) // 3)):
            runs = {m: simulated(method, stages=p, micro_batches=m) for m in (*range(1, 2 * p + 1), 4 * p)}
            bubbles = {m: run["makespan"] - 3 * m for m, run in runs.items()}
            over[method] += [(over_its_bound(method, p, m), found > bubble + 1e-9) for m, found in bubbles.items()]
            cells.append(page.bound(f"{method}, P = {p}: bubble", bubble, max(bubbles[m] for m in (p, 2 * p, 4 * p))))
            cells.append(page.bound(f"{method}, P = {p}: peak", most, max(map(peak, runs.values()))))
        rows.append([str(p), *cells])
    page.table(["P", "V-Half bubble at most", "peak at most", "V-Min bubble at most", "peak at most"], rows)
    page.prose("The bounds of peaks hold for every M from 1 to 2P. The bounds of bubbles hold except in these cases, which "
               "the last section explains:")
    where = {"v-half": "M < P/2 (P odd), M < P/4 + 3/2 (P even)", "v-min": "P divided by 3: M = 1; P = 15, M = 9"}
    rows = [worst_of(page, f"{method}: {words}", over[method]) for method, words in where.items()]
    page.table(["bubble over its bound at M = 1 to 2P and 4P, P = 2 to 16", "plans", "elsewhere, or not there"], rows)


def over_its_bound(method: str, p: int, m: int) -> bool:
    """Returns true if these sizes are outside the range in which the published bound of the bubble holds."""
    if method == "v-half":
        return m < (p / 2 if p % 2 else p / 4 + 1.5)
    return p % 3 == 0 and (m == 1 or (p, m) == (15, 9))


def varuna(page: Page) -> None:
    page.section(
        "Varuna",
        "Source: Athlur et al., Varuna, EuroSys 2022, and its published code. P = 4, F = R = 1, B = 2. This command prints "
        "the order for N = 5:",
        "`hetu schedule varuna --stages 4 --micro-batches 5 --format csv`.",
    )
    plan = schedule.generate("varuna", stages=4, micro_batches=5)
    rows = [
        [str(s), page.cell(f"varuna order, stage {s}", text, " ".join(cell.lstrip("0123456789") for cell in plan.rows[s]))]
        for s, text in enumerate(published.VARUNA_ORDER)
    ]
    page.table(["stage", "published / Hetu"], rows)
    page.prose(
        "The table has makespans by the latency of a hop. 27 is the length of the published ticks. Those with a latency or "
        "the rule come from",
        "one implementation. One of the commands:",
        command("varuna", stages=4, micro_batches=5, backward=2, recompute=1, latency=2, runtime_rule=True) + ".",
    )
    rows = []
    for n, rule, known in published.VARUNA_MAKESPANS:
        cells = []
        for latency, value in zip((0, 1, 2, 5), known, strict=True):
            rules = {"runtime_rule": True} if rule else {}
            run = simulated(
                "varuna", stages=4, micro_batches=n, forward=1, backward=2, recompute=1, latency=latency, **rules
            )
            cells.append(page.cell(f"varuna, N = {n}, rule {rule}, latency {latency}", value, run["makespan"]))
        rows.append([str(n), "with" if rule else "without", *cells])
    page.table(["N", "run-time rule", "latency 0", "1", "2", "5"], rows)
    pairs = []
    for p in range(1, 9):
        for n in (1, 2, 5, 8, 13, 24):
            found = schedule.verify(schedule.generate("varuna", stages=p, micro_batches=n))["peak_activations"]
            pairs += [(min(n, 3 * (p - 1 - w)) if w < p - 1 else 1, found[w]) for w in range(p)]
    rows = [worst_of(page, "stored stage inputs: min(N, 3(P-1-s)), 1 on the last stage", pairs)]
    page.table(["closed form, P = 1 to 8, N = 1 to 24", "figures", "largest difference"], rows)


def slots(page: Page) -> None:
    page.section(
        "Send slots",
        "The table has the smallest number of send slots, the bound on unreceived messages per pair of workers, with which "
        "a lowered plan makes progress:",
        "`hetu schedule METHOD … --lowered --format csv -o plan.csv`, then `hetu verify plan.csv --send-slots K`. The first",
        "figure of a cell comes from this project's own specification, not from a paper.",
    )
    rows = []
    for words, p, m, known in published.SEND_SLOTS:
        method, *concat = words.split()
        plan = schedule.generate(method, stages=p, micro_batches=m, **({"concat": concat[1]} if concat else {}))
        low, found = schedule.lower(plan), 0
        while not progresses(low, found):
            found += 1
        rows.append([words, str(p), str(m), page.cell(f"{words}, P = {p}, M = {m}: send slots", known, found)])
    page.table(["method", "P", "M", "slots"], rows)


def progresses(lowered: schedule.Schedule, send_slots: int) -> bool:
    try:
        schedule.verify(lowered, send_slots=send_slots)
    except ValueError:
        return False
    return True


def not_reproduced(page: Page) -> None:
    page.section("Figures that differ, and what was tried")
    costs = {"forward": 1, "input_grad": 2, "weight_grad": 1.5}
    h2 = simulated("zb-h2", stages=4, micro_batches=8, **costs)["span"] - 8 * 4.5
    zbv = [
        simulated("zb-v", stages=4, micro_batches=3, forward=f, input_grad=2, weight_grad=w)["makespan"]
        for f, w in ((2, 1), (1, 1.5))
    ]
    half = simulated("v-half", stages=16, micro_batches=4)["makespan"] - 12
    least = simulated("v-min", stages=15, micro_batches=9)["makespan"] - 27
    for item in (
        *(f"**{name}.** {why}" for name, why in DIFFERENT.items()),
        "**Interleaved 1F1B in the zero-bubble paper** follows from a fitted form only (above). In the first row, one "
        "latency on every hop, as in the other columns, costs 46 c and gives 0.1090. Without a latency from the last worker "
        "to the first it costs 44 c, and without one in both directions between these two 42 c (`link` of a costs file). "
        "The printed rate needs 38 c.",
        f"**ZB-H2's bubbles** are published without the term I - F: (P-1) max(0, F+I-2W) for the span, and F in place of 0 "
        f"for the makespan. If I > F, the last worker's backwards outrun its forwards: F = 1, I = 2, W = 1.5, P = 4, M = 8 "
        f"has a span bubble of {h2:g}, not 0. The table above has both forms, each in the range where it holds. All "
        f"settings of the paper have I < F.",
        f"**ZB-V with M <= P** takes (M+P-1)(F+I) + W for F = W <= I. It is printed for W <= F and W <= I. P = 4, M = 3 "
        f"with F = 2, I = 2, W = 1 takes {zbv[0]:g}, not 25. F = 1, I = 2, W = 1.5, outside the printed range, takes "
        f"{zbv[1]:g}, not 19.5. The order is torch's, from sizes alone.",
        f"**V-Half's bubble bound** does not hold for few micro-batches: M < P/2 for odd P, M < P/4 + 3/2 for even P. At M "
        f"= 1 no order can meet it: the path through 2P stages and back leaves a bubble of 2P - 2.5. P = 16, M = 4 has "
        f"{half:g}, and the bound is 20.5. V-Min's bound fails at M = 1 if 3 divides P, and at P = 15, M = 9 with "
        f"{least:g}, where the bound is 26.5 (also at P = 18, 21 and 24, by 1/2, for some M between P/2 and P).",
        "**Varuna's ticks**: `simulate` starts a recompute as soon as its worker is free. The ticks start it when the "
        "gradient is on its way. Orders, backwards and length agree, and a test compares them tick by tick.",
        f"**Measured runs.** The busy share of the profile above was {published.MEASURED_BUSY} % on 8 P100 (PipeFisher's "
        f"figure, without its own work). The prediction leaves out communication, optimizer and kernel launches. Samples "
        f"per second on clusters (Chimera's BERT-48 and GPT-2, Varuna, PipeDream, HetPipe) and times to accuracy can't be "
        f"checked without the machines.",
        "**Eager-opt over eager gradient sums** (3, 9 and 12 % on 16, 32 and 64 nodes) depends on a network. `--sync "
        "eager-opt --allreduce T` predicts it for a given T.",
    ):
        page.item(item)


def page_and_picture() -> tuple[Page, dict[Path, str]]:
    page = Page()
    for section in (zero_bubble, unit_times, forms, v_shapes, chimera.figures, chimera.blocks, pipefisher.figures, varuna):
        section(page)
    picture = chimera.profile(page)
    slots(page)
    not_reproduced(page)
    count = f"{page.figures:,} figures; {len(page.different)} differ.\n\n"
    text = HEAD + count + page.text.rstrip() + "\n"
    return page, {DOCS / "reproduction.md": text, DOCS / "pictures" / chimera.PICTURE: picture}


def main() -> int:
    page, files = page_and_picture()
    wrong = sorted(set(page.different) ^ set(DIFFERENT))
    for name in wrong:
        print(f"differs, but DIFFERENT has no reason: {name}" if name in page.different else f"no longer differs: {name}")
    if sys.argv[1:] == ["--check"]:
        stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
        if stale:
            print(f"stale: {', '.join(stale)}; make them again: ./run reproduce")
        return 1 if stale or wrong else 0
    for path, text in files.items():
        path.write_text(text)
    print(f"docs/reproduction.md: {page.figures:,} figures, {len(page.different)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
