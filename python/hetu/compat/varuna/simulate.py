"""Predicts Varuna's mini-batch time with Hetu's simulator: `hetu simulate-varuna P N SEND ALLREDUCE [LONG_SEND] [DP]`.

All times are in microseconds. Reads compute.txt in the working folder: a line "FORWARD BACKWARD" per stage. A recompute
takes as long as a forward; the last stage has none. A message to a stage on another machine takes LONG_SEND. Stages are
placed in blocks of GPUS_PER_VM (4) per machine. ALLREDUCE is added if DP, the number of replicas (default 2), is more than
1. The environment variables GPIPE=1 and PD_1F1B=1 predict these methods with recompute. --static turns off Varuna's
run-time rule. There is no jitter. The output line is Varuna's; `hetu simulate` prints more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hetu import one_line_errors, schedule
from hetu.command_parser import CommandParser
from hetu.counted import counted

COMPUTE = "compute.txt"


def costs_of(text: str, stages: int, send: float, long_send: float, per_machine: int) -> dict[str, Any]:
    """Returns the costs from compute.txt and the command line. Throws ValueError, with the line's number."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            forward, backward = map(float, line.split())
        except ValueError:
            raise ValueError(f"{COMPUTE}:{number}: '{line}': expected two numbers, forward and backward in "
                             f"microseconds") from None
        rows.append((forward, backward))
    if len(rows) != stages:
        raise ValueError(f"{COMPUTE}: {counted(len(rows), 'line')} for {counted(stages, 'stage')}; "
                         "expected one line per stage")
    pairs = [{"from": s, "to": s + step, "latency": send if s // per_machine == (s + step) // per_machine else long_send}
             for s in range(stages) for step in (-1, 1) if 0 <= s + step < stages]
    return {"stages": [{"forward": forward, "input_grad": backward / 2, "weight_grad": backward / 2, "recompute": forward}
                       for forward, backward in rows], "link": {"pairs": pairs}}


def mini_batch_time(args: argparse.Namespace, text: str, environment: dict[str, str]) -> float:
    """Returns the microseconds of a mini-batch. Throws ValueError."""
    flags = [name for name in ("GPIPE", "PD_1F1B") if environment.get(name) == "1"]
    if len(flags) > 1 or environment.get("SCATTERED") == "1":
        raise ValueError("set only one of GPIPE=1 and PD_1F1B=1; SCATTERED=1 is not supported")
    machine = environment.get("GPUS_PER_VM", "4")
    if not machine.isdigit() or int(machine) < 1:
        raise ValueError(f"GPUS_PER_VM={machine}: expected a whole number of at least 1")
    long_send = args.send if args.long_send is None else args.long_send
    costs = costs_of(text, args.P, args.send, long_send, int(machine))
    method = {"GPIPE": "gpipe", "PD_1F1B": "1f1b"}[flags[0]] if flags else "varuna"
    how: dict[str, Any] = {"with_recompute": True} if flags else {"runtime_rule": not args.static}
    plan = schedule.generate(method, stages=args.P, micro_batches=args.N, **how)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "costs.json")
        file.write_text(json.dumps(costs))
        predicted = schedule.simulate(plan, costs=str(file))
    return float(predicted["step_time"]) + (args.allreduce if args.dp > 1 else 0)


def main() -> None:
    """Runs the command."""
    parser = CommandParser(prog="hetu simulate-varuna", description=__doc__, allow_abbrev=False,
                           formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("P", type=int, help="number of stages")
    parser.add_argument("N", type=int, help="number of micro-batches per replica")
    parser.add_argument("send", type=float, help="time of a message within a machine")
    parser.add_argument("allreduce", type=float, help="time of the gradient sum")
    parser.add_argument("long_send", type=float, nargs="?", help="time of a message between machines (default: SEND)")
    parser.add_argument("dp", type=int, nargs="?", default=2, help="number of replicas (default 2)")
    parser.add_argument("--static", action="store_true",
                        help="run tasks in the planned order, without Varuna's run-time rule")
    args = parser.parse_args()
    place = Path(COMPUTE)
    if not place.is_file():
        raise ValueError(f"{COMPUTE} not found in {Path.cwd()}; it must have a line 'FORWARD BACKWARD' per stage")
    print(f"Mini-batch time (usec) = {mini_batch_time(args, place.read_text(), dict(os.environ)):.0f}")


if __name__ == "__main__":
    with one_line_errors("hetu simulate-varuna"):
        main()
    sys.exit(0)
