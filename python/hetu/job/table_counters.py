"""Counters of a worker's cache of a table on parameter servers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableCounters:
    """Counts since the job began. Rows count once per step.

    stale: cached rows that were sent again.
    bytes: size of sent rows, in both directions.
    bytes_uncached: bytes that the same steps would have sent without a cache.
    """

    lookups: int
    misses: int
    stale: int
    rows_pulled: int
    rows_pushed: int
    evictions: int
    bytes: int
    bytes_uncached: int

    @property
    def miss_rate(self) -> float:
        """The share of looked-up rows that were not in the cache."""
        return self.misses / self.lookups if self.lookups else 0.0

    @property
    def saved(self) -> float:
        """The share of bytes that the cache saved; negative if it cost bytes."""
        return 1 - self.bytes / self.bytes_uncached if self.bytes_uncached else 0.0

    def describe(self) -> str:
        saved = f", {self.saved:.1%} saved" if self.saved > 0 else ""
        return (f"{self.lookups} rows looked up, {self.miss_rate:.1%} not in the cache; {self.bytes / 1e6:.2f} MB sent, "
                f"without a cache {self.bytes_uncached / 1e6:.2f} MB{saved}")
