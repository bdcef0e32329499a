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
    "hetu", "hetu schedule", "hetu verify", "hetu simulate", "hetu rehearse", "hetu plan", "hetu choose",
    "hetu timeline", "hetu compare", "hetu fill", "hetu checkpoint", "hetu ps serve", "hetu ps status", "hetu data check",
    "hetu data sample", "hetu data vocabulary", "hetu data prepare", "hetu profile", "hetu profile-blocks",
    "hetu genschedule", "hetu simulate-varuna", "hetu doctor", "hetu completion", "heturun",
    "train_bert.py", "main_bert.py", "main_bert_simple.py", "train_gpt.py", "train_resnet.py", "train_ctr.py",
]
HEAD = """# Reference

This page lists every command with its help text, every option and environment variable, and the formats of files.
`docs/make_reference.py` writes it from the tools themselves, and a test checks that it is up to date.
"""
OPTIONS = """Each option is defined in one table of the code (`base/fields.h`). The help texts above, Python's keywords and
the rows below are made from that table.
"""
HOLDERS = {
    "plan": "Options of `hetu schedule`, `verify`, `simulate` and `rehearse`; keywords of `hetu.schedule`'s functions.",
    "planner": "Options of `hetu plan`; keywords of `hetu.schedule.plan`.",
    "choose": "Options of `hetu choose`; keywords of `hetu.schedule.choose`.",
    "sizes": "Options of a plan that its method is generated from. A method takes only some of them.",
    "training": "Options of the training scripts; keywords of `hetu.Executor` (`batch_size` belongs to the data).",
    "averaging": "Options of the training scripts; keywords of `hetu.averaging.Averaging`.",
    "stragglers": "Options of the training scripts; keywords of `hetu.averaging.Stragglers`.",
    "slow": "Keys of `--slow`, and of the dicts in `hetu.averaging.Stragglers(slow=…)`.",
    "rate": "Fields of a learning rate of `hetu.lr`. The training scripts have their own options for its shape.",
}
OPTIMIZER = ("Options of the `--optimizer` with this name; keywords of its class in `hetu.optim`, where `betas` are beta1 "
             "and beta2.")
