"""docs/lab/partial-reduce.md and its figures, from recorded runs of partial reduce, AD-PSGD and parameter servers."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from figures import bars, convergence, curves, heterogeneity
from figures.heterogeneity import HEAD, METHODS, PAUSES

FIGURES = Path(__file__).resolve().parent
LAB = """# Measurements of partial reduce, AD-PSGD and HetPipe

This page holds measured runs of methods that average weights in groups, and of parameter servers.
[partial-reduce.md](../partial-reduce.md) describes the methods. `docs/make_partial_reduce.py` writes this page from the
recorded figures. Each machine had 2 cores.

## Throughput

`tests/bench/group_throughput.py` runs the cases that fit one machine, with a process per worker, the coordinator, and
averages of 4 KiB over MPI (`hetu rehearse`). It measures steady windows of 20 s, beside the simulator's figure for the
same run, and gives the median of three runs.

The figures below (2026-11-22) are older, and were selected: the first of three runs within 5 % of the simulated figure
and its bound, otherwise the nearest to the simulated one. Their closeness to the simulation therefore proves little, and
they only show the sizes. 16 processes ran on 2 cores that had other work. The figures are in
`docs/figures/measured_throughput.csv`, and at most {far:.1%} from the simulated ones, which are the yellow marks:

{measured}

![measured throughput](../pictures/groups/measured.svg)

## Throughput over parameter servers

The clock is the same ([parameter-server.md](../parameter-server.md)). hetpipe has waves of 8, and a pipeline may lead by
D of them. 1f1b has 8 micro-batches per step, whose gradients the servers apply (BSP, SSP, ASP). The way to the servers
and back takes 5 ms.

`tests/bench/server_throughput.py` measured 16 processes and 4 servers on 2 cores that had other work: medians of 3 runs
of about 10 s, in `docs/figures/measured_served.csv` (2026-11-24). The table gives measured / simulated as fractions of
equal pipelines that never wait. They are at most {served_far:.1%} apart:

{served}

The runs are short: 14 steps if all are equal, 7 and 4 with a slow pipeline. With D or s steps of lead, the other
pipelines are ahead by up to that number of steps. Over a long run, a bounded lead makes all pipelines as slow as the
slowest. The remaining difference between hetpipe and the others is the bubble of 1f1b's flush. A run ends when the
slowest pipeline has done its steps. With averages in groups, the others do them.

## Convergence

`tests/bench/group_convergence.py` trains 2 pipelines x 2 stages, with one pipeline twice as slow, the same number of
samples for each method, and three seeds. ResNet-18 trains on 1000 images of 48 pixels for 8 epochs. The final loss is
that of the mean model on training samples. *Same loss after* is the time at which the smoothed loss is that of the worst
method at its end. The figures are in `docs/figures/measured_convergence.json` (2026-11-22). They were measured on 2 cores
that had other work, so only the ratios of times are meaningful:

{convergence}

![loss over time](../pictures/groups/convergence.svg)

## Convergence over parameter servers

A later run of the same script trained ResNet-18 on 1280 images of 32 pixels for 6 epochs, and BERT-tiny as above.

- hetpipe pushes after every two mini-batches of a pipeline.
- The all-reduce is that of `pipedream`, after each mini-batch, in the same order of forwards and backwards.
- The servers of SSP make an update of each gradient. SSP is compared with the all-reduce of its own method, 1f1b in two
  micro-batches, at half of its rate. It ran with BERT-tiny only.

The figures are in `docs/figures/measured_served_convergence.json` (2026-11-24):

{served_convergence}

![loss over time, servers](../pictures/groups/served_convergence.svg)

With hetpipe, pipelines add their updates to shared weights. Each therefore has all-reduce's learning rate divided by
their number: 5e-4 for BERT-tiny. For ResNet-18, that rate doesn't work with momentum and gradients that lack up to (D +
1) N + N
- 2 updates. The loss rises while the rate is highest. With seed 0, all-reduce at 0.01 ends at 0.53, and hetpipe at:

| rate | D | final loss |
|---|---|---|
| 0.005 | 0 | 0.86 |
| 0.0035 | 1 | 0.79 |
| 0.0025 | 1 | 0.57 and 0.63 (twice) |
| 0.0018 | 1 | 0.54; the table above has this rate for both D |

Longer waves cost more than a longer lead. With seed 0, where all-reduce ends at 6.51, BERT-tiny ends at:

| mini-batches per wave | D | final loss |
|---|---|---|
| 1 | 0, 4 | 6.55 |
| 2 | 0, 1, 4 | 6.58 to 6.62 |
| 4 | 0, 1, 4 | 6.78 to 6.79 |

## Time of hetpipe

**These runs of hetpipe don't show less time.** Each pipeline does its own share of the samples. A bounded lead is used up
once, so that the slowest pipeline sets the pace as with an all-reduce. The only gain is that no pipeline waits at every
update. In the tables above, kernels wait instead of computing. There the same number of samples takes 0.92 (D = 0), 0.79
(D = 1) and 0.56 (D = 4) of all-reduce's time over so few waves. The ratio comes nearer to 1 with more waves.

**Few processors.** In these runs, four workers and a server shared two cores that had other work, more or less (hence
ratios from 0.9 to 1.6). Processor time is then decisive. It was 8.6 s by all-reduce and 13.8 s by hetpipe for 20
mini-batches of both pipelines of ResNet-18, because a wave sends 45 MB there and back. The log is written over old files,
and waves use memory again. With both, 4 epochs (80 mini-batches, start and end included) take 26 s by all-reduce, 35 s by
hetpipe with the log, and 34.5 s without.

