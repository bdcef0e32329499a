"""Writes a checkpoint for Pipeline.save(). The same C++ code as for graph checkpoints provides the same guarantees: a
checksum for every tensor, one commit for all workers, and a lock on the folder.

    FOLDER/step-00000200/manifest.json                   checksums, optimizers, schedulers
                         model.safetensors.index.json    the weights, in the usual format of sharded safetensors
                         model-worker-00000.safetensors  weights of worker 0's stages
                         state-worker-00000.safetensors  states of optimizers and averages
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from hetu import _hetu, progress
from hetu.torch import checkpoint, optimizer_states
from hetu.torch.plain_values import Encoder, dumps
from hetu.torch.state import PipelineState

KIND, VERSION = "hetu.torch", 1
Row = tuple[str, str, str, list[int], Callable[[], Any]]  # name, state, dtype, shape, bytes


class Saved:
    """This worker's part of a checkpoint."""

    def __init__(self, pipe: PipelineState, optimizers: Mapping[str, torch.optim.Optimizer],
                 more: Mapping[str, Any]) -> None:
        self.pipe = pipe
        self.weights: list[Row] = []
        self.states: list[Row] = []
        self.rows_by_key: dict[tuple[str, str], Row] = {}
        self.values: dict[str, dict[str, Any]] = {}  # by optimizer and parameter: the values that are not plain tensors
        self.more: dict[str, Any] = {}
        self.sums: dict[str, int] = {}  # checksums of tensors that all workers must have equal
        self.optimizers = optimizer_states.describe(pipe, optimizers)
        for names, tensor in pipe.own_tensors(first_copies=True):
            for name in names:
                self._add(self.weights, name, "", tensor)
        for name, one in optimizers.items():
            self._add_optimizer(name, one, pipe.states_saved_here())
        for name, one in more.items():
            self._add_more(name, one, optimizers)

    def _add(self, rows: list[Row], name: str, state: str, tensor: torch.Tensor) -> None:
        where = f"{name}#{state}" if state else name
        row = name, state, checkpoint.format_dtype(where, tensor), list(tensor.shape), lambda: checkpoint.bytes_of(tensor)
        if (name, state) in self.rows_by_key:
            raise ValueError(f"the checkpoint would contain '{where}' twice; give the optimizers and other states different "
                             f"names")
        self.rows_by_key[name, state] = row
        rows.append(row)

    def _add_optimizer(self, name: str, optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> None:
        prefix, values = optimizer_states.prefix_of(name), {}
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        with self.pipe.own_states_only():
            states = optimizer.state_dict()["state"]
        for number, parameter in enumerate(parameters):
            if id(parameter) not in names or number not in states:
                continue
            known = names[id(parameter)]

            def store(path: str, tensor: torch.Tensor, known: str = known) -> None:
                self._add(self.states, known, prefix + path, tensor)

            rest = {}
            for key, value in states[number].items():
                if isinstance(value, torch.Tensor) and "/" not in key:
                    store(key, value)
                else:
                    rest[key] = value
            if rest:
                values[known] = Encoder(f"{optimizer_states.label(name)}, '{known}'", store).encode(rest)
        self.values[name] = values

    def _add_more(self, name: str, one: Any, optimizers: Mapping[str, Any]) -> None:
        check_more(name, one, optimizers)
        pipe = self.pipe
        own = {known: tensor for known, tensor in pipe.own_by_name()}
        firsts = pipe.names_saved_here()

        def store(path: str, tensor: torch.Tensor) -> None:
            self.sums[f"{name}/{path}"] = zlib.crc32(checkpoint.bytes_of(tensor))
            if pipe.transport.worker == 0:
                self._add(self.states, *whole_state(name, path), tensor)
            else:
                checkpoint.format_dtype(f"{name}/{path}", tensor)

        def store_part(parameter: str, path: str, tensor: torch.Tensor) -> None:
            if parameter in firsts:
                self._add(self.states, parameter, part_state(name, path), tensor)

        shapes = {known: tensor.shape for known, tensor in own.items()}
        self.more[name] = Encoder(name, store, shapes, store_part).encode(one.state_dict())

    def text(self) -> str:
        """Returns this worker's description of its part, for the other workers."""
        names = {name: [size_of(dtype, shape), self._file("model")] for name, _, dtype, shape, _ in self.weights}
        return dumps({"names": names, "optimizers": self.optimizers, "values": self.values, "more": self.more,
                      "sums": self.sums})

    def files(self) -> list[tuple[str, str, list[Row]]]:
        """Returns this worker's files, in the form that _hetu.save_tensors takes."""
        parts = [(self._file("model"), "", self.weights), (self._file("state"), "", self.states)]
        return [part for part in parts if part[2]]

    def _file(self, kind: str) -> str:
        return f"{kind}-worker-{self.pipe.transport.worker:05d}.safetensors"


def part_state(name: str, path: str) -> str:
    """Returns the state name of a parameter's tensor in the dict at `path` of an object's state."""
    return f"{name}/{path}" if path else f"{name}/"


def whole_state(name: str, path: str) -> tuple[str, str]:
    """Returns the name and state name of a tensor that all workers have equal. The state name is never empty, because an
    empty one marks a weight."""
    return f"{KIND}/{name}", path or "."


def size_of(dtype: str, shape: list[int]) -> int:
    """Returns the size of a tensor in bytes."""
    return checkpoint.TYPES[dtype].itemsize * torch.Size(shape).numel()


def check_more(name: str, one: Any, optimizers: Mapping[str, Any]) -> None:
    """Throws ValueError unless `one` is an object with a state and has a name that no optimizer uses."""
    if not all(callable(getattr(one, part, None)) for part in ("state_dict", "load_state_dict")):
        raise ValueError(f"{name}: expected an object with state_dict() and load_state_dict(), got {type(one).__name__}")
    if name in optimizers:
        raise ValueError(f"{name}: an optimizer has this name already")


def save(pipe: PipelineState, folder: str | os.PathLike[str], given: optimizer_states.Optimizers,
         more: Mapping[str, Any]) -> None:
    """Implements Pipeline.save()."""
    pipe.check_one("save")
    pipe.begin_states()
    saved = pipe.together(lambda: Saved(pipe, optimizer_states.by_name(given), more), ValueError)
    texts = [text.decode() for text in pipe.exchange(saved.text().encode())]
    run, index = pipe.together(lambda: merge(pipe, texts), ValueError)
    place = os.path.abspath(folder)
    check_folder([name.decode() for name in pipe.exchange(os.path.basename(place).encode())])
    pipe.together(lambda: refuse_old(place))
    if place not in pipe.folders:
        pipe.folders[place] = _hetu.claim_folder(place, pipe.transport)
    files = saved.files()
    if pipe.transport.worker == 0:
        files.append((checkpoint.INDEX, index, []))
    _hetu.save_tensors(place, checkpoint.INDEX, pipe.steps, dumps(run), files, pipe.transport)
    if pipe.transport.worker == 0:
        progress.tell_saved(pipe.steps, place)


def check_folder(names: list[str]) -> None:
    """Throws ValueError unless all workers save into a folder of the same name. Its path may differ between hosts."""
    for worker, name in enumerate(names):
        if name != names[0]:
            raise ValueError(f"save: worker {worker} was given the folder '{name}' and worker 0 '{names[0]}': give the same "
                             f"one on all workers")


def merge(pipe: PipelineState, texts: list[str]) -> tuple[dict[str, Any], str]:
    """Returns the contents of the manifest except tensors, and the text of the index. Throws ValueError if the workers'
    optimizers or other states don't fit together."""
    told = [json.loads(text) for text in texts]
    # Pipelines that average have their own states.
    count = len(told) // pipe.held.pipelines if pipe.averages else len(told)
    optimizers = optimizer_states.merged(pipe, [dumps(one["optimizers"]) for one in told[:count]])
    for name, one in optimizers.items():
        one["values"] = {known: value for part in told for known, value in part["values"].get(name, {}).items()}
    for worker, one in enumerate(told[:count]):
        for name in sorted({*one["more"], *told[0]["more"]}):
            if dumps(one["more"].get(name)) != dumps(told[0]["more"].get(name)) or _sums(one, name) != _sums(told[0], name):
                raise ValueError(f"{name}: its state on worker {worker} differs from that on worker 0. A checkpoint keeps "
                                 f"one state for all workers: put tensors that belong to a worker's stages into a dict, "
                                 f"under the names of pipe.named_parameters().")
    names = {name: row for one in told for name, row in one["names"].items()}
    index = json.dumps({"metadata": {"total_size": sum(size for size, _ in names.values())},
                        "weight_map": {name: file for name, (_, file) in names.items()}}, indent=1, sort_keys=True)
    run = {"kind": KIND, "version": VERSION, "torch": torch.__version__, "pipelines": pipe.held.pipelines,
           "micro_batches": pipe.micro_batches, "seed": pipe.seed, "updates": pipe.updates,
           "optimizers": optimizers, "more": told[0]["more"],
           "index": _hetu.crc32c(index.encode())}
    return run, index


def _sums(one: Mapping[str, Any], name: str) -> dict[str, int]:
    return {key: value for key, value in one["sums"].items() if key.startswith(f"{name}/")}


def refuse_old(folder: str) -> None:
    """Throws OSError if the folder itself holds an index without a manifest. Such a checkpoint has no checksums."""
    index, manifest = (os.path.join(folder, name) for name in (checkpoint.INDEX, checkpoint.MANIFEST))
    if os.path.isfile(index) and not os.path.isfile(manifest):
        raise OSError(f"{folder}: contains {checkpoint.INDEX} but no {checkpoint.MANIFEST}, so it is a checkpoint of an "
                      f"earlier version, without checksums, or of another program. Read its weights with safetensors, pass "
                      f"them to load_state_dict(), and save into another folder.")
