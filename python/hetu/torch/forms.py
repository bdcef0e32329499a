"""Forms of the boundaries of a Pipeline, cached by the shapes of a batch.

For the first length, a form is found by running the stages on tensors without elements (a "look"). For the next new length,
the look leaves this length open. Further lengths need no look: their forms follow from the form with open lengths
(lengths.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from hetu.torch.batches import Batch, kind_of, signature
from hetu.torch.boundaries import Form, StageForm, check_rows, find, look
from hetu.torch.cuts import Stage
from hetu.torch.lengths import Conditions, OpenLengths, freeze, match, with_numbers
from hetu.torch.undisturbed import undisturbed
from hetu.torch.values import TensorSpec, unflatten

MOST_FORMS = 64  # capacity of the cache
_MOST_TRIES = 3  # attempts to look with open lengths, per kind of batch


class _OpenForm(NamedTuple):
    """A form whose shapes contain open lengths."""

    tensors: list[TensorSpec]  # of the batch: inputs, then targets
    conditions: Conditions
    stages: list[StageForm]
    read: set[tuple[int, int, int]]

    def for_lengths(self, tensors: Sequence[TensorSpec]) -> Form | None:
        """Returns the form for a batch of such tensors, or None if this form doesn't apply to them."""
        if len(tensors) != len(self.tensors):
            return None
        numbers = match(self.tensors, tensors)
        if numbers is None or not self.conditions.hold(numbers):
            return None
        return Form([_each(stage, lambda value: with_numbers(value, numbers)) for stage in self.stages], self.read)


class _Kind:
    """Batches that differ only in lengths."""

    def __init__(self) -> None:
        self.tensors: list[TensorSpec] = []  # of the last batch for which a look with known lengths was made
        self.key: Any = None  # the cache key of its form
        self.open_forms: list[_OpenForm] = []
        self.tries = 0


