"""Predicts the step time and memory of the plans that Sailor published, with Hetu's simulator, beside what was measured.

    python3 -m hetu.profile.sailor FOLDER              # a table with one row per plan
    python3 -m hetu.profile.sailor FOLDER --explain    # the errors with each mechanism added in turn
    python3 -m hetu.profile.sailor FOLDER --write DIR  # plans and costs, for hetu simulate DIR/NAME.plan.json --costs ...

FOLDER holds Sailor's profiles, bandwidths and validation plans (see sailor_files.py). The runs used DeepSpeed with Adam
in float32, without recompute. docs/lab/sailor.md explains the model and its errors.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hetu import files, one_line_errors, schedule
from hetu.command_parser import CommandParser
from hetu.profile.sailor_files import FLOAT_BYTES, Gpus, Plan, Published

STATE_COPIES = 4  # bytes of weights, gradients and Adam's two moments, in multiples of the weights
SCORE_COPIES = 3  # attention scores that a block's backward needs in addition: input buffer, two gradients
LOGIT_COPIES = 2  # logits that the loss needs in addition to those that it keeps


@dataclass(frozen=True)
class Terms:
    """The mechanisms that a prediction includes."""

    smooth: bool = True  # no layer takes longer than with a larger micro-batch
    messages: bool = True  # messages take bytes / bandwidth
    sums: bool = True  # sums of gradients over copies, and over the two uses of the word embedding
    late_sends: bool = True  # a result is sent after the receive that precedes the next computation (DeepSpeed's order)
    gathers: bool = True  # each GPU receives its share of a message, and the GPUs of a machine gather it


@dataclass(frozen=True)
class Prediction:
    """The prediction of one plan."""

    plan: Plan
    step_s: float
    state_bytes: float  # the largest of a GPU: states, activations and working memory, without what the libraries hold


def ring_s(files: Published, machines: Sequence[Gpus], gpu_bytes: float) -> float:
    """Returns the time in which the machines sum `gpu_bytes` per GPU around a ring. The slowest link sets the pace. The
    GPUs of a machine share its link."""
    copies = len(machines)
    if copies < 2 or gpu_bytes <= 0:
        return 0
    piece = gpu_bytes / copies
    speed = min(files.link(here, machines[(n + 1) % copies]).at(piece) for n, here in enumerate(machines))
    return 2 * (copies - 1) * piece * machines[0].count / speed


def gather_s(files: Published, gpus: Gpus, message_bytes: float) -> float:
    """Returns the time in which the GPUs of a machine pass the shares of a message around a ring. The published bandwidth
    is that of count / 2 pairs."""
    if gpus.count == 1:
        return 0
    share = message_bytes / gpus.count
    return (gpus.count - 1) * share * (gpus.count / 2) / files.inside(gpus).at(share)


def message_bytes(files: Published, plan: Plan) -> float:
    """Returns the bytes of the activations of one micro-batch between two layers."""
    return FLOAT_BYTES * plan.micro_batch_size * files.model.length * files.model.hidden


def tied_bytes(files: Published, degree: int) -> int:
    """Returns the bytes, on each GPU, of the word embedding that the first and the last layer share. The last layer also
    has the two vectors of the final norm."""
    return files.weight_bytes(files.model.layers - 1, degree) - 2 * FLOAT_BYTES * files.model.hidden


def weight_bytes(files: Published, plan: Plan, stage: int) -> int:
    """Returns the bytes of a stage's weights on each GPU. A stage with both the first and the last layer holds the word
    embedding once."""
    degree, layers = plan.copies[stage][0].count, plan.layers[stage]
    both = {0, files.model.layers - 1} <= set(layers)
    return sum(files.weight_bytes(layer, degree) for layer in layers) - both * tied_bytes(files, degree)


def layer_bytes(files: Published, plan: Plan, stage: int, layer: int) -> tuple[float, float]:
    """Returns the bytes that a layer keeps from forward to backward for one micro-batch on each GPU, and the bytes that its
    backward needs in addition. A block keeps 3 tensors of the hidden size on each GPU, and shares 8 of them and one matrix
    of scores per head (no dropout; fused softmax and GELU keep one tensor each). The head keeps the logits twice."""
    degree, model = plan.copies[stage][0].count, files.model
    hidden = message_bytes(files, plan)
    if layer == 0:
        return hidden, hidden
    if layer == model.layers - 1:
        logits = hidden / model.hidden * tied_bytes(files, degree) / (FLOAT_BYTES * model.hidden)
        return 2 * logits + 1.25 * hidden, LOGIT_COPIES * logits
    scores = hidden * model.heads * model.length / (model.hidden * degree)
    return hidden * (3 + 8 / degree) + scores, SCORE_COPIES * scores


def stage_bytes(files: Published, plan: Plan, stage: int) -> tuple[float, float]:
    """Returns the bytes that a stage keeps for one micro-batch on each GPU, and the most that its backward needs in
    addition. The backward frees the layers from the last one on."""
    kept = [layer_bytes(files, plan, stage, layer) for layer in plan.layers[stage]]
    freed = most = 0.0
    for keeps, works in reversed(kept):
        most = max(most, works - freed)
        freed += keeps
    return freed, most


def stage_costs(files: Published, plan: Plan, stage: int, gpus: Gpus, terms: Terms) -> dict[str, float]:
    """Returns the entry of a stage in a cost file, in milliseconds and bytes."""
    times = [files.times(gpus, plan.micro_batch_size, layer, terms.smooth) for layer in plan.layers[stage]]
    forward, backward = (sum(row[n] for row in times) for n in (0, 1))
    if terms.gathers:
        gather = gather_s(files, gpus, message_bytes(files, plan))
        forward += gather if stage > 0 else 0
        backward += gather if stage + 1 < plan.stages else 0
    kept, working = stage_bytes(files, plan, stage)
    weights = weight_bytes(files, plan, stage)
    return {"forward": 1e3 * forward, "input_grad": 5e2 * backward, "weight_grad": 5e2 * backward,
            "update": 1e3 * max(row[2] for row in times), "bytes_out": message_bytes(files, plan),
            "activation_bytes": kept, "working_bytes": working, "weight_bytes": STATE_COPIES * weights,
            "reduce_grad": 1e3 * sum_s(files, plan, stage) if terms.sums else 0}


def sum_s(files: Published, plan: Plan, stage: int) -> float:
    """Returns the time of a stage's sums at the end of a step: first the word embedding's with the other stage that has it,
    then that of all gradients over the copies."""
    time = ring_s(files, plan.copies[stage], weight_bytes(files, plan, stage))
    if plan.stages > 1 and stage in (0, plan.stages - 1):
        pairs = zip(plan.copies[0], plan.copies[-1], strict=True)
        time += max(ring_s(files, pair, tied_bytes(files, pair[0].count)) for pair in pairs)
    return time


def costs_of(files: Published, plan: Plan, terms: Terms | None = None) -> dict[str, Any]:
    """Returns the contents of a cost file for a plan. The stages of all pipelines follow one another (`cuts`)."""
    terms = terms or Terms()
    stages, pairs = [], []
    for pipeline in range(plan.pipelines):
        for stage in range(plan.stages):
            gpus = plan.copies[stage][pipeline]
            stages.append(stage_costs(files, plan, stage, gpus, terms))
            if stage == 0 or not terms.messages:
                continue
            before, worker = plan.copies[stage - 1][pipeline], pipeline * plan.stages + stage
            share = message_bytes(files, plan) / gpus.count
            for sender, receiver, ends in ((before, gpus, (worker - 1, worker)), (gpus, before, (worker, worker - 1))):
                pairs.append({"from": ends[0], "to": ends[1], "latency": 0,
                              "bandwidth": files.link(sender, receiver).at(share) / 1e3})
    costs: dict[str, Any] = {"unit": "ms", "stages": stages}
    if plan.pipelines > 1:
        costs["cuts"] = [[layers[0] for layers in plan.layers]] * plan.pipelines
    if pairs:
        costs["link"] = {"latency": 0, "bandwidth": 0, "pairs": pairs}
    return costs


def rows_of(stages: int, micro_batches: int, late_sends: bool = True) -> list[list[str]]:
    """Returns the rows of 1F1B with messages, sums and updates. With `late_sends`, in DeepSpeed's order: between a forward
    and the backward of its next step, a stage receives the gradient before it sends the activation."""
    plan = schedule.generate("1f1b", stages=stages, micro_batches=micro_batches)
    rows = []
    for stage, line in enumerate(plan.csv().splitlines()):
        row: list[str] = []
        unsent, last = "", 0
        for action in filter(None, line.split(",")):
            kind, micro = ("F" if "F" in action else "B"), int(action[len(str(stage)) + 1:])
            receive = stage > 0 if kind == "F" else stage + 1 < stages
            send = stage + 1 < stages if kind == "F" else stage > 0
            first = [unsent] if unsent else []
            then = [f"{stage}RECV_{kind}{micro}"] if receive else []
            # Otherwise DeepSpeed idles for at least one step between the two, in which it sends.
            is_next_step = micro == last + 1 - stages + stage
            row += then + first if kind == "B" and "SEND_F" in unsent and is_next_step else first + then
            row.append(action)
            unsent, last = f"{stage}SEND_{kind}{micro}" if send else "", micro
            if not late_sends and unsent:
                row.append(unsent)
                unsent = ""
        rows.append(row + ([unsent] if unsent else []) + [f"{stage}REDUCE_GRAD", f"{stage}UPDATE"])
    return rows


def schedule_of(plan: Plan, terms: Terms | None = None) -> schedule.Schedule:
    """Returns a plan's schedule: 1F1B on its stages and pipelines, with messages."""
    late_sends = (terms or Terms()).late_sends
    return schedule.from_rows(rows_of(plan.stages, plan.micro_batches, late_sends), pipelines=plan.pipelines)


