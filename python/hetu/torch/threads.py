"""Pipelines whose workers are threads of this process, for notebooks and tests: Pipeline(devices="threads:4").

Each worker has its own Pipeline, created from a copy of the model, like each process under heturun. The first worker, the
chief, has the model that the script holds. The modules that compute a stage share their attributes with the script's
modules of this stage, so the script sets and reads the worker's values. Messages stay in the process
(net/transport/inproc.h).

PyTorch has one random generator per process, which each forward seeds. So threads compute one instruction at a time. The
overlap of a plan is therefore not visible, but the results are those of processes, bit for bit.
"""

from __future__ import annotations

import contextlib
import copy
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import nn

from hetu import _hetu
from hetu.counted import counted
from hetu.process.turn import Turn
from hetu.torch.modes import Follower, autocast_devices, check_gradients_enabled
from hetu.torch.optimizer_hooks import complete_states
from hetu.torch.outputs import joined
from hetu.torch.shards import ThreadedShards
from hetu.torch.values import cut_batch, flatten, rows_of, unflatten

_NAME = re.compile(r"threads:([1-9][0-9]{0,2})")
# Methods that all workers call with the same arguments.
TOGETHER = ("state_dict", "load_state_dict", "save", "load", "clip_grad_norm_", "clip_grads_with_norm_", "grad_norm",
            "record", "write_trace")

# Calls between workers, which a single script can't make for all of them.
APART = ("exchange", "exchanges", "state", "run", "stop_soon", "transport", "job")


def workers_of(name: str) -> int:
    """Returns the number of workers in "threads:N". Throws ValueError for other text, and in a job of several processes."""
    found = _NAME.fullmatch(name)
    if not found:
        raise ValueError(f"devices={name!r}: expected 'threads:N' with the number of workers, such as threads:4")
    if _hetu.env()["workers"] > 1:
        raise ValueError(f"devices={name!r}: threads are workers of one process, and heturun has started "
                         f"{_hetu.env()['workers']} processes. Start the script without heturun, or leave devices= out")
    return int(found[1])


