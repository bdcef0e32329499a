"""Records one forward of a model as a list of calls: torch functions, and modules that are called unchanged.

The forward runs once as ordinary Python on tensors without elements. Code that depends on shapes, on arguments or on
`self.training` needs no special care: loops, asserts, `if targets is not None`. The list is valid for inputs of one form
(see FormKey); inputs of another form are recorded again. torch.export can also follow such code, but it takes modules apart
into operators, which loses their hooks, their training mode and their identity.

A slot is the number of a tensor value. For example, with modules a and b,

    def forward(self, x):
        y = self.a(x).relu()
        return self.b(y) + y

gives the calls

    slot 2 = a(slot 1)
    slot 3 = relu(slot 2)
    slot 4 = b(slot 3)
    slot 5 = add(slot 4, slot 3)

A cut before b divides the list into two pieces (recorded.py): slot 3 crosses the boundary. A call also notes the slots that
it changes in place.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from hetu.torch import lengths
from hetu.torch.records import SIMPLE, hides_tensors
from hetu.torch.values import TensorSpec, flatten, spec_of, unflatten
from hetu.torch.without_values import call_with_values, data_dependent

_HERE = os.path.dirname(os.path.abspath(__file__))
_TORCH = os.path.dirname(os.path.abspath(torch.__file__))


@dataclasses.dataclass(frozen=True)
class Slot:
    """The place of a tensor in the arguments of a call."""

    number: int


@dataclasses.dataclass
class Call:
    """One recorded call."""

    target: Any  # a function, or the name of a module
    leaves: list[Any]  # of (args, kwargs), with Slots in place of tensors
    tree: Any
    outs: dict[int, int]  # output leaf -> slot
    changes: list[int]  # slots whose tensors the call changes in place
    state: tuple[bool, bool, torch.dtype] | None  # grad mode and autocast, if the forward itself has set them
    line: str  # of the user's source
    # Output leaf -> a value other than a tensor that a module returned.
    constants: dict[int, Any] = dataclasses.field(default_factory=dict)

    @property
    def reads(self) -> list[int]:
        """Returns the slots among the arguments."""
        return [leaf.number for leaf in self.leaves if isinstance(leaf, Slot)]


@dataclasses.dataclass
class Program:
    """A recorded forward."""

    calls: list[Call]
    inputs: dict[int, int]  # slot -> input leaf
    tensors: dict[int, str]  # slot -> name of a parameter or buffer that the forward reads directly
    constants: dict[int, torch.Tensor]  # slot -> a tensor that is neither an input nor a parameter or buffer
    storages: dict[int, int]  # slot -> identity of its memory; slots with equal values share memory
    out_leaves: list[Any]
    out_tree: Any
    device: str = "cpu"


class FormKey:
    """The key of a recording: shapes and dtypes of the inputs, their other values, and modes.

    modes: the training flags of the modules that contain cuts.
    """

    def __init__(self, value: Any, modes: tuple[bool, ...]) -> None:
        leaves, self.tree = flatten(value)
        self.device = next((leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)), torch.device("cpu"))
        self.modes = modes
        self.autocast = _autocast(self.device)
        self._take([spec_of(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])

    def _take(self, leaves: list[Any]) -> None:
        self.leaves = leaves
        self.lengths = lengths.current() if any(
            isinstance(leaf, TensorSpec) and lengths.has_open_lengths(leaf.shape) for leaf in leaves) else None
        modes = self.modes
        self.text = repr((self.leaves, str(self.tree), modes, str(self.device), self.autocast))

    def without_leaves(self) -> str:
        """Returns a text of all properties except the leaves."""
        return repr((str(self.tree), self.modes, str(self.device), self.autocast))

    def rebuilt(self, each: Callable[[Any], Any]) -> FormKey:
        """Returns this form with each(leaf) in place of each leaf."""
        new = copy.copy(self)
        new._take([each(leaf) for leaf in self.leaves])
        return new

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormKey) and other.text == self.text

    def __repr__(self) -> str:
        return self.text


def _autocast(device: torch.device) -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)


def user_line(frames: Iterable[traceback.FrameSummary]) -> str:
    """Returns 'file.py:12 (code)' of the innermost frame that belongs neither to PyTorch nor to Hetu."""
    for frame in reversed(list(frames)):
        if not frame.filename.startswith((_HERE, _TORCH, "<")):
            return f"{os.path.basename(frame.filename)}:{frame.lineno} ({frame.line})"
    return "an unknown line"


class RecordingError(ValueError):
    """A forward that can't be recorded."""


class FixedShapesError(RecordingError):
    """The inputs differ from the fixed shapes of an exported program."""


