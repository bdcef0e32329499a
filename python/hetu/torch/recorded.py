"""Pieces of a model whose forward is recorded (see recording.py). Each piece runs its part of the list of calls.

The recording of an example decides once which piece owns a module or parameter. Inputs of another form are recorded when
they first occur, on each worker separately, and cut at the same modules. A piece passes the key of the form along with its
tensors, so that the next piece runs its part of the same recording.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from hetu.torch.lengths import freeze, match, with_numbers
from hetu.torch.recording import WHOLE, Call, FormKey, Program, RecordingError, Slot
from hetu.torch.values import flatten, unflatten

_MOST_FORMS = 64  # most recordings that are kept; older forms are recorded again
_MOST_OPEN = 16  # most recordings with open lengths

# Functions without parameters and randomness. Results that depend only on the batch (masks, positions)
# are computed again where they are read, because every worker has the batch. They aren't sent.
_CHEAP = frozenset("""arange ones zeros full tensor ones_like zeros_like full_like new_ones new_zeros new_full empty view
    reshape expand expand_as unsqueeze squeeze flatten unflatten transpose permute t contiguous clone detach __getitem__ to
    bool int long float double
    half bfloat16 type type_as logical_and logical_or logical_not __and__ __or__ __xor__ __invert__ bitwise_and
    bitwise_or bitwise_not eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ add sub mul div neg __add__ __radd__
    __sub__ __rsub__ __mul__ __rmul__ __truediv__ __neg__ rsub cumsum sum masked_fill where tril triu cat stack chunk split
    unbind repeat roll pad min max minimum maximum clamp diff nonzero one_hot repeat_interleave broadcast_to movedim swapaxes
    __get__ narrow select index_select any all floor_divide __floordiv__ __mod__ remainder""".split())


@dataclasses.dataclass
class _Part:
    """The calls of one piece for inputs of one form."""

    imports: list[int]
    calls: list[Call]
    frees: list[list[int]]  # by call: slots that no later call reads
    exports: list[int]


@dataclasses.dataclass
class _Cut:
    """A recording, divided into the parts of the pieces."""

    program: Program
    parts: list[_Part]
    modules: list[set[str]]  # by piece: the modules that it calls
    tensors: list[set[str]]  # by piece: the parameters and buffers that it reads directly


class _OpenCut:
    """A recording whose calls contain open lengths among their arguments."""

    def __init__(self, key: FormKey, cut: _Cut) -> None:
        """Freezes the recording. Throws NotFollowedError if an argument may hide a length."""
        assert key.lengths is not None
        self.lengths, self.key, self.cut = key.lengths, key, cut
        self.frozen_key = key.rebuilt(freeze)
        self.conditions = key.lengths.conditions()
        self.frozen = _rebuilt(cut, freeze)

    def cut_for(self, key: FormKey) -> _Cut | None:
        """Returns the recording for a form of known lengths, or None if it doesn't apply to them."""
        if key.without_leaves() != self.frozen_key.without_leaves():
            return None
        numbers = match(self.frozen_key.leaves, key.leaves)
        if numbers is None or not self.conditions.hold(numbers):
            return None
        return _rebuilt(self.frozen, lambda leaf: with_numbers(leaf, numbers))


def _rebuilt(cut: _Cut, each: Callable[[Any], Any]) -> _Cut:
    """Returns a recording with each(argument) in place of each argument. Unchanged calls are shared."""
    done: dict[int, Call] = {}

    def argument(leaf: Any) -> Any:
        return leaf if isinstance(leaf, Slot) else each(leaf)

    def rebuilt(call: Call) -> Call:
        if id(call) not in done:
            leaves = [argument(leaf) for leaf in call.leaves]
            constants = {number: each(leaf) for number, leaf in call.constants.items()}
            same = all(a is b for a, b in zip([*leaves, *constants.values()], [*call.leaves, *call.constants.values()],
                                              strict=True))
            done[id(call)] = call if same else dataclasses.replace(call, leaves=leaves, constants=constants)
        return done[id(call)]

    program = dataclasses.replace(cut.program, calls=[rebuilt(call) for call in cut.program.calls],
                                  out_leaves=[argument(leaf) for leaf in cut.program.out_leaves])
    parts = [dataclasses.replace(part, calls=[rebuilt(call) for call in part.calls]) for part in cut.parts]
    return dataclasses.replace(cut, program=program, parts=parts)