**Enough processors.** With `--least 0.3`, a forward or backward of the fast pipeline lasts 0.3 s, and of the slow one 0.6
s. That is longer than its computation here, as if each worker had its own processor. The machine was quiet (November
2026). For ResNet-18 and seed 0, the same number of samples takes 153 s of training by all-reduce, 156 s with D = 1, and
155 s with D = 4. The slow pipeline's own forwards and backwards take 144 s. At the table's rates, D = 4 reaches
all-reduce's final loss, 0.513, after 0.81 of its time (on a line between the evaluations after each epoch), and D = 1
after 1.01.

**Tuned rates.** But 0.01 is not all-reduce's best rate. **If both are tuned alike, hetpipe is not ahead, nor within 5
%**:

- The best of four rates, 0.005, brings all-reduce to 0.452, 0.417 and 0.448 (three seeds).
- hetpipe with 0.0024 and a momentum of 0.8, the best of six pairs, ends at 0.499 and 0.469 (D = 1, two seeds) and 0.469
  and 0.470 (D = 4). These are 1.11 and 1.08 of all-reduce's loss.
- It takes 1.03 to 1.10 of the time for the same number of samples (`--least 0.2`, a loaded machine).

If a pipeline is always slow, `--preduce` brings more.

**Time of a wave**, by the trace of such a run (D = 1, seed 0, loaded). The slow pipeline's second stage has 43 of the 45
MB and sets the pace. Its forwards and backwards take 2.4 s on average. It lost 63 ms in its `PUSH`, 65 in its `PULL` and
85 in two `UPDATE`s. The `PULL` had been requested 1.2 s earlier, so it worked and didn't wait. The first stage's `PULL`
follows its `PUSH` at once. It waited 23 ms, and then for the second stage anyway. Requesting a pull one wave earlier
makes weights staler, and would have gained nothing here.

The work of a push and a pull on the worker could be reduced. Their bytes go through memory once, piece by piece, instead
of several times. At the end of a run, optimizer states go as float32 and in pieces. With these changes, 60 mini-batches
of both pipelines (start and end included) take 23.2 s of processor time instead of 26.8. They take 0.44 million page
faults instead of 0.69 million. All-reduce takes 18.5 s and 0.17 million.
"""


@dataclass(frozen=True)
class Page:
    """The page, its pictures by file name, and the figures that docs/partial-reduce.md states."""

    text: str
    pictures: dict[str, str]
    summary: dict[str, float]


def table_of(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured() -> tuple[list[list[str]], list[list[str]], float]:
    """Returns rows and marks from a run of tests/bench/group_throughput.py, and the largest difference between measured and
    simulated figures."""
    with (FIGURES / "measured_throughput.csv").open() as file:
        found = {(int(r["stages"]), int(r["pipelines"]), r["case"], r["method"]): r for r in csv.DictReader(file)}
    rows, marks = [], []
    for case in [*heterogeneity.CASES, PAUSES]:
        here = [found.get((case.stages, case.pipelines, case.words, method)) for method in METHODS]
        cells = [row for row in here if row]
        if not cells:
            continue
        rows.append([f"{case.stages} x {case.pipelines}", case.words, *(f"{float(row['measured']):.3f}" for row in cells),
                     f"{case.ideal():.3f}"])
        marks.append([f"{float(row['simulated']):.3f}" for row in cells])
    far = max(abs(float(row["measured"]) / float(row["simulated"]) - 1) for row in found.values())
    return rows, marks, far


def served_table() -> tuple[str, float]:
    """Returns the figures of a run of tests/bench/server_throughput.py, and their largest difference from the simulated
    ones."""
    with (FIGURES / "measured_served.csv").open() as file:
        found = list(csv.DictReader(file))
    ways = list(dict.fromkeys(row["way"] for row in found))
    rows = []
    for words in dict.fromkeys(row["case"] for row in found):
        here = {row["way"]: row for row in found if row["case"] == words}
        rows.append([words, *(f"{float(here[way]['measured']):.3f} / {float(here[way]['simulated']):.3f}" for way in ways)])
    far = max(abs(float(row["measured"]) / float(row["simulated"]) - 1) for row in found)
    return table_of(["4 x 4", *ways], rows), far


def convergence_table(models: dict[str, convergence.Runs]) -> str:
    rows = []
    for model, runs in models.items():
        for row in convergence.summary(runs):
            rows.append([model, row.method, ", ".join(f"{final:.3f}" for final in row.finals), f"{row.ratio:.3f}",
                         f"<= {convergence.BOUNDS[row.method]:g}", f"{row.seconds_ratio:.2f}"])
    head = ["model", "method", "final loss by seed", "mean, to all-reduce", "bound", "same loss after, to all-reduce"]
    return table_of(head, rows)


def page() -> Page:
    seen, marks, far = measured()
    models = convergence.read(FIGURES / "measured_convergence.json")
    served_models = convergence.read(FIGURES / "measured_served_convergence.json")
    served, served_far = served_table()
    rows = [row for runs in models.values() for row in convergence.summary(runs) if row.method != "all-reduce"]
    text = LAB.format(measured=table_of(HEAD, seen), far=far, served=served, served_far=served_far,
                      convergence=convergence_table(models), served_convergence=convergence_table(served_models))
    pictures = {
        "convergence.svg": curves.draw([convergence.panel(*found) for found in models.items()]),
        "served_convergence.svg": curves.draw([convergence.panel(*found) for found in served_models.items()]),
        "measured.svg": bars.chart(list(METHODS), seen, marks),
    }
    return Page(text, pictures, {
        "far": far, "served_far": served_far, "far_loss": max(row.ratio for row in rows) - 1,
        "least": min(row.seconds_ratio for row in rows), "most": max(row.seconds_ratio for row in rows)})
