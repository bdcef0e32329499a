#!/usr/bin/env python3
"""Writes docs/equality.md: the results of every synchronous method compared with one process, for several sizes.

usage: docs/make_equality.py [--check [--whole]]     --check: exit 1 if the page is stale or wrong, by a random sample of its
                                                   cells, or by all (a test calls this)"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import equality

import hetu as ht
from hetu import schedule

PAGE = Path(__file__).resolve().parent / "equality.md"
ASYNCHRONOUS = ("pipedream", "pipedream-2bw", "hetpipe")
ELSEWHERE = ("dp",)  # one stage: pipelines only
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "chimera": [{}, {"concat": "doubling"}, {"concat": "halving"}, {"pairs": 2}],
    "interleaved-1f1b": [{}, {"chunks": 4}], "hanayo": [{}, {"chunks": 4}], "auto": [{}, {"chunks": 2}],
}
OWN_RECOMPUTE = ("varuna",)
WORKERS, PIPELINES, MOST_STAGES = (2, 4, 8), (1, 2), 18
BOUND, LEAST = 1e-6, 1e-30
OPTIMIZERS = {
    "sgd": ht.optim.SGD(0.1, clip_norm=1.0),
    "adamw": ht.optim.AdamW(ht.lr.warmup(1e-3, 2), weight_decay=0.01, clip_norm=1.0),
}
HEAD = """# Equal to one process

With `--sums tree`, a synchronous training gives the same bits under every layout: with any number of pipelines and stages,
and with any synchronous method, a job computes exactly what one process computes. This page says what that covers, what it
costs, and how to check it. Without the option, one pipeline equals one process if it has one copy of each stage and runs
backwards in ascending order of micro-batch. With `hetu.torch`, no parameter may be on two stages, such as a tied head. All
other layouts differ from one process by about 5e-8. The table at the end is measured on graph models.

Check it yourself. Worker 0 repeats every step in one process, and the job ends with an error at the first bit that differs:

```bash
hetu data sample sample
heturun -w 4 python3 train_bert.py --data sample --model tiny --pipeline chimera --devices pipe_2_2 --steps 5 \\
    --batch-size 8 --micro-batches 4 --sums tree --compare-single
```

## The statement

Two jobs with `--sums tree` have equal weights, optimizer states, running statistics, K-FAC factors, losses and gradient
norms after every step, bit by bit, if they have in common:

