#!/usr/bin/env python3
"""Writes docs/partial-reduce.md and its figures: the methods, the policy, and results of the simulator.

usage: docs/make_partial_reduce.py [--check]   with hetu in PATH; --check: exit 1 if the page or a figure is stale
                                               (a test calls this)"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import bars, convergence, curves, heterogeneity
from figures.heterogeneity import HEAD, METHODS, PAUSES, Case

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "pictures" / "groups"
TEXT = """# Pipelines that keep their speed when machines differ

Made by `docs/make_partial_reduce.py` from the code; a test keeps it fresh.

With several pipelines side by side an all-reduce of gradients makes every pipeline as slow as the slowest one. The methods
here average *weights* instead, after each update, between some of the pipelines at a time. They stand on `pipedream`'s
order, in which every stage updates after every backward.

{methods}

Between its update and its next one a stage goes on computing: the average is needed only when the next update is applied
(the default but for P = 1; `--no-overlap` waits for it).

## Who meets whom

4 stages x 4 pipelines, pipeline 1 twice as slow, P = 10: a second in the middle of a simulated run. A line joins the members
of a group; yellow is a wait, which costs nothing while the stage computes on.

![4 x 4, partial reduce](pictures/groups/preduce.svg)

The same with AD-PSGD: pipelines 0 and 2 are active, 1 and 3 passive; a pale dot is a passive pipeline's own update.

![4 x 4, AD-PSGD](pictures/groups/adpsgd.svg)

16 pipelines with 3 % jitter form pairs; stage 0 is drawn. Whoever waits is paired with the one that it was
joined to longest ago.

![4 x 16, pairs](pictures/groups/pairs.svg)

`hetu simulate … --group-log LOG` writes such a log, as the coordinator of a training does; `hetu timeline --groups LOG -o
FILE.svg` draws it, and without `-o` prints how large groups are, how long they waited and how often each two met.

## The policy

One state machine (`pipeline/groups`) decides in the coordinator, in the simulator and in the tests. For each stage it keeps
the *spanning tree of the newest common groups*: its oldest edge says how many updates ago some two parts of the pipelines
were last joined, the *age*. A request comes at the end of a backward. Then, at the stage:

1. If all are there, they are one group. With P = 1 nothing else closes.
2. While the age is below `soft`: a group of at least g members closes unless someone is predicted within 0.05 intervals of
   its oldest member's arrival; a smaller one waits for those predicted within b intervals, else it closes, alone if need be.
3. Beyond `soft` the tree is cut at its oldest edge: the smaller part waits for the next request of the other, at most one
   interval. As soon as both parts are there, they close together.
4. A group closes only if the edges that it leaves can still be renewed in time, each by a pair; else, and beyond `hard`,
   whoever joins no parts waits, without a deadline.
5. Before such a wait the stages are looked at together: who is held at one stage reaches others only up to a distance that
   PipeDream's order gives. If nobody that a stage waits for can ever come, it lets one request go.
6. Above 8 pipelines groups are pairs, without any barrier: the two that were joined longest ago.
7. The last request of a pipeline in a run holds up nothing behind it: it is kept as a partner for those that still run.

A prediction is the last request plus the smoothed interval between requests; one that is overdue by more than three mean
deviations, and by more than 2 ms or 0.05 intervals, whichever is less, counts as not coming.

| constant | default | meaning |
|---|---|---|
| `--sync-period` P | 10 | every window of P N + N updates of a stage (N pipelines) joins all pipelines |
| `--min-group` g | 2 N / P rounded up, at least 2 | smaller groups wait, while arrivals are near |
| `--max-group` | N; 2 above 8 pipelines | no group is larger, but for the last one of a run |
| `wait` b | 1.1 - P/10, from 0.1 to 0.9; if averaging blocks 0.35 - 0.03 P, from 0.1 to 0.3 | their wait, in intervals |
| `soft` | {soft} P N, at least N | see above |
| `hard` | {hard} (P N + N), at least N + 1 | see above |

Constants without an option of their own are set as `--group-options wait=0.5,soft=0.7`; `horizon`, `patience`, `smoothing`,
`late_us`, `late_share`, `late_spread` and `stale_share` are explained in `pipeline/groups/options.h`. Training takes the
same options with `--preduce` and `--adpsgd` ([asynchronous.md](asynchronous.md) says what is averaged when).

