"""Saving and loading of a worker's part of a Varuna model: the assignment of tensors to files."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hetu.compat.varuna import checkpoint
from hetu.counted import counted
from hetu.process import rounds
from hetu.torch import Pipeline
from hetu.torch.device import optimizer_value


class Saver:
    """Saves and loads one worker's part. `common` holds values that are equal on all workers and belong to no parameter:
    scale and step."""

    def __init__(self, pipe: Pipeline, optimizer: torch.optim.Optimizer) -> None:
        self.pipe, self.optimizer = pipe, optimizer
        self.uploads = ThreadPoolExecutor(1, "varuna-upload")  # runs uploads in the order of saves

    def save(self, folder: Path, shard: bool, common: dict[str, Any], local: Path | None) -> Future[None] | None:
        """Saves this worker's part. Collective: every worker calls it.

        local: a folder of this machine, or None. With it, the files are complete there on return, and the result is a
        future that is done once they are in `folder`. Without it, the checkpoint is complete on return.
        """
        rank = self.pipe.transport.worker
        if rank == 0:  # for a launcher that continues from the checkpoint once it is complete
            rounds.note(store=os.path.abspath(folder.parent), step=checkpoint.step_of(folder))
        files = self._files(shard)
        if rank == 0:
            common = {**common, "optimizer": type(self.optimizer).__name__}
            groups = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
            files[checkpoint.COMMON] = {**common, "param_groups": groups, "step": self.pipe.steps}
        save = self.pipe.state.agreed(uuid.uuid4().hex)
        checkpoint.unmark(folder, rank)
        here = folder if local is None else local / f"{folder.name}.{rank}.{save}"
        written = {file: list(held) for file, held in files.items() if file != checkpoint.COMMON}
        marker = {"ranks": self.pipe.transport.workers, "save": save, "files": checkpoint.write(here, files),
                  "written": written}
        if local is not None:
            return self.uploads.submit(checkpoint.upload, here, folder, rank, marker)
        checkpoint.mark(folder, rank, marker)
        self.pipe.state.agreed("marked")
        return None

    def load(self, folder: Path, complete: bool) -> dict[str, Any]:
        """Loads this worker's part, and returns the common values. Throws OSError, which names what is missing."""
        markers = checkpoint.markers_of(folder, complete)
        wanted = {name for _, piece in self._pieces() for name, _ in self._named(piece)}
        held: dict[str, dict[str, Any]] = {"opt-fp32-params": {}, "opt-state": {}, "buffers": {}}
        common: dict[str, Any] = {}
        for marker in markers:
            for file in marker["files"]:
                if file == checkpoint.COMMON:
                    common = checkpoint.read(folder, file, marker, complete)
                elif wanted & set(marker["written"][file]):
                    held[file.rpartition("-")[0]].update(checkpoint.read(folder, file, marker, complete))
        if not common:
            raise OSError(f"{folder}: {checkpoint.COMMON} is missing")
        self._check(folder, markers, common)
        self._take(folder, held)
        for group, saved in zip(self.optimizer.param_groups, common["param_groups"], strict=True):
            group.update(saved)
        self.pipe.steps = common["step"]
        return common

    def _check(self, folder: Path, markers: list[dict[str, Any]], common: dict[str, Any]) -> None:
        """Throws OSError if the checkpoint belongs to another model or optimizer."""
        saved = {name for marker in markers for file, names in marker["written"].items()
                 if file.startswith(("opt-fp32-params-", "buffers-")) for name in names}
        unexpected = self.pipe.state.compare_names(saved)[1]
        if unexpected:
            raise OSError(f"{folder}: the checkpoint has '{unexpected[0]}', which the model does not have")
        here = type(self.optimizer).__name__
        if common.get("optimizer") != here:
            raise OSError(f"{folder}: the checkpoint's optimizer is {common.get('optimizer', 'not named')}, but this one is "
                          f"{here}")
        if len(common["param_groups"]) != len(self.optimizer.param_groups):
            raise OSError(f"{folder}: the checkpoint's optimizer has "
                          f"{counted(len(common['param_groups']), 'group')} of parameters, "
                          f"this one has {len(self.optimizer.param_groups)}")

    def _take(self, folder: Path, held: dict[str, dict[str, Any]]) -> None:
        found = {**held["opt-fp32-params"], **held["buffers"]}
        wanted = [(name, tensor) for _, piece in self._pieces() for name, tensor in self._named(piece)]
        for name, tensor in wanted:
            if name not in found:
                raise OSError(f"{folder}: the checkpoint has no '{name}'")
            if found[name].shape != tensor.shape:
                raise OSError(f"{folder}: '{name}' is {list(found[name].shape)} in the checkpoint and {list(tensor.shape)} "
                              f"here")
        with torch.no_grad():
            for name, tensor in wanted:
                tensor.copy_(found[name])
                if name in held["opt-state"]:  # copied: two tied parameters have separate states
                    self.optimizer.state[tensor] = {key: optimizer_value(self.optimizer, tensor, key, value)
                                                    for key, value in held["opt-state"][name].items()}

    # ---- which tensor in which file ----

    def _pieces(self) -> Iterator[tuple[int, nn.Module]]:
        for stage in self.pipe.own.values():
            for number, piece in enumerate(stage.pieces):
                yield stage.first_piece + number, piece

    def _named(self, piece: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the piece's parameters and persistent buffers. A tied parameter has the name of the first copy."""
        names = {id(tensor): known[0] for known, tensor in self.pipe.state.own_tensors(first_copies=False)}
        for tensor in [*piece.parameters(), *piece.buffers()]:
            if id(tensor) in names:
                yield names[id(tensor)], tensor

    def _files(self, shard: bool) -> checkpoint.Files:
        """Returns the contents of this worker's files. Without `shard`, replica 0 writes everything. Otherwise replica i
        mod replicas writes parameter i of a stage."""
        files: checkpoint.Files = {}
        seconds = {id(tie.copies[1]) for tie in self.pipe.ties}
        done: set[str] = set()
        replica, replicas = self.pipe.pipeline, self.pipe.pipelines if shard else 1
        if replica and not shard:
            return files
        for number, piece in self._pieces():
            end = f"{number}_{replica}" if shard else str(number)
            for name, tensor in self._named(piece):
                if id(tensor) in seconds or name in done:
                    continue
                done.add(name)
                if not isinstance(tensor, nn.Parameter):
                    if replica == 0:  # buffers of the first replica
                        files.setdefault(f"buffers-{number}", {})[name] = tensor.detach()
                elif (len(done) - 1) % replicas == (replica if shard else 0):
                    files.setdefault(f"opt-fp32-params-{end}", {})[name] = tensor.detach()
                    files.setdefault(f"opt-state-{end}", {})[name] = self.optimizer.state.get(tensor, {})
        return files