- the model, the data, the seed, the optimizer and the dtype,
- the samples per micro-batch, and the number of micro-batches of all pipelines together (pipelines x `--micro-batches`, or
  the sum of [`--shares`](training.md#pipelines-of-unequal-shares)),
- the processor's instructions and the version of oneDNN.

They may differ in pipelines and their shares, stages, cut, method, recompute, threads, device (`cpu` or `far`), the order in
which messages arrive, and the number of pipelines and stages before and after a checkpoint.

## How

- **Gradients.** The micro-batches of a step, in the order of their samples over all pipelines, are the leaves of a binary
  tree. A gradient's sum adds the nodes of that tree, whoever computes them. For example, with six micro-batches it is
  `((0 + 1) + (2 + 3)) + (4 + 5)`. A copy of a stage adds what it can within its own micro-batches, and the copies add their
  partial sums in the order of the tree. A plan is refused unless every micro-batch is in each sum once.
- **Tied weights.** The sum of each use is made first. The uses are then added in model order.
- **Losses, counts and norms.** Every worker receives the values of all micro-batches, and adds them in their order.
- **Running statistics.** All micro-batches of a step begin with the same statistics. At the end of the step, these become
  the mean of what the micro-batches made of them. They therefore move once per step, not once per micro-batch.
- **Dropout and data.** A sample's number in the global batch decides its row of the data and its random numbers.
- **Parameter servers** (`--sync-method ps`, and tables on servers). Servers get one sum from each pipeline, and add them in
  pairs: `((0 + 1) + (2 + 3)) + 4`. A pipeline therefore needs 1, 2, 4, 8, … micro-batches. Clipping, running statistics,
  parameters with several uses, `--staleness` and `--push-bound` are refused. The log's gradient norm isn't covered, because
  no process knows the whole gradient.
- **Kernels.** No kernel's bits depend on the number of threads.

A loop in plain PyTorch has the bits of `hetu.torch` if it multiplies the loss of each micro-batch by its share of the batch,
as `hetu.torch` does: `loss * (1 / M)` for M equal micro-batches. With `loss / M`, last bits differ unless M is a power of
two.

`hetu.torch.Pipeline(sums="tree")` does the same for gradients of PyTorch modules, also with `shard_optimizer`. (Tested on
the CPU and on the pretend accelerator, not yet on a GPU.) Three conditions are its own: each pipeline's batch is divided
evenly, running statistics are those of one pipeline (so compare models without batch norm), and the uses of a tied parameter
are on one stage in both layouts or on two in both, because autograd adds uses on one stage before anyone can see them.

## Costs

- **Time**: no more, on CPUs. Relative to `--sums running`, a step of BERT-base with 8 micro-batches of 8 x 128 takes 0.96 of
  the processor time in one pipeline (0.91 to 1.11 in four rounds; 1.02 of the wall time in an earlier run of three) and 0.93
  in two pipelines (0.91 to 1.00), and a step of ResNet-50 with 8 micro-batches of 4 images 0.97 (0.95 to 0.99). Two busy
  cores, 2026-11-29, `tests/bench/sum_order.py`.
- **Memory**: a worker keeps up to log2(M) partial sums of its stages' gradients at once, where M is its number of
  micro-batches: 2 for 4, 3 for 8. `--sums running` keeps one. For BERT-base in one process with 8 micro-batches, the
  gradients grow from 598 to 1525 MiB and the worker's peak from 2704 to 3720 MiB; in two pipelines the peak grows to 3211
  MiB. This is why the option is off by default.
- **Messages**: none more if each copy of a stage computes 2, 4, 8, … consecutive micro-batches. Otherwise a copy sends one
  partial sum for each part of its micro-batches that is a node of the tree: 3 micro-batches are two such parts, and chimera
  on 4 workers with 8 micro-batches gives each copy two parts. `hetu verify` prints the number of terms of a sum.
- **Micro-batches of one size**: to vary the samples per micro-batch without changing bits, choose the smallest number for
  all layouts. For 16 samples of BERT-base, micro-batches of 4 and 2 take 1.02 and 0.96 of the processor time of those of 8
  (two busy cores, 2026-11-30, `tests/bench/sum_order.py --smaller`).
- **Embedding tables**: their gradients are handled as whole tensors, not by the rows looked up.

Not available, with an error that says so: asynchronous methods, averaged weights, `--wire bf16`, `--concat halving`,
`lazy_rows`, and K-FAC's `replan`. K-FAC with `fill="best"` or `"wrap"` refreshes its inverses where the
plan has bubbles, so that the step of a refresh depends on the layout; `fill="after"` doesn't.

## Accuracy

Adding in a tree has a smaller bound of the rounding error than adding one by one: log2(M) roundings of each term instead of
M - 1 (N. Higham, *The accuracy of floating point summation*, SIAM J. Sci. Comput. 14(4), 1993). For random numbers of normal
distribution, the root mean square error relative to float64 is (`tests/bench/sum_order.py --accuracy`):

| micro-batches | 4 | 8 | 16 | 64 | 256 |
|---|---|---|---|---|---|
| running | 4.1e-08 | 5.6e-08 | 7.7e-08 | 1.5e-07 | 2.9e-07 |
| tree | 3.9e-08 | 4.7e-08 | 5.5e-08 | 6.7e-08 | 7.7e-08 |

## Related work

ReproBLAS (W. Ahrens, J. Demmel, H. D. Nguyen, *Algorithms for efficient reproducible floating point summation*, ACM TOMS
46(3), 2020) makes any order of additions give the same bits, at twice the bytes per element and an additional pass per
micro-batch. A fixed tree needs neither, because a plan says in advance who computes which micro-batch.

## With `--sums running`, the default

The table shows the distance of every synchronous method from one process. `docs/make_equality.py` writes it by training
every case, and a test checks that it is up to date. The same test trains the cases with `--sums tree`, and demands equal
bits of all but `chimera halving`, which is refused. The model is BERT `deep` (16 layers of 64, tied, dropout 0.1). A run has
{steps} steps of max(8, 2 P) micro-batches of {samples} samples per pipeline, with clipping. P is the number of workers per
pipeline, which are threads. The reference is one process with one stage and the same micro-batches. Each cell covers four
runs: SGD and AdamW, each without and with recompute (varuna has its own).

*bitwise*: all weights and losses have the bits of one process. A figure means that the gradients of a parameter are added in
another order: by replicas, pipelines, or backwards that do not run in ascending order of micro-batch. The figure is the
larger of two values: the distance of an SGD-trained weight tensor, divided by its norm (by 1 if the norm is less), and the
relative distance of a loss with either optimizer. No figure is above {bound:g}.

`ops_test` checks every operator with 1, 2, 3, 4 and 7 threads, `threads_test` trains ResNet-18 and BERT with several, and
`layouts_test` draws trainings with `--sums tree`: model, optimizer, dtype, device, threads, method, pipelines and stages. In
every run, the peak number of activations that each worker keeps, and their bytes, are exactly those of its plan.

With `--sums running`, batch norm's running statistics move with each micro-batch. Every replica and pipeline has its own,
and their mean is saved. `--concat halving` refuses models with batch norm, because half a micro-batch has other statistics.

| method | {columns} |
|---|{rules}
"""


class Cell(NamedTuple):
    """One cell of the table."""
    method: str
    options: tuple[tuple[str, Any], ...]
    workers: int
    pipelines: int

    @property
    def row(self) -> str:
        """Returns the text of the first column."""
        return " ".join([self.method, *(value if name == "concat" else f"{name} {value}" for name, value in self.options)])


def rows() -> list[tuple[str, dict[str, Any]]]:
    """Returns the methods of this build with the options that the page shows."""
    names = [m["name"] for m in schedule.methods() if m["name"] not in (*ASYNCHRONOUS, *ELSEWHERE)]
    return [(name, options) for name in names for options in VARIANTS.get(name, [{}])]


def micros(workers: int) -> int:
    return max(8, 2 * workers)


def fits(cell: Cell) -> bool:
    """Returns true if there is such a plan, with stages that the model has."""
    try:
        plan = schedule.generate(cell.method, stages=cell.workers, micro_batches=micros(cell.workers), **dict(cell.options))
    except ValueError:
        return False
    return max(p["model_stage"] for p in plan.placements) < MOST_STAGES


@cache
def alone(optimizer: str, micro_batches: int, sums: str) -> equality.Outcome:
    return equality.train(OPTIMIZERS[optimizer], micro_batches=micro_batches, sums=sums)


def measured(cell: Cell) -> str:
    """Returns the cell's text. Throws ValueError where the result differs from the page's promise, also with a tree."""
    text = compared(cell, "running")
    if ("concat", "halving") in cell.options:
        return text
    if compared(cell, "tree") != "bitwise":
        raise ValueError(f"{cell}: --sums tree does not give the bits of one process")
    return text


def compared(cell: Cell, sums: str) -> str:
    worst = 0.0
    for optimizer, settings in OPTIMIZERS.items():
        one = alone(optimizer, micros(cell.workers) * cell.pipelines, sums)
        for recompute in (False,) if cell.method in OWN_RECOMPUTE else (False, True):
            many = equality.train(settings, cell.workers, cell.pipelines, micros(cell.workers), method=cell.method,
                                  with_recompute=recompute, sums=sums, **dict(cell.options))
            if not many.peaks_agree:
                raise ValueError(f"{cell}: a worker keeps other activations than its plan says")
            weights, losses = equality.difference(one, many)
            # Adam divides by a sum of squares, so that a gradient that is only a rounding error gives a full step. Its
            # losses count, and its weights only as equal or not.
            worst = max(worst, losses, weights if optimizer == "sgd" else weights and LEAST)
            if weights == 0 and losses > 0:
                raise ValueError(f"{cell}: equal weights, other losses")
    if worst > BOUND:
        raise ValueError(f"{cell}: {worst:.2g} from one process, at most {BOUND:g} is right")
    return "bitwise" if worst == 0 else f"{worst:.0e}"


def cells() -> dict[Cell, bool]:
    """Returns all cells, and for each whether there is such a plan."""
    every = [Cell(name, tuple(options.items()), workers, pipelines)
             for name, options in rows() for pipelines in PIPELINES for workers in WORKERS]
    return {cell: fits(cell) for cell in every}


def page() -> str:
    columns = " | ".join(f"{pipelines} x P = {workers}" for pipelines in PIPELINES for workers in WORKERS)
    text = HEAD.format(steps=equality.STEPS, samples=equality.SAMPLES, bound=BOUND, columns=columns,
                       rules="---|" * (len(PIPELINES) * len(WORKERS)))
    lines: dict[str, list[str]] = {}
    for cell, there in cells().items():
        lines.setdefault(cell.row, []).append(measured(cell) if there else "")
    return text + "".join(f"| {row} | {' | '.join(texts)} |\n" for row, texts in lines.items())


def stated() -> dict[str, list[str]]:
    """Returns the cells of the page by row."""
    text = PAGE.read_text()
    lines = text[text.index("| method |"):].splitlines()
    table = [re.split(r" ?\| ?", line.strip("| \n")) for line in lines if line.startswith("| ")]
    return {row[0]: (row[1:] + [""] * 6)[:6] for row in table[1:]}


def check(whole: bool) -> list[str]:
    """Returns the errors of the page."""
    page_rows, known = stated(), cells()
    wrong = [f"row '{row}' is missing" for row in {cell.row for cell in known} - page_rows.keys()]
    wrong += [f"row '{row}' is of no method" for row in page_rows.keys() - {cell.row for cell in known}]
    if wrong:
        return wrong
    there = [cell for cell, exists in known.items() if exists]
    seed = int(os.environ.get("EQUALITY_SEED", time.time_ns() % 100000))
    print(f"EQUALITY_SEED={seed}")
    sample = there if whole else random.Random(seed).sample(there, 8)
    for cell in sample:
        says = page_rows[cell.row][PIPELINES.index(cell.pipelines) * len(WORKERS) + WORKERS.index(cell.workers)]
        try:
            found = measured(cell)
        except ValueError as error:
            wrong.append(str(error))
            continue
        if (found == "bitwise") != (says == "bitwise") or not says:  # figures differ with the processor's kernels
            wrong.append(f"{cell}: the page says '{says}', it is '{found}'")
    return wrong


def main() -> int:
    if "--check" not in sys.argv:
        PAGE.write_text(page())
        return 0
    wrong = check("--whole" in sys.argv)
    print("\n".join(wrong) or "equality.md: fresh")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
