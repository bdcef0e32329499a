#!/usr/bin/env python3
"""Writes docs/partial-reduce.md and its figures: the methods, the policy, and results of the simulator. Writes the measured
figures to docs/lab/partial-reduce.md.

usage: docs/make_partial_reduce.py [--check]   with hetu in PATH; --check: exit 1 if the page or a figure is stale
                                               (a test calls this)"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import bars, heterogeneity, measured_groups
from figures.heterogeneity import HEAD, METHODS, PAUSES, Case
from figures.measured_groups import table_of

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "pictures" / "groups"
TEXT = """# Partial reduce and AD-PSGD

With several pipelines, an all-reduce of gradients makes every pipeline as slow as the slowest one. This page is for people
whose machines differ in speed. It describes methods that average *weights* instead: after each update, some of the
pipelines average at a time. All of them use the order of `pipedream`, in which every stage updates after every backward.

`docs/make_partial_reduce.py` writes this page from the code, and a test checks that it is up to date. To try a method,
simulate it: `hetu simulate pipedream --stages 4 --pipelines 4 --micro-batches 8 --steps 25 --sync-method preduce --slow
pipeline=1,factor=2`.

{methods}

- With `preduce`, two pipelines are also connected through other pipelines. P is `--sync-period`.
- With `adpsgd`, even pipelines are active and odd ones are passive. No two pipelines therefore wait for each other.

A stage continues to compute between two updates. It needs the average only when it applies the next update. This is the
default, except with P = 1. `--no-overlap` waits for the average.

## Groups in a run

The first figure has 4 stages x 4 pipelines, with pipeline 1 twice as slow and P = 10. It shows a second in the middle of a
simulated run. A line joins the members of a group. Yellow is a wait, which costs nothing while the stage continues to
compute.

![4 x 4, partial reduce](pictures/groups/preduce.svg)

The second figure has the same run with AD-PSGD. Pipelines 0 and 2 are active, 1 and 3 are passive. A pale dot is a passive
pipeline's own update.

![4 x 4, AD-PSGD](pictures/groups/adpsgd.svg)

In the third figure, 16 pipelines with 3 % jitter form pairs, and only stage 0 is drawn. A waiting pipeline is paired with
the one that it was joined to longest ago.

![4 x 16, pairs](pictures/groups/pairs.svg)

`hetu simulate … --group-log LOG` writes such a log, as the coordinator of a training does.
`hetu timeline --groups LOG -o FILE.svg` draws it. Without `-o` it prints the sizes of groups, their waits, and how often
each two pipelines met.

## The policy

One state machine (`pipeline/groups`) decides in the coordinator, in the simulator and in the tests. For each stage it
keeps the *spanning tree of the newest common groups*. The oldest edge of the tree gives the *age*: how many updates ago
some two parts of the pipelines were last joined. A request comes at the end of a backward. Then the policy applies these
rules to the stage:

1. If all pipelines are there, they form one group. With P = 1 no other group closes.
2. While the age is below `soft`, a group of at least g members closes, unless an arrival is predicted within 0.05
   intervals of its oldest member's arrival. A smaller group waits for arrivals predicted within b intervals. If there are
   none, it closes, even with one member.
3. Beyond `soft`, the tree is cut at its oldest edge. The smaller part waits for the next request of the other part, for at
   most one interval. When both parts are there, they close together.
4. A group closes only if its remaining edges can still be renewed in time, each by a pair. Otherwise, and beyond `hard`, a
   request that joins no parts waits without a deadline.
5. Before such a wait, the policy looks at all stages together. A pipeline that is held at one stage reaches others only up
   to a distance that PipeDream's order gives. If no pipeline that a stage waits for can ever come, the stage lets one
   request go.
6. Above 8 pipelines, groups are pairs, without any barrier. A pair is the two that were joined longest ago.
7. The last request of a pipeline in a run holds up nothing behind it. It is kept as a partner for the pipelines that still
   run.

A prediction is the last request plus the smoothed interval between requests. A request counts as not coming when it is
overdue by more than three mean deviations, and also by more than 2 ms or 0.05 intervals, whichever is less.

