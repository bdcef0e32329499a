"""PipeFisher's utilizations: its own filling rule, applied to the published times of blocks."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from figures import published
from figures.chimera import COSTS, block_row
from figures.page import Page

from hetu import schedule

LAYERS = 6  # layers of a block that have factors
# Figures that differ, by their names in make_reproduction.py, and the reasons.
DIFFERENT = {
    "gpipe, bert-base on 4 P100: busy without K-FAC": (
        "Measured beside computed: 4 of 7 slots by the blocks' times alone, which have no "
        "messages, optimizer, heads, embeddings or starts of kernels. No way of placing passes makes 4 stages and 4 "
        "micro-batches of these blocks busy for less; 34 ms per hop would."
    ),
    "1f1b, bert-base on 4 P100: busy without K-FAC": "As of gpipe; 21 ms per hop would, since its messages cross both ways.",
    "chimera, bert-large on 8 P100: busy without K-FAC": "As of gpipe; 11 ms per hop would.",
    "gpipe, bert-base on 4 P100: busy, filled": (
        "0.3 points: 4 (F + B) + (4 curvatures + inversion) / 3 of the step, a sum that no placement changes. The published "
        "program counts recorded times, which differ from node to node; these are one block's."
    ),
    "chimera, bert-large on 8 P100: busy, filled": "0.2 points, for the same reason.",
    "gpipe, bert-base on 4 P100: steps per refresh": (
        "The work is 2.21 steps of bubbles by the published times, so that 2 steps cannot hold it; with the bubbles of the "
        "measured step they do (second table), but then the filled share is 76 % and not 89 %. 41.7, 89.0 and 2 do not "
        "go together by these times of the work, whatever the rest takes."
    ),
    "1f1b, bert-base on 4 P100: steps per refresh": "As of gpipe.",
}


class Filled(NamedTuple):
    """The output of `hetu fill`: busy share of each node in percent, and iterations of its cycle."""

    usage: list[float]
    iterations: list[int]


def predicted(case: published.Filled, latency: float, **how: Any) -> tuple[schedule.Schedule, dict[str, Any]]:
    """Returns the plan of a method with as many micro-batches as stages, and its simulation."""
    plan = schedule.generate(case.method, stages=case.stages, micro_batches=case.stages)
    return plan, schedule.simulate(plan, events=True, costs=COSTS / f"{case.table}.csv", micro_batch_size=32,
                                   blocks_per_stage=case.blocks, latency=latency, **how)


def busy(case: published.Filled, latency: float, **how: Any) -> float:
    return 100 - 100 * float(predicted(case, latency, **how)[1]["bubble_fraction"])


def in_bubbles(case: published.Filled, fill: str, inverses: str) -> list[str]:
    """Returns busy share and steps of the plan that would run."""
    how = {"fill": fill, "factor_layers": case.blocks * LAYERS, "inverses": inverses}
    run = predicted(case, 0, **how)[1]
    steps = 1 + max(e["step"] for e in run["events"])
    return [f"{100 - 100 * run['bubble_fraction']:.1f}", str(steps)]


def latency_of(case: published.Filled) -> float:
    """Returns the milliseconds per hop for which a step is idle as long as the measured one, by bisection."""
    low, high = 0.0, 100.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if busy(case, middle) > case.alone else (low, middle)
    return low


def timeline(case: published.Filled, plan: schedule.Schedule, events: list[dict[str, Any]], worker: int) -> dict[str, Any]:
    """Returns the record of a node: its passes, and K-FAC's work after them, layer by layer, in equal shares."""
    found: dict[str, list[list[int]]] = {"start_end": [[0, 1]]}
    for e in events:
        if e["worker"] == worker and e["kind"] in ("F", "B"):
            name = "call_forward" if e["kind"] == "F" else "call_backward"
            up = ":up_pipe" if plan.placements[e["stage"]]["replica"] else ""
            start = round(1e3 * e["start_us"])
            found.setdefault(name + up, []).append([start, start + round(1e3 * e["duration_us"])])
    at, row = max(end for spans in found.values() for _, end in spans), block_row(case.table)
    layers, micros = case.blocks * LAYERS, len(found["call_forward"])
    for kind, ms in (("cov", micros * row["time_kron"]), ("inv", row["time_inv"])):
        each = round(1e6 * case.blocks * ms / (2 * layers))
        for label in (f"{kind}_kron_{factor}:{layer}{up}" for factor in "AB" for layer in range(layers)
                      for up in ("", ":up_pipe") if "call_forward" + up in found):
            found[label] = [[at, at + each]]
            at += each
    return found


def filled(case: published.Filled, latency: float) -> Filled:
    """Returns the result of `hetu fill`."""
    plan, run = predicted(case, latency)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"node{w}.json" for w in range(case.stages)]
        for w, path in enumerate(paths):
            path.write_text(json.dumps(timeline(case, plan, run["events"], w)))
        lines = subprocess.run(["hetu", "fill", *paths], capture_output=True, text=True, check=True).stdout.splitlines()
    return Filled([float(line.split("usage: ")[1].split()[0]) for line in lines],
                  [int(line.split(":")[1].split()[0]) for line in lines])


def figures(page: Page) -> None:
    page.section(
        "PipeFisher",
        "Osawa et al., PipeFisher, MLSys 2023: busy share of P100s before and after K-FAC's work fills the bubbles, and",
        "steps per refresh of the curvature. Hetu's are `hetu fill` (PipeFisher's own rule, wrap included) of the",
        "simulated step under the published times of blocks, 32 samples, 3 blocks per stage, as many micro-batches as",
        "stages; each block's curvature and inversions in equal shares over its 6 layers and their 2 factors. Usage is the",
        "mean over nodes.",
    )
    rows, slow = [], []
    for case in published.FILLED:
        name = f"{case.method}, {case.table.split('_')[0]} on {case.stages} P100"
        found = filled(case, 0)
        rows.append([
            name,
            page.cell(f"{name}: busy without K-FAC", case.alone, busy(case, 0), 1),
            page.cell(f"{name}: busy, filled", case.filled, sum(found.usage) / len(found.usage), 1),
            page.cell(f"{name}: steps per refresh", case.refresh, max(found.iterations)),
            *in_bubbles(case, "best", "all"),
            *in_bubbles(case, "wrap", "all"),
            *(in_bubbles(case, "best", "owners") if case.method == "chimera" else ["", ""]),
        ])
        latency = latency_of(case)
        late = filled(case, latency)
        slow.append([name, f"{latency:.1f}", f"{busy(case, latency):.1f}", f"{sum(late.usage) / len(late.usage):.1f}",
                     str(max(late.iterations))])
    page.table(["pipeline", "busy without K-FAC, %", "filled, %", "steps per refresh",
                "`--fill best --inverses all`, preconditioning too, %", "steps", "`--fill wrap`, %", "steps",
                "`best`, owners, %", "steps"], rows)
    page.prose(
        "With owners a copy of a stage inverts half of its layers: less work, so that the share is no measure of it.",
    )
    page.prose(
        "What was measured without K-FAC is idle for longer than the blocks' times alone give. With a latency per hop that",
        "makes up for the difference, the same rule gives:",
    )
    page.table(["pipeline", "latency per hop, ms", "busy without K-FAC, %", "filled, %", "steps per refresh"], slow)
