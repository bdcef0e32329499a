"""Finds the tensors that cross between stages before anything is computed: the stages run once on tensors without elements.

Every worker finds the same result, so messages need no description of their contents. A value that a stage passes on
unchanged is sent from the stage that computed it directly to the stages that read it. A value from the batch isn't sent,
because every worker has the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hetu.torch import flow
from hetu.torch.cuts import Stage
from hetu.torch.lengths import OpenLengths, fake_mode
from hetu.torch.recording import FixedShapesError, FormKey, RecordingError
from hetu.torch.records import SIMPLE, hides_tensors
from hetu.torch.values import MessageForm, TensorSpec, flatten, spec_of, unflatten
from hetu.torch.without_values import values_where_needed


class Source(NamedTuple):
    """The origin of a leaf. Kind "batch": leaf `number` of the batch. Kind "made": tensor `number` that `stage` makes. Kind
    "constant": `value`, which is not a tensor."""

    kind: str
    stage: int = -1
    number: int = -1
    value: Any = None


class StageForm(NamedTuple):
    """The inputs and outputs of a stage, as leaves."""

    inputs: list[Source]
    input_tree: Any
    outputs: list[Source]
    output_tree: Any
    made: list[TensorSpec]  # in the order of their leaves
    given: list[TensorSpec | None]  # by input
    changed: list[int]  # inputs that the stage changes in place


class Crossing(NamedTuple):
    """The content of one edge: tensors of its first stage or, backward, their gradients."""

    tensors: list[int]
    message: MessageForm


class Form:
    """The inputs and outputs of all stages, and all messages between them, for micro-batches of one size."""

    def __init__(self, stages: list[StageForm], read: Container[tuple[int, int, int]]) -> None:
        """read: (stage, number of a tensor, reading stage) for each tensor whose gradient is sent back."""
        self.stages = stages
        self.read = read
        self.edges: dict[tuple[int, int], list[int]] = {}  # (from, to) -> tensors of `from`, ascending
        for reader, stage in enumerate(stages):
            for source in stage.inputs:
                if source.kind == "made":
                    tensors = self.edges.setdefault((source.stage, reader), [])
                    if source.number not in tensors:
                        tensors.append(source.number)
        for tensors in self.edges.values():
            tensors.sort()
        for first in range(len(stages) - 1):  # every plan has these edges; an empty message only signals readiness
            self.edges.setdefault((first, first + 1), [])
        self.forward = {edge: self._crossing(edge, False) for edge in self.edges}
        self.backward = {edge: self._crossing(edge, True) for edge in self.edges}
        count = range(len(stages))
        # By stage: the stages that read its tensors.
        self.readers = [sorted(to for source, to in self.edges if source == s) for s in count]
        # By stage: the stages whose tensors it reads.
        self.writers = [sorted(source for source, to in self.edges if to == s) for s in count]

    def _crossing(self, edge: tuple[int, int], backward: bool) -> Crossing:
        made = self.stages[edge[0]].made
        tensors = self.edges[edge]
        if backward:
            tensors = [k for k in tensors if made[k].needs_gradient and (edge[0], k, edge[1]) in self.read]
        return Crossing(tensors, MessageForm([made[k] for k in tensors]))


def find(stages: Sequence[Stage], batch: Sequence[Any], tree: Any, rows: int, cut: int,
         device_of: Callable[[torch.Tensor], torch.device],
         loss: Callable[[Any, Callable[[Any], Any]], Any] | None = None) -> Form:
    """Returns the Form for micro-batches of `rows` samples.

    batch: the leaves of a batch of `cut` samples.
    device_of: returns the device on which a stage uses a tensor.
    loss: loss(output, without_elements) returns the loss of a micro-batch; None if no gradients are computed.
    """
    return Form(*look(stages, batch, tree, rows, cut, device_of, loss))


def look(stages: Sequence[Stage], batch: Sequence[Any], tree: Any, rows: int, cut: int,
         device_of: Callable[[torch.Tensor], torch.device],
         loss: Callable[[Any, Callable[[Any], Any]], Any] | None = None,
         open_lengths: OpenLengths | None = None) -> tuple[list[StageForm], set[tuple[int, int, int]]]:
    """Returns the arguments of Form. With open lengths, shapes depend on these lengths."""
    def without_elements(leaf: torch.Tensor) -> torch.Tensor:
        return _resized(leaf, rows, cut, device_of(leaf), open_lengths)

    with torch.inference_mode(False), fake_mode(open_lengths) as mode, values_where_needed():
        leaves = [without_elements(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in batch]
        # Maps each tensor object to its origin. A stage that passes a tensor on returns the same object, so its origin is
        # found again by identity; a new object is a tensor that the stage makes.
        given: dict[int, Source] = {id(leaf): Source("batch", number=n) for n, leaf in enumerate(leaves)
                                    if isinstance(leaf, torch.Tensor)}
        sources = [given[id(leaf)] if isinstance(leaf, torch.Tensor) else Source("constant", value=leaf) for leaf in leaves]
        parameters = _Likenesses(mode, device_of)
        forms = []
        keep = [leaves]  # keeps the leaves alive, so that no id() is reused
        reads = flow.Reads()
        for number, stage in enumerate(stages):
            specs = [spec_of(leaf) if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
            watch = flow.InPlace(leaves)
            out = _run(stage, number, parameters, unflatten(leaves, tree))
            changed = watch.changed(number, stage)
            for n in changed:  # later stages read the changed value, which this stage makes
                given.pop(id(leaves[n]), None)
            out_leaves, out_tree = flatten(out)
            as_given, out_leaves = out_leaves, flow.without_views(out_leaves, given)
            keep.append(out_leaves)
            made: list[TensorSpec] = []
            out_sources = []
            for leaf, original in zip(out_leaves, as_given, strict=True):
                if not isinstance(leaf, torch.Tensor):
                    _refuse_hidden(leaf, stage, number)
                    out_sources.append(Source("constant", value=leaf))
                    continue
                if id(leaf) not in given:
                    given[id(leaf)] = Source("made", number, len(made))
                    reads.note((number, len(made)), leaf)
                    made.append(spec_of(original))
                out_sources.append(given[id(leaf)])
            reads.end_stage()
            forms.append(StageForm(sources, tree, out_sources, out_tree, made, specs, changed))
            leaves, tree, sources = out_leaves, out_tree, out_sources
        ends: Sequence[Any] = leaves
        if loss is not None:
            ends = flow.last_values(mode, leaves, lambda: loss(unflatten(leaves, tree), without_elements))
        return forms, reads.read(ends)


def check_rows(stages: Sequence[Stage], find_form: Callable[[int], Form], rows: int) -> Form:
    """Returns the form for `rows`, and checks that no module changes the number of samples. With one more sample per
    micro-batch, each dimension of a tensor must stay the same or, if it was `rows`, grow by one. Throws ValueError."""
    form = find_form(rows)
    try:
        more = find_form(rows + 1)
    except FixedShapesError:  # an exported program that accepts only these shapes
        return form
    for number, (one, two) in enumerate(zip(form.stages, more.stages, strict=True)):
        for a, b in zip(one.made, two.made, strict=True):
            if len(a.shape) == len(b.shape) and all(m == n or (m, n) == (rows, rows + 1)
                                                    for m, n in zip(a.shape, b.shape, strict=True)):
                continue
            kinds = ", ".join(type(piece).__name__ for piece in stages[number].pieces)
            raise ValueError(f"model stage {number} ({kinds}) returns {a} for {rows} samples and {b} for {rows + 1} "
                             f"samples: a module changes the number of samples; keep the samples in a dimension of "
                             f"their own")
    return form


def check_constant(stage: int, found: Any, expected: Any) -> None:
    """Throws ValueError if a stage returns a different constant than when shapes were determined. Such a value isn't sent,
    so the next stage would use the value found then."""
    if isinstance(found, torch.Tensor) or (isinstance(expected, (*SIMPLE, FormKey)) and found != expected):
        what = f"a tensor {spec_of(found)}" if isinstance(found, torch.Tensor) else repr(found)
        raise ValueError(f"model stage {stage} returned {what}, but {expected!r} when shapes were determined. Only tensors "
                         f"are sent between stages, so other values must not depend on the contents of tensors. Return a "
                         f"tensor instead.")


def _refuse_hidden(leaf: Any, stage: Stage, number: int) -> None:
    if hides_tensors(leaf):
        kinds = ", ".join(type(piece).__name__ for piece in stage.pieces)
        raise ValueError(f"model stage {number} ({kinds}) gives an object of type {type(leaf).__name__}, which holds "
                         f"tensors that can't be found in it. Give tensors, or tuples, lists, dicts or dataclasses of them")


class _Likenesses:
    """Parameters and buffers without elements, each created once."""

    def __init__(self, mode: FakeTensorMode, device_of: Callable[[torch.Tensor], torch.device]) -> None:
        self.mode, self.device_of = mode, device_of
        self.of: dict[int, torch.Tensor] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the version of a tensor without elements, on the device where a stage uses it."""
        if id(tensor) not in self.of:
            like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype,
                                       device=self.device_of(tensor))
            self.of[id(tensor)] = like.requires_grad_(tensor.requires_grad)
        return self.of[id(tensor)]


def _resized(leaf: torch.Tensor, rows: int, cut: int, device: torch.device, lengths: OpenLengths | None) -> torch.Tensor:
    shape = list(leaf.shape) if lengths is None else lengths.shape_of(leaf)
    if shape and leaf.shape[0] == cut and cut != rows:
        shape[0] = rows
    return torch.empty(shape, dtype=leaf.dtype, device=device)


def _run(stage: Stage, number: int, likeness: _Likenesses, value: Any) -> Any:
    names = {name: likeness(tensor) for name, tensor in [*stage.named_parameters(remove_duplicate=False),
                                                         *stage.named_buffers(remove_duplicate=False)]}
    before, stage.before = stage.before, lambda piece: None  # no random generator is seeded
    try:
        return torch.func.functional_call(stage, names, (value,), tie_weights=False)
    except RecordingError:  # its message names the line of the user's code
        raise
    except Exception as error:
        kinds = ", ".join(type(piece).__name__ for piece in stage.pieces)
        text = " ".join(str(error).split())
        raise ValueError(f"model stage {number} ({kinds}) fails when shapes are determined with tensors that have no "
                         f"values: {type(error).__name__}: {text}") from error
    finally:
        stage.before = before
