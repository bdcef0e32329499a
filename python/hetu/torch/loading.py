"""Reads a checkpoint for Pipeline.load(). All workers read and check everything before any worker changes anything."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hetu import _hetu
from hetu.counted import counted
from hetu.torch import checkpoint, optimizer_states
from hetu.torch.optimizer_states import prefix_of
from hetu.torch.plain_values import decode
from hetu.torch.saving import KIND, VERSION, check_more, part_state, refuse_old, whole_state
from hetu.torch.state import PipelineState


class Checkpoint:
    """An open checkpoint of hetu.torch: its tensors by name and state, and the other contents of its manifest."""

    def __init__(self, folder: str) -> None:
        refuse_old(folder)
        self.reader = _hetu.CheckpointReader(folder)
        self.folder: str = self.reader.folder
        self.step: int = self.reader.step
        self.run = self._checked_run()
        self.rows = {(name, state): (number, dtype, shape) for number, (name, state, dtype, shape, _)
                     in enumerate(self.reader.tensors)}
        self.states: dict[str, list[str]] = {}  # by parameter
        for name, state in self.rows:
            if state:
                self.states.setdefault(name, []).append(state)

    def _checked_run(self) -> dict[str, Any]:
        run = json.loads(self.reader.run)
        if run.get("kind") != KIND:
            raise OSError(f"{self.folder}: this checkpoint was not saved by hetu.torch; hetu.Executor reads the checkpoints "
                          f"of graphs")
        if run.get("version") != VERSION:
            raise OSError(f"{self.folder}: the checkpoint has format version {run.get('version')!r}, but this hetu.torch "
                          f"reads version {VERSION}")
        expected = {"optimizers": dict, "more": dict, "index": int}
        wrong = [key for key, kind in expected.items() if not isinstance(run.get(key), kind)]
        updates = run.get("updates")  # missing in checkpoints of earlier versions
        if updates is not None and (type(updates) is not int or updates < 0):
            wrong.append("updates")
        if wrong or self.step < 0:
            raise OSError(f"{self.folder}: its manifest has an invalid value for {wrong[0] if wrong else 'the step'}; it is "
                          f"damaged")
        path = os.path.join(self.folder, checkpoint.INDEX)
        with open(path, "rb") as file:
            if _hetu.crc32c(file.read()) != run["index"]:
                raise OSError(f"{path}: its checksum is not the one that the manifest states; the file is damaged")
        return run

    def weights(self) -> set[str]:
        """Returns the names of all parameters and buffers."""
        return {name for name, state in self.rows if not state}

    def dtype(self, name: str, state: str = "") -> torch.dtype:
        """Returns PyTorch's dtype of a tensor."""
        return checkpoint.dtype_named(Path(self.reader.folder), name, self.rows[name, state][1])

    def shape(self, name: str, state: str = "") -> list[int]:
        """Returns the shape of a tensor."""
        return list(self.rows[name, state][2])

    def read(self, name: str, state: str = "") -> torch.Tensor:
        """Returns a new tensor. Throws OSError if it is missing or damaged."""
        if (name, state) not in self.rows:
            raise OSError(f"{self.folder}: '{name}#{state}' is missing, although its manifest names it")
        number = self.rows[name, state][0]
        return checkpoint.read_tensor(self.reader, number, self.dtype(name, state), self.shape(name, state))


