"""What a Pipeline holds, under the names of the unsplit model: state_dict, checkpoints with the optimizer's state."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from hetu.torch import checkpoint
from hetu.torch.cuts import Pieces, Stage
from hetu.torch.ties import Tie

Result = TypeVar("Result")
OPTIMIZER = "optimizer/"  # before the name of a state of the optimizer: optimizer/0.weight/exp_avg


class StateOfPipeline:
    """The part of Pipeline that is about state."""

    own: dict[int, Stage]
    pieces: Pieces
    ties: list[Tie]
    schedule: Any
    transport: Any
    pipeline: int
    steps: int
    averages: Any = None

    def check_one(self, what: str) -> None:
        """Throws RuntimeError where the pipelines are not one model now."""
        if self.averages:
            self.averages.check_one(what)

    def own_tensors(self, first_copies: bool) -> Iterator[tuple[list[str], torch.Tensor]]:
        """Parameters and kept buffers of this worker with all of their names, the first of which is that of a tied pair;
        or those alone of which it has the first copy."""
        seconds = {id(tie.copies[1]): tie for tie in self.ties}
        for placement, stage in self.own.items():
            if first_copies and (self.pipeline or self.schedule.placements[placement]["replica"]):
                continue
            kept = {id(t) for t in stage.state_dict(keep_vars=True).values()}
            for tensor in [*stage.parameters(), *stage.buffers()]:
                if id(tensor) not in kept:
                    continue
                first = seconds[id(tensor)].copies[0] if id(tensor) in seconds else tensor
                if first is tensor or not first_copies:
                    yield [self.pieces.names[id(first)], *self.pieces.also.get(id(first), [])], tensor

    def state_dict(self) -> dict[str, torch.Tensor]:
        """That of the unsplit model, on every worker; every worker calls it. Buffers are those of the first pipeline."""
        self.check_one("state_dict")
        mine = {name: tensor.detach().cpu() for names, tensor in self.own_tensors(first_copies=True) for name in names}
        out: dict[str, torch.Tensor] = {}
        for text in self.exchange(_packed(mine)):
            out.update(torch.load(io.BytesIO(text), weights_only=True))
        order = self.pieces.order
        return dict(sorted(out.items(), key=lambda item: order[item[0]]))

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Takes this worker's part of the whole model's. Throws ValueError, naming what is missing or does not fit."""
        self.check_one("load_state_dict")
        with torch.no_grad():
            for names, tensor in self.own_tensors(first_copies=False):
                found = state.get(names[0])
                if found is None:
                    raise ValueError(f"the state has no '{names[0]}'")
                if found.shape != tensor.shape:
                    raise ValueError(f"'{names[0]}' is {list(found.shape)} in the state and {list(tensor.shape)} here")
                tensor.copy_(found)

    def save(self, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer | None = None, **more: Any) -> None:
        """Writes a checkpoint of weights, the number of steps and the optimizer's state with the options of its groups;
        every worker calls it, and each writes its own part. `more`: what else has a state_dict() of numbers, by a name that
        load() is given too, as scaler=scaler, rates=scheduler; worker 0's is kept. Throws ValueError for a state with other
        things."""
        self.check_one("save")
        others = {name: _plain(name, one.state_dict()) for name, one in more.items()}
        groups = [_plain("optimizer", {key: value for key, value in group.items() if key != "params"})
                  for group in (optimizer.param_groups if optimizer else [])]
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        mine: dict[str, torch.Tensor] = {}
        scalars: dict[str, Any] = {}
        for names, tensor in self.own_tensors(first_copies=True):
            mine.update({name: tensor for name in names})
            for key, value in (optimizer.state.get(tensor, {}) if optimizer else {}).items():
                if isinstance(value, torch.Tensor):
                    mine[f"{OPTIMIZER}{names[0]}/{key}"] = value
                else:
                    scalars[f"{names[0]}/{key}"] = value
        file = f"step{self.steps:08d}-worker{self.transport.worker:05d}.safetensors"
        if mine:
            checkpoint.write_part(place / file, mine)
        told = [torch.load(io.BytesIO(text), weights_only=True) for text in
                self.exchange(_packed({"file": file, "names": list(mine), "scalars": scalars}))]
        if self.transport.worker == 0:
            scalars = {name: value for one in told for name, value in one["scalars"].items()}
            checkpoint.write_index(place, {one["file"]: one["names"] for one in told},
                                   {"step": self.steps, "optimizer": scalars, "groups": groups, "more": others})
            checkpoint.remove_others(place, {one["file"] for one in told})
        self.exchange(b"saved")

    def load(self, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer | None = None, **more: Any) -> None:
        """Goes on from a checkpoint, of whatever cut and number of pipelines; every worker calls it. `more`: what save() was
        given by these names. Throws OSError on all workers where one of them has no complete one, or lacks a state."""
        self.together(lambda: self._load(Path(folder), optimizer, more))

    def together(self, loads: Callable[[], Result]) -> Result:
        """What a function gives; every worker calls it, and where one of them fails, all do. Throws OSError."""
        failed, result = "", None
        try:
            result = loads()
        except (OSError, ValueError) as error:
            failed = str(error)
        for worker, text in enumerate(self.exchange(failed.encode())):
            if text:
                raise OSError(f"worker {worker}: {text.decode()}")
        return cast("Result", result)

    def agreed(self, text: str) -> str:
        """What worker 0 says; every worker calls it."""
        return self.exchange(text.encode())[0].decode()

    def _load(self, place: Path, optimizer: torch.optim.Optimizer | None, more: Mapping[str, Any]) -> None:
        files, metadata = checkpoint.read_index(place)
        others = metadata.get("more", {})
        for name in more:
            if name not in others:
                raise OSError(f"{place}: the checkpoint has no state of '{name}': it was saved with "
                              f"{', '.join(map(repr, others)) or 'none'} beside the optimizer")
        groups = metadata.get("groups", []) if optimizer is not None else []
        if optimizer is not None and groups and len(groups) != len(optimizer.param_groups):
            raise OSError(f"{place}: the checkpoint's optimizer has {len(groups)} group(s) of parameters, this one "
                          f"{len(optimizer.param_groups)}")
        wanted: dict[str, tuple[str, torch.Tensor]] = {}
        for names, tensor in self.own_tensors(first_copies=False):
            if names[0] not in files:
                raise OSError(f"{place}: the checkpoint has no '{names[0]}'")
            wanted[names[0]] = (names[0], tensor)
        prefixes = {f"{OPTIMIZER}{name}/": tensor for name, (_, tensor) in wanted.items()} if optimizer else {}
        states = {name: (prefix, tensor) for prefix, tensor in prefixes.items() for name in files if name.startswith(prefix)}
        found: dict[str, torch.Tensor] = {}
        for file in set(files.values()):
            here = {name for name in [*wanted, *states] if files[name] == file}
            if here:
                found.update(checkpoint.read_tensors(place / file, here))
        self.load_state_dict({name: found[name] for name in wanted})
        if optimizer is not None:
            for name, (prefix, tensor) in states.items():
                optimizer.state[tensor][name.removeprefix(prefix)] = found[name]
            for name, value in metadata["optimizer"].items():
                parameter, _, key = name.rpartition("/")
                if parameter in wanted:
                    optimizer.state[wanted[parameter][1]][key] = value
            for group, saved in zip(optimizer.param_groups, groups, strict=False):
                group.update({key: tuple(value) if isinstance(group.get(key), tuple) else value
                              for key, value in saved.items()})
        for name, one in more.items():
            one.load_state_dict(others[name])
        self.steps = metadata["step"]

    def exchange(self, mine: bytes, workers: Sequence[int] | None = None) -> list[bytes]:
        raise NotImplementedError


def _plain(what: str, state: Any) -> Any:
    """A state as JSON has it. Throws ValueError."""

    def number(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            return value.item()
        raise TypeError(f"a {type(value).__name__}")

    try:
        return json.loads(json.dumps(state, default=number))
    except TypeError as error:
        raise ValueError(f"{what}: its state holds {error}, and a checkpoint keeps numbers, words and lists of "
                         f"them") from None


def _packed(value: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()
