"""Computes the instructions of a plan on one worker: F, B, I, W and R of its stages. The interpreter calls it.

The plan, and not this module, defines the order of instructions, the waiting and the messages.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from hetu.torch import flow, rows
from hetu.torch.boundaries import Crossing, Form, check_constant
from hetu.torch.buffers import with_buffers
from hetu.torch.cuts import Stage
from hetu.torch.device import CPU, StageDevice
from hetu.torch.foreign import check_stage
from hetu.torch.gradients import Summed
from hetu.torch.modes import without_autocast
from hetu.torch.outputs import Outputs
from hetu.torch.split_backward import DeferredGradients
from hetu.torch.step_loss import StepLoss
from hetu.torch.tree_sums import TreeSums
from hetu.torch.values import flatten, spec_of, unflatten


def seed_of(seed: int, step: int, micro: int, piece: int) -> int:
    """Returns the seed of the random generators before a piece of the model runs. It depends only on the piece's position,
    so no cut and no schedule changes the random numbers.

    micro: the micro-batch's number in the step, over all pipelines.
    piece: the piece's number; the number after the last piece is that of the loss.
    """
    return _mixed(_mixed(_mixed(_mixed(0, seed), step), micro), piece) >> 1


def _mixed(x: int, part: int) -> int:
    """Returns the next value of splitmix64, a mixing function (Steele et al. 2014)."""
    x = (x ^ (part & (2**64 - 1))) + 0x9E3779B97F4A7C15 & (2**64 - 1)
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & (2**64 - 1)
    return x ^ x >> 31


class _Live:
    """A micro-batch between its forward and the end of its backward on one stage."""

    def __init__(self) -> None:
        self.inputs: dict[tuple[int, int], torch.Tensor] = {}  # by (stage, tensor): the leaves whose gradients are computed
        self.given: list[Any] = []  # leaves of the input, kept for recomputation
        self.buffers: list[torch.Tensor] = []  # copies from before the forward, kept for recomputation
        self.roots: dict[int, torch.Tensor] = {}  # by number of the tensor; -1: the loss
        self.deferred: DeferredGradients | None = None


@dataclasses.dataclass
class Step:
    """The values that all instructions of a step share."""

    training: bool
    forms: Sequence[Form]  # by micro-batch, like the next two fields
    batch: Sequence[Sequence[Any]]
    targets: Sequence[Sequence[Any]]
    target_tree: Any
    seeds: tuple[int, int, int]  # seed, step, first micro-batch of the pipeline
    scale: float  # factor of the loss in backward
    autocast: Sequence[str]  # device types with autocast turned on by the script


class _End(NamedTuple):
    """The other end of an edge, seen from a placement at one end."""

    placement: int
    here: bool  # on this worker
    part: int


class StageFunctions:
    """The stages of one worker, by placement."""

    def __init__(self, placements: Sequence[dict[str, Any]], row: int, stages: dict[int, Stage],
                 loss: StepLoss, pieces: int, parts: dict[tuple[int, int], int]) -> None:
        self.placements = placements
        self.row = row
        self.stages = stages
        self.loss = loss
        self.pieces = pieces
        self.parts = parts  # message parts, by edge
        self.device = StageDevice(CPU)
        # Lock that threads hold in an instruction.
        self.turns: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self.job: Any = None  # set when the job exists
        self.recomputed: dict[int, set[int]] = {}
        self.step: Step
        self.summed: dict[int, Summed] = {}  # gradients that are summed over copies, by placement
        self.trees: dict[int, TreeSums] = {}  # by placement; empty unless gradients are added in the order of a tree
        self.live: dict[tuple[int, int], _Live] = {}
        self.local: dict[tuple[str, int, int, int], list[torch.Tensor]] = {}
        self.at = {(p["model_stage"], p["replica"]): n for n, p in enumerate(placements)}
        self.last = max(p["model_stage"] for p in placements)
        for stage in stages.values():
            stage.before = self._seed
        self.micro = 0
        self.mixed: tuple[int, int] = (-1, 0)  # a micro-batch, and its part of the seeds
        self.ends: dict[tuple[int, int, int], _End] = {}  # by placement and edge
        self.names: Mapping[int, str] = {}  # of parameters, by identity
        self.given: set[int] = set()  # tensors of the batch, by identity
        self.outputs: Outputs | None = None  # of this call, if they are requested
        self.looked_at: set[int] = set()  # placements already checked for parameters of other stages

    def begin(self, step: Step) -> None:
        """Begins a step, and drops what a failed step has left behind."""
        self.step = dataclasses.replace(step, batch=self.device.on_demand(step.batch),
                                        targets=self.device.on_demand(step.targets))
        self.mixed = (-1, 0)
        self.live.clear()
        self.local.clear()
        if not step.training and any(module.training for stage in self.stages.values() for module in stage.modules()):
            raise AssertionError("forwards without training run inside Modes.evaluating()")

    def compute(self, kind: str, placement: int, micro: int) -> None:
        """Computes one instruction."""
        with self.turns:
            self._compute_in_turn(kind, placement, micro)

    def _compute_in_turn(self, kind: str, placement: int, micro: int) -> None:
        self.micro = micro
        if not self.loss.sizes[micro]:
            self._pass_over(kind, placement, micro)
        elif not self.step.autocast:
            self._compute(kind, placement, micro)
        elif kind in "FR":  # each forward counts as an autocast region of its own: cached casts of weights end with it
            self._compute(kind, placement, micro)
            torch.clear_autocast_cache()
        else:  # backward runs outside the autocast region
            with without_autocast(self.step.autocast):
                self._compute(kind, placement, micro)
        if kind in "BW" and placement in self.trees:
            self.trees[placement].end(micro)
            if placement in self.summed:
                self.summed[placement].note_uses()
        self.device.end(kind, placement)

    def _compute(self, kind: str, placement: int, micro: int) -> None:
        if kind == "F":
            self._forward(placement, micro)
        elif kind == "R":
            self._recompute(placement, micro)
        elif kind == "W":
            live = self.live.pop((placement, micro))
            assert live.deferred is not None
            live.deferred.run()
        else:
            self._backward(placement, micro, split=kind == "I")
        if kind in "BIW":  # I also computes all gradients of some stages
            rows.add()
            if placement in self.trees:
                self.trees[placement].take(micro)
            elif placement in self.summed:
                self.summed[placement].note_uses()

    def _seed(self, piece: int) -> None:
        """Seeds the generators before a piece, as seed_of() defines. The mixed seed of the current micro-batch is cached."""
        if not self.step.training:
            return
        if self.mixed[0] != self.micro:
            seed, step, first = self.step.seeds
            self.mixed = self.micro, _mixed(_mixed(_mixed(0, seed), step), first + self.micro)
        # Like torch.manual_seed, but without seeding every other kind of device.
        torch.default_generator.manual_seed(_mixed(self.mixed[1], piece) >> 1)
        self.device.seed(_mixed(self.mixed[1], piece) >> 1)

    # ---- forward ----

    def _forward(self, placement: int, micro: int) -> None:
        stage, form = self.placements[placement]["model_stage"], self.step.forms[micro]
        live = _Live()
        again = micro in self.recomputed.get(placement, ())
        leaves = self._inputs(placement, micro)
        if self.step.training and again:
            live.given = leaves
            live.buffers = [buffer.clone() for buffer in self.stages[placement].buffers()]
        with torch.set_grad_enabled(self.step.training and not again):
            made = self._run(placement, micro, leaves, live, note_loss=True)
        if self.step.training:
            self.live[placement, micro] = live
        for reader in form.readers[stage]:
            edge = (stage, reader)
            self._give("SEND_F", placement, edge, form.forward[edge], [made[k] for k in form.forward[edge].tensors])

    def _recompute(self, placement: int, micro: int) -> None:
        """Repeats the forward from the same inputs, buffers and seeds. Afterwards the buffers have the values from before
        the recomputation."""
        live, module = self.live[placement, micro], self.stages[placement]
        with with_buffers(module, live.buffers), torch.enable_grad():
            self._run(placement, micro, live.given, live, note_loss=False)
        live.given, live.buffers = [], []

    def _inputs(self, placement: int, micro: int) -> list[Any]:
        """Returns the leaves of a stage's input."""
        stage, form = self.placements[placement]["model_stage"], self.step.forms[micro]
        read = {}
        for writer in form.writers[stage]:
            crossing = form.forward[writer, stage]
            tensors = self._take("RECV_F", placement, (writer, stage), crossing)
            read.update({(writer, k): t for k, t in zip(crossing.tensors, tensors, strict=True)})
        leaves = []
        for source in form.stages[stage].inputs:
            if source.kind == "made":
                leaves.append(read[source.stage, source.number])
            else:
                leaves.append(self.step.batch[micro][source.number] if source.kind == "batch" else source.value)
        return leaves

    def _run(self, placement: int, micro: int, leaves: Sequence[Any], live: _Live, note_loss: bool) -> list[torch.Tensor]:
        """Runs the stage and returns the tensors that it makes. Notes in `live` where gradients start and end."""
        stage = self.placements[placement]["model_stage"]
        form = self.step.forms[micro].stages[stage]
        given = list(leaves)
        if torch.is_grad_enabled():
            for n, (source, spec) in enumerate(zip(form.inputs, form.given, strict=True)):
                if source.kind == "made" and spec is not None and spec.needs_gradient:
                    key = (source.stage, source.number)
                    if key not in live.inputs:
                        live.inputs[key] = given[n].detach().requires_grad_()
                    given[n] = live.inputs[key]
        for n in form.changed:
            given[n] = given[n].clone()
        out = self.stages[placement](unflatten(given, form.input_tree))
        made = self._made(stage, micro, out)
        if torch.is_grad_enabled():
            live.roots = {k: tensor for k, tensor in enumerate(made) if form.made[k].needs_gradient}
        if stage == self.last:
            if note_loss and self.outputs is not None:
                self.outputs.keep(micro, out)
            loss = self._loss(micro, out, note_loss)
            if torch.is_grad_enabled():
                live.roots = {-1: loss if self.step.scale == 1 else loss * self.step.scale}
        if torch.is_grad_enabled() and placement not in self.looked_at:
            self.looked_at.add(placement)
            inputs = self.given | {id(leaf) for leaf in live.inputs.values()}
            check_stage(stage, self.stages[placement], live.roots.values(), inputs, self.names)
        return made

    def _made(self, stage: int, micro: int, out: Any) -> list[torch.Tensor]:
        """Returns the tensors that the stage has made. Throws ValueError if they differ from those found when shapes were
        determined."""
        form = self.step.forms[micro].stages[stage]
        leaves, _ = flatten(out)
        made: dict[int, torch.Tensor] = {}
        if len(leaves) != len(form.outputs):
            raise ValueError(f"model stage {stage} returned {len(leaves)} values, but {len(form.outputs)} when shapes were "
                             f"determined: the number of values must not depend on the contents of tensors")
        for leaf, source in zip(leaves, form.outputs, strict=True):
            if source.kind == "made" and source.stage == stage:
                expected = form.made[source.number]
                found = spec_of(leaf) if isinstance(leaf, torch.Tensor) else None
                if found and found[:2] == expected[:2] and torch.is_grad_enabled() and found[2] != expected[2]:
                    raise ValueError(f"model stage {stage} returned a value with{'' if found[2] else 'out'} a gradient, but "
                                     f"with{'' if expected[2] else 'out'} one when shapes were determined: whether "
                                     f"gradients are computed must not depend on the contents of tensors")
                if found is None or found[:2] != expected[:2]:
                    raise ValueError(f"model stage {stage} returned {found}, but {expected} when shapes were determined: "
                                     f"shapes and types must not depend on the contents of tensors")
                made[source.number] = leaf
            elif source.kind == "constant" and stage != self.last:
                check_constant(stage, leaf, source.value)
        return [made[k] for k in range(len(form.made))]

    def _loss(self, micro: int, out: Any, note_loss: bool) -> torch.Tensor:
        self._seed(self.pieces)
        target = unflatten(self.step.targets[micro], self.step.target_tree)
        return self.loss.compute(micro, out, target, self.job.set_scalar if note_loss else None)

    # ---- backward ----

    def _backward(self, placement: int, micro: int, split: bool) -> None:
        stage, form = self.placements[placement]["model_stage"], self.step.forms[micro]
        live = self.live[placement, micro] if split else self.live.pop((placement, micro))
        sums: dict[int, torch.Tensor | None] = {-1: None} if stage == self.last else {}
        for reader in reversed(form.readers[stage]):  # the order in which autograd adds gradients: the last use first
            crossing = form.backward[stage, reader]
            gradients = self._take("RECV_B", placement, (stage, reader), crossing)
            for k, gradient in zip(crossing.tensors, gradients, strict=True):
                before = sums.get(k)
                sums[k] = gradient if before is None else before + gradient
        roots = [live.roots[k] for k in sums]
        starts = list(sums.values())
        inputs = list(live.inputs.values())
        if split:
            live.deferred = DeferredGradients(roots, starts, inputs)
            of_inputs = dict(zip(live.inputs, live.deferred.of_inputs, strict=True))
            live.roots, live.inputs = {}, {}
        else:
            if roots:
                torch.autograd.backward(roots, starts)
            of_inputs = {key: leaf.grad for key, leaf in live.inputs.items()}
        expected = {(writer, k) for writer in form.writers[stage] for k in form.backward[writer, stage].tensors}
        flow.check_expected(of_inputs, expected, stage)
        for writer in form.writers[stage]:
            crossing = form.backward[writer, stage]
            gradients = [flow.found(of_inputs.get((writer, k)), (writer, k), stage) for k in crossing.tensors]
            self._give("SEND_B", placement, (writer, stage), crossing, gradients)

    # ---- messages ----

    def _end(self, placement: int, edge: tuple[int, int]) -> _End:
        """Returns the other end of an edge."""
        key = (placement, *edge)
        if key not in self.ends:
            here = self.placements[placement]
            far = self.at[edge[1] if here["model_stage"] == edge[0] else edge[0], here["replica"]]
            self.ends[key] = _End(far, self.placements[far]["workers"] == here["workers"], self.parts[edge])
        return self.ends[key]

    def _give(self, kind: str, placement: int, edge: tuple[int, int], crossing: Crossing,
              tensors: list[torch.Tensor]) -> None:
        far, here, part = self._end(placement, edge)
        if here:
            self.local[kind[-1], far, part, self.micro] = [tensor.detach() for tensor in tensors]
            return
        message = self.device.to_host(crossing.message.pack(tensors))
        self.job.give(kind, placement, part, self.micro, message.data_ptr(), crossing.message.bytes, message)

    def _take(self, kind: str, placement: int, edge: tuple[int, int], crossing: Crossing) -> list[torch.Tensor]:
        _, here, part = self._end(placement, edge)
        if here:
            return self.local.pop((kind[-1], placement, part, self.micro))
        message = torch.from_numpy(self.job.take(kind, placement, part, self.micro))
        return crossing.message.unpack(self.device.from_host(message))

    def _pass_over(self, kind: str, placement: int, micro: int) -> None:
        """Passes on the messages of a micro-batch without samples. The plan contains these messages, so each holds one
        byte."""
        stage, form = self.placements[placement]["model_stage"], self.step.forms[micro]
        if kind not in "FBI":
            return
        before = [(writer, stage) for writer in form.writers[stage]]
        after = [(stage, reader) for reader in form.readers[stage]]
        end = "F" if kind == "F" else "B"
        for edge in before if kind == "F" else after:
            if not self._end(placement, edge).here:
                self.job.take(f"RECV_{end}", placement, self.parts[edge], micro)
        for edge in after if kind == "F" else before:
            if not self._end(placement, edge).here:
                message = torch.zeros(1, dtype=torch.uint8)
                self.job.give(f"SEND_{end}", placement, self.parts[edge], micro, message.data_ptr(), 1, message)

    def expect(self, forms: Sequence[Form], sizes: Sequence[int]) -> None:
        """Announces the lengths of the messages to this worker, for micro-batches of these forms and sizes."""
        for placement in self.stages:
            stage = self.placements[placement]["model_stage"]
            for micro, form in enumerate(forms):
                for writer in form.writers[stage]:
                    length = form.forward[writer, stage].message.bytes if sizes[micro] else 1
                    self.job.expect("RECV_F", placement, self.parts[writer, stage], micro, length)
                for reader in form.readers[stage]:
                    length = form.backward[stage, reader].message.bytes if sizes[micro] else 1
                    self.job.expect("RECV_B", placement, self.parts[stage, reader], micro, length)
