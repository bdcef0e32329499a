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

A job on many workers can compute exactly what one process computes: the same losses and weights, bit for bit. This page says
when it does, how to check it, and what it costs. Read it if you compare *layouts* (numbers of pipelines and stages, and
methods), or resume a training under another layout.

- **With `--sums tree`**, all layouts with a synchronous method have the bits of one process.
- **By default** (`--sums running`), one pipeline with one copy of each stage has them, if its backwards run in ascending
  order of micro-batches. In `hetu.torch`, also no parameter may be on two stages, such as a tied head.

All other layouts differ from one process by about 5e-8 ([table](#with---sums-running-the-default), measured on graph
models).

To check it yourself, use `--compare-single`. Worker 0 then repeats every step in one process, and the job ends with an error
at the first bit that differs:

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

They may differ in pipelines and their shares, stages, cut, method, recompute, threads, device (`cpu`, or the test device
`far`), and the order in which messages arrive. The layout may also change at a checkpoint.

## How

- **Gradients.** Hetu adds the gradients of the micro-batches in a binary tree: first in pairs, then pairs of pairs, and so
  on. With six micro-batches, the sum is `((0 + 1) + (2 + 3)) + (4 + 5)`. The tree has the micro-batches of all pipelines, in
  the order of their samples. It doesn't depend on who computes them. A copy of a stage adds the parts of the tree for which
  it has all micro-batches. Then the copies add their partial sums in the order of the tree. A plan is refused unless every
  micro-batch is in each sum once.
- **Tied weights.** For each use of the weight, Hetu first sums over the micro-batches. Then it adds the sums in the order of
  the uses in the model.
- **Losses, counts and norms.** Every worker receives the values of all micro-batches, and adds them in their order.
- **Running statistics.** All micro-batches of a step begin with the same statistics. Each micro-batch computes new
  statistics from them, and the mean of these is used from the end of the step on. The statistics therefore change once per
  step, not once per micro-batch.
- **Dropout and data.** A sample's number in the global batch decides its row of the data and its random numbers.
- **Parameter servers** (`--sync-method ps`, and tables on servers). Each pipeline sends one sum to the servers, which add
  these sums in pairs: `((0 + 1) + (2 + 3)) + 4`. A pipeline therefore needs 1, 2, 4, 8, … micro-batches. Clipping, running
  statistics, parameters with several uses, `--staleness` and `--push-bound` are refused. The log's gradient norm isn't
  covered, because no process knows the whole gradient.
- **Kernels.** The results of a kernel don't depend on the number of threads.

## PyTorch modules

`hetu.torch.Pipeline(sums="tree")` does the same for the gradients of PyTorch modules, also with `shard_optimizer`. It is
tested on the CPU and on a simulated accelerator, not yet on a GPU. Three conditions are added:

- Each pipeline's batch is divided evenly into micro-batches.
- The model has no batch norm, because its running statistics are those of one pipeline.
- If a parameter is used twice (tied), both uses are on one stage in both layouts, or on two stages in both layouts. On one
  stage, autograd itself adds the gradients of the uses, in its own order.

A loop in plain PyTorch has the bits of `hetu.torch` if it multiplies the loss of each micro-batch by its share of the batch:
`loss * (1 / M)` for M equal micro-batches. With `loss / M`, last bits differ unless M is a power of two.

## Costs

- **Time.** On CPUs, a step takes no longer than with `--sums running`. The table shows the processor time relative to it,
  with the range of the rounds (two busy cores, 2026-11-29, `tests/bench/sum_order.py`). In an earlier run, BERT-base in one
  pipeline took 1.02 times the wall time.

  | model, 8 micro-batches | relative processor time |
  |---|---|
  | BERT-base, 8 x 128, one pipeline | 0.96 (0.91 to 1.11, four rounds) |
  | BERT-base, 8 x 128, two pipelines | 0.93 (0.91 to 1.00) |
  | ResNet-50, 4 images | 0.97 (0.95 to 0.99) |

- **Memory.** A worker keeps up to log2(M) partial sums of its stages' gradients at once, where M is its number of
  micro-batches: 2 for M = 4, and 3 for M = 8. With `--sums running`, it keeps one. For BERT-base in one process with 8
  micro-batches, the gradients grow from 598 to 1525 MiB, and the worker's peak grows from 2704 to 3720 MiB. In two
  pipelines, the peak grows to 3211 MiB. This is why the option is off by default.
- **Messages.** If each copy of a stage computes 2, 4, 8, … consecutive micro-batches, it sends one sum, as before. Otherwise
  it sends several partial sums. For example, 3 micro-batches of a copy give two partial sums: a pair, and a single one.
  Chimera on 4 workers with 8 micro-batches also has two for each copy. `hetu verify` prints this number as the terms per
  stage.
- **Micro-batches of one size.** All layouts must have the same number of samples per micro-batch, so choose the smallest
  number that you need. Small micro-batches cost little: for 16 samples of BERT-base, micro-batches of 4 and 2 samples take
  1.02 and 0.96 times the processor time of those of 8 (two busy cores, 2026-11-30, `tests/bench/sum_order.py --smaller`).
- **Embedding tables.** Hetu stores their gradients as whole tensors, not only for the rows that were looked up.

`--sums tree` is refused with asynchronous methods, averaged weights, `--wire bf16`, `--concat halving`, `lazy_rows`, and
K-FAC's `replan`. One more case has other bits without an error: K-FAC with `fill="best"` or `"wrap"` refreshes its inverses
in the bubbles of the plan, so the step of a refresh depends on the layout. Use `fill="after"` to compare layouts.

## Accuracy

Adding in a tree rounds less: each term is rounded log2(M) times instead of up to M - 1 times (N. Higham, *The accuracy of
floating point summation*, SIAM J. Sci. Comput. 14(4), 1993). The table shows the root mean square error relative to float64,
for normally distributed random numbers (`tests/bench/sum_order.py --accuracy`):

| micro-batches | 4 | 8 | 16 | 64 | 256 |
|---|---|---|---|---|---|
| running | 4.1e-08 | 5.6e-08 | 7.7e-08 | 1.5e-07 | 2.9e-07 |
| tree | 3.9e-08 | 4.7e-08 | 5.5e-08 | 6.7e-08 | 7.7e-08 |

## Related work

ReproBLAS (W. Ahrens, J. Demmel, H. D. Nguyen, *Algorithms for efficient reproducible floating point summation*, ACM TOMS
46(3), 2020) makes any order of additions give the same bits, at twice the bytes per element and an additional pass per
micro-batch. A fixed tree needs neither, because a plan says in advance who computes which micro-batch.

Other training systems, as of November 2026:

- Megatron-Core's deterministic mode repeats a run's bits if the layout, the software and the hardware stay the same
  ([glossary](https://docs.nvidia.com/megatron-core/developer-guide/nightly/developer/determinism/glossary.html)). An open
  proposal adds equal bits for 1, 2, 4 and 8 tensor-parallel ranks, off by default
  ([#4740](https://github.com/NVIDIA/Megatron-LM/pull/4740)). It covers tensor parallelism, which Hetu doesn't have, and
  neither pipelines nor replicas.
- torchtitan compares loss curves between layouts (its `docs/converging.md`), not bits.

## With `--sums running`, the default

The table shows how far the results of every synchronous method are from those of one process. `docs/make_equality.py`
writes it by training every case, and a test checks that it is up to date. The same test trains the cases with `--sums
tree`, and requires equal bits for all but `chimera halving`, which is refused. The model is BERT `deep` (16 layers of
width 64, tied head, dropout 0.1).
A run has {steps} steps of max(8, 2 P) micro-batches of {samples} samples per pipeline, with clipping.
P is the number of workers per pipeline. The workers are threads. The reference is one process with one stage and the same
micro-batches. Each cell covers four runs: SGD and AdamW, each without and with recompute. (Varuna's plans always
recompute.)

*bitwise* means that all weights and losses have the bits of one process. A number means that the gradients of a parameter
are added in another order: by replicas, by pipelines, or because backwards don't run in ascending order of micro-batches.
The number is the largest relative difference of a weight tensor (SGD) or a loss (both optimizers). The difference of a
tensor is divided by its norm, or by 1 if the norm is less. No number is above {bound:g}.

Other tests: `ops_test` checks every operator with 1, 2, 3, 4 and 7 threads. `threads_test` trains ResNet-18 and BERT with
several threads. `layouts_test` trains with `--sums tree` in random layouts, with random models, optimizers, dtypes, devices,
threads and methods. In every run, the peak number of activations that each worker keeps, and their bytes, are exactly those
of its plan.

With `--sums running`, the running statistics of batch norm change with each micro-batch. Every replica and pipeline has its
own, and their mean is saved. `--concat halving` refuses models with batch norm, because half a micro-batch has other
statistics.

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


def head() -> str:
    """Returns the text of the page up to the first row of its table."""
    columns = " | ".join(f"{pipelines} x P = {workers}" for pipelines in PIPELINES for workers in WORKERS)
    return HEAD.format(steps=equality.STEPS, samples=equality.SAMPLES, bound=BOUND, columns=columns,
                       rules="---|" * (len(PIPELINES) * len(WORKERS)))


def page() -> str:
    text = head()
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
    if not PAGE.read_text().startswith(head()):
        return ["the text above the table isn't that of HEAD: change HEAD in docs/make_equality.py, and copy it to the page"]
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