def predict(files: Published, plan: Plan, terms: Terms | None = None) -> Prediction:
    """Returns the prediction of a plan by Hetu's simulator."""
    costs = costs_of(files, plan, terms)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "costs.json"
        path.write_text(json.dumps(costs))
        figures = schedule.simulate(schedule_of(plan, terms), costs=str(path))
    peaks = [worker["peak_bytes"] + stage["working_bytes"]
             for worker, stage in zip(figures["workers"], costs["stages"], strict=True)]
    return Prediction(plan, figures["step_time"] / 1e3, max(peaks))


def library_bytes(predictions: Sequence[Prediction], one: Prediction) -> float:
    """Returns the memory that CUDA and the libraries hold on a GPU of the plan's site: the mean difference between measured
    and predicted memory over the site's other plans. Plans whose measured memory can't hold their states don't count."""
    rest = [other.plan.measured_bytes - other.state_bytes for other in predictions
            if other is not one and other.plan.site == one.plan.site and other.plan.measured_bytes > other.state_bytes]
    return sum(rest) / len(rest) if rest else 0


def ranks(predictions: Sequence[Prediction], one: Prediction) -> tuple[int, int, int]:
    """Returns a plan's predicted and measured rank in its group, and the size of the group."""
    group = [other for other in predictions if other.plan.group == one.plan.group]
    return (1 + sum(other.step_s < one.step_s for other in group),
            1 + sum(other.plan.measured_s < one.plan.measured_s for other in group), len(group))