WHOLE = -1  # key in Call.outs: the whole result of the call, instead of one leaf


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model, the function that calls it, and the modules that are entered instead of being called unchanged."""

    model: nn.Module
    call: Callable[[nn.Module, Any], Any]  # calls the model with a value
    entered: dict[int, nn.Module]  # the modules that contain cuts, by id
    names: Mapping[int, str]  # id of a module -> its first name

    def modes(self, training: bool) -> tuple[bool, ...]:
        """Returns the modes of the modules that contain cuts: those that the user has set, or eval() in an evaluation."""
        return tuple(module.training and training for module in self.entered.values())

    def attributes(self) -> dict[tuple[str, str, int], Any]:
        """Returns the attributes of the modules that contain cuts, if they are numbers or text, by (class, attribute name,
        number of the module). A forward may read them, and the recording then contains their values."""
        return {(type(module).__name__, name, number): value for number, module in enumerate(self.entered.values())
                for name, value in vars(module).items() if isinstance(value, (bool, int, float, str)) and name != "training"}

    def begins(self, program: Program, at: Sequence[str]) -> list[int]:
        """Returns the first call of each piece except the first. Throws ValueError, which names the module, if a module is
        not called exactly once."""
        found = []
        for name in at:
            calls = [n for n, call in enumerate(program.calls) if call.target == name]
            if len(calls) != 1 or not program.calls[calls[0]].reads:
                count = f"{len(calls)} times in forward{', on no value' if len(calls) == 1 else ''}"
                raise ValueError(f"'{name}' is called {count}: cut a model at a module that is called once, with the output "
                                 f"of the part before it")
            found.append(calls[0])
        return sorted(found)

    def record(self, key: FormKey) -> Program:
        """Records the forward for inputs of a form. Throws RecordingError, which names the user's source line."""
        with _disable_current_modes():
            mode = lengths.fake_mode(key.lengths, allow_non_fake_inputs=True)
            likenesses: dict[int, torch.Tensor] = {}
            tensors = {}
            for name, tensor in [*self.model.named_parameters(remove_duplicate=False),
                                 *self.model.named_buffers(remove_duplicate=False)]:
                if id(tensor) not in likenesses:
                    likenesses[id(tensor)] = _likeness(mode, tensor, key.device)
                tensors[name] = likenesses[id(tensor)]
            given = [_without_elements(mode, leaf, key.device) if isinstance(leaf, TensorSpec) else leaf
                     for leaf in key.leaves]
            names = {id(tensor): name for name, tensor in reversed(tensors.items())}
            recorder = _Recorder(self, mode, names, given, key.device)
            try:
                # A tensor that is created with an open length, such as arange(length), can only be created without
                # elements.
                with recorder.installed(), _training(self, key.modes), mode if key.lengths else nullcontext():
                    out = torch.func.functional_call(_Caller(self), {f"model.{n}": t for n, t in tensors.items()},
                                                     (unflatten(given, key.tree),), tie_weights=False)
                return recorder.program(out)
            except RecordingError:
                raise
            except Exception as error:
                line = user_line(traceback.extract_tb(error.__traceback__))
                text = " ".join(str(error).split())[:300]
                reason = ("the code needs the value of a tensor, but forward is recorded without values; move the code "
                          "into a module that holds no cut"
                          if isinstance(error, data_dependent()) else f"{type(error).__name__}: {text}")
                raise RecordingError(f"{type(self.model).__name__}: forward can't be recorded at {line}: "
                                     f"{reason}") from error


class _Caller(nn.Module):
    """Calls the model by the subject's function. It is a module so that functional_call can be used."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.model, self.way = subject.model, subject.call

    def forward(self, value: Any) -> Any:
        """Returns the model's result."""
        return self.way(self.model, value)


@contextmanager
def _training(subject: Subject, modes: Sequence[bool]) -> Iterator[None]:
    """Sets the training mode of the entered modules inside the `with` block."""
    entered = list(subject.entered.values())
    before = [module.training for module in entered]
    for module, mode in zip(entered, modes, strict=True):
        module.training = mode
    try:
        yield
    finally:
        for module, mode in zip(entered, before, strict=True):
            module.training = mode


