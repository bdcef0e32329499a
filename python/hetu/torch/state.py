"""The state of a Pipeline under the names of the unsplit model."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import nn

from hetu.torch.calls import Exchanges
from hetu.torch.holding import Holding
from hetu.torch.shards import Shards

Result = TypeVar("Result")


class _Place(NamedTuple):
    """A parameter or buffer of a stage."""

    names: list[str]  # in the whole model; for the second copy of a tied parameter, those of the first copy
    name: str  # of this copy
    is_second: bool


def _kept(stage: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields (place, tensor) for all tensors that a state_dict() contains."""
    for prefix, module in stage.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                yield f"{prefix}.{key}", parameter
        for key, buffer in module._buffers.items():
            if buffer is not None and key not in module._non_persistent_buffers_set:
                yield f"{prefix}.{key}", buffer


class PipelineState:
    """The weights and buffers of a Pipeline by their names in the unsplit model, and the numbers of its steps and updates.

    averages: set if pipelines average weights.
    shards: set if the copies of a stage divide the optimizer's states.
    """

    def __init__(self, held: Holding, exchanges: Exchanges, averages: Any, shards: Shards | None, micro_batches: int,
                 seed: int) -> None:
        self.held, self.exchanges, self.averages, self.shards = held, exchanges, averages, shards
        self.micro_batches, self.seed = micro_batches, seed
        self.exchange = exchanges.exchange
        self.steps = 0  # calls of Pipeline.step()
        self.updates: int | None = 0  # calls that began new gradients; None after a checkpoint that doesn't tell
        self.folders: dict[str, Any] = {}  # locks of folders that were saved into; None except on worker 0
        self._remember_names()

    def count(self, is_update: bool) -> None:
        """Counts a call of Pipeline.step(), and an update if the call began new gradients."""
        self.steps += 1
        if self.updates is not None:
            self.updates += is_update

    def known_updates(self) -> int:
        """Implements Pipeline.updates."""
        if self.updates is None:
            raise ValueError(f"updates: the checkpoint was saved by a version that counted only calls of step(). They are "
                             f"in pipe.steps ({self.steps}); divide them by the calls of an update")
        return self.updates

    @property
    def transport(self) -> Any:
        return self.exchanges.transport

    def check_one(self, what: str) -> None:
        """Throws RuntimeError if the pipelines have different weights, and ValueError if copies of a parameter differ
        although they are sent from their owners."""
        if self.averages:
            self.averages.check_one(what)
        if self.shards:
            self.shards.check_now()

    def _remember_names(self) -> None:
        """Stores the names of this worker's parameters and persistent buffers by place. A module may replace a buffer's
        tensor in any step, so the identity of a tensor can't serve as a key later."""
        seconds = {id(tie.copies[1]): tie.copies[0] for tie in self.held.ties}
        self.places: dict[int, dict[str, _Place]] = {}
        for number, stage in self.held.own.items():
            places = self.places[number] = {}
            for place, tensor in _kept(stage):
                first = seconds.get(id(tensor), tensor)
                names = [self.held.pieces.names[id(first)], *self.held.pieces.also.get(id(first), [])]
                places[place] = _Place(names, self.held.pieces.names[id(tensor)], first is not tensor)

    def _placed(self, first_copies: bool) -> Iterator[tuple[_Place, torch.Tensor]]:
        """Yields this worker's parameters and persistent buffers, each once per stage. With `first_copies`, only those of
        the first pipeline and replica."""
        for number, stage in self.held.own.items():
            if first_copies and (self.held.pipeline or self.held.placements[number]["replica"]):
                continue
            seen: set[int] = set()
            for place, tensor in _kept(stage):
                if place not in self.places[number]:
                    raise ValueError(f"'{place}' of a stage did not exist when the Pipeline was made; register all buffers "
                                     f"before")
                if id(tensor) not in seen:
                    yield self.places[number][place], tensor
                seen.add(id(tensor))

    def own_tensors(self, first_copies: bool) -> Iterator[tuple[list[str], torch.Tensor]]:
        """Yields this worker's parameters and persistent buffers with all of their names. The first name is that of the
        first copy of a tied pair. With `first_copies`, yields only tensors of which the worker holds the first copy."""
        for place, tensor in self._placed(first_copies):
            if not (place.is_second and first_copies):
                yield place.names, tensor

    def begin_states(self) -> None:
        """Chooses the workers that keep the optimizer's states, before these are saved or loaded. Collective: every worker
        calls it."""
        if self.shards:
            self.shards.assign()

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Registers an optimizer that may hold only the states of this worker's shard."""
        if self.shards:
            self.shards.adopt(optimizer)

    def keeps_state(self, tensor: torch.Tensor) -> bool:
        """Returns true if this worker keeps the optimizer's states of a parameter, for this object."""
        return self.shards is None or self.shards.keeps(tensor)

    @contextlib.contextmanager
    def own_states_only(self) -> Iterator[None]:
        """Makes state_dict() of an optimizer return only this worker's states inside the `with` block, without
        communication."""
        with self.shards.without_gathering() if self.shards else contextlib.nullcontext():
            yield

    def states_saved_here(self) -> dict[int, str]:
        """Returns the names, by id, of the parameters whose optimizer states this worker saves."""
        named = self.own_tensors(first_copies=self.shards is None)
        return {id(tensor): names[0] for names, tensor in named if self.keeps_state(tensor)}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Implements Pipeline.state_dict()."""
        self.check_one("state_dict")
        mine = {name: tensor.detach().cpu() for names, tensor in self.own_tensors(first_copies=True) for name in names}
        out: dict[str, torch.Tensor] = {}
        for text in self.exchange(_packed(mine)):
            out.update(torch.load(io.BytesIO(text), weights_only=True))
        order = self.held.pieces.order
        return dict(sorted(out.items(), key=lambda item: order[item[0]]))

    def own_by_name(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields this worker's parameters and persistent buffers with the names of named_parameters(): each copy of a tied
        parameter has its own name."""
        for place, tensor in self._placed(first_copies=False):
            yield place.name, tensor

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Implements Pipeline.named_buffers()."""
        parameters = {id(parameter) for stage in self.held.own.values() for parameter in stage.parameters()}
        return ((name, tensor) for name, tensor in self.own_by_name() if id(tensor) not in parameters)

    def names_saved_here(self) -> set[str]:
        """Returns the names of own_by_name() whose tensors this worker saves."""
        return {place.name for place, _ in self._placed(first_copies=True)}

    def compare_names(self, found: Set[str]) -> tuple[list[str], list[str]]:
        """Returns the names of the whole model that are missing in `found`, in the order of the model, and the names in
        `found` that the model does not have. For a tensor with several names, one of them suffices."""
        groups: dict[str, list[str]] = {}
        for key, name in self.held.pieces.names.items():
            names = [name, *self.held.pieces.also.get(key, [])]
            for one in names:
                groups.setdefault(one, []).extend(names)
        order = self.held.pieces.order
        missing = [name for name in order if not found & {name, *groups.get(name, [])}]
        return missing, sorted(found - set(order))

    def load_state_dict(self, state: Mapping[str, torch.Tensor], strict: bool) -> None:
        """Implements Pipeline.load_state_dict()."""
        self.check_one("load_state_dict")
        missing, unexpected = self.compare_names(set(state))
        if strict and missing:
            raise ValueError(f"the state has no '{missing[0]}'; pass strict=False to load the parts that it has")
        if strict and unexpected:
            raise ValueError(f"the state has '{unexpected[0]}', which the model does not have; pass strict=False to ignore "
                             f"it")
        pairs = []
        for names, tensor in self.own_tensors(first_copies=False):
            found = next((state[name] for name in names if name in state), None)
            if found is None:
                continue
            if found.shape != tensor.shape:
                raise ValueError(f"'{names[0]}' is {list(found.shape)} in the state and {list(tensor.shape)} here")
            pairs.append((tensor, found))
        with torch.no_grad():
            for tensor, found in pairs:
                tensor.copy_(found)

    def together(self, loads: Callable[[], Result], kind: type[Exception] = OSError) -> Result:
        """Returns the result of a function. Collective: every worker calls it. If the function fails on one worker, all
        workers throw the same error, of type `kind`."""
        failed, result = "", None
        try:
            result = loads()
        except (OSError, ValueError) as error:
            failed = str(error)
        for worker, text in enumerate(self.exchange(failed.encode())):
            if text:
                raise kind(f"worker {worker}: {text.decode()}")
        return cast("Result", result)

    def agreed(self, text: str) -> str:
        """Returns the text of worker 0. Collective: every worker calls it."""
        return self.exchange(text.encode())[0].decode()


def _packed(value: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()