**What holds.** Every window of P N + N updates is joined, for all P: random runs in the tests (2 to 8 pipelines, 1 to 8
stages, P from 1 to 20, speeds up to 50 times apart, pauses, pair mode) and all orders of small ones, checked by an oracle
that shares no code with the policy. No order of events hangs. All stages of a pipeline stop at one count: the run ends where
the earliest stops of which all pipelines can still be told sum up to what was asked, so N pipelines that should apply M
updates each apply N M to N M + N - 1 together. A pipeline that dies leaves the tree; what it joined stays joined.

**Group sizes** of 1 stage x 8 pipelines with 3 % jitter, `--jitter 0.03`; SD-PIPE publishes medians of 8, 8 and 4 for
P = 1, 2 and 5:

{sizes}

## What a member counts for

`--preduce-weights uniform`, the default: every member of a group counts alike, so that an average leaves the mean over all
pipelines as it was. `--preduce-weights staleness`: a member that lags k updates behind the newest one counts `stale_share`^k
of it (0.9 unless told), and the shares are divided by their sum. A copy is as new as the newest weights that have come into
it: its count goes up by one with each of its updates, and a group lifts all of its members to the count of the newest. So a
slow pipeline that has just met a fast one is not stale. Members that lag alike have the bits of `uniform`, P = 1 always has;
the mean over all pipelines is *not* kept: it moves towards those who are ahead. The last average of a run counts all alike.
Source: the dynamic weights of partial reduce (Miao et al., SIGMOD 2021), which count iterations in that way; that they decay
by a constant power is ours. The group log says the shares as `weights`.

## When something dies

By default the death of a worker or of the coordinator ends the job within seconds, with a line that names it and a status
other than 0. `heturun --on-failure shrink` goes on without the pipeline of a dead worker instead:

```
heturun -w 8 --on-failure shrink python3 python/train_bert.py --devices pipe_4_2 --preduce --checkpoint DIR …
```

Then each pipeline is an `mpirun` of its own, and averages go from copy to copy over ZeroMQ, encrypted with the job's keys:
no worker holds an MPI connection outside its pipeline. A death is known at once where `heturun` sees the process end, after
8 s of silence else; a pipeline that is only silent is ended then.