def _likeness(mode: FakeTensorMode, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    with mode:
        like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return like.requires_grad_(tensor.requires_grad)


def _without_elements(mode: FakeTensorMode, spec: TensorSpec, device: torch.device) -> torch.Tensor:
    with mode:
        if spec.order is None:
            return torch.empty(spec.shape, dtype=spec.dtype, device=device)
        back = sorted(range(len(spec.order)), key=spec.order.__getitem__)
        return torch.empty([spec.shape[d] for d in spec.order], dtype=spec.dtype, device=device).permute(back)


class _Recorder(TorchFunctionMode):
    """Records every torch function that the forward calls and, while installed, every module call of this thread."""

    def __init__(self, subject: Subject, mode: FakeTensorMode, names: Mapping[int, str], given: list[Any],
                 device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.subject, self.mode, self.names = subject, mode, names
        self.thread = threading.get_ident()
        self.inside = False  # true inside a module that is called unchanged
        self.slots: dict[int, int] = {}  # id of a tensor -> slot of its current value
        self.kept: list[Any] = []  # keeps tensors alive, so that no id() is reused
        self.result = Program([], {}, {}, {}, {}, [], None, device.type)
        self.count = 0
        self.ambient = (torch.is_grad_enabled(), *_autocast(self.device))
        for number, leaf in enumerate(given):
            if isinstance(leaf, torch.Tensor):
                self.result.inputs[self._new_slot(leaf)] = number

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Intercepts calls of modules, like torch.fx while it traces."""
        original = nn.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            name = self.subject.names.get(id(module))
            if self.thread != threading.get_ident():
                return original(module, *args, **kwargs)
            if self.inside:
                return call_with_values(original, module, args, kwargs)
            if name is None or id(module) in self.subject.entered:
                return original(module, *args, **kwargs)
            return self._call_as_it_is(name, module, args, kwargs, original)

        nn.Module.__call__ = call  # type: ignore[method-assign,assignment]
        try:
            with self:
                yield
        finally:
            nn.Module.__call__ = original  # type: ignore[method-assign]

    def _call_as_it_is(self, name: str, module: nn.Module, args: Any, kwargs: Any, original: Any) -> Any:
        self.inside = True
        try:
            with self.mode:
                out = call_with_values(original, module, args, kwargs)
        finally:
            self.inside = False
        self._note(name, args, kwargs, out)
        return out

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.inside:
            return func(*args, **kwargs)
        if func is torch.Tensor.__iter__:  # returns an iterator, whose tensors could not be recorded
            func, args, kwargs = torch.unbind, (args[0],), {}
            out = func(*args)
            self._note(func, args, kwargs, out)
            return iter(out)
        name = getattr(func, "__name__", "")
        if name == "__set__":
            raise self._error("it assigns to an attribute of a tensor")
        changes = _changed(name, args, kwargs)
        if any(not isinstance(t, FakeTensor) for t in changes) and any(isinstance(t, FakeTensor) for t in flatten(args)[0]):
            for tensor in changes:  # a constant tensor becomes one of unknown values
                if not isinstance(tensor, FakeTensor):
                    torch.utils.swap_tensors(tensor, self.mode.from_tensor(tensor.clone()))
        out = func(*args, **kwargs)
        if changes or any(isinstance(leaf, torch.Tensor) for leaf in flatten(out)[0]):
            self._note(func, args, kwargs, out, changes)
        return out

    def _note(self, target: Any, args: Any, kwargs: Any, out: Any, changes: Iterable[torch.Tensor] = ()) -> None:
        leaves, tree = flatten((args, kwargs))
        changed = [self._slot(tensor) for tensor in changes]
        leaves = [Slot(self._slot(leaf)) if isinstance(leaf, torch.Tensor) else self._plain(leaf) for leaf in leaves]
        outs = {number: self._new_slot(leaf) for number, leaf in enumerate(flatten(out)[0])
                if isinstance(leaf, torch.Tensor)}
        constants = {number: leaf for number, leaf in enumerate(flatten(out)[0])
                     if isinstance(target, str) and isinstance(leaf, (*SIMPLE, torch.SymInt))}
        state = (torch.is_grad_enabled(), *_autocast(self.device))
        self.result.calls.append(Call(target, leaves, tree, outs, changed, None if state == self.ambient else state,
                                      user_line(traceback.extract_stack()), constants))

    def _new_slot(self, tensor: torch.Tensor) -> int:
        self.count += 1
        self.slots[id(tensor)] = self.count
        self.kept.append(tensor)
        self.result.storages[self.count] = tensor.untyped_storage()._cdata
        return self.count

    def _slot(self, tensor: torch.Tensor) -> int:
        if id(tensor) in self.slots:
            return self.slots[id(tensor)]
        if id(tensor) in self.names:
            slot = self._new_slot(tensor)
            self.result.tensors[slot] = self.names[id(tensor)]
            return slot
        if isinstance(tensor, FakeTensor):
            raise self._error("it reads a tensor that no recorded call returned, such as the result of an autograd.Function "
                              "or of an extension")
        slot = self._new_slot(tensor)
        self.result.constants[slot] = tensor
        return slot

    def _plain(self, leaf: Any) -> Any:
        """Returns a value that is part of the recording. Throws RecordingError for an object that hides tensors."""
        if hides_tensors(leaf):
            raise self._error(f"a {type(leaf).__name__}, which holds tensors, is passed; pass tensors, or dicts, tuples, "
                              f"lists or dataclasses of them (transformers: use_cache=False)")
        return leaf

    def _error(self, text: str) -> RecordingError:
        line = user_line(traceback.extract_stack())
        return RecordingError(f"{type(self.subject.model).__name__}: forward can't be recorded at {line}: {text}; move "
                              f"the code into a module that holds no cut")

    def program(self, out: Any) -> Program:
        """Returns the recording. `out` is the forward's result."""
        leaves, tree = flatten(out)
        self.result.out_leaves = [Slot(self._slot(leaf)) if isinstance(leaf, torch.Tensor) else self._plain(leaf)
                                  for leaf in leaves]
        self.result.out_tree = tree
        return self.result


def _changed(name: str, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Returns the tensors that a function of this name changes in place."""
    found = []
    in_place = name.endswith("_") and not name.endswith("__")
    if in_place or name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")):
        found += [arg for arg in args[:1] if isinstance(arg, torch.Tensor)]
    out = kwargs.get("out")
    return found + [leaf for leaf in flatten(out)[0] if isinstance(leaf, torch.Tensor)]
