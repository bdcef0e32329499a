"""Chimera's and PipeFisher's timeline files, made from the trace of a run: one pickle per stage.

    python3 -m hetu.compat.timelines bert_prof/NAME.json

writes bert_prof/NAME_node0_timeline.pickle and so on. Each holds a dictionary with the key `start_end`, the interval of each
kept step, and a list of intervals (start, end) for each label such as `call_forward`. Times are whole nanoseconds on one
clock. The last three steps of the trace are kept, as in the originals. `hetu fill` reads these files, as PipeFisher's
auto_schedule.py does.

A trace with K-FAC's work after the pipeline gives the labels of PipeFisher's record mode, such as
`cov_kron_A:stage0.factor3`:

- A curvature label has one interval per step. It starts at the first micro-batch's curvature, and is as long as the
  curvature of all micro-batches.
- Sums of factors run at the same time. Each interval begins where the sum before it ended, so that the durations add up to
  the time in which any sum ran.

With K-FAC's work in the bubbles, each piece is an interval of its own, and labels have no module, as in PipeFisher's
scheduled runs.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import hetu as ht
from hetu.files import read_json, replaced

KEPT = 3  # steps of a trace, the last ones
UP = ":up_pipe"
# The events of a trace -> labels of the originals. GATHER (of inverses) has none there, because gradients are gathered.
PIPELINE = {"F": "call_forward", "B": "call_backward", "R": "recompute", "REDUCE_GRAD": "sync_grad"}
FACTORS = {f"{kind}_{factor}": f"{label}_kron_{factor}" for factor in "AB"
           for kind, label in (("CURVATURE", "cov"), ("SYNC", "sync"), ("INVERT", "inv"))}
AFTER = {"PRECONDITION": "precondition", "GATHER": "gather_inverses"}

Interval = tuple[int, int]
Timeline = dict[str, list[Interval]]


class Placement:
    """The stages of a traced plan: which of them belong to the up direction of Chimera, and the workers of one pipeline."""

    def __init__(self, plan: dict[str, Any]) -> None:
        replicas = 1 + max(place["replica"] for place in plan["placements"])
        chimera = plan["method"] == "chimera"
        self.model_stage = {place["id"]: place["model_stage"] for place in plan["placements"]}
        self.is_up = {place["id"]: chimera and 2 * place["replica"] >= replicas for place in plan["placements"]}
        self.nodes = 1 + max(max(place["workers"]) for place in plan["placements"])


def read(path: Path) -> tuple[Placement, list[dict[str, Any]]]:
    """Returns the placement of a trace's plan, and its measured events. Throws ValueError for other files."""
    trace = read_json(path)
    try:
        placement = Placement(trace["metadata"]["plan"])
        names = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}
        events = [event for event in trace["traceEvents"]
                  if event["ph"] == "X" and names.get(event["pid"]) == "measured"]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path}: expected the trace of a run (main_bert.py --profile, or --trace FILE.json); "
                         f"this file can't be read as one: {error!r}") from None
    if not events:
        raise ValueError(f"{path}: this trace has no measured events; give the trace of a run, not of a simulation")
    return placement, events


def interval_of(event: dict[str, Any]) -> Interval:
    """Returns an event's start and end in ns."""
    return round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)


def span(intervals: list[Interval]) -> Interval:
    """Returns the first start and the last end."""
    return min(start for start, _ in intervals), max(end for _, end in intervals)


def label_of(event: dict[str, Any], placement: Placement, modules: bool) -> str:
    """Returns the original's label of an event, or "" for an event that has none."""
    kind, stage = event["args"]["kind"], event["args"]["stage"]
    if kind in AFTER:
        return AFTER[kind]
    label = PIPELINE.get(kind) or FACTORS.get(kind, "")
    if kind in FACTORS and modules:
        label += f":stage{placement.model_stage[stage]}.factor{event['args']['part']}"
    return label + UP if label and kind != "REDUCE_GRAD" and placement.is_up[stage] else label


def apart(intervals: list[Interval]) -> list[Interval]:
    """Returns intervals that overlap, each beginning where those before it have ended."""
    out: list[Interval] = []
    busy_until = min(start for start, _ in intervals)
    for start, end in intervals:
        begin = max(start, busy_until)
        out.append((begin, max(begin, end)))
        busy_until = max(busy_until, end)
    return out


def add_step(timeline: Timeline, events: list[dict[str, Any]], placement: Placement, modules: bool) -> None:
    """Appends a node's events of one step, in the order of their starts, to its timeline."""
    found: Timeline = defaultdict(list)
    sums: list[tuple[str, Interval]] = []
    for event in events:
        label, kind = label_of(event, placement, modules), event["args"]["kind"]
        if kind in ("SYNC_A", "SYNC_B"):
            sums.append((label, interval_of(event)))
        elif label:
            found[label].append(interval_of(event))
    if sums:
        for (label, _), interval in zip(sums, apart([interval for _, interval in sums]), strict=True):
            found[label].append(interval)
    if modules:
        for label, pieces in found.items():
            if label.startswith("cov_kron_"):
                start = pieces[0][0]
                found[label] = [(start, start + sum(end - begin for begin, end in pieces))]
    passes = [interval_of(event) for event in events if event["args"]["kind"] in PIPELINE]
    found["call_pipeline"] = [span(passes)]
    found["start_end"] = [span([interval_of(event) for event in events])]
    if any(event["args"]["kind"] in AFTER for event in events):
        found["one_ngd_step"] = found["start_end"]
    for label, intervals in found.items():
        timeline.setdefault(label, []).extend(intervals)


def is_after(events: list[dict[str, Any]]) -> bool:
    """Returns true if none of K-FAC's work in these events of a worker and step starts before the last backward."""
    last = max((event["ts"] for event in events if event["args"]["kind"] == "B"), default=0.0)
    return all(event["ts"] > last for event in events if event["args"]["kind"] in FACTORS)


def timelines_of(path: Path) -> list[Timeline]:
    """Returns the timeline of each worker of a trace's first pipeline. Throws ValueError."""
    placement, events = read(path)
    kept = sorted({event["args"]["step"] for event in events})[-KEPT:]
    of: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in sorted(events, key=lambda event: float(event["ts"])):
        of[event["tid"], event["args"]["step"]].append(event)
    modules = all(is_after(group) for group in of.values())
    out = []
    for node in range(placement.nodes):
        timeline: Timeline = {}
        for step in kept:
            add_step(timeline, of[node, step], placement, modules)
        out.append(timeline)
    return out


def write(trace: Path, prefix: Path | None = None) -> list[Path]:
    """Writes PREFIX_node<i>_timeline.pickle for each worker of the first pipeline, and returns the paths. By default, the
    prefix is the trace's path without its suffix. Throws ValueError, OSError."""
    base = prefix or trace.with_suffix("")
    paths = []
    for node, timeline in enumerate(timelines_of(trace)):
        path = base.with_name(f"{base.name}_node{node}_timeline.pickle")
        with replaced(path) as name:
            Path(name).write_bytes(pickle.dumps(timeline))
        paths.append(path)
    return paths


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     prog="python3 -m hetu.compat.timelines")
    parser.add_argument("trace", type=Path, help="the trace of a run: main_bert.py --profile, or --trace FILE.json")
    parser.add_argument("-o", metavar="PREFIX", type=Path, help="write PREFIX_node<i>_timeline.pickle (default: the trace's "
                                                               "path without its suffix)")
    with ht.one_line_errors("hetu.compat.timelines"):
        args = parser.parse_args(arguments)
        for path in write(args.trace, args.o):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
