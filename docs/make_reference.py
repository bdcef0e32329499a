#!/usr/bin/env python3
"""Writes docs/reference.md: every command with its --help text, the environment, ids, units and files.

usage: docs/make_reference.py [--check]   with hetu, heturun and the built package in PATH; --check: exit 1 if the page is
                                          stale (a test calls this)"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from hetu import _hetu, options

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference.md"
COMMANDS = [
    "hetu", "hetu schedule", "hetu verify", "hetu simulate", "hetu rehearse", "hetu choose", "hetu timeline",
    "hetu compare", "hetu fill", "hetu checkpoint", "hetu ps serve", "hetu ps status", "hetu data check",
    "hetu data sample", "hetu data vocabulary", "hetu data prepare", "hetu profile-blocks", "hetu genschedule",
    "hetu simulate-varuna", "hetu doctor", "hetu completion", "heturun",
    "train_bert.py", "main_bert.py", "main_bert_simple.py", "train_gpt.py", "train_resnet.py", "train_ctr.py",
]
HEAD = """# Reference

Made by `docs/make_reference.py` from the tools themselves; a test keeps it fresh.
"""
OPTIONS = """Each option stands in one table of the code (`base/fields.h`), of which the help above, Python's keywords
and these rows are made.
"""
HOLDERS = {
    "plan": "Of `hetu schedule`, `verify`, `simulate` and `rehearse`, and of the functions of `hetu.schedule`.",
    "choose": "Of `hetu choose` and `hetu.schedule.choose`.",
    "sizes": "Those of a plan that its method is made by; a method takes some of them only.",
    "training": "Of the training scripts; keywords of `hetu.Executor` (`batch_size` is the data's).",
    "averaging": "Of the training scripts; keywords of `hetu.averaging.Averaging`.",
    "stragglers": "Of the training scripts; keywords of `hetu.averaging.Stragglers`.",
    "slow": "The keys of `--slow`, and of the dicts in `hetu.averaging.Stragglers(slow=…)`.",
    "rate": "What `hetu.lr` makes; the scripts have options of their own for its shape.",
}
OPTIMIZER = "`--optimizer` of this name; keywords of its class in `hetu.optim`, where `betas` are beta1 and beta2."
IDS = """## Ids, units, instructions

- *P* workers of one pipeline, *M* micro-batches per step, *V* chunks (model stages per worker). Workers, stages,
  micro-batches and steps count from 0. Replica r of model stage s of n has the id r·n + s; worker w of pipeline d is the
  worker d·P + w.
- Times are in the unit of the options, milliseconds with `--costs`; JSON names it (`time_unit`). Without costs a forward
  takes 1 and a full backward 2; times are per worker and micro-batch, so a chunk takes 1/V of them.
  `hetu choose --workers` takes the times of the whole model instead. Numbers of options and files are at most 1e15.
- Activations count in micro-batches of one worker: an F adds 1, a B takes 1, I and W take 1/2 each; a chunk counts 1/V.
- Memory limits: a plain number counts micro-batches; with KiB, MiB or GiB, bytes.

| cell | meaning |
|---|---|
| `2F0` `2B0` | forward and full backward of stage 2, micro-batch 0 |
| `2I0` `2W0` | its two halves: input gradient, weight gradient |
| `2R0` | forward again, before B or I |
| `2SEND_F0` `2RECV_F0` `2SEND_B0` `2RECV_B0` | messages; a part above 0 follows a colon: `2SEND_F0:1` |
| `2REDUCE_GRAD` | all-reduce of the gradients of stage 2 over its copies |
| `REDUCE_SCALARS` | loss, norm and the like over all workers |
| `2UPDATE` | optimizer step |
| `2PARTIAL_REDUCE` | mean of the stage's weights with those of some other pipelines |
| `2CURVATURE_A7:3` `2CURVATURE_B7:3` | K-FAC: micro-batch 7 goes into the input or gradient factor of layer 3 of the stage |
| `2SYNC_A:3` `2SYNC_B:3` | all-reduce of such a factor over the copies of the stage |
| `2INVERT_A:3` `2INVERT_B:3` | its damped inverse; where copies share layers out, of this copy's in round 3 |
| `2GATHER:3` | the inverses of round 3, from the copies of the stage that made them to all |
| `2PRECONDITION` | the stage's gradients times its inverses |
| `2PUSH` | what a wave's updates have changed goes to the servers; of pipelines that meet there |
| `2PULL` | the servers' weights, with the updates since the push on top; waits until nobody is too far behind |
| `(0F1;3B0)OVERLAP_F_B` | two instructions that run as one |

