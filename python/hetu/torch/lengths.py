"""Lengths that a look at shapes leaves open, so that one look serves sequences of every length.

PyTorch's symbolic shapes carry a symbol in place of a length through a forward. They record each condition that the forward
has checked, such as `length < 512`. The result of the look is then frozen: a formula replaces each number that depends on a
length. For given lengths, the formulas give the result of a look with these lengths, provided that all conditions hold.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

from hetu.torch.values import TensorSpec

# sympy and torch's symbolic shapes are imported where lengths are left open: they take as long as torch itself.
if TYPE_CHECKING:
    import sympy

Numbers: TypeAlias = "Mapping[sympy.Symbol, sympy.Integer]"

# Types whose values can't contain a number that depends on a length.
_WHOLE = (bool, int, float, complex, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.layout,
          torch.memory_format)
_current = threading.local()


class NotFollowedError(Exception):
    """The result of a look doesn't apply to other lengths."""


class Formula(NamedTuple):
    """An integer that depends on lengths."""

    expression: sympy.Expr

    def number(self, numbers: Numbers) -> int:
        """Returns the integer for these lengths. Throws NotFollowedError if a length is missing."""
        found = self.expression.xreplace(dict(numbers))
        if not found.is_Integer:
            raise NotFollowedError(f"{self.expression} is {found} for {numbers}")
        return int(found)


class OpenLengths:
    """The lengths that stay open in one look: `dims` of some tensors of a batch."""

    def __init__(self, tensors: Sequence[torch.Tensor], dims: Sequence[Sequence[int]]) -> None:
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

        self.env = ShapeEnv(specialize_zero_one=True, duck_shape=False)
        self.sizes: dict[tuple[int, int], Any] = {}  # by (id of a tensor, dimension)
        for number, (tensor, open_dims) in enumerate(zip(tensors, dims, strict=True)):
            for dim in open_dims:
                source, length = ConstantSource(f"length_{number}_{dim}"), tensor.shape[dim]
                symbol = self.env.create_symbol(length, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
                self.sizes[id(tensor), dim] = self.env.create_symintnode(symbol, hint=length, source=source)

    def shape_of(self, tensor: torch.Tensor) -> list[Any]:
        """Returns the shape of a tensor, with its open lengths as symbols."""
        return [self.sizes.get((id(tensor), dim), length) for dim, length in enumerate(tensor.shape)]

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Makes this object the result of current() inside the `with` block, on this thread."""
        _current.lengths = self
        try:
            with enable_python_dispatcher():
                yield
        finally:
            _current.lengths = None

    def conditions(self) -> Conditions:
        """Returns the conditions on lengths that have been checked so far. Throws NotFollowedError if a condition fixes a
        length to a number."""
        for size in self.sizes.values():
            if not isinstance(size, torch.SymInt) or self.env.replace(size.node._expr).is_number:
                raise NotFollowedError("a length was asked for as a number")
        ranges = {size.node._expr: self.env.var_to_range[size.node._expr] for size in self.sizes.values()}
        return Conditions([guard.expr for guard in self.env.guards], ranges)


class Conditions(NamedTuple):
    """Conditions that lengths must satisfy for the forward to be the recorded one."""

    equations: list[Any]
    ranges: dict[sympy.Symbol, Any]

    def hold(self, numbers: Numbers) -> bool:
        """Returns true if these lengths satisfy the conditions. A condition on a missing length doesn't hold."""
        import sympy

        inside = all(symbol not in self.ranges or self.ranges[symbol].lower <= number <= self.ranges[symbol].upper
                     for symbol, number in numbers.items())
        return inside and all(equation.xreplace(dict(numbers)) == sympy.true for equation in self.equations)


def current() -> OpenLengths | None:
    """Returns the open lengths of the current look on this thread, or None."""
    return getattr(_current, "lengths", None)


def fake_mode(lengths: OpenLengths | None, allow_non_fake_inputs: bool = False) -> FakeTensorMode:
    """Returns a mode of tensors without elements, whose shapes may contain open lengths."""
    if lengths is None:
        return FakeTensorMode(allow_non_fake_inputs=allow_non_fake_inputs)
    return FakeTensorMode(shape_env=lengths.env, static_shapes=True, allow_non_fake_inputs=allow_non_fake_inputs)


def has_open_lengths(shape: Sequence[Any]) -> bool:
    """Returns true if a shape depends on an open length."""
    return any(isinstance(length, torch.SymInt) for length in shape)


def match(found: Sequence[Any], given: Sequence[Any]) -> dict[sympy.Symbol, sympy.Integer] | None:
    """Returns the lengths for which `found`, frozen, becomes `given`, or None if there are none. Both hold tensor specs and
    other values. Each open length in `found` must be a bare symbol."""
    import sympy

    numbers: dict[sympy.Symbol, sympy.Integer] = {}
    for one, other in zip(found, given, strict=True):
        if not isinstance(one, TensorSpec) or not isinstance(other, TensorSpec):
            if one != other:
                return None
            continue
        if one._replace(shape=()) != other._replace(shape=()) or len(one.shape) != len(other.shape):
            return None
        for length, known in zip(one.shape, other.shape, strict=True):
            if isinstance(length, Formula):
                if numbers.setdefault(length.expression, sympy.Integer(known)) != known:
                    return None
            elif length != known:
                return None
    return numbers


def freeze(value: Any) -> Any:
    """Returns a nesting with a Formula in place of each number that depends on an open length. Throws NotFollowedError for
    an object that may contain such a number where it can't be found."""
    if isinstance(value, torch.SymInt):
        return Formula(value.node._expr)
    if isinstance(value, _WHOLE):
        return value
    return _rebuilt(value, freeze)


def with_numbers(value: Any, numbers: Numbers) -> Any:
    """Returns a nesting with the number in place of each Formula."""
    if isinstance(value, Formula):
        return value.number(numbers)
    if isinstance(value, _WHOLE):
        return value
    return _rebuilt(value, lambda inner: with_numbers(inner, numbers))


def _rebuilt(value: Any, each: Callable[[Any], Any]) -> Any:
    """Returns `value` rebuilt with each() applied to its elements, or the same object if nothing changes."""
    if isinstance(value, slice):
        parts = value.start, value.stop, value.step
        new = tuple(map(each, parts))
        return value if _same(parts, new) else slice(*new)
    if isinstance(value, dict):
        values = [each(inner) for inner in value.values()]
        return value if _same(tuple(value.values()), values) else type(value)(zip(value, values, strict=True))
    if isinstance(value, (tuple, list, set, frozenset)):
        values = [each(inner) for inner in value]
        if _same(tuple(value), values):
            return value
        if isinstance(value, torch.Size):
            return tuple(values)
        return type(value)(*values) if hasattr(value, "_fields") else type(value)(values)
    rebuilt = getattr(value, "rebuilt", None)  # FormKey
    if rebuilt is None:
        raise NotFollowedError(f"a {type(value).__name__} may hold a number that depends on a length")
    return rebuilt(each)


def _same(before: Sequence[Any], after: Sequence[Any]) -> bool:
    return all(a is b for a, b in zip(before, after, strict=True))
