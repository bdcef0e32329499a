"""Settings that Varuna's launcher passes to the wrapper of a script that it runs (node.py)."""

from __future__ import annotations

sums: str | None = None  # the order in which gradients are added, as for hetu.torch.Pipeline; None: its default
