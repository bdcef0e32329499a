"""Trains a PyTorch module by a proved plan: `hetu.torch.Pipeline`."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from hetu import _hetu
from hetu import schedule as plans
from hetu.process import faults, leave, rounds, stop, watch
from hetu.torch import agreement, loading, losses, saving
from hetu.torch import rows as table_rows
from hetu.torch import ties as sharing
from hetu.torch.averages import Averages
from hetu.torch.batches import Batch, own_part
from hetu.torch.boundaries import Form
from hetu.torch.buffers import Buffers
from hetu.torch.calls import Exchanges
from hetu.torch.cuts import Pieces, Stage, forget, model_with_loss
from hetu.torch.device import StageDevice, agree, choose, local_rank
from hetu.torch.elastic import Rounds, layout_arguments
from hetu.torch.empty import fill
from hetu.torch.foreign import check_loss
from hetu.torch.forms import Forms
from hetu.torch.functions import StageFunctions, Step
from hetu.torch.gradient_sums import GradientSums
from hetu.torch.holding import Holding
from hetu.torch.memory import keep_freed_memory, share_processor
from hetu.torch.modes import Modes, autocast_devices, check_gradients_enabled, settings
from hetu.torch.module_like import ModuleLike
from hetu.torch.optimizer_states import Optimizers
from hetu.torch.outputs import Outputs, metrics_of
from hetu.torch.planned import FoundPlan, transport_of
from hetu.torch.predicted import add_forecast
from hetu.torch.shards import Shards
from hetu.torch.split_backward import keep_compiled_buffers, refuse_old_hooks
from hetu.torch.state import PipelineState
from hetu.torch.step_loss import NOTHING, StepLoss
from hetu.torch.threads import ThreadedPipeline
from hetu.torch.trace_notes import complete_trace


class Pipeline(ModuleLike):
    """One worker's part of a module that is trained in stages, under heturun or in a single process.

    model: an nn.Sequential, cut at its CutPoints or, without CutPoints, between any two of its children; or a list of
    modules, each of which receives the output of the one before; or the result of hetu.torch.blocks for a model of
    transformers. Every worker passes the whole model, created from the same seed or in hetu.torch.empty(), and keeps the
    parameters of its own stages.
    loss(output, target): returns the loss of a micro-batch, a scalar. None: the loss that a model of hetu.torch.blocks
    computes itself when it receives labels.
    loss_weight: the weight of a micro-batch, a function of its target or of (output, target), such as
    hetu.torch.token_count(). None: the number of samples, which is right for a loss that is a mean over samples. The losses
    of hetu.torch, nn.CrossEntropyLoss and nn.NLLLoss define the right weight themselves.
    loss_reduction: "sum" if the loss is a sum, which needs no weights.
    check_loss_every: steps between two checks that the losses of micro-batches make up the loss of the batch. The first two
    steps are always checked. 0: no check.
    check_batches: True compares checksums of all inputs between the workers of a pipeline at every step. Set it to False
    for workers that can't compute the same bits of a batch, such as hosts of different kinds.
    whole_batches: True for a script that passes the batch of all pipelines, the same on every worker. Each pipeline then
    takes its samples. The micro-batches are the same for any number of pipelines.
    schedule: a method's name, a CSV or JSON file, module:function, a function of stages and micro_batches that returns rows
    of action strings, or a plan. Any method with a flush is allowed. Further options (chunks, pairs, with_recompute) are
    those of `hetu schedule`. None: 1f1b.
    micro_batches: per pipeline and step; 4 by default. Some may have fewer samples than others, and some may be empty.
    pipelines: the number of copies of the model. They share the workers and sum their gradients; each receives its own
    samples.
    plan: the file that `hetu plan -o plan.json` has written, or the dict of hetu.schedule.plan(). It replaces schedule,
    micro_batches, pipelines and first_pieces, and gives each worker its place.
    averaging: a hetu.averaging.Averaging, or the name of its method. Pipelines then don't sum gradients. Each makes its own
    updates, and averages weights in groups of the pipelines that are ready; see run().
    first_pieces: the first piece of each stage. None: as even as possible.
    shard_optimizer: True divides the optimizer's states among the workers with copies of a stage (ZeRO-1). Each worker has
    the gradients and states of its shard, and the optimizer's step() updates the weights of all copies.
    tied: pairs of names of parameters that become one parameter. A parameter object that two stages share is detected
    automatically.
    seed: the seed of dropout and other random operations; see hetu.torch.seed_of.
    sums: the order in which the gradients of micro-batches are added. "running": one after another within each copy of a
    stage, as plain PyTorch does, and then copy by copy. "tree": in a fixed tree over the micro-batches of all pipelines,
    which gives the same bits for every schedule and number of pipelines, and keeps more partial sums in memory. None:
    "running", or "tree" under heturun --elastic.
    devices: "threads:N" runs N workers as threads of this process, for notebooks. Not allowed under heturun.
    device: the device of this worker's stages: the CPU or an accelerator of PyTorch, as a torch.device or its name. "cuda"
    means the GPU whose number is the local rank. None: the device of the model's parameters.
    """

    def __new__(cls, model: Any = None, *given: Any, devices: Any = None, **named: Any) -> Any:
        """Creates a Pipeline, or a ThreadedPipeline if `devices` is a string."""
        if not isinstance(devices, str):
            return super().__new__(cls)

        def make(one: Any, links: Any) -> Pipeline:
            return cls(one, *given, devices=links, **named)

        return ThreadedPipeline(make, model, devices, named.get("averaging"))

    def __init__(self, model: Any, loss: Callable[[Any, Any], torch.Tensor] | None = None, schedule: Any = None,
                 micro_batches: int | None = None, *, plan: Any = None, pipelines: int = 1, averaging: Any = None,
                 loss_weight: Callable[..., Any] | None = None, loss_reduction: str | None = None,
                 check_loss_every: int = 100, check_batches: bool = True, whole_batches: bool = False,
                 shard_optimizer: bool = False, sums: str | None = None, first_pieces: Sequence[int] | None = None,
                 tied: Sequence[tuple[str, str]] = (), seed: int = 0, device: Any = None, devices: Any = None,
                 **options: Any) -> None:
        self.rounds = Rounds(rounds.layout())
        self.in_threads = devices is not None
        self.plan = FoundPlan(plan) if plan is not None else None
        self.transport = transport_of(self.plan, devices)
        micro_batches, pipelines, sums = layout_arguments(self.rounds.layout, locals())
        if self.plan:
            schedule, micro_batches, pipelines, first_pieces, options = self.plan.arguments(
                schedule=schedule, micro_batches=micro_batches, pipelines=pipelines, first_pieces=first_pieces, **options)
        schedule, micro_batches = "1f1b" if schedule is None else schedule, 4 if micro_batches is None else micro_batches
        self.turns: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        loss = losses.loss_of(model_with_loss(model)) if loss is None else loss
        rule = losses.rule_of(loss, loss_weight, loss_reduction)
        workers = self.transport.workers
        _check_pipelines(workers, pipelines)
        self.pipelines, self.micro_batches, self.seed, self.check_batches = pipelines, micro_batches, seed, check_batches
        self.by_tree = _by_tree(sums, averaging)
        width = self.width = workers // pipelines
        self.pipeline, self.row = divmod(self.transport.worker, width)
        self.part = (self.pipeline, pipelines) if whole_batches else None
        self.loss = StepLoss(loss, rule, check_loss_every, self.transport.worker, self.pipeline, pipelines)
        if not isinstance(schedule, _hetu.Schedule):
            schedule = plans.named(schedule, stages=width, micro_batches=micro_batches, **options)
        _check_schedule(schedule, width, micro_batches)
        self.schedule = schedule
        self.averages = Averages(averaging, self.transport, pipelines) if averaging is not None else None
        first = self.pipeline * width if self.averages else 0
        # The workers that take part in a step.
        self.crew = list(range(first, first + width) if self.averages else range(workers))
        self.exchanges = Exchanges(self.transport, self.crew)
        share_processor()
        keep_freed_memory()
        self.is_split = any("I" in action for row in schedule.rows for action in row)
        if self.is_split:
            keep_compiled_buffers()
        self.pieces = Pieces(model)
        if self.plan:
            self.plan.check_pieces(len(self.pieces.pieces))
        rank = self.transport.worker if self.in_threads else local_rank(_hetu.env()["worker"], _hetu.started()[0])
        where = choose(device, self.pieces.whole.named_parameters(), rank)
        self.stage_device = StageDevice(where, schedule.rows[self.row])
        self.loss.check.device_state = self.stage_device.generator_state
        self._cut(first_pieces, tied)
        if isinstance(loss, nn.Module):
            self.stage_device.move(loss)
        check_loss(loss, self.pieces.whole)
        self.functions = StageFunctions(schedule.placements, self.row, self.own, self.loss, len(self.pieces.pieces), {})
        self.functions.device, self.functions.names = self.stage_device, self.pieces.names
        self.job: Any = None
        self.forms = Forms(self.stages, loss, self.stage_device.like)
        self.buffer_copies = Buffers(self.pieces, self.own, schedule.placements,
                                    [self.summed_pipelines * self.held.copies(number) for number in range(len(self.stages))],
                                    self.pipeline, warns=self.transport.worker == 0)
        self.expected: Any = None
        self.shards = Shards(self.held, self.exchanges, self.stage_device, averages=self.averages is not None,
                             in_threads=self.in_threads) if self.rounds.shards(shard_optimizer) else None
        self.gradients = GradientSums(self.held, self.functions, self.stage_device, self.shards, self.summed_pipelines,
                                      self.by_tree)
        self.state = PipelineState(self.held, self.exchanges, self.averages, self.shards, micro_batches, seed)
        self.stepper, self.under_way, self.recorded_samples = threading.get_ident(), "", set[int]()
        # The current step begins new gradients; the recorded steps are in a trace.
        self.is_update, self.trace_is_written = True, False
        leave.join(self)

    def _cut(self, first_pieces: Sequence[int] | None, tied: Sequence[tuple[str, str]]) -> None:
        """Cuts the model into stages, and stores this worker's stages in `own`, by placement."""
        sharing.join(self.pieces, tied)
        placements = self.schedule.placements
        self.stages = self.pieces.stages(self.pieces.cut(1 + max(p["model_stage"] for p in placements), first_pieces))
        self.ties = sharing.cut(self.pieces, self.stages)
        sharing.check_placements(self.ties, placements)
        own: dict[int, Stage] = {}
        for number, placement in enumerate(placements):
            if placement["workers"] == [self.row]:
                stage = self.stages[placement["model_stage"]]
                own[number] = _copied(stage, placement["model_stage"]) if stage in own.values() else stage
                if own[number] is not stage:
                    self._name_copy(stage, own[number])
        self.own = own
        if self.stage_device.is_host:
            table_rows.take(own.values())
        self.modes = Modes(self.stages, own, [placement["model_stage"] for placement in placements], self.ties)
        fill(self.pieces, self.stages, own.values(), self.ties, self.seed)
        forget(self.stages, list(own.values()), self.pieces.names)
        for stage in own.values():
            self.stage_device.move(stage)
        for stage in self.stages:
            for parameter in stage.parameters():
                parameter.grad = None
        names = self.pieces.whole.named_parameters(remove_duplicate=False)
        numbers = {name: number for number, (name, _) in enumerate(names)}
        self.held = Holding(own, self.pieces, self.ties, placements, numbers, self.pipeline, self.pipelines, self.width)
        if self.averages:
            self.averages.take(list(own.values()), list(self.named_parameters()), placements, self.ties)

    def _name_copy(self, stage: Stage, second: Stage) -> None:
        tensors = [*second.parameters(), *second.buffers()]
        for before, after in zip([*stage.parameters(), *stage.buffers()], tensors, strict=True):
            self.pieces.names[id(after)] = self.pieces.names[id(before)]

    # ---- training ----

    def step(self, inputs: Any, target: Any, scaler: torch.amp.GradScaler | None = None, *, accumulate: bool = False,
             factor: float = 1.0, return_outputs: bool = False) -> Any:
        """Takes one step on all workers. Afterwards .grad of parameters() holds the gradients of this batch. The caller
        calls the optimizer's step(). Within torch.autocast, forwards compute in its dtype.

        inputs, target: the samples of this pipeline, the same on all of its workers.
        scaler: a hetu.torch.GradScaler. Gradients are multiplied by its scale.
        accumulate: adds to the existing gradients instead of replacing them.
        factor: a factor of the gradients, such as 1 / k for the mean of k accumulated batches.
        return_outputs: also returns the model's outputs, on every worker.
        Returns the mean of the loss, without factor and scale. The mean is over all pipelines, or over this pipeline if
        pipelines average weights. With `return_outputs`, returns (loss, outputs).
        """
        check_gradients_enabled()
        self.rounds.check_step()
        if self.averages:
            self.averages.begin_step(scaler)
        scale = self._scale_of(scaler) * factor
        kept = Outputs() if return_outputs else None
        faults.at_step(self.steps)
        with watch.step(lambda: self.steps, self.row):
            loss, outputs = self._run(inputs, target, training=True, scale=scale, accumulate=accumulate, kept=kept)
        if self.averages:
            self.averages.end_step()
        return (loss, outputs) if return_outputs else loss

    def _scale_of(self, scaler: Any) -> float:
        """Returns a scaler's factor of the loss, or 1 without a scaler. Throws ValueError for a scaler that doesn't
        communicate with the other workers."""
        if scaler is None:
            return 1.0
        if scaler.is_enabled() and getattr(scaler, "_pipe", None) is not self:
            raise ValueError("step: a torch.amp.GradScaler checks only the gradients of this worker's stages, so one worker "
                             "could update its weights while another skips. Pass a hetu.torch.GradScaler(pipe) made of this "
                             "Pipeline.")
        return float(scaler.scale(torch.ones((), device=self.device)))

    def run(self, updates: int, optimizer: torch.optim.Optimizer) -> Iterator[int]:
        """Yields the numbers of steps in a loop of pipelines that average weights. Each turn must call step() once, and the
        optimizer's step() once.

        updates: the approximate number of updates per pipeline. All pipelines together make `updates` times their number,
        each at its own pace.
        At the end, weights, optimizer states and buffers are means over the pipelines, and the number of steps is the start
        plus the mean number of updates, rounded down. Collective: every worker must run the loop to its end.
        """
        if not self.averages:
            raise ValueError("run: the pipelines sum gradients, so call step() without run(); pass averaging= to average "
                             "weights instead")
        return self.averages.run(self, updates, optimizer)

    def stop_soon(self) -> None:
        """Ends the run within a few updates, on all pipelines. One worker or several may call it."""
        if self.averages and self.averages.running:
            self.averages.link.stop_soon()

    def evaluate(self, inputs: Any, target: Any, *, metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
                 return_outputs: bool = False) -> Any:
        """Returns the loss with all modules in eval(), without computing gradients. Afterwards each module has its former
        mode.

        metrics: functions of (outputs, target), each for all samples of this pipeline. The result then contains a dict of
        their values. A number is a mean over pipelines, by their samples. A tuple of numbers, such as (hits, labels), is
        summed over pipelines.
        return_outputs: the result then contains the outputs, on every worker.
        """
        self.state.check_one("evaluate")
        kept = Outputs() if metrics or return_outputs else None
        with self.modes.evaluating(), watch.during("evaluates"), faults.during("evaluate"):
            loss, outputs = self._run(inputs, target, training=False, kept=kept)
        if kept is None:
            return loss
        found: tuple[Any, ...] = (loss,)
        if metrics:
            own = own_part(inputs, target, self.micro_batches, self.part)[1]
            found += (metrics_of(metrics, outputs, own, sum(self.loss.sizes), self.row == 0, self.sum),)
        return (*found, outputs) if return_outputs else found

    def predict(self, inputs: Any) -> Any:
        """Returns the model's outputs for this pipeline's samples, on every worker. All modules are in eval(), and no
        gradients and no loss are computed."""
        self.state.check_one("predict")
        with self.modes.evaluating(), watch.during("evaluates"), faults.during("evaluate"):
            return self._run(inputs, None, training=False, kept=Outputs(), is_prediction=True)[1]

    def _run(self, inputs: Any, target: Any, training: bool, scale: float = 1.0, accumulate: bool = False,
             kept: Outputs | None = None, is_prediction: bool = False) -> tuple[float, Any]:
        if training and self.is_split:
            refuse_old_hooks(self.pieces.whole, self.own.values())
        self.stepper, before, self.under_way = threading.get_ident(), self.under_way, "a step"
        batch = Batch(inputs, target, self.micro_batches, self.part)
        if self.plan and training:
            self.plan.check_batch(batch.rows, self.steps == 0)
        self.stage_device.check(batch.inputs[0], "inputs")
        self.stage_device.check(batch.targets[0], "target")
        weights = list(batch.sizes) if is_prediction else self.loss.rule.before(batch.target_values(), batch.sizes)
        total = self._agree(batch, weights, [scale, accumulate])
        if self.in_threads:  # determining shapes replaces parameters of modules that threads share
            self.exchange(b"", self.crew)
        with self.turns:
            forms = self.forms.of(batch, training, (settings(), self.modes.text))
        if self.in_threads:
            self.exchange(b"", self.crew)
        if self.job is None:
            self._build(forms[0])
        self._check_edges(forms[0], training)
        if self.expected != (forms, batch.sizes):
            self.functions.expect(forms, batch.sizes)
            self.expected = (forms, batch.sizes)
        seeds = self.seed, self.steps, self.pipeline * self.micro_batches
        self.functions.given = batch.identities()
        self.functions.begin(Step(training, forms, batch.inputs, batch.targets, batch.target_tree, seeds, scale,
                                  autocast_devices()))
        self.functions.outputs, self.loss.is_prediction = kept, is_prediction
        numbers = self.loss.begin(training, self.steps, batch.sizes, weights, total)
        if training:
            self.state.begin_states()
            multiplies = self.loss.rule.kind == losses.OUTPUTS
            numbers += [0.0] * self.gradients.begin(len(numbers), accumulate, multiplies)
        drawn = torch.get_rng_state()
        try:
            with table_rows.collecting(), self.stage_device.step():
                sums = self.job.run(self.steps, numbers, training)
        finally:
            with self.turns:
                torch.set_rng_state(drawn)
        if sums[self.loss.problem_at] > 0:
            self._raise_problem()
        if training:
            self.gradients.end_sums(sums)
        self.buffer_copies.rename()
        loss, factor = (0.0, 1.0) if is_prediction else self.loss.finish(sums)
        if training:
            self.gradients.end(factor)
            if self.stage_device.records:  # the largest micro-batch of each recorded step
                if self.trace_is_written:
                    self.recorded_samples.clear()
                self.trace_is_written = False
                self.recorded_samples.add(max(batch.sizes))
        if training:
            self.state.count(self.is_update)
        if self.shards and training:
            self.shards.is_pending = True
        outputs = kept.share(self._in_pipeline, forms, batch.sizes, self.device) if kept is not None else None
        self.under_way = before if self.averages else ""
        return loss, outputs

    def _in_pipeline(self, mine: bytes) -> list[bytes]:
        """Exchanges bytes with the workers of this pipeline, and returns theirs in order."""
        first = self.pipeline * self.width
        return self.exchange(mine, range(first, first + self.width))

    def _build(self, form: Form) -> None:
        """Creates the job: lowers and verifies the plan for the values that cross the stages of this model."""
        extra = sorted(edge for edge in form.edges if edge[1] != edge[0] + 1)
        self.functions.parts.update({edge: 0 for edge in form.edges if edge[1] == edge[0] + 1})
        self.functions.parts.update({edge: 1 + k for k, edge in enumerate(extra)})
        self.edges = set(form.edges)
        pairs = sorted({tie.stages for tie in self.ties})
        functions = weakref.ref(self.functions)  # weak, because the functions refer to the job
        stages = [(self.schedule.placements[placement]["model_stage"], stage) for placement, stage in self.own.items()]
        agreement.check_copies(self.exchange(agreement.copies_of(stages)))
        self.job = _hetu.ModuleJob(self.schedule, self.transport, self.summed_pipelines, extra, pairs,
                                   lambda *instruction: functions().compute(*instruction),  # type: ignore[union-attr]
                                   apart=self.averages is not None, tree=self.by_tree)
        self.functions.job = self.job
        self.functions.recomputed = {placement: set(self.job.recomputed(placement)) for placement in self.own}
        self._report_devices()

    def _check_edges(self, form: Form, training: bool) -> None:
        if set(form.edges) != self.edges:
            raise ValueError(f"stages pass values {sorted(form.edges)} in {'training' if training else 'evaluation'}, but "
                             f"the job was planned for {sorted(self.edges)}: the stages that read each other's values must "
                             f"not change")

    def _agree(self, batch: Batch, weights: Sequence[float], scale: list[Any]) -> float:
        """Checks that all workers begin the same step, so that their messages fit. Adopts the modes that each worker has
        set on its stages, and the buffers of first copies. Returns the divisor of the loss."""
        given = {"tensors": batch.forms(), "checksums": batch.checksums() if self.check_batches else []}
        mine = {"all": {"names": agreement.names_sum(self.held.numbers), "number": self.steps, "seed": self.seed,
                        "settings": settings(), "scale of the loss": scale[0], "accumulate": scale[1],
                        **(given if self.part else {})},
                "pipeline": {**({} if self.part else given), "samples": batch.sizes, "weights": list(weights)},
                "stop": stop.asked(), "modes": self.modes.read(), "buffers": self.buffer_copies.changed(),
                "has gradients": scale[1] and any(parameter.grad is not None for parameter in self.held.parameters()),
                "copies": self.shards.checksums() if self.shards and not scale[1] else None}
        begins = [json.loads(text) for text in self.exchange(json.dumps(mine).encode(), self.crew)]
        self.rounds.asked = any(begin["stop"] for begin in begins)
        self.is_update = not any(begin["has gradients"] for begin in begins)
        agreement.check_same(begins, self.crew, self.width, batch)
        self.modes.take(self.crew, [begin["modes"] for begin in begins])
        self.buffer_copies.join([begin["buffers"] for begin in begins], lambda mine: self.exchange(mine, self.crew))
        if self.shards:
            self.shards.check_copies(begin["copies"] for begin in begins)
        total = agreement.total_weight(begins, self.width, self.loss.rule)
        if total == 0:
            raise ValueError(NOTHING)
        return total

    def _raise_problem(self) -> None:
        """Raises an error on all workers if the loss check has found a problem on one of them."""
        found = self.exchange(self.loss.check.problem.encode(), self.crew)
        for worker, text in zip(self.crew, found, strict=True):
            if text:
                raise ValueError(f"worker {worker}, step {self.steps}: {text.decode()}")

    # ---- state ----

    @property
    def steps(self) -> int:
        """The number of calls of step() so far. load() sets it. Setting it sets `updates` to the same number."""
        return self.state.steps

    @steps.setter
    def steps(self, steps: int) -> None:
        self.state.steps = self.state.updates = steps

    @property
    def updates(self) -> int:
        """The number of updates so far: the calls of step() that replaced gradients, or that found none to add to. load()
        sets it. Throws ValueError after a checkpoint that doesn't hold it."""
        return self.state.known_updates()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the state_dict of the unsplit model, on every worker. Collective: every worker calls it. Buffers are
        those of the first pipeline."""
        return self.state.state_dict()

    def load_state_dict(self, state: Mapping[str, torch.Tensor], strict: bool = True) -> None:
        """Loads this worker's part of the whole model's state. Throws ValueError, before anything is changed, for a tensor
        of another shape. With `strict`, also for missing names and for names that the model does not have."""
        self.state.load_state_dict(state, strict)

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the buffers of this worker's stages that state_dict() keeps, with their names in the whole model."""
        return self.state.named_buffers()

    def save(self, folder: str | os.PathLike[str], optimizer: Optimizers = None, **more: Any) -> None:
        """Writes a checkpoint of the weights, the number of steps, and the states and options of the optimizer. It replaces
        the checkpoint in the folder. Collective: every worker calls it, and each writes its own part.

        A kill at any moment leaves either the old or the new checkpoint. After the first save, no other job can save into
        the folder.
        optimizer: one optimizer, or a list or dict of several.
        more: further objects with state_dict() and load_state_dict(), by names that load() receives too, such as
        scaler=scaler, rates=scheduler. All workers must have the same state, except for tensors in dicts under the names of
        parameters, such as averages. Each worker saves its own tensors of these.
        Throws ValueError for a state that a checkpoint can't hold, and OSError if the folder can't be written or another
        job saves there. Nothing is changed in these cases.
        """
        with watch.during("saves"), faults.saving():
            saving.save(self.state, folder, optimizer, more)

    def load(self, folder: str | os.PathLike[str], optimizer: Optimizers = None, *, strict: bool = True,
             **more: Any) -> list[str]:
        """Loads a checkpoint that was saved under any cut and any number of pipelines. Collective: every worker calls it,
        with the arguments that save() received. Without an optimizer, only the weights and the number of steps are loaded.

        strict: the checkpoint must fit: it has the model's parameters and the given optimizers, and nothing that was saved
        is left out. With False, matching parts are loaded, and the rest is described in the result.
        Throws on all workers, before anything is changed: OSError if there is no complete checkpoint or if it is damaged,
        and ValueError if it does not fit.
        """
        with watch.during("saves"), faults.during("load"):
            skipped = loading.load(self.state, folder, optimizer, strict, more)
        if self.state.updates not in (None, self.steps) and self.transport.worker == 0:
            print(f"hetu: loaded {os.fspath(folder)}: {self.updates} updates, of {self.steps} calls of step()",
                  file=sys.stderr, flush=True)
        return skipped

    # ---- execution ----

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Returns sums over all workers, or over those of this pipeline if pipelines average weights. Collective: each
        worker passes the same number of values."""
        mine = struct.pack(f"{len(numbers)}d", *numbers)
        rows = [struct.unpack(f"{len(text) // 8}d", text) for text in self.exchange(mine, self.crew)]
        if any(len(row) != len(numbers) for row in rows):
            raise ValueError(f"sum: workers {self.crew} passed {[len(row) for row in rows]} numbers; all must pass the same "
                             f"number of values")
        return [sum(column) for column in zip(*rows, strict=True)]

    @property
    def device(self) -> torch.device:
        """The device that this worker's stages compute on."""
        return self.stage_device.device

    def _report_devices(self) -> None:
        """Prints the devices of all workers on worker 0, unless all are the CPU."""
        line = agree([text.decode() for text in self.exchange(str(self.device).encode())])
        if line and self.transport.worker == 0:
            print(line, file=sys.stderr, flush=True)

    def record(self, on: bool = True) -> None:
        """Records the instructions of later steps, until record(False). Collective: every worker calls it, after a first
        step; between runs if pipelines average. On an accelerator, each recorded instruction waits for the device, which
        makes steps slower."""
        self.state.check_one("record")
        job = self._started("record")
        self.exchange(b"")
        job.record(on)
        self.recorded_samples.clear()
        self.stage_device.records = on

    def write_trace(self, path: str | os.PathLike[str], *, costs: Any = None, machines: Any = None) -> None:
        """Writes the recorded instructions of all workers, for `hetu timeline` and `hetu compare`. A trace has the steps
        since the one before. A second call without a step in between writes the same instructions again, such as with other
        costs. Collective: every worker calls it; worker 0 writes the file.

        costs, machines: for a Pipeline with plan=, the files that `hetu plan` received. Otherwise costs are a profile, a
        cost file or an earlier trace of as many stages. The trace then has a forecast by these costs, and not a prediction
        by the run's own kernels. If they don't fit, ValueError is thrown after the trace is written without the forecast.
        """
        self.state.check_one("write_trace")
        job = self._started("write_trace")
        self.exchange(b"")
        job.write_trace(os.fspath(path))
        self.trace_is_written = True
        if self.transport.worker == 0:
            complete_trace(path, self.recorded_samples)
            if costs is not None:
                add_forecast(self, path, costs, machines)

    @property
    def summed_pipelines(self) -> int:
        """The number of pipelines whose gradients are summed."""
        return 1 if self.averages else self.pipelines

    def exchange(self, mine: bytes, workers: Sequence[int] | None = None) -> list[bytes]:
        """Returns the bytes that each of these workers passes, in their order; all workers without a list. Collective: each
        of them calls it."""
        return self.exchanges.exchange(mine, workers)

    def _started(self, what: str) -> Any:
        if self.job is None:
            raise RuntimeError(f"{what} needs the plan of this model, which the first step makes; call it after a step")
        return self.job

    def unfinished(self) -> str:
        """Returns a description of the step or run that the script leaves unfinished if it ends at this point, or ""."""
        return f"its script ended in the middle of {self.under_way}, after {self.steps} steps" if self.under_way else ""

    def release(self) -> None:
        """Releases the links to other workers."""
        if self.averages:
            self.averages.link = None
        self.job = self.functions.job = self.averages = self.state.averages = None
        self.state.folders.clear()