- An average that the dead pipeline is in is given up; its other members keep the weights that they have.
- In the run under way (until the next drain: an epoch's end, a save) the others do the updates that it can no longer do.
- What all pipelines do together at a drain (the consensus average, the checkpoint) is done by those that live, and again if
  one dies in it. The lowest living pipeline logs and saves.
- Its rows go to the others from the first epoch on that none of them has begun at the next drain; the rest of its slice of
  the epochs before that is not read.
- Validation is done by each pipeline alone, over all of the data: it takes as many times longer as there are pipelines.
- The checkpoint's `run.lost` names each dead pipeline with the `reason`, its `updates`, and the last one that is known to
  have reached another pipeline at every stage (`averaged`): what lies between is lost, nothing else.
- The job exits 0 once a living pipeline has finished; its last lines name the dead ones again, each with its worker, host
  and signal. A death of the last pipeline or of the coordinator ends it.
- `--resume` goes on with all pipelines again, or with fewer of the same `--batch-size`.

## Throughput

Forward 30 ms, backward 60 ms, averaging 5 ms; in parts of equal pipelines that never wait. The steady part of a simulated
run, `docs/figures/heterogeneity.py`; *ideal* is what pipelines reach that do not average at all. The all-reduce blocks, so
that even equal pipelines lose its 5 ms.

{table}

![throughput](pictures/groups/throughput.svg)

With pauses partial reduce reaches {pauses_blocking:.2f} of a blocking all-reduce and {pauses_overlapped:.2f} of one that is
overlapped (`--sync-method allreduce --overlap`). 512 workers are simulated in a second:

```
hetu simulate pipedream --stages 4 --pipelines 128 --micro-batches 8 --steps 25 --forward 30 --backward 60 \\
  --allreduce 5 --sync-method preduce --slow pipeline=1,factor=2 --format json
```

**Measured.** `tests/bench/group_throughput.py` runs the cases that fit one machine with a process per worker, the
coordinator and averages of 4 KiB over MPI (`hetu rehearse`), for steady windows of 20 s, each beside what the simulator says
of the same run. It gives the median of three runs of each. The figures here are older and were chosen: the first of three
runs within 5 % of the simulated figure and its bound, else the nearest to the simulated, so that how near they are proves
little; until they are measured anew they show the sizes. 16 processes on 2 cores that had other work, kept in
`docs/figures/measured_throughput.csv`; at most {far:.1%} from the simulated ones, which are the yellow marks:

{measured}

![measured throughput](pictures/groups/measured.svg)

**Over parameter servers**, by the same clock ([parameter-server.md](parameter-server.md)): hetpipe by waves of 8, which
lets a pipeline lead by D of them, and 1f1b with 8 micro-batches per step whose gradients the servers apply (BSP, SSP,
ASP); 5 ms to the servers and back. `tests/bench/server_throughput.py`: 16 processes and 4 servers on 2 cores that had
other work, medians of 3 runs of about 10 s, kept in `docs/figures/measured_served.csv`. In parts of equal pipelines that
never wait, measured / simulated; at most {served_far:.1%} apart:

{served}

Runs are short, 14 steps where all are equal, 7 and 4 with a slow pipeline: with D or s steps of lead the others have
gone ahead by so much of them. Over a long run a bounded lead makes all as slow as the slowest, and what is left of the
difference between hetpipe and the others is the bubble of 1f1b's flush. A run ends when the slowest has done its steps;
averages in groups let the others do them.

## Convergence

`tests/bench/group_convergence.py`: 2 pipelines x 2 stages, one pipeline twice as slow, as many samples for each method,
three seeds; here ResNet-18 on 1000 images of 48 pixels for 8 epochs. The final loss is that of the mean model on training
samples; *same loss after* is when the smoothed loss is that of the worst method at its end. Kept in
`docs/figures/measured_convergence.json`, measured on 2 cores that had other work, so that only the ratios of times say
something:

{convergence}

![loss over time](pictures/groups/convergence.svg)

**Over parameter servers**, by the same script, later: ResNet-18 on 1280 images of 32 pixels for 6 epochs, BERT-tiny as
above. hetpipe pushes after every two mini-batches of a pipeline; the all-reduce is that of `pipedream`, after each, in
the same order of forwards and backwards. SSP, whose servers make an update of each gradient, stands beside the
all-reduce of its own method, 1f1b in two micro-batches, with half of its rate; it was run with BERT-tiny alone. Kept in
`docs/figures/measured_served_convergence.json`:

{served_convergence}

![loss over time, servers](pictures/groups/served_convergence.svg)

By hetpipe pipelines add their updates to shared weights, so that each has all-reduce's learning rate divided by their
number: BERT-tiny 5e-4. Momentum and gradients that lack up to (D + 1) N + N - 2 updates do not go with that in ResNet-18:
the loss rises while the rate is highest, and ends at 0.86 (0.005, D = 0), 0.79 (0.0035, D = 1), 0.57 and 0.63 (0.0025, D
= 1, twice), 0.54 (0.0018, D = 1, which the table has for both D), where all-reduce's is 0.53 by 0.01; all of seed 0.
Longer waves cost more than a longer lead: BERT-tiny ends at 6.55 by waves of one mini-batch (D = 0, 4), 6.58 to 6.62 of
two and 6.78 to 6.79 of four (D = 0, 1, 4; seed 0, where all-reduce ends at 6.51).

**Less time is not what these runs of hetpipe show.** Each pipeline does its own share of the samples, and a lead that is
bounded is used up once, so that the slowest sets the pace as with an all-reduce. What is left is that nobody waits at
every update: by the clock of the tables above, where kernels wait instead of computing, as many samples take 0.92 (D =
0), 0.79 (D = 1) and 0.56 (D = 4) of all-reduce's time over so few waves, and nearer to 1 the more there are. Here
processors were short: four workers and a server on two cores that others filled, more or less (hence ratios from 0.9 to
1.6). Then processor time decides, and 20 mini-batches of both pipelines of ResNet-18 took 8.6 s of it by all-reduce, 13.8
s by hetpipe: a wave sends 45 MB there and back. Since the log is written over old files and waves use memory again, 4
epochs (80 mini-batches, start and end included) take 26 s by all-reduce, 35 s by hetpipe with the log and 34.5 s without.

With `--least 0.3` a forward or backward of the fast pipeline lasts 0.3 s, of the slow one 0.6 s, longer than it takes to
compute here, as where each worker has a processor of its own; the machine was quiet (November 2026). ResNet-18, seed 0,
seconds of training for as many samples: all-reduce 153, D = 1 156, D = 4 155; the slow pipeline's own forwards and
backwards are 144. By the table's rates D = 4 has all-reduce's final loss, 0.513, after 0.81 of its time (on a line between
the evaluations after each epoch), D = 1 after 1.01. But 0.01 is not all-reduce's best rate. **Where both are tuned alike,
hetpipe is not ahead, nor within 5 %**: the best of four rates, 0.005, brings all-reduce to 0.452, 0.417 and 0.448 (three
seeds); hetpipe with 0.0024 and a momentum of 0.8, the best of six pairs, ends at 0.499 and 0.469 (D = 1, two seeds) and
0.469 and 0.470 (D = 4), 1.11 and 1.08 of it, and takes 1.03 to 1.10 of the time for as many samples (`--least 0.2`, a loaded
machine). Who has a pipeline that is always slow has more of `--preduce`.

Where a wave's time goes, by the trace of such a run (D = 1, seed 0, loaded): of 2.4 s of forwards and backwards, on
average, the slow pipeline's second stage, which has 43 of the 45 MB and sets the pace, lost 63 ms in its `PUSH`, 65
in its `PULL` and 85 in two `UPDATE`s. That `PULL` had been asked for 1.2 s earlier: it worked, it did not wait. The
first stage, whose `PUSH` is followed by its `PULL` at once, waited 23 ms, and then for the second anyway. So a pull
that is asked for one wave earlier, which makes weights staler, had nothing to gain here; what a push and a pull do on
the worker had. They went through memory several times and now go once, piece by piece, and at the end of a run
optimizer states go as float32 and in pieces: 60 mini-batches of both pipelines (start and end included) take 23.2 s
of processor time instead of 26.8, and 0.44 million page faults instead of 0.69 million, where all-reduce takes 18.5 s
and 0.17 million.

When nothing is slow, partial reduce costs nothing: BERT-tiny in 2 pipelines x 2 stages has at least 0.95 of the throughput
by an all-reduce (`tests/bench/preduce_overhead.py`, which `./run bench` runs); 1.146 of it were measured on 2026-11-22.
"""
ABOUT = [
    ["`allreduce`", "gradients of all pipelines, at every update", "everyone for the slowest"],
    [
        "`preduce`",
        "the stage's weights in a group of whoever is there; any two pipelines are joined, through others too, within P "
        "updates of each (`--sync-period P`); P = 1 is all of them, always",
        "a pipeline for those about to come; all for one that would else fall behind by more than P",
    ],
    [
        "`adpsgd`",
        "an active pipeline and a passive one that it draws, at once (Lian et al. 2018): even ones are active, odd ones "
        "passive, so that no two wait for each other",
        "nobody",
    ],
    [
        "`adpsgd-lockstep`",
        "pairs drawn anew for each update, the same in all stages: the pairs of SD-PIPE's artifact",
        "each for its partner",
    ],
]


def measured() -> tuple[list[list[str]], list[list[str]], float]:
    """Returns rows and marks from a run of tests/bench/group_throughput.py, and the largest difference between measured and
    simulated figures."""
    with (DOCS / "figures" / "measured_throughput.csv").open() as file:
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
    with (DOCS / "figures" / "measured_served.csv").open() as file:
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


def hetu(*arguments: str) -> str:
    return subprocess.run(["hetu", *arguments], capture_output=True, text=True, check=True).stdout


def drawn(case: Case, method: str, window: tuple[int, int], stages: str = "") -> str:
    """Returns the groups of a simulated run as SVG, of all stages or of one."""
    with tempfile.TemporaryDirectory() as folder:
        log, picture = Path(folder) / "log", Path(folder) / "log.svg"
        hetu(*case.arguments(), "--sync-method", method, "--group-log", str(log), "--format", "json")
        if stages:
            lines = [line for line in log.read_text().splitlines() if f'"stage":{stages},' in line]
            log.write_text("\n".join(lines) + "\n")
        hetu("timeline", "--groups", str(log), "--from", f"{window[0]}", "--to", f"{window[1]}", "-o", str(picture))
        return picture.read_text()


def table_of(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def sizes_table() -> str:
    rows = []
    for period in (1, 2, 5, 10):
        words = ("simulate", "pipedream", "--stages", "1", "--micro-batches", "8", "--steps", "100", "--forward", "30",
                 "--backward", "60", "--allreduce", "5", "--pipelines", "8", "--jitter", "0.03", "--sync-method", "preduce",
                 "--sync-period", f"{period}", "--overlap")
        groups = heterogeneity.figures(words)["groups"]
        assert isinstance(groups, dict)
        sizes = [int(size) for size, count in groups["sizes"].items() for _ in range(count)]
        quarter = len(sizes) // 4
        rows.append([f"{period}", f"{groups['median_size']}", f"{sizes[quarter]} to {sizes[3 * quarter]}",
                     f"{sizes[0]} to {sizes[-1]}", f"{groups['mean_size']:.2f}"])
    return table_of(["P", "median", "quartiles", "range", "mean"], rows)


def default_of(constant: str) -> str:
    """Returns the default of a constant in the policy's options."""
    text = (DOCS.parent / "pipeline" / "groups" / "options.h").read_text()
    found = re.search(rf"double {constant} = ([\d.]+);", text)
    if found is None:
        raise ValueError(f"pipeline/groups/options.h has no default of '{constant}'; this page names it")
    return found[1]


def made() -> dict[Path, str]:
    """Returns every file of the page."""
    slow = Case(4, 4, "one pipeline 2x slower", slower=2, updates=200)
    pairs = Case(4, 16, "one pipeline 2x slower", slower=2, updates=200, more=("--jitter", "0.03"))
    rows = heterogeneity.table()
    seen, marks, far = measured()
    models = convergence.read(DOCS / "figures" / "measured_convergence.json")
    served_models = convergence.read(DOCS / "figures" / "measured_served_convergence.json")
    served, served_far = served_table()
    overlapped = heterogeneity.throughput(PAUSES, "--sync-method", "allreduce", "--overlap")
    text = TEXT.format(
        methods=table_of(["`--sync-method`", "who is averaged together", "who waits"], ABOUT),
        sizes=sizes_table(), table=table_of(HEAD, rows), measured=table_of(HEAD, seen), far=far,
        served=served, served_far=served_far,
        convergence=convergence_table(models), served_convergence=convergence_table(served_models),
        soft=default_of("soft"), hard=default_of("hard"),
        pauses_blocking=heterogeneity.to_all_reduce(PAUSES, "partial reduce")
        / heterogeneity.to_all_reduce(PAUSES, "all-reduce"),
        pauses_overlapped=heterogeneity.throughput(PAUSES, "--sync-method", "preduce") / overlapped)
    return {
        PICTURES / "preduce.svg": drawn(slow, "preduce", (9000, 10000)),
        PICTURES / "adpsgd.svg": drawn(slow, "adpsgd", (9000, 10000)),
        PICTURES / "pairs.svg": drawn(pairs, "preduce", (9000, 10000), stages="0"),
        PICTURES / "throughput.svg": bars.chart(list(METHODS), rows),
        PICTURES / "convergence.svg": curves.draw([convergence.panel(*found) for found in models.items()]),
        PICTURES / "served_convergence.svg": curves.draw([convergence.panel(*found) for found in served_models.items()]),
        PICTURES / "measured.svg": bars.chart(list(METHODS), seen, marks),
        DOCS / "partial-reduce.md": text,
    }


def main() -> int:
    files = made()
    if sys.argv[1:] != ["--check"]:
        for path, text in files.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return 0
    stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
    stale += [p.name for p in PICTURES.glob("*") if p not in files]
    if stale:
        print(f"stale: {', '.join(stale)}; make them again: python3 docs/make_partial_reduce.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