| constant | default | meaning |
|---|---|---|
| `--sync-period` P | 10 | every window of P N + N updates of a stage (N pipelines) joins all pipelines |
| `--min-group` g | 2 N / P rounded up, at least 2 | smaller groups wait while arrivals are near |
| `--max-group` | N; 2 above 8 pipelines | the largest group, except for the last one of a run |
| `wait` b | 1.1 - P/10, from 0.1 to 0.9; if averaging blocks, 0.35 - 0.03 P, from 0.1 to 0.3 | their wait, in intervals |
| `soft` | {soft} P N, at least N | see the rules |
| `hard` | {hard} (P N + N), at least N + 1 | see the rules |

You set constants without an option of their own as `--group-options wait=0.5,soft=0.7`. `pipeline/groups/options.h`
explains `horizon`, `patience`, `smoothing`, `late_us`, `late_share`, `late_spread` and `stale_share`. Training takes the
same options with `--preduce` and `--adpsgd` ([asynchronous.md](asynchronous.md) says what is averaged when).

### Guarantees

- Every window of P N + N updates is joined, for all P. Tests check it with an oracle that shares no code with the policy,
  in all orders of small runs and in random runs. The random runs have 2 to 8 pipelines, 1 to 8 stages, P from 1 to 20,
  speeds up to 50 times apart, pauses, and pair mode.
- No order of events hangs.
- All stages of a pipeline stop at the same count. The run ends at the earliest stops that all pipelines can still be told
  and that sum up to the requested number. N pipelines that should apply M updates each therefore apply N M to N M + N - 1
  together.
- A pipeline that dies leaves the tree. Other pipelines that it joined stay joined.

### Group sizes

These are the sizes for 1 stage x 8 pipelines with 3 % jitter, `--jitter 0.03`. SD-PIPE publishes medians of 8, 8 and 4 for
P = 1, 2 and 5:

{sizes}

## Weight of a member

With `--preduce-weights uniform`, the default, every member of a group counts the same. An average then leaves the mean
over all pipelines unchanged.

With `--preduce-weights staleness`, a member that lags k updates behind the newest one counts `stale_share`^k of it
(default 0.9). The shares are divided by their sum.

- A copy is as new as the newest weights that it contains. Its count rises by one with each of its updates, and a group
  raises all of its members to the count of the newest. A slow pipeline that has just met a fast one is therefore not
  stale.
- Members that lag equally have the bits of `uniform`, and P = 1 always has them.
- The mean over all pipelines is *not* kept. It moves towards the pipelines that are ahead.
- In the last average of a run all members count the same.
- The group log has the shares as `weights`.

The source is the dynamic weights of partial reduce (Miao et al., SIGMOD 2021), which count iterations in the same way. The
decay by a constant power is Hetu's own.

## Failures

By default, the death of a worker or of the coordinator ends the job within seconds. A line names it, and the status is not
0. With `heturun --on-failure shrink`, the job continues without the pipeline of a dead worker:

```bash
heturun -w 8 --on-failure shrink python3 python/train_bert.py --devices pipe_4_2 --preduce --checkpoint DIR …
```

Each pipeline is then an `mpirun` of its own. Averages go from copy to copy over ZeroMQ, encrypted with the job's keys, and
no worker has an MPI connection outside its pipeline. If `heturun` sees the process end, the death is known at once,
otherwise after 8 s of silence. A pipeline that is only silent is ended then.

