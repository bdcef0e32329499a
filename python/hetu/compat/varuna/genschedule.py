"""Prints a stage's order in Varuna's schedule, in the format of Varuna's own program: `hetu genschedule P N STAGE`.

The output is pairs `task,micro-batch;` in order. Tasks are 0 forward, 1 recompute, 2 backward. `hetu schedule varuna`
prints the whole plan.
"""

from __future__ import annotations

import argparse
import re
import sys

from hetu import one_line_errors, schedule
from hetu.command_parser import CommandParser

TASKS = {"F": 0, "R": 1, "B": 2}


def order_of(stages: int, micro_batches: int, stage: int) -> str:
    """Returns the pairs. Throws ValueError for a stage that doesn't exist."""
    if not 0 <= stage < stages:
        raise ValueError(f"stage {stage} does not exist: the {stages} stages are 0 to {stages - 1}")
    row = schedule.generate("varuna", stages=stages, micro_batches=micro_batches).rows[stage]
    found = (re.fullmatch(r"\d+([FRB])(\d+)", cell) for cell in row)
    return "".join(f"{TASKS[cell[1]]},{cell[2]};" for cell in found if cell)


def main() -> None:
    """Runs the command."""
    parser = CommandParser(prog="hetu genschedule", description=__doc__, allow_abbrev=False,
                           formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, help_text in (("P", "number of stages"), ("N", "number of micro-batches per replica"),
                            ("STAGE", "stage whose order is printed")):
        parser.add_argument(name, type=int, help=help_text)
    args = parser.parse_args()
    print(order_of(args.P, args.N, args.STAGE))


if __name__ == "__main__":
    with one_line_errors("hetu genschedule"):
        main()
    sys.exit(0)
