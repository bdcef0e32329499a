"""Calculates the convergence bound of SD-PIPE's partial reduce.

    python3 -m hetu.compat.convergence_bound --pipelines 4 --sync-period 1 --largest-group 4

Source: the convergence theorem of SD-PIPE (partial reduce on pipelines). With N pipelines that are connected
within every P updates, and groups of at most n1 members:

    t1 = 4 N ((1 + n1^(N P)) / (1 - n1^(-N P)))^2
    t2 = (1 - n1^(-N P))^(2 / (N P))
    K >= max(12 N^2 t1 / (1 - sqrt t2)^2, 36 N^5 t1^2 / (1 - sqrt t2)^4)

From this number of updates K on, the learning rate sqrt(N / K) / L gives a rate of O(1 / sqrt(N K)). L is the Lipschitz
constant of the gradient. The theorem holds for one stage, unbiased gradients and bounded variance. K is a worst case and far
above the updates that a training needs, so compare the values of two settings rather than planning by one of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys

from hetu import one_line_errors
from hetu.command_parser import CommandParser


@dataclasses.dataclass(frozen=True)
class Bound:
    """The bound of one setting. log10_t1, log10_steps: decimal logarithms, because both can exceed any float.
    one_minus_t2: 1 - t2, because t2 itself rounds to 1."""

    pipelines: int
    log10_t1: float
    one_minus_t2: float
    log10_steps: float

    def learning_rate(self, steps: float | None = None, smoothness: float = 1.0) -> float:
        """Returns the theorem's rate for a number of updates (default: the least that it needs), sqrt(N / steps) / L."""
        log10 = self.log10_steps if steps is None else math.log10(steps)
        return float(math.sqrt(self.pipelines) * 10.0 ** (-log10 / 2) / smoothness)


def bound(pipelines: int, sync_period: int, largest_group: int) -> Bound:
    """Returns the bound for N pipelines, connected within every `sync_period` updates. Throws ValueError."""
    if pipelines < 2 or sync_period < 1 or not 2 <= largest_group <= pipelines:
        raise ValueError(f"expected at least 2 pipelines, a sync period of at least 1 and a largest group from 2 to the "
                         f"number of pipelines; got {pipelines}, {sync_period} and {largest_group}")
    updates = pipelines * sync_period
    # With e = n1^(-N P), tiny: (1 + 1/e) / (1 - e) = (1 + e) / (e (1 - e)), and 1 - sqrt t2 = 1 - (1 - e)^(1 / (N P)).
    log_e = -updates * math.log(largest_group)
    e = math.exp(log_e)
    log_ratio = math.log1p(e) - log_e - math.log1p(-e)
    log_t1 = math.log(4 * pipelines) + 2 * log_ratio
    # Below 1e-300, log1p(-e) / (N P) equals -e / (N P) to all digits, and e may be 0 as a float.
    log_gap = math.log(-math.expm1(math.log1p(-e) / updates)) if e > 1e-300 else log_e - math.log(updates)
    first = math.log(12 * pipelines**2) + log_t1 - 2 * log_gap
    second = math.log(36 * pipelines**5) + 2 * log_t1 - 4 * log_gap
    return Bound(pipelines, log_t1 / math.log(10), -math.expm1(2 * math.log1p(-e) / updates),
                 max(first, second) / math.log(10))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="python3 -m hetu.compat.convergence_bound", allow_abbrev=False, description=__doc__,
                           formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--pipelines", type=int, required=True, metavar="N", help="number of pipelines")
    add("--sync-period", type=int, default=10, metavar="P", help="updates within which all are connected (default 10)")
    add("--largest-group", type=int, metavar="G", help="members of the largest group (default: all pipelines, at most 8)")
    add("--smoothness", type=float, default=1.0, metavar="L", help="Lipschitz constant of the gradient (default 1)")
    add("--steps", type=float, metavar="K", help="updates for which the rate is given (default: the bound)")
    given = parser.parse_args(arguments)
    for name in ("smoothness", "steps"):
        value = getattr(given, name)
        if value is not None and not 0 < value < math.inf:
            parser.error(f"--{name} {value:g}: expected a number above 0")
    return given


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    given = parse(arguments)
    with one_line_errors("convergence_bound"):
        group = min(given.pipelines, 8) if given.largest_group is None else given.largest_group
        found = bound(given.pipelines, given.sync_period, group)
        print(f"{given.pipelines} pipelines, connected within every {given.sync_period} updates, groups of at most {group}")
        print(f"updates K >= 10^{found.log10_steps:.4f}   (t1 = 10^{found.log10_t1:.4f}, 1 - t2 = {found.one_minus_t2:.4g})")
        shown = f"10^{found.log10_steps:.4f}" if given.steps is None else f"{given.steps:g}"
        print(f"learning rate sqrt(N / K) / L at K = {shown}: {found.learning_rate(given.steps, given.smoothness):.6g}")
        if given.steps is not None and math.log10(given.steps) < found.log10_steps:
            print(f"K = {given.steps:g} is below the bound, so the theorem does not cover it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
