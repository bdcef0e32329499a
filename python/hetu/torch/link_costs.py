"""Measures the links between the workers of a job, by a pipeline whose stages hardly compute."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, NamedTuple

import torch
from torch import nn

from hetu import _hetu, files, profile_file
from hetu.torch.pipeline import Pipeline

SMALL_BYTES = 1 << 12
STEPS, MICRO_BATCHES = 6, 4


class LinkCosts(NamedTuple):
    """Times in ms, and bytes per ms; a bandwidth of 0 is unlimited."""

    latency: float
    bandwidth: float
    reduce_scalars: float  # time of a step's sum of its loss over the workers


class _Scaled(nn.Module):
    """A stage that multiplies by a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the product."""
        return x * self.factor


def measured_links(links: Any, message_bytes: float) -> LinkCosts:
    """Returns the costs of messages between consecutive workers: the line through the transit times of a small message and
    one of `message_bytes`. Collective. Without other workers, all are 0."""
    if links.workers == 1:
        return LinkCosts(0.0, 0.0, 0.0)
    found = {}
    for size in sorted({SMALL_BYTES, max(SMALL_BYTES, int(message_bytes))}):
        found[size] = _costs_of(links, size)
    link = profile_file.links_of(found)
    return LinkCosts(link["latency"], link["bandwidth"], found[SMALL_BYTES]["reduce_scalars"])


def _costs_of(links: Any, size: int) -> dict[str, Any]:
    """Returns the costs of a pipeline whose messages have this size, from its trace."""
    pipe = Pipeline([_Scaled() for _ in range(links.workers)], nn.MSELoss(), "1f1b", MICRO_BATCHES)
    x = torch.ones(MICRO_BATCHES, size // 4)
    for step in range(STEPS):
        pipe.step(x, x)
        if step == 0:
            pipe.record()
    costs: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="hetu-links-") as folder:
        path = os.path.join(folder, "trace.json")
        pipe.write_trace(path)
        if links.worker == 0:
            costs = files.read_json(path)["metadata"]["costs"]
            for stage in costs["stages"][:-1]:
                stage["bytes_out"] = float(size)
    mine = json.dumps(costs).encode()
    found: dict[str, Any] = json.loads(
        _hetu.exchange_bytes(links, list(range(links.workers)), mine, 0, "the links of profile()")[0])
    return found
