"""Profiles: costs of a model's blocks by micro-batch size. `hetu profile` and hetu.torch.profile() write them, and the
planner reads them (pipeline/cost/profile_file.h)."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping
from typing import Any

SIZES = "micro_batch_sizes"


def described(measured: Mapping[int, dict[str, Any]], command: str, workers: int) -> dict[str, Any]:
    """Returns the profile of these costs, with a description of the measurement."""
    return {"command": command, "machine": platform.processor() or platform.machine(),
            "measured": datetime.datetime.now().isoformat(timespec="seconds"), "workers": workers,
            SIZES: {str(size): costs for size, costs in measured.items()}}


def links_of(measured: dict[int, dict[str, Any]]) -> dict[str, float]:
    """Returns latency and bandwidth (bytes per ms) of a line through the transit times at the measured message sizes; with
    one size, or if larger messages weren't slower, the mean time as latency and no bandwidth."""
    points = []
    for costs in measured.values():
        sizes = [stage["bytes_out"] for stage in costs["stages"][:-1]]
        if sizes and costs["link"]["latency"] > 0:
            points.append((sum(sizes) / len(sizes), costs["link"]["latency"]))
    if not points:
        return {"latency": 0.0, "bandwidth": 0.0}
    mean_bytes = sum(size for size, _ in points) / len(points)
    mean_ms = sum(ms for _, ms in points) / len(points)
    spread = sum((size - mean_bytes) ** 2 for size, _ in points)
    slope = sum((size - mean_bytes) * (ms - mean_ms) for size, ms in points) / spread if spread else 0.0
    latency = mean_ms - slope * mean_bytes
    if slope <= 0 or latency <= 0:
        return {"latency": mean_ms, "bandwidth": 0.0}
    return {"latency": latency, "bandwidth": 1 / slope}


def merged(old: dict[str, Any], new: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns the profile `old` with the sizes of `new`. Throws ValueError if they are of different models."""
    if SIZES not in old:
        raise ValueError(f"{name} is not a profile; choose another file")
    one, other = (next(iter(profile[SIZES].values()))["blocks"] for profile in (old, new))
    if len(one) != len(other):
        raise ValueError(f"{name} is the profile of a model of {len(one)} blocks, and this model has {len(other)}; choose "
                         "another file")
    sizes = {**old[SIZES], **new[SIZES]}
    return {**old, **new, SIZES: dict(sorted(sizes.items(), key=lambda item: int(item[0])))}
