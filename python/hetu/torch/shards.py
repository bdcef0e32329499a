"""Divides optimizer states among the copies of a stage: Pipeline(shard_optimizer=True), known as ZeRO-1.

A parameter that several workers hold has one owner among them. Three things differ from training without shards:

1. The plan's sums of gradients become reduce-scatters: each worker receives the sums of only the parameters that it owns.
   The order of additions is the same, so the bits are the same.
2. After step(), .grad is None for parameters of other owners. An optimizer skips such parameters: it neither changes them
   nor creates states for them.
3. After the optimizer's step(), a hook of torch.optim sends each parameter from its owner to the other copies. So all copies
   have the same weights whenever the script can read them.

Owners own whole parameters, because some optimizers, such as Muon, need whole matrices.
"""

from __future__ import annotations

import contextlib
import io
import json
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from hetu import _hetu
from hetu.torch.agreement import bytes_sum
from hetu.torch.calls import Exchanges
from hetu.torch.device import StageDevice, optimizer_value
from hetu.torch.holding import Holding
from hetu.torch.optimizer_hooks import check_state, complete_states, watch
from hetu.torch.owner_messages import Copied, Message, messages


class Shards:
    """One worker's part of the division."""

    def __init__(self, held: Holding, exchanges: Exchanges, device: StageDevice, *, averages: bool, in_threads: bool
                 ) -> None:
        """Finds the parameters with several copies. Throws ValueError if there are none, or if pipelines average weights."""
        if averages:
            raise ValueError("shard_optimizer: pipelines that average weights update them separately, so each needs all "
                             "optimizer states; remove shard_optimizer= or averaging=")
        if not held.ties and held.pipelines == 1 and all(held.copies(one["model_stage"]) == 1 for one in held.placements):
            raise ValueError("shard_optimizer: there is one copy of each stage, so no other worker can share its optimizer "
                             "states; use pipelines=2 or more, or remove shard_optimizer=")
        self.worker: int = exchanges.transport.worker
        self.transport: Any = exchanges.transport
        self.exchanges = exchanges
        self.device = device
        self.by_id: dict[int, Copied] = {}
        self.groups: dict[tuple[int, ...], list[Copied]] = {}  # by the workers that hold a copy
        self._find(held)
        self.is_assigned = False
        self.is_pending = False  # true if no optimizer has used the last gradients yet
        self.gathers_states = True
        self.adopted: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self.has_optimizer = not in_threads  # with threads, all workers share one optimizer
        if self.has_optimizer:
            watch(self)

    def _find(self, held: Holding) -> None:
        placements = held.placements
        holders: dict[int, set[int]] = {}  # by model stage
        for placement in placements:
            holders.setdefault(placement["model_stage"], set()).update(
                pipeline * held.width + placement["workers"][0] for pipeline in range(held.pipelines))
        tied = {id(copy): tie for tie in held.ties for copy in tie.copies}
        found: dict[str, Copied] = {}
        for number, stage in held.own.items():
            for parameter in stage.parameters():
                tie = tied.get(id(parameter))
                stages = tie.stages if tie else (placements[number]["model_stage"],)
                name = tie.names[0] if tie else held.pieces.names[id(parameter)]
                workers = tuple(sorted(set().union(*(holders[one] for one in stages))))
                one = found.setdefault(name, Copied(name, held.numbers[name], workers, []))
                if all(parameter is not other for other in one.held):
                    one.held.append(parameter)
        for one in sorted(found.values(), key=lambda one: one.number):
            if len(one.workers) > 1 or len(one.held) > 1:
                self.groups.setdefault(one.workers, []).append(one)
                self.by_id.update({id(parameter): one for parameter in one.held})
        self.groups = dict(sorted(self.groups.items()))  # the same order on all workers prevents a deadlock

    # ---- owners ----

    def assign(self) -> None:
        """Chooses the owner of each parameter, once. Elements are divided about evenly among the workers, separately for
        trained and frozen parameters. Collective: every worker calls it. Throws ValueError if copies of a parameter differ
        in requires_grad."""
        if self.is_assigned:
            return
        self.is_assigned = True
        flags = {one.name: one.held[0].requires_grad for one in self.copied()}
        known: dict[str, tuple[int, bool]] = {}
        for worker, text in enumerate(self.exchanges.exchange(json.dumps(flags).encode())):
            for name, flag in json.loads(text).items():
                other, first = known.setdefault(name, (worker, flag))
                if first != flag:
                    raise ValueError(f"'{name}' has requires_grad={first} on worker {other} and {flag} on worker {worker}: "
                                     f"set the same value on all workers that hold a copy")
        for workers, copied in self.groups.items():
            loads = dict.fromkeys(workers, 0)
            for is_trained in (True, False):
                chosen = [one for one in copied if one.held[0].requires_grad == is_trained]
                for one in sorted(chosen, key=lambda one: (-one.held[0].numel(), one.number)):
                    one.owner = min(workers, key=lambda worker: (loads[worker], worker))
                    loads[one.owner] += one.held[0].numel()

    def owner_of(self, parameter: torch.nn.Parameter) -> int | None:
        """Returns the worker that owns a parameter of this worker's stages, or None if there is only one copy."""
        one = self.by_id.get(id(parameter))
        return one.owner if one else None

    def keeps(self, parameter: torch.Tensor) -> bool:
        """Returns true if this worker updates the parameter and keeps its states for this object."""
        one = self.by_id.get(id(parameter))
        return one is None or (one.owner == self.worker and one.held[0] is parameter)

    def name_of(self, parameter: torch.Tensor, name: str) -> str:
        """Returns the name of a parameter's first copy, or `name` if there is only one copy."""
        one = self.by_id.get(id(parameter))
        return one.name if one else name

    def copied(self) -> Iterator[Copied]:
        """Yields the parameters of this worker that have several copies."""
        for copied in self.groups.values():
            yield from copied

    # ---- the hooks of an optimizer ----

    def has_parameters_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Returns true if the optimizer holds a parameter with several copies."""
        return any(id(parameter) in self.by_id for group in optimizer.param_groups for parameter in group["params"])

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives all copies the weights that their owners have updated. Collective: every worker with a copy calls it.
        Throws ValueError if the optimizers of these workers don't fit together."""
        check_state(optimizer)
        self.adopt(optimizer)
        self.drop_states(optimizer)
        self.is_pending = False
        group_of = {id(p): number for number, group in enumerate(optimizer.param_groups) for p in group["params"]}
        for workers, copied in self.groups.items():
            held = [one for one in copied if any(id(parameter) in group_of for parameter in one.held)]
            check_all_copies(held, group_of)
            if held:
                self._gather(workers, self._compare(optimizer, workers, held, group_of))
        with torch.no_grad():
            for one in self.copied():
                if len(one.held) > 1 and id(one.held[0]) in group_of:
                    for parameter in one.held[1:]:
                        parameter.copy_(one.held[0])

    def _compare(self, optimizer: torch.optim.Optimizer, workers: tuple[int, ...], copied: Sequence[Copied],
                 group_of: Mapping[int, int]) -> list[Copied]:
        """Checks that all workers have the same optimizer. Returns the parameters that their owners may have changed."""
        groups = [[one.number, group_of.get(id(one.held[0]))] for one in copied]
        own = [one for one in copied if one.owner == self.worker]
        mine = {"class": type(optimizer).__name__, "groups": zlib.crc32(json.dumps(groups).encode()),
                "options": [_options(group) for group in optimizer.param_groups],
                "changed": "".join("01"[one.held[0].requires_grad or one.held[0].grad is not None] for one in own)}
        texts = [json.loads(text) for text in self.exchanges.exchange(json.dumps(mine).encode(), workers)]
        for worker, other in zip(workers, texts, strict=True):
            for what, said in (("class", "has a different class"), ("groups", "has different parameters or groups"),
                               ("options", "has different options")):
                if other[what] != texts[0][what]:
                    raise ValueError(f"shard_optimizer: the optimizer of worker {worker} {said} than that of worker "
                                     f"{workers[0]}, which holds copies of the same parameters: make the same optimizer on "
                                     f"all workers. An optimizer that combines the gradients of all parameters needs "
                                     f"shard_optimizer=False.")
        changed = {worker: iter(text["changed"]) for worker, text in zip(workers, texts, strict=True)}
        return [one for one in copied if next(changed[one.owner]) == "1"]  # type: ignore[index]

    def _gather(self, workers: tuple[int, ...], copied: Sequence[Copied]) -> None:
        """Sends parameters from their owners to the other workers."""
        if len(workers) == 1:
            return
        parts = [Message(part, self.worker, self.device) for part in messages(copied)]
        what = f"weights of '{copied[0].name}' and others from their owners, after step() of an optimizer" if copied else ""
        _hetu.gather_from_owners(self.transport, list(workers), [part.owner for part in parts],
                                 [part.memory.numpy() for part in parts], self.exchanges.next_number(workers), what)
        for part in parts:
            part.end()

    # ---- states ----

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes state_dict() of an optimizer complete, although this worker holds only a part of the states."""
        if self.has_optimizer:
            complete_states(optimizer, self)

    @contextlib.contextmanager
    def without_gathering(self) -> Iterator[None]:
        """Makes state_dict() of an optimizer return only this worker's states inside the `with` block."""
        self.gathers_states = False
        try:
            yield
        finally:
            self.gathers_states = True

    def drop_states(self, optimizer: torch.optim.Optimizer) -> None:
        """Drops states of parameters that another worker owns. Such states come from an optimizer's constructor, or from a
        loaded state_dict()."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not self.keeps(parameter):
                    optimizer.state.pop(parameter, None)

    def complete(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Adds the states that other workers keep to an optimizer's state_dict(). Collective: every worker with a copy
        calls it."""
        if not self.gathers_states:
            return
        number_of = {id(p): n for n, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
        states = state["state"]
        for workers, copied in self.groups.items():
            held = [one for one in copied if any(id(parameter) in number_of for parameter in one.held)]
            if not held:
                continue
            mine = {one.number: states[number_of[id(one.held[0])]] for one in held
                    if one.owner == self.worker and number_of.get(id(one.held[0])) in states}
            found: dict[int, Any] = {}
            for text in self.exchanges.exchange(_packed(mine), workers):
                found.update(torch.load(io.BytesIO(text), map_location="cpu", weights_only=False))
            for one in held:
                if one.number in found:
                    for parameter in one.held:
                        if id(parameter) in number_of:
                            states.setdefault(number_of[id(parameter)], _placed(optimizer, parameter, found[one.number]))
        state["state"] = dict(sorted(states.items()))

    # ---- copies that drift apart ----

    def checksums(self) -> dict[str, list[int]] | None:
        """Returns checksums of the trained parameters with several copies, or None if an optimizer has used the last
        gradients. A script may have changed weights without an optimizer."""
        if not self.is_pending:
            return None
        return {one.name: [bytes_sum(parameter) for parameter in one.held]
                for one in self.copied() if one.held[0].requires_grad}

    def check_copies(self, sums: Iterable[Mapping[str, list[int]] | None]) -> None:
        """Checks that all copies are equal, by the checksums() of all workers. Throws ValueError."""
        first: dict[str, tuple[int, int]] = {}
        for worker, one in enumerate(sums):
            for name, found in (one or {}).items():
                for value in found:
                    known = first.setdefault(name, (worker, value))
                    if known[1] != value:
                        raise ValueError(f"'{name}' has different values on worker {worker} than on worker {known[0]}. With "
                                         f"shard_optimizer=True, a worker has gradients of its own shard only, and step() "
                                         f"of a torch.optim.Optimizer sends weights to the other copies. Change weights "
                                         f"with such an optimizer, or in the same way on all workers.")

    def check_now(self) -> None:
        """Checks that all copies are equal. Collective: every worker calls it. Throws ValueError."""
        texts = self.exchanges.exchange(json.dumps(self.checksums()).encode())
        self.check_copies(json.loads(text) for text in texts)


class ThreadedShards:
    """The parts of all workers of a process. A single optimizer holds their parameters."""

    def __init__(self, parts: Sequence[Shards]) -> None:
        self.parts = parts
        self.adopted: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        watch(self)

    def has_parameters_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Returns true if the optimizer holds a parameter with several copies."""
        return any(part.has_parameters_of(optimizer) for part in self.parts)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives all copies the weights that their owners have updated."""
        check_state(optimizer)
        complete_states(optimizer, self)
        owners = self._owners()
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for part in self.parts:
            part.is_pending = False
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if not part.keeps(parameter):
                        optimizer.state.pop(parameter, None)
            for one in part.copied():
                first = owners[one.name].held[0] if one.name in owners else one.held[0]
                with torch.no_grad():
                    for parameter in one.held:
                        if parameter is not first and id(first) in held:
                            parameter.copy_(first)

    def _owners(self) -> dict[str, Copied]:
        return {one.name: one for part in self.parts for one in part.copied() if one.owner == part.worker}

    def complete(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Adds copies of the owners' states to an optimizer's state_dict()."""
        number_of = {id(p): n for n, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
        owners, states = self._owners(), state["state"]
        for one in (one for part in self.parts for one in part.copied() if one.name in owners):
            found = states.get(number_of.get(id(owners[one.name].held[0])))
            for parameter in one.held if found is not None else ():
                if id(parameter) in number_of:
                    states.setdefault(number_of[id(parameter)], _placed(optimizer, parameter, found))
        state["state"] = dict(sorted(states.items()))


def check_all_copies(copied: Iterable[Copied], group_of: Mapping[int, int]) -> None:
    """Throws ValueError if an optimizer holds only some of a parameter's copies on this worker."""
    for one in copied:
        if any(id(parameter) not in group_of for parameter in one.held):
            raise ValueError(f"shard_optimizer: this worker has {len(one.held)} copies of '{one.name}', but the optimizer "
                             f"has only some of them: give it all parameters of pipe.parameters()")


def _options(group: Mapping[str, Any]) -> str:
    options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
    return json.dumps(options, sort_keys=True,
                      default=lambda value: value.tolist() if isinstance(value, torch.Tensor) else type(value).__name__)


def _packed(value: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def _placed(optimizer: torch.optim.Optimizer, parameter: torch.Tensor, state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: optimizer_value(optimizer, parameter, key, value) for key, value in state.items()}
