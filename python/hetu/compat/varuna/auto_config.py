"""Varuna's automatic choice of stages and micro-batch size, from the files of its profiler. `hetu plan` searches a larger
space.

For each number of stages P that divides the pieces and doesn't exceed the GPUs, the micro-batch size m is the largest
profiled one whose worst stage fits the memory. A prediction of the mini-batch by Varuna's schedule then picks P.

Source: Athlur et al. 2022 (Varuna), section 4.4; spec of the files: compute-profile-PIECE, comm-profile, allred-profile.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hetu import files
from hetu.compat.varuna.simulate import COMPUTE, mini_batch_time

SECOND = 1e6  # in the profile's unit, microseconds


class Choice(NamedTuple):
    """A choice: stages, samples of a micro-batch, and the predicted seconds of a mini-batch."""

    stages: int
    micro_batch_size: int
    seconds: float


def _numbered(table: Any, origin: Path) -> dict[int, Any]:
    if not isinstance(table, dict):
        raise ValueError(f"{origin}: expected an object {{number: …}}")
    try:
        return {int(key): value for key, value in table.items()}
    except ValueError as error:
        raise ValueError(f"{origin}: its keys must be whole numbers: {error}") from None


class AutoConfig:
    """Chooses P and m for `num_gpus` GPUs and a mini-batch of `batch_size` samples over all replicas.

    gpus_per_vm: GPUs of a machine; messages between stages of two machines take the time `long_send`.
    profile_folder: compute-profile-0, -1, … (JSON: {size: {fwd, bwd, copy, max_memory, acts_size}}), comm-profile
        ({elements: {send, long_send}}) and allred-profile ({stages: [time with 1, 2, … replicas]}). Times are in
        microseconds, sizes in bytes. comm-profile is needed for more than one stage, allred-profile for more than one
        replica.
    gpu_memory_capacity: bytes; None: no limit.
    Throws ValueError if a file or an entry is missing: Varuna counts a missing time as 0.
    """

    def __init__(self, num_gpus: int, gpus_per_vm: int, batch_size: int, profile_folder: str | os.PathLike[str] = "profiles",
                 gpu_memory_capacity: float | None = None, verbose: bool = True,
                 autofill_missing_compute: bool = False) -> None:
        for name, value in (("num_gpus", num_gpus), ("gpus_per_vm", gpus_per_vm), ("batch_size", batch_size)):
            if value < 1:
                raise ValueError(f"{name} must be >= 1, got {value}")
        self.gpus, self.per_machine, self.batch = num_gpus, gpus_per_vm, batch_size
        self.folder, self.capacity, self.verbose = Path(profile_folder), gpu_memory_capacity, verbose
        self.pieces = self._pieces()
        if autofill_missing_compute:
            self._fill()
        self.choices = [choice for stages in self._numbers_of_stages() if (choice := self._of(stages)) is not None]
        if not self.choices:
            raise ValueError(f"no number of stages fits: {len(self.pieces)} pieces on {num_gpus} GPUs of "
                             f"{gpu_memory_capacity} bytes, for micro-batches of "
                             f"{', '.join(map(str, self._sizes())) or 'no size that every piece was profiled for'}")

    def get_min(self) -> Choice:
        """Returns the fastest choice."""
        return min(self.choices, key=lambda choice: choice.seconds)

    def _pieces(self) -> list[dict[int, Mapping[str, float]]]:
        found = {int(name[1]): path for path in self.folder.glob("compute-profile-*")
                 if (name := re.fullmatch(r"compute-profile-(\d+)", path.name))}
        if not found:
            raise ValueError(f"{self.folder}: no files compute-profile-PIECE; make them with hetu.varuna.Profiler")
        missing = sorted(set(range(max(found) + 1)) - set(found))
        if missing:
            raise ValueError(f"{self.folder}: compute-profile-{missing[0]} is missing")
        pieces = [_numbered(files.read_json(found[piece]), found[piece]) for piece in range(len(found))]
        for piece, sizes in enumerate(pieces):
            for size, entry in sizes.items():
                for key in ("fwd", "bwd", "max_memory", "acts_size"):
                    value = entry.get(key) if isinstance(entry, dict) else None
                    if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
                        raise ValueError(f"{found[piece]}: size {size}: '{key}' must be a number >= 0, got {value!r}")
        return pieces

    def _fill(self) -> None:
        """Gives a piece without a size the costs of the piece before it."""
        for before, piece in zip(self.pieces, self.pieces[1:], strict=False):
            for size, entry in before.items():
                piece.setdefault(size, entry)

    def _sizes(self) -> list[int]:
        return sorted(set.intersection(*(set(piece) for piece in self.pieces)))

    def _numbers_of_stages(self) -> list[int]:
        return [stages for stages in range(1, len(self.pieces) + 1)
                if len(self.pieces) % stages == 0 and stages <= self.gpus]

    def _stages_of(self, stages: int) -> list[list[dict[int, Mapping[str, float]]]]:
        each = len(self.pieces) // stages
        return [self.pieces[first:first + each] for first in range(0, len(self.pieces), each)]

    def _memory(self, stage: list[dict[int, Mapping[str, float]]], size: int) -> float:
        return sum(piece[size]["max_memory"] - piece[size]["acts_size"] for piece in stage) + stage[-1][size]["acts_size"]

    def _of(self, stages: int) -> Choice | None:
        replicas = self.gpus // stages
        share = self.batch // replicas
        fitting = [size for size in self._sizes() if size <= share and (self.capacity is None or max(
            self._memory(stage, size) for stage in self._stages_of(stages)) <= self.capacity)]
        if not fitting:
            if self.verbose:
                print(f"{stages} stages x {replicas} replicas: no profiled size fits", flush=True)
            return None
        size = max(fitting)
        seconds = self._predicted(stages, replicas, size, math.ceil(share / size)) / SECOND
        if self.verbose:
            print(f"{stages} stages x {replicas} replicas, micro-batches of {size}: {seconds:.4g} s", flush=True)
        return Choice(stages, size, seconds)

    def _predicted(self, stages: int, replicas: int, size: int, micro_batches: int) -> float:
        times = [(int(sum(piece[size]["fwd"] for piece in stage)), int(sum(piece[size]["bwd"] for piece in stage)))
                 for stage in self._stages_of(stages)]
        text = "".join(f"{forward} {backward}\n" for forward, backward in times)
        Path(COMPUTE).write_text(text)
        near, far = self._send(size) if stages > 1 else (0.0, 0.0)
        told = argparse.Namespace(P=stages, N=micro_batches, send=near, long_send=far, dp=replicas, static=False,
                                  allreduce=self._sum(stages, replicas) if replicas > 1 else 0.0)
        return mini_batch_time(told, text, {"GPUS_PER_VM": str(self.per_machine)})

    def _send(self, size: int) -> tuple[float, float]:
        """Returns the times of a message within a machine and between machines, for the boundary of the first piece."""
        path = self.folder / "comm-profile"
        if not path.is_file():
            raise ValueError(f"{path} is missing; it has the times of messages: {{elements: {{send, long_send}}}}")
        table = _numbered(files.read_json(path), path)
        elements = int(self.pieces[0][size]["acts_size"]) // 4
        entry = table.get(elements)
        if entry is None:
            raise ValueError(f"{path}: no entry for {elements} elements, the boundary of micro-batches of {size}; it has "
                             f"{', '.join(map(str, sorted(table)))}")
        near, far = entry.get("send", -1), entry.get("long_send", -1)
        if near < 0 and far < 0:
            raise ValueError(f"{path}: {elements} elements: neither send nor long_send was measured")
        return (near if near >= 0 else far), (far if far >= 0 else near)

    def _sum(self, stages: int, replicas: int) -> float:
        """Returns the time of a gradient sum. Beyond the measured numbers of replicas it is that of the nearest lower power
        of two, or else that of two replicas times log2."""
        path = self.folder / "allred-profile"
        if not path.is_file():
            raise ValueError(f"{path} is missing; it has the times of gradient sums: {{stages: [1, 2, … replicas]}}")
        rings = _numbered(files.read_json(path), path).get(stages)
        if not isinstance(rings, list) or len(rings) < 2:
            raise ValueError(f"{path}: no times for {stages} stages; it needs a list for 1, 2, … replicas")
        if replicas <= len(rings):
            return float(rings[replicas - 1])
        lower = 1 << (replicas.bit_length() - 1)
        return float(rings[lower - 1] if lower <= len(rings) else rings[1] * math.log2(replicas))