def groups_of(predictions: Sequence[Prediction]) -> tuple[set[tuple[str, int, int]], set[tuple[str, int, int]]]:
    """Returns the groups of several plans, and those in which the plan that is predicted to be fastest is not."""
    ranked = [(one.plan.group, *ranks(predictions, one)) for one in predictions]
    return ({group for group, _, _, size in ranked if size > 1},
            {group for group, predicted, measured, _ in ranked if predicted == 1 and measured > 1})


def summary(predictions: Sequence[Prediction]) -> str:
    """Returns the mean and the largest error of the step time, and the number of groups whose best plan is found."""
    errors = [abs(one.step_s / one.plan.measured_s - 1) for one in predictions]
    groups, missed = groups_of(predictions)
    return (f"mean {sum(errors) / len(errors):6.1%}, worst {max(errors):6.1%}, "
            f"best plan first in {len(groups - missed)} of {len(groups)} groups")


def table(predictions: Sequence[Prediction]) -> str:
    """Returns the table of all plans, with notes about odd measurements."""
    lines = [f"{'plan':26}{'measured s':>11}{'predicted':>11}{'error':>8}{'measured GB':>13}{'predicted':>11}{'error':>8}"
             "  rank"]
    for one in predictions:
        plan, memory = one.plan, one.state_bytes + library_bytes(predictions, one)
        predicted, measured, size = ranks(predictions, one)
        lines.append(f"{plan.site + ' ' + plan.name:26}{plan.measured_s:11.4f}{one.step_s:11.4f}"
                     f"{one.step_s / plan.measured_s - 1:8.1%}{plan.measured_bytes / 1e9:13.2f}{memory / 1e9:11.2f}"
                     f"{memory / plan.measured_bytes - 1:8.1%}  {predicted} of {size}, measured {measured}")
    sites = list(dict.fromkeys(one.plan.site for one in predictions))
    for site in [*sites, ""]:
        part = [one for one in predictions if one.plan.site == site or not site]
        sound = [one for one in part if one.plan.measured_bytes > one.state_bytes]
        errors = [abs((one.state_bytes + library_bytes(predictions, one)) / one.plan.measured_bytes - 1) for one in sound]
        lines.append(f"{site or 'all'}: step {summary(part)}; memory mean {sum(errors) / max(1, len(errors)):.1%}, "
                     f"worst {max(errors, default=0):.1%} of {len(sound)} plans")
    return "\n".join([*lines, *oddities(predictions)])


