"""Prints the plan that a user's function returns. `hetu simulate module:function …` runs it (cli/plan_function.cpp):

    python3 -m hetu.plan_function MODULE:FUNCTION STAGES MICRO_BATCHES
"""

from __future__ import annotations

import sys

from hetu import schedule

# Exit statuses, with the reason on standard output. Other errors of the function keep their traceback.
NO_FUNCTION, REFUSED = 2, 3


def main(name: str, stages: int, micro_batches: int) -> int:
    """Writes the plan as CSV or JSON, or the reason why there is none. Returns the exit status."""
    out, sys.stdout = sys.stdout, sys.stderr  # what the function prints must not mix with the plan
    try:
        function = schedule.function_named(name)
    except ValueError as error:
        out.write(str(error))
        return NO_FUNCTION
    try:
        out.write(schedule.text_of(function, stages, micro_batches))
    except ValueError as error:
        out.write(str(error))
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
