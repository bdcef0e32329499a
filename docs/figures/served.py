"""The cases of training over parameter servers with slow pipelines, and the results of `hetu simulate` for each.

Benchmarks compare measured runs with them (tests/bench/server_throughput.py)."""

from __future__ import annotations

from dataclasses import dataclass

from figures import heterogeneity
from figures.heterogeneity import AVERAGING, BACKWARD, CASES, FORWARD, PAUSES, Case

MICRO_BATCHES = 8  # of a step, which is a wave
SERVERS = 4
SLOWED = [case for case in [*CASES, PAUSES] if (case.stages, case.pipelines) == (4, 4)]


@dataclass(frozen=True)
class Way:
    """A training over servers: waves of local updates, or steps whose gradients the servers apply."""

    name: str
    method: str
    sync: str
    staleness: int

    def words(self, case: Case, steps: int) -> tuple[str, ...]:
        """Returns the arguments after the command."""
        return (self.method, "--stages", f"{case.stages}", "--micro-batches", f"{MICRO_BATCHES}", "--steps", f"{steps}",
                "--pipelines", f"{case.pipelines}", "--forward", f"{FORWARD}", "--backward", f"{BACKWARD}", "--allreduce",
                f"{AVERAGING}", "--sync-method", self.sync, "--staleness", f"{self.staleness}", "--servers", f"{SERVERS}",
                *case.stragglers())


WAYS = [*(Way(f"HetPipe, D = {d}", "hetpipe", "hetpipe", d) for d in (0, 1, 4)),
        *(Way(name, "1f1b", "ps", s) for name, s in (("BSP", 0), ("SSP, s = 1", 1), ("SSP, s = 4", 4), ("ASP", -1)))]


def parts(case: Case, per_ms: float) -> float:
    """Returns a throughput relative to as many equal pipelines that wait neither for each other nor for a fill or a drain.
    """
    return per_ms * (FORWARD + BACKWARD) / case.pipelines


def simulated(case: Case, way: Way, steps: int) -> float:
    return parts(case, float(str(heterogeneity.figures(("simulate", *way.words(case, steps)))["throughput"])))