def oddities(predictions: Sequence[Prediction]) -> list[str]:
    """Returns a line for each measurement that can't be right."""
    lines = [f"note: {one.plan.site} {one.plan.name}: the measured memory of {one.plan.measured_bytes / 1e9:.2f} GB can't "
             f"hold states and activations of {one.state_bytes / 1e9:.2f} GB"
             for one in predictions if one.plan.measured_bytes <= one.state_bytes]
    same = Counter((one.plan.measured_s, one.plan.measured_bytes) for one in predictions)
    for figures in (figures for figures, count in same.items() if count > 1):
        names = [f"{one.plan.site} {one.plan.name}" for one in predictions
                 if (one.plan.measured_s, one.plan.measured_bytes) == figures]
        lines.append(f"note: {' and '.join(names)} have the same measured time and memory; one is probably a copy")
    return lines


def explain(files: Published, plans: Sequence[Plan]) -> str:
    """Returns the errors of the step time with the mechanisms added one after the other."""
    terms = Terms(smooth=False, messages=False, sums=False, late_sends=False, gathers=False)
    lines = [f"{'times of layers only':44}" + summary([predict(files, plan, terms) for plan in plans])]
    for name, words in (("messages", "+ messages between stages"), ("sums", "+ sums of gradients"),
                        ("late_sends", "+ DeepSpeed's order of sends and receives"),
                        ("gathers", "+ gathers inside a machine"), ("smooth", "+ no small micro-batch slower than a large")):
        terms = replace(terms, **{name: True})
        lines.append(f"{words:44}" + summary([predict(files, plan, terms) for plan in plans]))
    return "\n".join(lines)


def write(files_: Published, plans: Sequence[Plan], folder: Path) -> None:
    """Writes each plan and its costs as files that hetu simulate reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for plan in plans:
        stem = f"{plan.site}_{plan.name}"
        files.write_text(folder / f"{stem}.plan.json", schedule_of(plan).json())
        files.write_text(folder / f"{stem}.costs.json", json.dumps(costs_of(files_, plan), indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = CommandParser(prog="python3 -m hetu.profile.sailor", formatter_class=argparse.RawDescriptionHelpFormatter,
                           description=__doc__)
    parser.add_argument("folder", metavar="FOLDER", help="folder of Sailor's files, with profiles and validation")
    parser.add_argument("--model", default="OPT-350", help="model whose plans are predicted (%(default)s)")
    parser.add_argument("--explain", action="store_true", help="print the errors with each mechanism added in turn")
    parser.add_argument("--write", type=Path, metavar="DIR", help="write plans and costs into this folder")
    given = parser.parse_args(arguments)
    with one_line_errors("hetu.profile.sailor"):
        published = Published(given.folder, given.model)
        plans = published.plans()
        if given.write:
            write(published, plans, given.write)
        print(explain(published, plans) if given.explain else table([predict(published, plan) for plan in plans]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