class Recording:
    """A model with the modules at which it is cut, and its recordings by form. Copies of a piece share this object."""

    def __init__(self, subject: Any, at: Sequence[str], example: Any, owned: Mapping[str, nn.Module]) -> None:
        self.subject, self.at = subject, list(at)
        self.owned = owned  # modules of the model by name
        self.cuts: collections.OrderedDict[FormKey, _Cut] = collections.OrderedDict()
        self.open_cuts: collections.deque[_OpenCut] = collections.deque(maxlen=_MOST_OPEN)
        # Attributes of modules that contain cuts, with their values in the recordings.
        self.attributes: dict[tuple[str, str, int], Any] = {}
        self.home: dict[str, int] = {}  # name of a module with parameters or buffers -> its piece
        first = self.cut(self.key_of(example, subject.model.training))
        for number, names in enumerate(first.modules):
            for name in names:
                self.home.setdefault(name, number)
        self.first = first

    def __deepcopy__(self, memo: Any) -> Recording:
        return self

    def key_of(self, value: Any, training: bool) -> FormKey:
        """Returns the form of a batch."""
        return FormKey(value, self.subject.modes(training))

    def check_attributes(self) -> None:
        """Throws RecordingError if an attribute of a module that contains cuts has changed since it was recorded."""
        for name, value in self.subject.attributes().items():
            if name in self.attributes and self.attributes[name] != value:
                raise RecordingError(f"attribute '{name[0]}.{name[1]}' was {self.attributes[name]!r} when the forward was "
                                     f"recorded, and is {value!r} now. Keep what changes in a buffer, or in a "
                                     f"module that holds no cut")

    def cut(self, key: FormKey) -> _Cut:
        """Returns the recording for a form, cut at the modules."""
        if key.lengths is not None:
            return self._cut_open(key)
        if key not in self.cuts:
            if self.cuts:
                self.check_attributes()
            found = (open_cut.cut_for(key) for open_cut in self.open_cuts)
            self.cuts[key] = next((cut for cut in found if cut is not None), None) or self._record(key)
            if len(self.cuts) > _MOST_FORMS:
                self.cuts.popitem(last=False)
        self.cuts.move_to_end(key)
        return self.cuts[key]

    def _record(self, key: FormKey) -> _Cut:
        program = self.subject.record(key)
        self.attributes = self.subject.attributes()
        begins = self.subject.begins(program, self.at)
        return _Cutter(program, begins, self.home, self.owned, type(self.subject.model).__name__).cut()

    def _cut_open(self, key: FormKey) -> _Cut:
        """Returns the recording for a form with open lengths, and keeps it for all lengths that satisfy its conditions."""
        for open_cut in self.open_cuts:
            if open_cut.lengths is key.lengths and open_cut.key == key:
                return open_cut.cut
        self.check_attributes()
        cut = self._record(key)
        self.open_cuts.append(_OpenCut(key, cut))
        return cut


class RecordedPiece(nn.Module):
    """The calls between two cuts. The first piece receives the batch; the last piece returns the model's result."""

    def __init__(self, recording: Recording, number: int) -> None:
        super().__init__()
        self.recording, self.number = recording, number
        cut = recording.first
        for name in sorted(cut.modules[number], key=list(recording.owned).index):
            self.add_module(_key(name), recording.owned[name])
        for name in sorted(cut.tensors[number]):
            self._take(name)

    def _take(self, name: str) -> None:
        """Registers a parameter or buffer of the model as this piece's own."""
        owner, _, attribute = name.rpartition(".")
        module = self.recording.subject.model.get_submodule(owner)
        tensor = getattr(module, attribute)
        if isinstance(tensor, nn.Parameter):
            self.register_parameter(_key(name), tensor)
        else:
            self.register_buffer(_key(name), tensor, persistent=attribute not in module._non_persistent_buffers_set)

    def forward(self, value: Any) -> Any:
        """Runs the calls of this piece."""
        if self.number == 0:
            self.recording.check_attributes()
        key = self.recording.key_of(value, self.training) if self.number == 0 else value["form"]
        cut = self.recording.cut(key)
        part, program = cut.parts[self.number], cut.program
        if self.number == 0:
            leaves = flatten(value)[0]
            held = {slot: leaves[leaf] for slot, leaf in program.inputs.items()}
        else:
            held = dict(zip(part.imports, value["values"], strict=True))
        for call, frees in zip(part.calls, part.frees, strict=True):
            self._run(call, held, program)
            for slot in frees:
                held.pop(slot, None)
        if self.number < len(cut.parts) - 1:
            return {"form": key, "values": [held[slot] for slot in part.exports]}
        leaves = [self._held(leaf.number, held, program) if isinstance(leaf, Slot) else leaf for leaf in program.out_leaves]
        return unflatten(leaves, program.out_tree)

    def _run(self, call: Call, held: dict[int, Any], program: Program) -> None:
        given = [self._held(leaf.number, held, program) if isinstance(leaf, Slot) else leaf for leaf in call.leaves]
        args, kwargs = unflatten(given, call.tree)
        target = self._module(call.target) if isinstance(call.target, str) else call.target
        with _mode_of(call, program.device):
            out = target(*args, **kwargs)
        leaves = flatten(out)[0]
        for leaf, known in call.constants.items():
            if leaves[leaf] != known:
                raise RecordingError(f"module '{call.target}' returns {leaves[leaf]!r} at {call.line}, and returned "
                                     f"{known!r} when the forward was recorded. Return a tensor where it depends on values")
        for leaf, slot in call.outs.items():
            held[slot] = out if leaf == WHOLE else leaves[leaf]

    def _module(self, name: str) -> nn.Module:
        found = self._modules.get(_key(name))
        if found is None:
            raise RecordingError(f"module '{name}' is called by piece {self.number} for these inputs, but was not called "
                                 f"for the example; give split() an example in which all modules are called")
        return found

    def _held(self, slot: int, held: dict[int, Any], program: Program) -> Any:
        if slot in held:
            return held[slot]
        if slot in program.constants:
            return program.constants[slot]
        name = program.tensors[slot]
        try:
            return getattr(self, _key(name))
        except AttributeError:
            raise RecordingError(f"'{name}' is read by piece {self.number} for these inputs, but was not read for the "
                                 f"example; give split() an example in which all parameters are read") from None


