"""The operators and methods of a Value: arithmetic with broadcasting as in NumPy, comparisons, indexing, shapes,
reductions.

Every method adds operators of hetu.ops to the value's graph. Axes count from 0, negative ones from the last. A number in an
expression becomes a constant. An array does not: hetu.constant turns it into a Value.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from hetu import keywords
from hetu.indexing import index
from hetu.names import refuse_numpy

Value = TypeVar("Value", bound="Arithmetic[Any]")  # hetu.graph.Value, which this module doesn't import
BATCH = -1
_EXACT = 2**24  # integers up to this magnitude are exact in float32


def broadcast(shapes: Sequence[Sequence[int]]) -> list[int]:
    """Returns the shape to which shapes broadcast. If they don't broadcast, returns a shape that makes the operator fail
    with its own error."""
    out: list[int] = []
    for shape in shapes:
        longer, shorter = (list(shape), out) if len(shape) > len(out) else (out, list(shape))
        padded = [1] * (len(longer) - len(shorter)) + shorter
        out = [b if a == 1 else a for a, b in zip(longer, padded, strict=True)]
    return out


# NumPy's ufunc names -> operator names. _SWAPPED: operators whose mirrored form is not made with the prefix "r".
_OF_NUMPY = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "power": "pow", "matmul": "matmul",
             "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne",
             "bitwise_and": "and", "bitwise_or": "or", "remainder": "mod", "floor_divide": "floordiv"}
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


class Graph(Protocol[Value]):
    """The methods of hetu.graph.GraphBuilder that a value uses."""

    def apply(self, op: str, inputs: Sequence[Value], name: str = "", **attrs: Any) -> Value: ...

    def number(self, value: Any, op: str) -> Value: ...

    def refuse(self, message: str) -> NoReturn: ...


class Arithmetic(Generic[Value]):
    """The operators of Value. The subclass provides `graph`, `number`, `dtype` and `shape`."""

    graph: Graph[Value]
    number: int
    dtype: str
    shape: list[int]

    # -- NumPy -------------------------------------------------------------------------------------------------------

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **_: Any) -> Any:
        """Implements NumPy's operators with a Value on one side. NumPy numbers become constants; arrays are rejected."""
        operator = _OF_NUMPY.get(function.__name__) if method == "__call__" and len(inputs) == 2 else None
        if operator is None:
            refuse_numpy(function.__name__, dir(Arithmetic))
        left, right = (side[()] if not isinstance(side, Arithmetic) and getattr(side, "shape", None) == () else side
                       for side in inputs)  # NumPy's comparisons turn its numbers into arrays of shape ()
        if isinstance(left, Arithmetic):
            return getattr(left, f"__{operator}__")(right)
        return getattr(right, f"__{_SWAPPED.get(operator, f'r{operator}')}__")(left)

    def __array_function__(self, function: Any, *_: Any) -> Any:
        refuse_numpy(function.__name__, dir(Arithmetic))

    def __array__(self, *_: Any, **__: Any) -> Any:
        self.graph.refuse(f"{self!r} is computed when the graph runs; it has no array while the graph is built")

    # -- operands ----------------------------------------------------------------------------------------------------

    def _operand(self, other: Any, op: str) -> Value:
        """Returns `other` as a value of this graph and dtype; a number becomes a constant."""
        if isinstance(other, Arithmetic):
            return other  # type: ignore[return-value]
        if not isinstance(other, numbers.Real):
            self.graph.refuse(f"{op}: the operand beside {self!r} must be a Value or a number, got {kind_of(other)}")
        if self.dtype == "float32":
            return self.graph.number(other, op)
        if self.dtype == "int32" and float(other).is_integer() and abs(float(other)) <= _EXACT:
            return self.graph.number(other, op).cast("int32")
        self.graph.refuse(f"{op}: {self!r} can't be combined with the number {other}; use .cast(\"float32\")")

    def _two(self, op: str, other: Any, swapped: bool = False) -> Value:
        operand = self._operand(other, op)
        return self.graph.apply(op, [operand, self] if swapped else [self, operand])  # type: ignore[list-item]

    def _one(self, op: str, **attrs: Any) -> Value:
        return self.graph.apply(op, [self], **attrs)  # type: ignore[list-item]

    # -- arithmetic --------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Value:
        return self._two("add", other)

    def __radd__(self, other: Any) -> Value:
        return self._two("add", other, swapped=True)

    def __sub__(self, other: Any) -> Value:
        return self._two("sub", other)

    def __rsub__(self, other: Any) -> Value:
        return self._two("sub", other, swapped=True)

    def __mul__(self, other: Any) -> Value:
        if isinstance(other, numbers.Real) and self.dtype == "float32":
            return self._one("scale", factor=float(other))
        return self._two("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Value:
        return self._two("div", other)

    def __rtruediv__(self, other: Any) -> Value:
        return self._two("div", other, swapped=True)

    def __pow__(self, other: Any) -> Value:
        if isinstance(other, numbers.Real):
            return self._one("power", exponent=float(other))
        return self._two("pow", other)

    def __rpow__(self, other: Any) -> Value:
        return self._two("pow", other, swapped=True)

    def __neg__(self) -> Value:
        if self.dtype == "int32":
            return self._two("sub", 0, swapped=True)
        return self._one("scale", factor=-1.0)

    def __abs__(self) -> Value:
        return self._one("abs")

    def __matmul__(self, other: Any) -> Value:
        """Multiplies matrices: [..., m, k] @ [k, n] or [..., k, n]. Leading axes broadcast. [k] on the left is a row, on
        the right a column."""
        if not isinstance(other, Arithmetic):
            self.graph.refuse(f"@: the operand beside {self!r} must be a Value, got {kind_of(other)}")
        if self.ndim == 0 or other.ndim == 0:
            self.graph.refuse(f"@: {self!r} and {other!r} must each have at least one axis; use * to multiply by a number")
        if other.ndim == 1:
            return (self @ other.unsqueeze(1)).squeeze(-1)
        if self.ndim == 1:
            return (self.unsqueeze(0) @ other).squeeze(-2)
        if len(other.shape) == 2:
            return self.graph.apply("linear", [self, other.permute(1, 0)])  # type: ignore[list-item]
        leading = broadcast([self.shape[:-2], other.shape[:-2]])
        sides = [side.expand([*leading, *side.shape[-2:]]) for side in (self, other)]
        return self.graph.apply("matmul", sides)

    def __rmatmul__(self, other: Any) -> Value:
        self.graph.refuse(f"@: the operand beside {self!r} must be a Value, got {kind_of(other)}")

    def __mod__(self, other: Any) -> Value:
        self.graph.refuse(f"{self!r}: values support + - * / ** and @, but not % and //")

    __rmod__ = __floordiv__ = __rfloordiv__ = __mod__

    # -- comparisons and choices -------------------------------------------------------------------------------------

    def __lt__(self, other: Any) -> Value:
        return self._two("less", other)

    def __le__(self, other: Any) -> Value:
        return self._two("less_equal", other)

    def __gt__(self, other: Any) -> Value:
        return self._two("greater", other)

    def __ge__(self, other: Any) -> Value:
        return self._two("greater_equal", other)

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return self._two("equal", other)

    def __ne__(self, other: Any) -> Value:  # type: ignore[override]
        return self._two("not_equal", other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Value:
        return self._two("logical_and", other)

    def __or__(self, other: Any) -> Value:
        return self._two("logical_or", other)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Value:
        return self._one("logical_not")

    def __bool__(self) -> bool:
        self.graph.refuse(f"{self!r} is computed when the graph runs: it is neither true nor false while the graph is built "
                          "(choose between values with hetu.where)")

    def __float__(self, *_: Any) -> float:
        self.graph.refuse(f"{self!r} is computed when the graph runs; it is not a number while the graph is built")

    __int__ = __index__ = __round__ = __float__  # type: ignore[assignment]

    def __format__(self, how: str) -> str:
        return self.__float__() if how else str(self)  # type: ignore[return-value]

    def __len__(self) -> int:
        if not self.shape or self.shape[0] < 0:
            self.graph.refuse(f"{self!r} has no length: its first axis is "
                              + ("the batch, which is known when the graph runs" if self.shape else "missing"))
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Value:
        return index(self, key)  # type: ignore[arg-type]

    def __setitem__(self, key: Any, _: Any) -> None:
        self.graph.refuse(f"{self!r} is the result of an operator and can't be changed; use hetu.where to choose between "
                          "values, or hetu.concat to join parts")

    def __contains__(self, _: Any) -> bool:
        self.graph.refuse(f"{self!r} is computed when the graph runs: its elements are not known while the graph is built")

    # -- shapes ------------------------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def _axis(self, axis: int, op: str, count: int | None = None) -> int:
        count = self.ndim if count is None else count
        if not isinstance(axis, numbers.Integral) or not -count <= axis < count:
            self.graph.refuse(f"{op}: {self!r} has {self.ndim} axes, there is no axis {axis!r}")
        return int(axis) % count

    def reshape(self, *shape: Any) -> Value:
        """Returns the elements in the same order with another shape. -1 is the batch size, -k is k times the batch size."""
        return self._one("reshape", shape=_listed(shape))

    def permute(self, *axes: Any) -> Value:
        """Returns the value with axis axes[i] as its axis i. Without arguments, reverses all axes."""
        perm = _listed(axes) or list(range(self.ndim))[::-1]
        return self._one("transpose", perm=[self._axis(axis, "permute") for axis in perm])

    def swapaxes(self, first: int, second: int) -> Value:
        """Swaps two axes (PyTorch's transpose)."""
        perm = list(range(self.ndim))
        a, b = self._axis(first, "swapaxes"), self._axis(second, "swapaxes")
        perm[a], perm[b] = perm[b], perm[a]
        return self._one("transpose", perm=perm)

    def unsqueeze(self, axis: int) -> Value:
        """Inserts an axis of length 1. `axis` is its position in the result."""
        at = self._axis(axis, "unsqueeze", self.ndim + 1)
        return self.reshape([*self.shape[:at], 1, *self.shape[at:]])

    def squeeze(self, axis: int) -> Value:
        """Removes an axis of length 1."""
        at = self._axis(axis, "squeeze")
        if self.shape[at] != 1:
            self.graph.refuse(f"squeeze: axis {axis} of {self!r} must have length 1")
        return self.reshape([*self.shape[:at], *self.shape[at + 1:]])

    def flatten(self, start: int = 1) -> Value:
        """Merges all axes from `start` on into one. The default keeps the batch axis."""
        at = self._axis(start, "flatten")
        return self.reshape([*self.shape[:at], math.prod(self.shape[at:])])

    def expand(self, *shape: Any) -> Value:
        """Repeats the value along new leading axes and along axes of length 1. -1 is the batch size, -k is k times the
        batch size."""
        to = _listed(shape)
        return self if to == self.shape else self._one("broadcast_to", shape=to)  # type: ignore[return-value]

    def cast(self, dtype: str) -> Value:
        """Converts to float32, bfloat16, float16, int32 or bool."""
        return self if dtype == self.dtype else self._one("cast", dtype=dtype)  # type: ignore[return-value]

    # -- functions and reductions ------------------------------------------------------------------------------------

    def exp(self) -> Value:
        return self._one("exp")

    def log(self) -> Value:
        return self._one("log")

    def sqrt(self) -> Value:
        return self._one("sqrt")

    def abs(self) -> Value:
        return self._one("abs")

    def clip(self, low: float = -math.inf, high: float = math.inf) -> Value:
        """Returns min(max(x, low), high)."""
        return self._one("clip", low=float(low), high=float(high))

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """Returns the sum over the given axes, or over all axes. A sum over the batch covers one micro-batch; a step adds
        the sums of its micro-batches."""
        if axis is None and not keepdims:
            return self._one("sum")
        return self._reduced("reduce_sum", axis, keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """Returns the mean over the given axes, or over all axes. The batch axis is not allowed, because no micro-batch
        contains the whole batch. For a loss, use hetu.step_mean."""
        return self._reduced("reduce_mean", axis, keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """Returns the maximum over axes other than the batch. Equal maxima share the gradient."""
        return self._reduced("reduce_max", axis, keepdims)

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """Returns the minimum over axes other than the batch. Equal minima share the gradient."""
        return self._reduced("reduce_min", axis, keepdims)

    def var(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, correction: int = 0) -> Value:
        """Returns the variance over axes other than the batch. `correction` is subtracted from the count: 0 as in NumPy, 1
        as PyTorch's default."""
        return self._reduced("reduce_variance", axis, keepdims, correction=correction)

    def std(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, correction: int = 0) -> Value:
        """Returns the standard deviation, the square root of `var`. Its gradient is infinite if all elements are equal."""
        return self.var(axis, keepdims, correction).sqrt()

    def logsumexp(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """Returns log(sum(exp(x))) over axes other than the batch."""
        return self._reduced("reduce_logsumexp", axis, keepdims)

    def argmax(self, axis: int = -1) -> Value:
        """Returns the int32 index of the largest element along an axis."""
        return self._one("argmax", axis=axis)

    def cumsum(self, axis: int = -1) -> Value:
        """Returns the cumulative sum along an axis."""
        return self._one("cumsum", axis=axis)

    def flip(self, axis: int | Sequence[int]) -> Value:
        """Reverses one axis or several. The batch axis is not allowed."""
        out: Any = self
        for at in _listed((axis,)):
            out = out._one("flip", axis=at)
        return out  # type: ignore[no-any-return]

    def split(self, sizes: int | Sequence[int], axis: int = -1) -> list[Value]:
        """Splits the value along an axis into parts of these sizes or, for a number, into that many equal parts."""
        at = self._axis(axis, "split")
        length = self.shape[at]
        if isinstance(sizes, Sequence):
            parts = list(sizes)
        elif length < 0 or sizes < 1 or length % sizes:
            self.graph.refuse(f"split: axis {axis} of {self!r} can't be split into {sizes} equal parts")
        else:
            parts = [length // sizes] * sizes
        if sum(parts) != length:
            self.graph.refuse(f"split: {parts} add up to {sum(parts)}, but axis {axis} of {self!r} has length {length}")
        starts = [sum(parts[:i]) for i in range(len(parts))]
        return [self._one("slice", axis=at, first=first, size=size) for first, size in zip(starts, parts, strict=True)]

    def pad(self, widths: Sequence[tuple[int, int]], value: float = 0.0) -> Value:
        """Pads every axis with `value`. `widths` holds (before, after) for each axis, as in NumPy's pad."""
        if len(widths) != self.ndim:
            self.graph.refuse(f"pad: {self!r} has {self.ndim} axes, got widths for {len(widths)}")
        out: Any = self
        for axis, (before, after) in enumerate(widths):
            if before or after:
                out = out._one("pad", axis=axis, before=before, after=after, value=float(value))
        return out  # type: ignore[no-any-return]

    def _reduced(self, op: str, axis: int | Sequence[int] | None, keepdims: bool, **attrs: Any) -> Value:
        axes = [] if axis is None else _listed((axis,))
        if axis is not None and not axes:
            self.graph.refuse(f"{op}: axis names no axis of {self!r}; leave axis out for all axes")
        if self.dtype == "bool":
            self.graph.refuse(f"{op}: {self!r} is not float32; use .cast('float32'). For the accuracy, put "
                              "hetu.ops.top_k_hits(logits, labels, k=1, name='hits') into a list without minimize(), and "
                              "call job.evaluate(metrics={'accuracy': 'hits'})")
        return self._one(op, axes=axes, keep=int(keepdims), **attrs)


def _listed(given: tuple[Any, ...]) -> list[int]:
    """Returns the arguments as a list, so that f(1, 2), f([1, 2]) and f((1, 2)) are equivalent."""
    if len(given) == 1 and isinstance(given[0], Sequence):
        return list(given[0])
    return list(given)


def kind_of(other: Any) -> str:
    """Describes an object that was passed in place of a Value, for error messages."""
    if isinstance(other, Arithmetic):
        return repr(other)
    name = f"{type(other).__module__}.{type(other).__qualname__}".removeprefix("builtins.")
    if hasattr(other, "__array__"):
        return f"an array ({name}), which hetu.constant converts to a Value"
    return f"{'an' if name[0] in 'aeio' else 'a'} {name}"


keywords.check_methods(Arithmetic, "Value")