def _check_pipelines(workers: int, pipelines: int) -> None:
    """Throws ValueError if the workers don't divide into pipelines."""
    if pipelines < 1 or workers % pipelines:
        raise ValueError(f"{workers} workers can't be divided into {pipelines} pipelines: pipelines must be at least 1, and "
                         f"the number of workers a multiple of {pipelines}")


def _check_schedule(schedule: plans.Schedule, width: int, micro_batches: int) -> None:
    """Throws ValueError for a schedule of other sizes."""
    if len(schedule.rows) != width or schedule.micro_batches != micro_batches:
        raise ValueError(f"the schedule is for {len(schedule.rows)} workers and {schedule.micro_batches} micro-batches; "
                         f"there are {width} workers per pipeline and {micro_batches} micro-batches")


def _by_tree(sums: str | None, averaging: Any) -> bool:
    """Returns true if gradients are added in the order of a tree. Throws ValueError."""
    if sums not in ("running", "tree"):
        raise ValueError(f"sums={sums!r} is not known; choose 'running' or 'tree'")
    if sums == "tree" and averaging is not None:
        raise ValueError("sums='tree' is for pipelines that sum their gradients, and these average weights: leave "
                         "averaging= or sums= out")
    return sums == "tree"


def _copied(stage: Stage, number: int) -> Stage:
    try:
        return copy.deepcopy(stage)
    except Exception as error:  # a module's own state may raise any error
        kinds = ", ".join(type(piece).__name__ for piece in stage.pieces)
        raise ValueError(f"model stage {number} ({kinds}) is on this worker twice, and cannot be copied: "
                         f"{type(error).__name__}: {' '.join(str(error).split())}; choose a schedule with one copy of a "
                         f"stage per worker") from None