def pieces_of(recording: Recording) -> list[RecordedPiece]:
    """Returns the pieces. Tensors that the forward doesn't use belong to the last piece, so that a state_dict() contains
    them."""
    pieces = [RecordedPiece(recording, number) for number in range(len(recording.at) + 1)]
    model = recording.subject.model
    held = {id(tensor) for piece in pieces for tensor in [*piece.parameters(), *piece.buffers()]}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if id(tensor) not in held:
            pieces[-1]._take(name)
    return pieces


def _key(name: str) -> str:
    """Returns a name for a child of nn.Module, whose names can't contain dots."""
    return name.replace(".", "/")


def _mode_of(call: Call, device: str) -> Any:
    if call.state is None:
        return contextlib.nullcontext()
    grad, autocast, dtype = call.state
    stack = contextlib.ExitStack()
    if not grad:
        stack.enter_context(torch.no_grad())
    stack.enter_context(torch.autocast(device, dtype=dtype, enabled=autocast))
    return stack


class _Cutter:
    """Distributes the calls of a program over pieces."""

    def __init__(self, program: Program, begins: Sequence[int], home: dict[str, int], owned: Mapping[str, nn.Module],
                 model: str) -> None:
        self.program, self.begins, self.home, self.owned, self.model = program, begins, dict(home), owned, model
        self.tied: dict[int, int] = {}  # id of a tensor -> the first piece that uses it
        self.maker: dict[int, int] = {slot: n for n, call in enumerate(program.calls) for slot in call.outs.values()}
        self.outside = {*program.inputs, *program.constants, *program.tensors}
        shared: dict[int, list[int]] = {}
        for slot, storage in program.storages.items():
            shared.setdefault(storage, []).append(slot)
        self.changed = {other for call in program.calls for slot in call.changes
                        for other in shared[program.storages[slot]]}
        self.shared = shared

    def cut(self) -> _Cut:
        """Returns the pieces' parts."""
        count = len(self.begins) + 1
        self.piece = self._pieces_of_calls()
        wanted = [self._wanted(number) for number in range(count)]
        # From the last piece to the first: a piece imports what it reads itself, and what later pieces read from before it,
        # because a piece receives values only from the piece before.
        imports: list[list[int]] = [[] for _ in range(count)]
        for number in range(count - 1, 0, -1):
            later = imports[number + 1] if number + 1 < count else []
            needed = {*self._imported(wanted[number], number), *(s for s in later if self._made_in(s) < number)}
            imports[number] = sorted(needed)
        parts = []
        for number in range(count):
            exports = imports[number + 1] if number + 1 < count else []
            calls = [self.program.calls[n] for n in sorted(wanted[number])]
            self._copy_changed(calls, number, imports)
            frees = _frees(calls, exports, self.program if not exports else None)
            parts.append(_Part(imports[number], calls, frees, exports))
        modules = [{c.target for c in part.calls if isinstance(c.target, str)} for part in parts]
        reads = [{s for c in part.calls for s in c.reads} for part in parts]
        reads[-1] |= {leaf.number for leaf in self.program.out_leaves if isinstance(leaf, Slot)}
        tensors = [{self.program.tensors[s] for s in slots if s in self.program.tensors} for slots in reads]
        return _Cut(self.program, parts, modules, tensors)

    def _pieces_of_calls(self) -> list[int]:
        piece: list[int] = []
        for n, call in enumerate(self.program.calls):
            number = sum(begin <= n for begin in self.begins)
            home = self._home(call, number, piece)
            if home > number:
                raise RecordingError(f"{self.model}: '{call.target}' is called by piece {number} for these inputs, at "
                                     f"{call.line}, but the example placed its parameters in piece {home}")
            if home < number:  # called again: runs in the earlier piece if its inputs are available there
                piece.append(number)
                if any(not self._is_from_batch(s) and self._made_in_call(s, piece) > home for s in call.reads):
                    raise ValueError(f"{self.model}: '{call.target}' is called again at {call.line}, after a cut, but its "
                                     f"parameters are before the cut; cut elsewhere, or use a second module and tie its "
                                     f"parameters (tied=)")
                piece.pop()
            piece.append(home)
        return piece

    def _home(self, call: Call, number: int, piece: Sequence[int]) -> int:
        """Returns the piece that owns the parameters of a call's module, or the current piece if it has none. A module
        whose parameters are all tied to those of an earlier piece, such as a decoder's embedding, belongs to that piece if
        its inputs are available there."""
        if not isinstance(call.target, str):
            return number
        tensors = [*self.owned[call.target].parameters(), *self.owned[call.target].buffers()]
        if not tensors:
            return number
        if call.target not in self.home:
            tied = max(self.tied.get(id(tensor), number) for tensor in tensors)
            there = all(self._is_from_batch(s) or self._made_in_call(s, piece) <= tied for s in call.reads)
            self.home[call.target] = tied if there else number
        for tensor in tensors:
            self.tied.setdefault(id(tensor), self.home[call.target])
        return self.home[call.target]

    def _made_in_call(self, slot: int, piece: Sequence[int]) -> int:
        return piece[self.maker[slot]] if slot in self.maker else 0

    def _made_in(self, slot: int) -> int:
        return self._made_in_call(slot, self.piece)

    def _is_from_batch(self, slot: int) -> bool:
        """Returns true if a value is computed from the batch and constants by cheap functions, and is never changed in
        place."""
        if slot in self.changed or slot in self.program.tensors:
            return False
        if slot in self.outside:
            return True
        call = self.program.calls[self.maker[slot]]
        name = getattr(call.target, "__name__", "")
        return not isinstance(call.target, str) and name in _CHEAP and all(self._is_from_batch(s) for s in call.reads)

    def _wanted(self, number: int) -> set[int]:
        """Returns the calls of a piece, and the calls of other pieces that it repeats because they depend only on the
        batch."""
        found = {n for n, piece in enumerate(self.piece) if piece == number}
        slots = [s for n in found for s in self.program.calls[n].reads]
        if number == len(self.begins):
            slots += [leaf.number for leaf in self.program.out_leaves if isinstance(leaf, Slot)]
        while slots:
            slot = slots.pop()
            if slot in self.maker and self.maker[slot] not in found and self._is_from_batch(slot):
                found.add(self.maker[slot])
                slots += self.program.calls[self.maker[slot]].reads
        return found

    def _imported(self, wanted: set[int], number: int) -> set[int]:
        slots = {s for n in wanted for s in self.program.calls[n].reads}
        if number == len(self.begins):
            slots |= {leaf.number for leaf in self.program.out_leaves if isinstance(leaf, Slot)}
        return {s for s in slots if s in self.program.inputs or (s in self.maker and self.maker[s] not in wanted)}

    def _copy_changed(self, calls: list[Call], number: int, imports: list[list[int]]) -> None:
        """Inserts a copy before a call that changes a value of another piece in place. Throws ValueError if another value
        of an earlier piece, read behind the cut, shares memory with the changed value."""
        for at, call in enumerate(list(calls)):
            for slot in call.changes:
                if slot not in imports[number]:
                    continue
                later = {s for part in imports[number:] for s in part}
                others = [s for s in self.shared[self.program.storages[slot]] if s in later and s != slot
                          and (s not in self.maker or self._made_in(s) < number)]
                if others:
                    raise ValueError(f"{self.model}: {call.line} changes a value in place that was made before a cut, and a "
                                     f"view of it is read after the cut; change a copy, or cut elsewhere")
                leaves, tree = flatten(((Slot(slot),), {}))
                calls.insert(at, Call(torch.clone, leaves, tree, {0: slot}, [], None, call.line))


def _frees(calls: Sequence[Call], exports: Sequence[int], program: Program | None) -> list[list[int]]:
    """Returns the slots that are dead after each call."""
    kept = set(exports)
    if program is not None:
        kept |= {leaf.number for leaf in program.out_leaves if isinstance(leaf, Slot)}
    frees: list[list[int]] = []
    for call in reversed(calls):
        dead = ({*call.reads, *call.outs.values()}) - kept
        kept |= dead
        frees.append(sorted(dead))
    return frees[::-1]