## Figures of `hetu simulate --format json`

`makespan`: end of the last compute instruction; `step_time`: end of the last update or collective; `ideal`: the largest
`busy`; `bubble_fraction`: idle / (makespan · workers); `bubble_overhead`: (makespan - ideal) / ideal; `span`: the longest
time from a worker's first start to its last end; `span_bubble_rate`: 1 - ideal / span. Per worker: `busy`, `start`, `end`,
`peak_activations`, `weight_versions`, `stages`, and `peak_bytes` under costs with bytes. Asynchronous methods add
`steps` and `steady_bubble`. `throughput`:
micro-batches per time unit over all pipelines, without fill and drain. Pipelines that average in groups add `groups`:
`count`, `mean_size`, `median_size`, `sizes` (how many of each), `mean_wait_us` of a member for its group.

## Files

**Plan, CSV**: a row per worker, a cell per instruction in order; empty cells are ignored; the form of
torch.distributed.pipelining.

**Plan, JSON** (`hetu schedule --format json`): `{"method", "stages", "micro_batches", "chunks", "concat", "pair_semantics",
"steps", "placements": [{"id", "workers": [0], "model_stage", "replica"}], "version_rule", "run_policy", "most_versions",
"workers": [{"prologue": ["0F0"], "body": [], "repeat": 0, "shift": 0, "drain": []}]}`; the body stands `repeat` times,
micro ids raised by `shift` each time. A lowered plan (`--lowered`) adds `"lowering"`: pipelines, where sums
stand, tied weights.

**Costs, JSON** (`--costs`; only `stages` is needed, one entry per model stage or one for all):

```
{"unit": "ms", "stages": [{"forward": 1, "input_grad": 1, "weight_grad": 1, "recompute": 1, "update": 0, "bytes_out": 0,
  "activation_bytes": 0, "weight_bytes": 0, "reduce_grad": 0, "working_bytes": 0, "curvature": {"factors": 0,
  "inversion": 0, "precondition": 0, "saved_bytes": 0, "factor_bytes": 0}}], "link": {"latency": 0, "bandwidth": 0,
  "pairs": [{"from": 0, "to": 1, "latency": 0.2, "bandwidth": 1e6}]}, "allreduce": 0, "reduce_scalars": 0,
  "workers": [{"speed": 1, "memory_limit": 0}]}
```

`"reduce_grad"` is the time of a step's sum of the stage's gradient over its copies, and of an average of its weights;
where it is 0 (or `--allreduce` is given), `"allreduce"` stands for it. `"working_bytes"`: what a backward needs beside
what is kept. `"curvature"`: K-FAC on the stage's linear layers, factors per micro-batch, inversion per refresh,
preconditioning per step, and the output gradients (of a micro-batch) and factors that it keeps. `"blocks"`, if there, holds
one entry per block of the model as `"stages"` does per stage, with `"weight"`, what training cuts by: the costs of plans of
other numbers of stages ([compare.md](compare.md)). Pipelines that are not cut alike: `"cuts": [[0, 4], [0, 5]]`, the first
block of each stage by pipeline, and `"stages"` has the stages of every pipeline, one after the other.

**Trace** (`--trace`, `--format trace`): Chrome trace events, for Perfetto; `pid` 0 predicted, 1 measured; `tid` the worker;
`args` kind, stage, micro, part, step; `ts` and `dur` in microseconds.

