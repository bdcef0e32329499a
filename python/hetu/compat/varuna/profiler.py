"""Varuna's profiles of a model's pieces, as JSON."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hetu import _hetu, files
from hetu.process import leave
from hetu.torch.measured import PieceCost, piece_costs
from hetu.torch.tracing import first_tensor, split_at_cut_points

WARM_UP, TURNS = 20, 5
GRADIENT = 2  # copies per parameter: a parameter and its gradient

GetBatch = Callable[..., Mapping[str, Any]]


class Profiler:
    """Measures each piece between CutPoints, for given sizes of micro-batches. The pieces are distributed over the workers
    in turn.

    model: a model as for Varuna.
    get_batch(size, device) or get_batch(size): returns the model's inputs by name. It may be passed to initialize()
    instead.
    out_folder: receives a file compute-profile-PIECE for each piece: {size: {fwd, bwd, copy (microseconds), max_memory,
    acts_size (bytes)}}.
    pstages_to_profile: the pieces to measure; None: all.
    add_to_existing: keeps the sizes that a file already contains.
    Links and gradient sums are not measured. gpus_per_node and from_cache have no effect. fp16 and devices other than the
    CPU raise ValueError.
    """

    def __init__(self, model: nn.Module, get_batch: Any = None, device: Any = -1, gpus_per_node: int | None = None,
                 fp16: bool = False, out_folder: str | os.PathLike[str] = "profiles",
                 pstages_to_profile: Iterable[int] | None = None, from_cache: bool = True,
                 add_to_existing: bool = False) -> None:
        if get_batch is not None and not callable(get_batch):  # the README's form Profiler(model, device)
            get_batch, device = None, get_batch
        if fp16 or device not in (-1, None, "cpu", torch.device("cpu")):
            raise ValueError(f"fp16={fp16}, device={device}: only float32 on the CPU can be profiled")
        self.model, self.get_batch, self.folder = model, get_batch, Path(out_folder)
        self.wanted = None if pstages_to_profile is None else set(pstages_to_profile)
        self.adds = add_to_existing
        self.optimizer: torch.optim.Optimizer | None = None
        self.links = leave.transport(_hetu.env()["worker"])

    def initialize(self, get_batch: GetBatch) -> None:
        """Sets the function that returns samples."""
        self.get_batch = get_batch

    def set_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Sets the optimizer, whose states count as memory: two per parameter for optimizers like Adam, one with momentum.
        """
        self.optimizer = optimizer

    def profile_all(self, *words: Any, out_folder: str | os.PathLike[str] | None = None) -> dict[int, dict[int, Any]]:
        """Measures this worker's pieces and writes their files. Returns the costs by piece and size. Called as
        profile_all(sizes) or profile_all(get_batch, sizes)."""
        *first, sizes = words
        if first:
            self.initialize(first[0])
        if self.get_batch is None:
            raise ValueError("profile_all() needs samples; call initialize(get_batch) first")
        folder = self.folder if out_folder is None else Path(out_folder)
        self._costs(1, WARM_UP)
        found: dict[int, dict[int, Any]] = {}
        for size in sizes:
            try:
                costs = self._costs(int(size), TURNS)
            except MemoryError:  # ends the sweep
                break
            for number, cost in enumerate(costs):
                if number % self.links.workers == self.links.worker and (self.wanted is None or number in self.wanted):
                    found.setdefault(number, {})[int(size)] = self._told(cost)
        for number, by_size in found.items():
            self._write(folder / f"compute-profile-{number}", by_size)
        return found

    def _batch(self, size: int) -> dict[str, Any]:
        assert self.get_batch is not None
        takes = len(inspect.signature(self.get_batch).parameters)  # the README's get_batch(size) has no device
        return dict(self.get_batch(size) if takes == 1 else self.get_batch(size, "cpu"))

    def _costs(self, size: int, turns: int) -> list[PieceCost]:
        batch = self._batch(size)
        names = [name for name, value in batch.items() if isinstance(value, torch.Tensor)]
        pieces = split_at_cut_points(self.model, names, {name: value for name, value in batch.items() if name not in names})
        return piece_costs(pieces, lambda out, _: first_tensor(out), {name: batch[name] for name in names}, None, turns)

    def _told(self, cost: PieceCost) -> dict[str, float]:
        weights = cost.weight_bytes * (GRADIENT + self._states())
        return {"fwd": 1e6 * cost.forward_s, "bwd": 1e6 * cost.backward_s, "copy": 1e6 * cost.copy_s,
                "max_memory": weights + cost.kept_bytes + cost.out_bytes, "acts_size": cost.out_bytes}

    def _states(self) -> int:
        """Returns the number of the optimizer's states per parameter."""
        if self.optimizer is None:
            return 0
        group = self.optimizer.param_groups[0]
        return 2 if "betas" in group else 1 if group.get("momentum") else 0

    def _write(self, path: Path, by_size: dict[int, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        known = files.read_json(path) if self.adds and path.is_file() else {}
        known.update({str(size): told for size, told in by_size.items()})
        files.write_text(path, json.dumps(known, indent=1))