class ThreadedPipeline:
    """All workers of a job of threads. It has the methods and attributes of a Pipeline, with these differences:
    parameters() and named_parameters() yield those of all workers, and step() and evaluate() take the samples of all
    pipelines."""

    def __init__(self, make: Callable[[Any, Any], Any], model: Any, devices: str, averaging: Any) -> None:
        """make: make(model, links) returns a Pipeline."""
        if averaging is not None:
            raise ValueError('averaging= with devices="threads:N": pipelines that average need processes; start them with '
                             'heturun')
        links = _hetu.thread_links(workers_of(devices))
        models = [model, *(copy.deepcopy(model) for _ in links[1:])]
        self.members = [make(one, link) for one, link in zip(models, links, strict=True)]
        self.chief = self.members[0]
        self.pools = [ThreadPoolExecutor(1, f"hetu-worker-{number}") for number in range(1, len(links))]
        turns = threading.RLock()
        for member in self.members:
            member.turns = member.functions.turns = turns
        self._place_loss()
        shards = [member.shards for member in self.members if member.shards]
        self.joint_shards = ThreadedShards(shards) if shards else None
        self.followers: list[Follower] = []
        self._share()
        for name in TOGETHER:
            setattr(self, name, partial(self._together, name))

    def _place_loss(self) -> None:
        """Moves a loss that has tensors, and that all workers share, to the device of the last stage. Throws ValueError if
        copies of that stage are on several devices."""
        loss, placements = self.chief.loss.loss, self.chief.schedule.placements
        if not isinstance(loss, nn.Module) or not [*loss.parameters(), *loss.buffers()]:
            return
        last = len(self.chief.stages) - 1
        holders = [member for member in self.members
                   if any(placements[number]["model_stage"] == last for number in member.own)]
        devices = sorted({str(member.device) for member in holders})
        if len(devices) > 1:
            raise ValueError(f"the loss {type(loss).__name__} has tensors, and copies of the last stage are on "
                             f"{' and '.join(devices)}, where threads can't share it. Give device={devices[0]!r}, choose a "
                             f"schedule with one copy of a stage and one pipeline, or start processes by heturun")
        holders[0].stage_device.move(loss)

    def _share(self) -> None:
        """Gives the script's modules the attributes of the modules that compute, and makes other copies of a stage follow.
        """
        placements = self.chief.schedule.placements
        first: dict[int, Any] = {}
        for member in self.members:
            for number, stage in member.own.items():
                model_stage = placements[number]["model_stage"]
                if model_stage not in first:
                    first[model_stage] = stage
                elif stage is member.stages[model_stage]:  # other copies follow the member's own
                    self.followers.append(Follower(first[model_stage], stage))
        for number, stage in first.items():
            if stage is not self.chief.stages[number]:
                for module, computing in zip(list(self.chief.stages[number].modules()), list(stage.modules()), strict=True):
                    module.__dict__ = computing.__dict__

    # ---- what all workers do together ----

    def step(self, inputs: Any, target: Any, scaler: Any = None, **named: Any) -> Any:
        """Takes a step like Pipeline.step, with the samples of all pipelines. Each pipeline receives a share, in order. If
        the shares can't be equal, the first pipelines have one more sample. Outputs are those of all samples."""
        check_gradients_enabled()
        return self._on_batches("step", {"inputs": inputs, "target": target}, {"scaler": scaler, **named})

    def evaluate(self, inputs: Any, target: Any, **named: Any) -> Any:
        """Returns the result of Pipeline.evaluate for the samples of all pipelines."""
        with self._evaluating():
            return self._on_batches("evaluate", {"inputs": inputs, "target": target}, named)

    def predict(self, inputs: Any) -> Any:
        """Returns the model's outputs for all samples."""
        with self._evaluating():
            return self._on_batches("predict", {"inputs": inputs}, {})

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        with contextlib.ExitStack() as modes:
            for member in self.members:
                modes.enter_context(member.modes.evaluating())
            yield

    def _on_batches(self, name: str, batch: dict[str, Any], named: dict[str, Any]) -> Any:
        """Calls a method of all members with each pipeline's share of a batch."""
        pipelines, rows = self.chief.pipelines, rows_of(batch["inputs"])
        whole = self.chief.part is not None  # each pipeline takes its samples itself
        if rows < pipelines and not whole:
            raise ValueError(f"{name}: {counted(rows, 'sample')} for {pipelines} pipelines; "
                             "each pipeline needs at least one")
        sizes = [rows // pipelines + (pipeline < rows % pipelines) for pipeline in range(pipelines)]
        shares = []
        for what, value in batch.items():
            if pipelines == 1 or whole:
                shares.append([value] * pipelines)
                continue
            tree = flatten(value)[1]
            shares.append([unflatten(leaves, tree) for leaves in cut_batch(value, rows, sizes, what)])
        drawn = torch.get_rng_state()
        try:
            with contextlib.ExitStack() as generators:
                for member in self.members:
                    generators.enter_context(member.stage_device.keeping_generator())
                results = self._do_all(name, [tuple(share[member.pipeline] for share in shares)
                                              for member in self.members], [named] * len(self.members))
        finally:
            torch.set_rng_state(drawn)
        firsts = [results[pipeline * self.chief.width] for pipeline in range(pipelines)]
        if pipelines > 1 and name == "predict":
            return joined(firsts)
        if pipelines > 1 and named.get("return_outputs"):
            return (*firsts[0][:-1], joined([one[-1] for one in firsts]))
        return firsts[0]

    def _together(self, name: str, *given: Any, **named: Any) -> Any:
        parts = _Parts()
        own = [{id(parameter) for parameter in member.parameters()} for member in self.members]
        result = self._do(name, [tuple(parts.of(value, number, ids) for value in given) for number, ids in enumerate(own)],
                          [{key: parts.of(value, number, ids) for key, value in named.items()}
                           for number, ids in enumerate(own)])
        parts.join()
        if self.joint_shards:
            for optimizer, _ in parts.made:
                complete_states(optimizer, self.joint_shards)
        return result

    def _do(self, name: str, given: list[tuple[Any, ...]], named: list[dict[str, Any]]) -> Any:
        """Calls a method of all members, each in its thread, and returns the chief's result."""
        return self._do_all(name, given, named)[0]

    def _do_all(self, name: str, given: list[tuple[Any, ...]], named: list[dict[str, Any]]) -> list[Any]:
        """Calls a method of all members, each in its thread, and returns the result of each."""
        for follower in self.followers:
            follower.follow()
        inside = _thread_settings()
        for member in self.members:
            member.exchanges.call = (f"Pipeline.{name}", "a thread")

        results: list[Any] = [None] * len(self.members)

        def call(number: int) -> None:
            with contextlib.ExitStack() as stack:
                for one in inside if number else ():
                    stack.enter_context(one())
                results[number] = getattr(self.members[number], name)(*given[number], **named[number])

        works = [partial(call, number) for number in range(len(self.members))]
        Turn([member.transport for member in self.members], self.pools, works[1:]).end(works[0])
        return results

    # ---- parameters and modules ----

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yields the parameters of all workers, for an optimizer."""
        for member in self.members:
            yield from member.parameters()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the parameters of all workers with their names in the whole model. A name occurs once for each copy of its
        stage."""
        for member in self.members:
            yield from member.named_parameters()

    def buffers(self) -> Iterator[torch.Tensor]:
        """Yields the buffers of all workers."""
        for member in self.members:
            yield from member.buffers()

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the buffers of all workers with their names in the whole model."""
        for member in self.members:
            yield from member.named_buffers()

    def clip_grad_value_(self, clip_value: float) -> None:
        """Clips all gradient values, like torch.nn.utils.clip_grad_value_."""
        torch.nn.utils.clip_grad_value_(list(self.parameters()), clip_value)

    def modules(self) -> Iterator[nn.Module]:
        """Yields the modules of all workers."""
        for member in self.members:
            yield from member.modules()

    def requires_grad_(self, requires_grad: bool = True) -> ThreadedPipeline:
        """Sets requires_grad of all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Resets all gradients, like torch.nn.Module.zero_grad."""
        for member in self.members:
            member.zero_grad(set_to_none)

    def train(self, mode: bool = True) -> ThreadedPipeline:
        """Sets the mode of all modules."""
        self.chief.train(mode)
        return self

    def eval(self) -> ThreadedPipeline:
        """Sets all modules to evaluation mode, like train(False)."""
        return self.train(False)

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Returns the numbers unchanged, because one script speaks for all workers."""
        return list(numbers)

    def __getattr__(self, name: str) -> Any:
        if name in ("chief", "members"):  # an object that is being constructed
            raise AttributeError(name)
        if name in APART:
            raise RuntimeError(f"{name}: not supported with devices='threads:N', where one script controls all workers. "
                               f"Start the workers with heturun.")
        return getattr(self.chief, name)


class _Parts:
    """Splits optimizers of all parameters into optimizers of each worker's parameters, for collective calls."""

    def __init__(self) -> None:
        self.made: list[tuple[torch.optim.Optimizer, torch.optim.Optimizer]] = []

    def of(self, value: Any, number: int, own: set[int]) -> Any:
        """Returns an argument with a worker's part in place of each optimizer, also inside lists and dicts."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.of(one, number, own) for one in value)
        if isinstance(value, dict):
            return {key: self.of(one, number, own) for key, one in value.items()}
        if not isinstance(value, torch.optim.Optimizer):
            return value
        part = copy.copy(value)
        part.param_groups = [{**group, "params": [p for p in group["params"] if id(p) in own]}
                             for group in value.param_groups]
        part.state = type(value.state)(dict, {p: state for p, state in value.state.items() if id(p) in own})
        self.made.append((value, part))
        return part

    def join(self) -> None:
        """Merges the states that load() has set in the parts into the whole optimizers."""
        for whole, part in self.made:
            whole.state.update(part.state)
            for group, own in zip(whole.param_groups, part.param_groups, strict=True):
                group.update({key: value for key, value in own.items() if key != "params"})


def _thread_settings() -> list[Callable[[], Any]]:
    """Returns context managers that reproduce the settings that PyTorch keeps per thread, as they are set in this thread."""
    inside: list[Callable[[], Any]] = [partial(torch.autocast, device, torch.get_autocast_dtype(device),
                                               cache_enabled=torch.is_autocast_cache_enabled())
                                       for device in autocast_devices()]
    return [*inside, torch.inference_mode] if torch.is_inference_mode_enabled() else inside
