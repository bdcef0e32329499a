"""What a worker's cache of a table on parameter servers did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableCounters:
    """Counts since the job began; rows count once per step. `stale`: cached, but sent anew. `bytes`: of rows, both ways;
    `bytes_uncached`: what the same steps would have sent without a cache."""

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
        """Rows that were not in the cache, over those that were looked up."""
        return self.misses / self.lookups if self.lookups else 0.0

    @property
    def saved(self) -> float:
        """The part of the bytes that the cache saved; below 0 where it cost some."""
        return 1 - self.bytes / self.bytes_uncached if self.bytes_uncached else 0.0

    def describe(self) -> str:
        saved = f", {self.saved:.1%} saved" if self.saved > 0 else ""
        return (f"{self.lookups} rows looked up, {self.miss_rate:.1%} not in the cache; {self.bytes / 1e6:.2f} MB sent, "
                f"without a cache {self.bytes_uncached / 1e6:.2f} MB{saved}")