class Forms:
    """The forms of a Pipeline's batches."""

    def __init__(self, stages: Sequence[Stage], loss: Any, device_of: Callable[[torch.Tensor], torch.device]) -> None:
        """loss: loss(output, target) returns the loss of a micro-batch.
        device_of: see boundaries.find()."""
        self.stages, self.loss, self.device_of = stages, loss, device_of
        self.known: dict[Any, Form] = {}  # in order of use: the last entry is the most recently used
        self.kinds: dict[Any, _Kind] = {}
        self.rows_checked: set[Any] = set()
        self.looks = 0  # number of looks, with known or open lengths

    def of(self, batch: Batch, training: bool, state: Any) -> list[Form]:
        """Returns the form of each micro-batch. `state` holds everything else that forms depend on."""
        # One look shows that no module changes the number of samples. It is not repeated for each length of a sequence.
        kind = (training, state, str(batch.tree), tuple(map(kind_of, batch.inputs[0])))
        if kind in self.rows_checked:
            return [self._form(batch, training, state, rows or 1) for rows in batch.sizes]
        forms = [check_rows(self.stages, lambda r: self._form(batch, training, state, r), rows or 1) for rows in batch.sizes]
        self.rows_checked.add(kind)
        return forms

    def _form(self, batch: Batch, training: bool, state: Any, rows: int) -> Form:
        leaves, most = batch.inputs[0], batch.sizes[0]
        plain = tuple(kind_of(leaf) if isinstance(leaf, torch.Tensor) else repr(leaf) for leaf in leaves)
        key = (training, rows, state, str(batch.tree), tuple(signature(leaf, most) for leaf in leaves))
        if key in self.known:
            self.known[key] = self.known.pop(key)  # moves the entry to the end, as the most recently used
            return self.known[key]
        kind = self.kinds.setdefault((training, rows, state, str(batch.tree), plain, most == rows), _Kind())
        form = self._new_form(batch, training, rows, kind, key)
        for remembered in (self.known, self.kinds):
            if len(remembered) >= MOST_FORMS:
                del remembered[next(iter(remembered))]
        self.known[key] = form
        return form

    def _new_form(self, batch: Batch, training: bool, rows: int, kind: _Kind, key: Any) -> Form:
        tensors = _tensors(batch)
        specs = _specs(tensors, rows, batch.sizes[0])
        for open_form in kind.open_forms:
            form = open_form.for_lengths(specs)
            if form is not None:
                return form
        dims = _open_dims(kind.tensors, specs)
        if any(dims) and kind.tries < _MOST_TRIES:
            kind.tries += 1
            form = self._look_with_open_lengths(batch, training, rows, kind, OpenLengths(tensors, dims))
            if form is not None:
                return form
        kind.tensors, kind.key = specs, key
        return self._look_at(batch, training, rows)

    def _look_at(self, batch: Batch, training: bool, rows: int) -> Form:
        self.looks += 1
        with undisturbed(self.stages, self.loss):
            return find(self.stages, batch.inputs[0], batch.tree, rows, batch.sizes[0], self.device_of,
                        self._loss_of(batch) if training else None)

    def _look_with_open_lengths(self, batch: Batch, training: bool, rows: int, kind: _Kind,
                                lengths: OpenLengths) -> Form | None:
        """Returns the form of a batch and stores one with open lengths. Returns None if lengths can't be left open in this
        model, or if the form that was known before doesn't follow from the new one."""
        self.looks += 1
        most = batch.sizes[0]
        tensors = _tensors(batch)
        try:
            with undisturbed(self.stages, self.loss), lengths.looking():
                stages, read = look(self.stages, batch.inputs[0], batch.tree, rows, most, self.device_of,
                                    self._loss_of(batch) if training else None, lengths)
                found = _OpenForm(freeze(_specs(tensors, rows, most, lengths)), lengths.conditions(),
                                  [_each(stage, freeze) for stage in stages], read)
            form, before = found.for_lengths(_specs(tensors, rows, most)), found.for_lengths(kind.tensors)
        except Exception:  # a look at this length alone reports the error, if there is one
            return None
        known = self.known.get(kind.key)
        if before is None or known is None:
            before, known = form, self._look_at(batch, training, rows)
        if form is None or before is None or not _same(before, known):
            return None
        kind.open_forms.append(found)
        return form

    def _loss_of(self, batch: Batch) -> Callable[[Any, Callable[[Any], Any]], Any]:
        def loss(output: Any, without_elements: Callable[[Any], Any]) -> Any:
            leaves = [without_elements(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in batch.targets[0]]
            return self.loss(output, unflatten(leaves, batch.target_tree))

        return loss


def _tensors(batch: Batch) -> list[torch.Tensor]:
    """Returns the tensors of the first micro-batch: inputs, then targets."""
    return [leaf for leaf in [*batch.inputs[0], *batch.targets[0]] if isinstance(leaf, torch.Tensor)]


def _specs(tensors: Sequence[torch.Tensor], rows: int, most: int, lengths: OpenLengths | None = None) -> list[TensorSpec]:
    """Returns dtype and shape of a batch's tensors for micro-batches of `rows` samples. `most` is the number of samples of
    the first micro-batch."""
    shapes = [list(tensor.shape) if lengths is None else lengths.shape_of(tensor) for tensor in tensors]
    return [TensorSpec(tuple([rows, *shape[1:]] if tensor.dim() and tensor.shape[0] == most else shape), tensor.dtype, False)
            for tensor, shape in zip(tensors, shapes, strict=True)]


def _open_dims(before: Sequence[TensorSpec], now: Sequence[TensorSpec]) -> list[list[int]]:
    """Returns the dimensions, by tensor, in which a batch differs from the one before. The result is empty if the batches
    differ in other respects too, or in a length below 2, which PyTorch can't leave open."""
    if len(before) != len(now) or any(one._replace(shape=()) != two._replace(shape=()) or len(one.shape) != len(two.shape)
                                      for one, two in zip(before, now, strict=True)):
        return []
    found = [[dim for dim, (m, n) in enumerate(zip(one.shape, two.shape, strict=True)) if m != n]
             for one, two in zip(before, now, strict=True)]
    return found if all(spec.shape[dim] > 1 for spec, dims in zip(now, found, strict=True) for dim in dims) else []


def _each(stage: StageForm, change: Callable[[Any], Any]) -> StageForm:
    """Returns a form with change(value) in place of everything except the structures."""
    return stage._replace(inputs=change(stage.inputs), outputs=change(stage.outputs), made=change(stage.made),
                          given=change(stage.given))


def _same(one: Form, two: Form) -> bool:
    return one.read == two.read and all(
        a._replace(input_tree=str(a.input_tree), output_tree=str(a.output_tree))
        == b._replace(input_tree=str(b.input_tree), output_tree=str(b.output_tree))
        for a, b in zip(one.stages, two.stages, strict=True))
