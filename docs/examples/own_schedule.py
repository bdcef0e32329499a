"""A user-defined schedule: `python3 docs/examples/own_schedule.py 4 8 > mine.csv`, then any command on mine.csv."""

import sys

import hetu


def two_by_two(stages: int, micro_batches: int) -> list[list[str]]:
    """1F1B in pairs: after the warm-up, two forwards and two backwards in turn."""
    rows = []
    for s in range(stages):
        forwards = [f"{s}F{m}" for m in range(micro_batches)]
        backwards = [f"{s}B{m}" for m in range(micro_batches)]
        warmup = 2 * (stages - 1 - s)
        row = forwards[:warmup]
        for at in range(0, micro_batches, 2):
            row += forwards[warmup + at : warmup + at + 2] + backwards[at : at + 2]
        rows.append(row)
    return rows


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: own_schedule.py STAGES MICRO_BATCHES, for example 4 8")
    plan = hetu.schedule.generate(two_by_two, stages=int(sys.argv[1]), micro_batches=int(sys.argv[2]))
    hetu.schedule.verify(plan)  # raises an error with one line per worker if the plan is wrong
    print(plan.csv(), end="")
    print(hetu.schedule.render(plan), file=sys.stderr)