class Loaded:
    """A worker's part of a checkpoint, as read. `skipped` describes the differences between the checkpoint and the model,
    optimizers or other objects."""

    def __init__(self, pipe: PipelineState, folder: str) -> None:
        self.pipe = pipe
        self.skipped: list[str] = []
        self.source = Checkpoint(folder)
        self.weights: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.optimizers: list[tuple[torch.optim.Optimizer, dict[str, Any]]] = []
        self.more: list[tuple[Any, Any]] = []
        self.own = dict(pipe.own_by_name())

    def read(self, optimizers: Mapping[str, torch.optim.Optimizer], described: optimizer_states.Described,
             more: Mapping[str, Any]) -> None:
        """Reads this worker's part. Throws OSError if it is damaged."""
        self._read_weights()
        self._check_optimizers(described)
        for name, one in optimizers.items():
            if name in self.source.run["optimizers"] and not self._differs(name, described[name]):
                self.optimizers.append((one, self._optimizer_state(name, one)))
        saved = self.source.run["more"]
        for name, one in more.items():
            if name in saved:
                self.more.append((one, self._more_state(name)))
            else:
                self.skipped.append(f"the checkpoint has no state of '{name}'; besides the optimizer, it holds "
                                    f"{', '.join(map(repr, sorted(saved))) or 'nothing'}")
        for name in sorted(set(saved) - set(more)) if optimizers else ():
            self.skipped.append(f"the checkpoint also has the state of '{name}'; pass {name}=, as to save()")

    def apply(self) -> None:
        """Copies the values that were read into the model, the optimizers and the other objects."""
        with torch.no_grad():
            for tensor, found in self.weights:
                tensor.copy_(found)
        self.weights.clear()
        for optimizer, state in self.optimizers:
            optimizer.load_state_dict(state)
            self.pipe.adopt(optimizer)
            _keep_dtypes(optimizer, state["state"])
        for one, state in self.more:
            one.load_state_dict(state)
        self.pipe.steps, self.pipe.updates = self.source.step, self.source.run.get("updates")

    # ---- weights ----

    def _read_weights(self) -> None:
        source, pipe = self.source, self.pipe
        missing, unexpected = pipe.compare_names(source.weights())
        if missing:
            self.skipped.append(f"the checkpoint has no '{missing[0]}'{_others(missing)}, which the model has")
        if unexpected:
            self.skipped.append(f"the checkpoint has '{unexpected[0]}'{_others(unexpected)}, which the model does not have")
        for names, tensor in pipe.own_tensors(first_copies=False):
            name = next((name for name in names if (name, "") in source.rows), None)
            if name is None:
                continue
            if source.shape(name) != list(tensor.shape):
                self.skipped.append(f"'{name}' is {source.shape(name)} in the checkpoint and {list(tensor.shape)} here")
                continue
            if source.dtype(name) != tensor.dtype:
                self.skipped.append(f"'{name}' is {_text(source.dtype(name))} in the checkpoint and {_text(tensor.dtype)} "
                                    f"here; strict=False converts it")
            self.weights.append((tensor, source.read(name)))

    # ---- optimizers ----

    def _check_optimizers(self, described: optimizer_states.Described) -> None:
        saved = self.source.run["optimizers"]
        if not described:
            return
        if not saved:
            self.skipped.append("the checkpoint has no optimizer state: save() was called without an optimizer")
            return
        if set(saved) != set(described):
            self.skipped.append(f"the checkpoint has {_named(saved)}, but load() was given {_named(described)}; pass the "
                                f"same optimizers as to save()")
        for name in sorted(set(saved) & set(described)):
            text = self._differs(name, described[name])
            if text:
                self.skipped.append(text)
        seed = self.source.run.get("seed")
        if seed != self.pipe.seed:
            self.skipped.append(f"the checkpoint's training has seed={seed}, and this Pipeline has seed={self.pipe.seed}, "
                                f"so dropout would draw other numbers from here on; give Pipeline(seed={seed})")

    def _differs(self, name: str, here: Mapping[str, Any]) -> str:
        """Returns a description of how an optimizer differs from the saved one, or ""."""
        saved, what = self.source.run["optimizers"][name], optimizer_states.label(name)
        if saved["class"] != here["class"]:
            return f"the checkpoint's {what} is {saved['class']}, and this one is {here['class']}"
        if len(saved["groups"]) != len(here["groups"]):
            return (f"the checkpoint's {what} has {counted(len(saved['groups']), 'group')} of parameters, this one "
                    f"{len(here['groups'])}")
        for number, (there, mine) in enumerate(zip(saved["groups"], here["groups"], strict=True)):
            apart = sorted(set(there["params"]) ^ set(mine["params"]))
            if apart:
                side = "in the checkpoint" if apart[0] in there["params"] else "here"
                return f"'{apart[0]}'{_others(apart)} is in group {number} of the {what} only {side}"
        return ""

    def _optimizer_state(self, name: str, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Returns the argument for the optimizer's load_state_dict(), with the states of this worker's parameters."""
        saved, prefix = self.source.run["optimizers"][name], prefix_of(name)
        names = {id(tensor): known[0] for known, tensor in self.pipe.own_tensors(first_copies=False)}
        states: dict[int, dict[str, Any]] = {}
        groups: list[dict[str, Any]] = []
        number = 0
        for group, there in zip(optimizer.param_groups, saved["groups"], strict=True):
            options = decode(there["options"], self._no_tensor)
            groups.append({**options, "params": list(range(number, number + len(group["params"])))})
            for parameter in group["params"]:
                name = names[id(parameter)]
                state = self._parameter_state(name, prefix, saved["values"]) if self.pipe.keeps_state(parameter) else {}
                if state:
                    states[number] = state
                number += 1
        return {"state": states, "param_groups": groups}

    def _parameter_state(self, name: str, prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
        read: set[str] = set()

        def stored(path: str) -> torch.Tensor:
            read.add(prefix + path)
            return self.source.read(name, prefix + path)

        state = dict(decode(values.get(name, {}), stored))
        for full in self.source.states.get(name, []):
            key = full.removeprefix(prefix)
            if full.startswith(prefix) and "/" not in key and full not in read:
                state[key] = self.source.read(name, full)
        return state

    def _no_tensor(self, path: str) -> torch.Tensor:
        raise OSError(f"{self.source.folder}: its manifest is damaged: it gives a stored tensor, '{path}', as an option of "
                      f"an optimizer")

    # ---- other objects ----

    def _more_state(self, name: str) -> Any:
        def part(path: str) -> dict[str, torch.Tensor]:
            state = part_state(name, path)
            return {known: self.source.read(known, state) for known in self.own if (known, state) in self.source.rows}

        return decode(self.source.run["more"][name], lambda path: self.source.read(*whole_state(name, path)), part)


def _keep_dtypes(optimizer: torch.optim.Optimizer, states: Mapping[int, Mapping[str, Any]]) -> None:
    """Restores states that Optimizer.load_state_dict() has cast to the dtype of their parameter. States of another dtype,
    such as float32 moments of bfloat16 parameters, would lose bits."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, state in states.items():
        held = optimizer.state[parameters[number]]
        for key, value in state.items():
            now = held.get(key)
            if isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor) and now.dtype != value.dtype:
                held[key] = value.to(now.device)