- An average that includes the dead pipeline is abandoned. Its other members keep the weights that they have.
- In the current run (until the next drain: an epoch's end, a save) the other pipelines do the updates that the dead one
  can't do.
- The living pipelines do the common work at a drain (the consensus average, the checkpoint), and repeat it if one dies
  meanwhile. The lowest living pipeline logs and saves.
- The dead pipeline's rows go to the others from the first epoch that none of them has begun at the next drain. The
  remainder of its slice of the epochs before is not read.
- Each pipeline validates alone, over all of the data. Validation takes as many times longer as there are pipelines.
- The checkpoint's `run.lost` names each dead pipeline with the `reason`, its `updates`, and `averaged`: the last update
  that is known to have reached another pipeline at every stage. Only the updates between these two are lost.
- The job exits 0 when a living pipeline has finished. Its last lines name the dead pipelines again, each with its worker,
  host and signal.
- The death of the last pipeline or of the coordinator ends the job.
- `--resume` continues with all pipelines again, or with fewer of the same `--batch-size`.

## Throughput

### Simulated

A forward takes 30 ms, a backward 60 ms, and averaging 5 ms. The figures are fractions of the throughput of equal pipelines
that never wait, in the steady part of a simulated run (`docs/figures/heterogeneity.py`). *Ideal* is the throughput of
pipelines that don't average at all. The all-reduce blocks, so even equal pipelines lose its 5 ms.

{table}

![throughput](pictures/groups/throughput.svg)

With pauses, partial reduce reaches {pauses_blocking:.2f} of a blocking all-reduce, and {pauses_overlapped:.2f} of an
overlapped one (`--sync-method allreduce --overlap`). The simulation of 512 workers takes a second:

```bash
hetu simulate pipedream --stages 4 --pipelines 128 --micro-batches 8 --steps 25 --forward 30 --backward 60 \\
  --allreduce 5 --sync-method preduce --slow pipeline=1,factor=2 --format json
```

### Measured

Runs of 16 processes on 2 cores, whose kernels wait, are within {far:.1%} of the simulated throughput. These runs were
selected, so they only show the sizes. Over parameter servers, medians of three runs are within {served_far:.1%}
([lab/partial-reduce.md](lab/partial-reduce.md#throughput)).

## Convergence

`tests/bench/group_convergence.py` trains 2 pipelines x 2 stages, with one pipeline twice as slow, the same number of
samples for each method, and three seeds. [lab/partial-reduce.md](lab/partial-reduce.md#convergence) has the losses and
times.

- **Partial reduce and AD-PSGD** end within {far_loss:.1%} of all-reduce's loss or below it, and reach the same loss in
  {least:.2f} to {most:.2f} of its time.
- **HetPipe.** Pipelines add their updates to shared weights. Each therefore has all-reduce's learning rate divided by
  their number. ResNet-18 needs a lower rate still, because momentum and old gradients amplify each other. Longer waves
  cost more than a longer lead.
- **Time of HetPipe.** If a pipeline is always slow, a bounded lead is used up once, and the slowest pipeline sets the
  pace as with an all-reduce. With tuned rates, HetPipe was 8 to 11 % behind all-reduce's loss. `--preduce` brings more.

### Cost without a slow pipeline

If nothing is slow, partial reduce costs nothing. BERT-tiny in 2 pipelines x 2 stages has at least 0.95 of the throughput
of an all-reduce (`tests/bench/preduce_overhead.py`, which `./run bench` runs). A measurement gave 1.146 (2026-11-22).
"""
ABOUT = [
    ["`allreduce`", "gradients of all pipelines, at every update", "every pipeline, for the slowest"],
    [
        "`preduce`",
        "the stage's weights, in a group of the pipelines that are ready; any two pipelines are connected within P "
        "updates of each; with P = 1 all of them, always",
        "a pipeline, for arrivals that are near; all pipelines, for one that would otherwise fall behind by more than P",
    ],
    ["`adpsgd`", "an active pipeline and a passive one that it draws, at once (Lian et al. 2018)", "no pipeline"],
    [
        "`adpsgd-lockstep`",
        "pairs drawn again for each update, the same in all stages: the pairs of SD-PIPE's artifact",
        "each pipeline, for its partner",
    ],
]


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
    lab = measured_groups.page()
    overlapped = heterogeneity.throughput(PAUSES, "--sync-method", "allreduce", "--overlap")
    text = TEXT.format(
        methods=table_of(["`--sync-method`", "what is averaged together", "what waits"], ABOUT),
        sizes=sizes_table(), table=table_of(HEAD, rows), **lab.summary,
        soft=default_of("soft"), hard=default_of("hard"),
        pauses_blocking=heterogeneity.to_all_reduce(PAUSES, "partial reduce")
        / heterogeneity.to_all_reduce(PAUSES, "all-reduce"),
        pauses_overlapped=heterogeneity.throughput(PAUSES, "--sync-method", "preduce") / overlapped)
    return {
        PICTURES / "preduce.svg": drawn(slow, "preduce", (9000, 10000)),
        PICTURES / "adpsgd.svg": drawn(slow, "adpsgd", (9000, 10000)),
        PICTURES / "pairs.svg": drawn(pairs, "preduce", (9000, 10000), stages="0"),
        PICTURES / "throughput.svg": bars.chart(list(METHODS), rows),
        **{PICTURES / name: picture for name, picture in lab.pictures.items()},
        DOCS / "lab" / "partial-reduce.md": lab.text,
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