IDS = """## Ids, units, instructions

- *P* is the number of workers of one pipeline, *M* the number of micro-batches per step, and *V* the number of chunks (model
  stages per worker). Workers, stages, micro-batches and steps are numbered from 0. With n model stages, replica r of stage s
  has the id r·n + s. Worker w of pipeline d is the worker d·P + w.
- Times have the unit of the options, or milliseconds with `--costs`. JSON output names the unit (`time_unit`). Without
  costs, a forward takes 1 and a full backward 2. Times are per worker and micro-batch, so a chunk takes 1/V of them.
  `hetu choose --workers` takes the times of the whole model instead. Numbers in options and files are at most 1e15.
- Activations are counted in micro-batches of one worker. An F adds 1, a B removes 1, and I and W remove 1/2 each. A chunk
  counts 1/V.
- A memory limit without a unit is a number of micro-batches. With KiB, MiB or GiB it is a size in bytes.

| cell | meaning |
|---|---|
| `2F0` `2B0` | forward and full backward of stage 2, micro-batch 0 |
| `2I0` `2W0` | the two halves of a backward: input gradient, weight gradient |
| `2R0` | recomputes the forward, before B or I |
| `2SEND_F0` `2RECV_F0` `2SEND_B0` `2RECV_B0` | messages; the number of a part above 0 follows a colon: `2SEND_F0:1` |
| `2REDUCE_GRAD` | all-reduce of the gradients of stage 2 over its copies |
| `REDUCE_SCALARS` | sum of loss, norm and other scalars over all workers |
| `2UPDATE` | optimizer step |
| `2PARTIAL_REDUCE` | average of the stage's weights with those of some other pipelines |
| `2CURVATURE_A7:3` `2CURVATURE_B7:3` | K-FAC: micro-batch 7 goes into the input or gradient factor of layer 3 of the stage |
| `2SYNC_A:3` `2SYNC_B:3` | all-reduce of such a factor over the copies of the stage |
| `2INVERT_A:3` `2INVERT_B:3` | damped inverse of a factor; if copies divide the layers, of this copy's in round 3 |
| `2GATHER:3` | sends the inverses of round 3 from the copies that made them to all copies of the stage |
| `2PRECONDITION` | multiplies the stage's gradients by its inverses |
| `2PUSH` | sends the changes of a wave's updates to the servers (for pipelines that use servers) |
| `2PULL` | gets the servers' weights and adds the updates since the push; waits while a pipeline is too far behind |
| `(0F1;3B0)OVERLAP_F_B` | two instructions that run as one |

## Figures of `hetu simulate --format json`

| key | meaning |
|---|---|
| `makespan` | end of the last compute instruction |
| `step_time` | end of the last update or collective |
| `ideal` | the largest `busy` |
| `bubble_fraction` | idle / (makespan · workers) |
| `bubble_overhead` | (makespan - ideal) / ideal |
| `span` | the longest time from a worker's first start to its last end |
| `span_bubble_rate` | 1 - ideal / span |
| `throughput` | micro-batches per time unit over all pipelines, without fill and drain |
| `steps`, `steady_bubble` | for asynchronous methods |
| `groups` | for averages in groups: `count`, `mean_size`, `median_size`, `sizes` (groups per size), `mean_wait_us` |

Each worker has `busy`, `start`, `end`, `peak_activations`, `weight_versions` and `stages`, and `peak_bytes` if the costs
have bytes.

## Files

**Plan, CSV**: one row per worker, with one cell per instruction, in order. Empty cells are ignored.
torch.distributed.pipelining uses the same format.

**Plan, JSON** (`hetu schedule --format json`): `{"method", "stages", "micro_batches", "chunks", "concat", "pair_semantics",
"steps", "placements": [{"id", "workers": [0], "model_stage", "replica"}], "version_rule", "run_policy", "most_versions",
"workers": [{"prologue": ["0F0"], "body": [], "repeat": 0, "shift": 0, "drain": []}]}`; the body runs `repeat` times,
and its micro-batch ids rise by `shift` each time. A lowered plan (`--lowered`) adds `"lowering"`: the pipelines, the
placement of sums, and tied weights.

**Costs, JSON** (`--costs`). Only `stages` or `blocks` is required. `stages` has one entry per model stage or a
single entry for all:

```json
{"unit": "ms", "stages": [{"forward": 1, "input_grad": 1, "weight_grad": 1, "recompute": 1, "update": 0, "bytes_out": 0,
  "activation_bytes": 0, "weight_bytes": 0, "gradient_bytes": 0, "feed_bytes": 0,
  "reduce_grad": 0, "working_bytes": 0,
  "curvature": {"factors": 0, "inversion": 0, "precondition": 0, "saved_bytes": 0, "factor_bytes": 0}}],
  "link": {"latency": 0, "bandwidth": 0, "pairs": [{"from": 0, "to": 1, "latency": 0.2, "bandwidth": 1e6}]},
  "allreduce": 0, "reduce_scalars": 0,
  "workers": [{"speed": 1, "memory_limit": 0}]}
```

`"reduce_grad"` is the time in which the stage's gradient is summed over its copies once per step, and the time of an average
of its weights. If it is 0, or if you give `--allreduce`, `"allreduce"` is used instead. `"working_bytes"` is the memory that
a backward needs in addition to the kept activations. `"curvature"` describes K-FAC on the stage's linear layers: the times
of factors per micro-batch, of inversion per refresh and of preconditioning per step, and the bytes of output gradients (per
micro-batch) and factors that it keeps. The optional `"blocks"` has one entry per block of the model, in the form of
`"stages"`. The `"weight"` of a block is the number by which training cuts the model. With blocks, the costs also serve plans
of other numbers of stages ([compare.md](compare.md)). If pipelines are cut differently, `"cuts": [[0, 4], [0, 5]]` has the
first block of each stage for each pipeline, and `"stages"` has the stages of all pipelines, one after the other.
`"samples_per_micro_batch"` states the size that the times are for; `hetu plan` and `hetu choose` scale costs by it.

**Trace** (`--trace`, `--format trace`): Chrome trace events, for Perfetto. `pid` is 0 for predicted and 1 for measured
events, and `tid` is the worker. `args` has kind, stage, micro, part and step. `ts` and `dur` are in microseconds.

**Group log** (`--group-log`): one JSON object per group. Its keys are `run` (the step at which the run began; training saves
between runs), `time_us`, `stage`, `serial` (the number of the group in its stage, from 0), `members` (pipelines), `updates`
(the update count of each member), `arrived_us`, `reason`, and with AD-PSGD `initiator`. A pipeline that left the job has a
line `{"run", "time_us", "lost"}`. A resumed run removes the groups that it repeats; times and serials continue. In a
simulation, a time unit without a name counts as 1 ms.

**Training log** (`--log`, `hetu.hooks.Log`): one record per step with step, the losses, samples_per_s, seconds,
learning_rate and gradient_norm. fp16 adds loss_scale and skipped. `--payload one-byte:…` adds meaningless. A record is a
JSON object on one line. If the file's name ends in .csv, the file is CSV, with the names in the first line. A number
that JSON lacks (NaN, infinity) is `null`, or an empty field in CSV. A resumed run removes the steps that it repeats.

**TensorBoard** (`--name`): `runs/NAME/events.out.tfevents.*` has one point per epoch, and `Step/…` every `--points-every`
steps ([training.md](training.md#what-a-run-writes)). A resumed run replaces the points that it repeats. The scalars are
Train/loss and Train/samples_per_s. Images add Train/acc, Validation/loss, Validation/acc and Validation/acc5. Click logs add
Validation/loss and Validation/auc.
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
        parts.append(f"### {command}\n\n```text\n{text}\n```\n{note}")
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