**Group log** (`--group-log`): one JSON object per group: `run` (the step at which it began; training saves between runs),
`time_us`, `stage`, `serial` (of the stage, from 0), `members` (pipelines), `updates` (of each, its count), `arrived_us`,
`reason`, with AD-PSGD `initiator`; `{"run", "time_us", "lost"}` for a pipeline that left. A resumed run takes out the groups
that it makes again; times and serials count on. Of a simulation, a plain time unit counts as 1 ms.

**Training log** (`--log`, `hetu.hooks.Log`): a record per step: step, the losses, samples_per_s, seconds, learning_rate,
gradient_norm; under fp16 also loss_scale and skipped, and with `--payload one-byte:…` meaningless. A JSON object per
line, or CSV with the names in the first line where the file's name ends in .csv.
A resumed run takes out the steps that it does again.

**TensorBoard** (`--name`): `runs/NAME/events.out.tfevents.*`, a point per epoch (of a resumed run in place of
the points that it makes again), and `Step/…` every `--points-every` steps
([training.md](training.md#what-a-run-writes)): Train/loss, Train/samples_per_s; of images also Train/acc,
Validation/loss,
Validation/acc, Validation/acc5; of click logs Validation/loss, Validation/auc.
"""


def help_of(command: str) -> str:
    words = command.split()
    if command.endswith(".py"):
        words = [sys.executable, str(ROOT / "python" / command)]
    done = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True,
                          env={**os.environ, "COLUMNS": "100"})
    return "\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines())


def environment() -> str:
    rows = ["| variable | default | set by | meaning |", "|---|---|---|---|"]
    for name, fallback, set_by, meaning in _hetu.env_table():
        rows.append(f"| `{name}` | {fallback or '-'} | {set_by} | {meaning.replace('|', '/')} |")
    return "\n".join(rows) + "\n"


def commands() -> str:
    """Returns the section of commands. Methods and options that several commands share are listed with the first one only.
    """
    shared = set(help_of("hetu schedule").splitlines()) - {""}
    parts = []
    for command in COMMANDS:
        text, note = help_of(command), ""
        if command in ("hetu verify", "hetu simulate", "hetu rehearse"):
            text = "\n".join(line for line in text.splitlines() if line not in shared).strip()
            note = "\nMethods and further options: as for `hetu schedule`.\n"
        parts.append(f"### {command}\n\n```\n{text}\n```\n{note}")
    return "\n".join(parts)


def tables() -> str:
    """Returns the tables of options: their values, and the version that introduced them."""
    parts = []
    for table in options.tables():
        rows = ["| keyword | flag | type | default | range | since | meaning |", "|---|---|---|---|---|---|---|"]
        for field in options.table(table).values():
            flag = f"`{field.within} {field.name}=…`" if field.within else f"`{field.flag}`" if field.flag else "-"
            right = ", ".join(field.choices) or field.range or "-"
            cells = [f"`{field.name}`", flag, field.type, field.shown, right, field.since, field.doc]
            rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        held = HOLDERS.get(table, OPTIMIZER)
        parts.append(f"### Options: {table}\n\n{held}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def page() -> str:
    return (f"{HEAD}\n## Commands\n\n{commands()}\n## Options\n\n{OPTIONS}\n{tables()}\n## Environment variables\n\n"
            f"{environment()}\n{IDS}")


def in_any_version(text: str) -> str:
    """Returns the page without differences between versions of Python. From 3.13 on, --help wraps a usage differently, and
    writes '-o, --output FILE' for '-o FILE, --output FILE'."""
    return " ".join(re.sub(r"(-\w) \S+, (--[\w-]+ \S+)", r"\1, \2", text).split())


def main() -> int:
    made = page()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or in_any_version(PAGE.read_text()) != in_any_version(made):
            print("docs/reference.md is stale; make it again: python3 docs/make_reference.py")
            return 1
        return 0
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