def _named(optimizers: Mapping[str, Any]) -> str:
    return "a single optimizer" if set(optimizers) == {""} else f"optimizers {sorted(optimizers)}"


def _others(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def refuse_unfit(folder: str | os.PathLike[str], skipped: list[str]) -> None:
    """Throws ValueError if a checkpoint differs from the script's model, optimizers or other objects."""
    if skipped:
        raise ValueError(f"{folder}: {'; '.join(skipped)}. To resume the saved training, load into its model and optimizer. "
                         f"Pass strict=False only to begin another training from the parts that fit.")


def load(pipe: PipelineState, folder: str | os.PathLike[str], given: optimizer_states.Optimizers, strict: bool,
         more: Mapping[str, Any]) -> list[str]:
    """Implements Pipeline.load()."""
    pipe.check_one("load")
    pipe.begin_states()
    place = os.path.abspath(folder)

    def begin() -> tuple[dict[str, torch.optim.Optimizer], str]:
        optimizers = optimizer_states.by_name(given)
        for name, one in more.items():
            check_more(name, one, optimizers)
        return optimizers, json.dumps(optimizer_states.describe(pipe, optimizers))

    optimizers, text = pipe.together(begin, ValueError)
    texts = [one.decode() for one in pipe.exchange(text.encode())]
    # Options may differ between pipelines that average.
    count = len(texts) // pipe.held.pipelines if pipe.averages else len(texts)
    first = pipe.held.pipeline * count if pipe.averages else 0
    described = pipe.together(lambda: optimizer_states.merged(pipe, texts[first:first + count]), ValueError)

    def read() -> Loaded:
        loaded = Loaded(pipe, place)
        loaded.read(optimizers, described, more)
        return loaded

    # All workers read and check first, and only then change anything, so that an unfit checkpoint leaves every model
    # as it was.
    loaded = pipe.together(read)
    if strict:
        pipe.together(lambda: refuse_unfit(place, loaded.skipped), ValueError)
    seen = [one.decode() for one in pipe.exchange(f"{loaded.source.step} {loaded.source.reader.checksum}".encode())]
    for worker, other in enumerate(seen):
        if other != seen[0]:
            raise OSError(f"{place}: worker {worker} has read a different checkpoint than worker 0 (step and checksum "
                          f"{other} and {seen[0]}). Use a folder that all workers share, and don't save there during a "
                          f"load.")
    pipe.together(loaded.apply, ValueError)
    return loaded.skipped
