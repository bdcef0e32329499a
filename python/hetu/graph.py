"""Building operator graphs: values, parameters, cut-points, and the graph under construction.

Shapes are lists of integers. `BATCH` (-1) stands for the batch size and -k for k times the batch size.
"""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from hetu import _hetu
from hetu.arithmetic import Arithmetic, kind_of
from hetu.arrays import TAKEN
from hetu.init import Init as Init
from hetu.init import constant as constant
from hetu.init import normal as normal
from hetu.init import uniform as uniform
from hetu.init import xavier_normal as xavier_normal
from hetu.names import missing_of
from hetu.place import refuse

BATCH: int = _hetu.BATCH
PLACEMENTS = ("worker", "server")  # of parameters


def shape_text(shape: Sequence[int]) -> str:
    """Returns a shape for messages, in which B stands for the batch: [B, 3], or [4B, 3] for -4."""
    return f"[{', '.join('B' if n == BATCH else f'{-n}B' if n < 0 else str(n) for n in shape)}]"


class Value(Arithmetic["Value"]):
    """An edge of the graph. `shape` and `dtype` are known when it is created. Errors name the node."""

    graph: GraphBuilder

    def __init__(self, graph: GraphBuilder, number: int) -> None:
        self.graph = graph
        self.number = number
        self.dtype, self.shape = graph.builder.type_of(number)

    if not TYPE_CHECKING:  # hidden from type checkers; at run time, names of other libraries get an error with a hint

        def __getattr__(self, name: str) -> NoReturn:
            missing_of("Value", name, dir(Arithmetic), type(self).__name__)

    @property
    def name(self) -> str:
        """The name of the node that computes the value, with :k for its output k > 0. A run reports the value under this
        name."""
        return str(self.graph.builder.producer_of(self.number)[0])

    @name.setter
    def name(self, name: Any) -> NoReturn:
        self.graph.refuse("the name of a value can't be changed. Give name= to the operator that computes it. For an output "
                          f"of a saved model, name it there: job.save(folder, fetches={{{name!r}: value}})")

    def __repr__(self) -> str:
        return f"Value({self.dtype}{shape_text(self.shape)})"

    def __str__(self) -> str:
        name, op = self.graph.builder.producer_of(self.number)
        return f"{name}: {self.dtype}{shape_text(self.shape)}" + (f" = {op}" if op not in name else "")


class GraphBuilder:
    """A graph under construction. One graph is current at a time; `new_graph()` starts another."""

    def __init__(self) -> None:
        self.builder = _hetu.Builder()
        self.sources: dict[str, Any] = {}  # field name -> data object that provides it
        self.fetches: dict[str, Value] = {}
        self.placeholders: dict[str, Value] = {}
        self.parameters: dict[str, Value] = {}  # in model order, like the buffers
        self.buffers: dict[str, Value] = {}
        self.named: set[int] = set()  # numbers of values whose operator the script named (name=)
        self.tied: dict[str, str] = {}  # further name of a parameter or buffer -> its name in the graph
        self.scopes: list[str] = []
        self.minimized = False  # true once gradients are added; no operators may follow
        self.taken = False  # true once an Executor has been made from it
        self.path = ""  # path of the module that is being called; its operators are named "path/name"

    def apply(self, op: str, inputs: Sequence[Value], name: str = "", **attrs: Any) -> Value:
        """Adds an operator and returns its first output."""
        return self.apply_all(op, inputs, name, **attrs)[0]

    def apply_all(self, op: str, inputs: Sequence[Value], name: str = "", **attrs: Any) -> list[Value]:
        """Adds an operator and returns all its outputs."""
        for i, v in enumerate(inputs):
            if not isinstance(v, Value):
                self.refuse(f"{op}: input {i} must be a Value, got {kind_of(v)}")
            if v.graph is not self:
                self.refuse(f"{op}: input {i}, {v!r}, belongs to another graph (hetu.new_graph starts one)")
        self.check_name(op, name)
        if self.minimized:
            self.refuse(f"{op}: minimize() was already called on this graph; add operators before it, or use a new graph "
                        "(hetu.new_graph)")
        full = f"{self.path}/{name or op}" if self.path else name
        outputs = self._told(self.builder.apply, op, [v.number for v in inputs], attrs, full)
        self.named.update(outputs if name else ())
        return [Value(self, number) for number in outputs]

    def apply_called(self, default: str, op: str, inputs: Sequence[Value], name: str) -> Value:
        """Adds an operator that has the name `default` if the script gave no name, and returns its first output."""
        made = self.apply(op, inputs, name or default)
        self.named.difference_update(() if name else {made.number})
        return made

    def _told(self, function: Callable[..., Any], *given: Any) -> Any:
        """Calls a function of the builder. Its errors are raised with the line of the user's script."""
        try:
            return function(*given)
        except ValueError as error:
            self.refuse(str(error))

    def check_name(self, what: str, name: Any) -> None:
        """Throws ValueError unless the name is text."""
        if not isinstance(name, str):
            self.refuse(f"{what}: the name must be a string, got {kind_of(name)}")

    def checked_shape(self, what: str, name: str, shape: Any) -> list[int]:
        """Returns a shape as a list. Throws ValueError, which names the purpose `what`, for an invalid shape or a name that
        is not text."""
        self.check_name(what, name)
        if isinstance(shape, Sequence) and all(isinstance(n, numbers.Integral) for n in shape):
            return [int(n) for n in shape]
        found = repr(shape)
        if hasattr(shape, "shape"):
            found = f"an array of shape {list(shape.shape)}"
            found += " (a parameter without init= starts from it)" if what == "parameter" else ""
        named = f"{what} '{name}'" if name else what
        self.refuse(f"{named}: the shape must be a list of integers, such as [2, 3], got {found}")

    def refuse(self, message: str) -> NoReturn:
        """Throws ValueError with a message that begins with the line of the user's script."""
        refuse(message)

    def fetch(self, name: str, value: Value) -> None:
        """Reports a value in every run under this name: a float32 scalar, summed over micro-batches and pipelines; or
        float32 numbers per sample, [batch], in runs that do not train. The fields that the value needs are read for the
        list of the run."""
        self._told(self.builder.fetch, name, value.number)
        self.fetches[name] = value

    def placeholder(self, name: str, dtype: str, shape: Sequence[int]) -> Value:
        """Adds a tensor that data provides. `name` is the field of the batch that it reads."""
        sizes = self.checked_shape("placeholder", name, shape)
        if dtype not in TAKEN:
            self.refuse(f"placeholder '{name}': {dtype!r} is not supported; use {', '.join(TAKEN)} "
                        "(hetu.data.Batches converts arrays of other dtypes)")
        self.placeholders[name] = Value(self, self._told(self.builder.placeholder, name, dtype, sizes))
        return self.placeholders[name]

    def number(self, value: Any, op: str) -> Value:
        """Returns a float32 constant that broadcasts to any shape."""
        if not isinstance(value, numbers.Real):
            self.refuse(f"{op}: expected a Value or a number, got {kind_of(value)}")
        return self.apply("fill", [], shape=[], value=float(value))

    def parameter(self, name: str, shape: Any, init: Init | None = None, decay: bool = True,
                  placement: str = "worker") -> Value:
        """Adds a trainable float32 tensor (see the function `parameter`)."""
        if placement not in PLACEMENTS:
            self.refuse(f"parameter '{name}': unknown placement {placement!r}; known: {', '.join(PLACEMENTS)}")
        if init is not None and not isinstance(init, Init):
            self.refuse(f"parameter '{name}': init must be one of hetu.init, such as hetu.init.normal(0.02), got {init!r}")
        if init is not None:
            sizes, served = self.checked_shape("parameter", name, shape), placement == "server"
            made = Value(self, self._told(self.builder.parameter, name, sizes, init.kind, init.a, init.b, decay, served))
            self.parameters[self.name_of(made)] = made
            return made
        if not hasattr(shape, "__array__"):
            self.refuse(f"parameter '{name}': a shape needs init=, such as hetu.init.normal(0.02); "
                        f"without init=, expected an array, got {kind_of(shape)}")
        start = shape.__array__()
        if start.dtype.kind != "f":
            self.refuse(f"parameter '{name}': expected an array of floats, got {start.dtype}")
        made = self.parameter(name, list(start.shape), constant(0.0), decay, placement)
        self.start_from(made, start)
        return made

    def start_from(self, leaf: Value, array: Any) -> None:
        """Initializes a parameter or buffer of this graph with the elements of an array of floats."""
        self._told(self.builder.start_from, leaf.number, array.astype("float32").ravel())

    def buffer(self, name: str, shape: Sequence[int], init: Init) -> Value:
        """Adds a float32 tensor that the operator reading it replaces in training (see the function `buffer`)."""
        sizes = self.checked_shape("buffer", name, shape)
        made = Value(self, self._told(self.builder.buffer, name, sizes, init.kind, init.a, init.b))
        self.buffers[self.name_of(made)] = made
        return made

    def name_of(self, value: Value) -> str:
        """Returns the name of the operator, parameter or buffer that computes the value."""
        return str(self.builder.producer_of(value.number)[0])


def check_values(what: str, **given: Any) -> None:
    """Throws ValueError, with the name of the argument, if an argument is not a Value."""
    for name, value in given.items():
        if not isinstance(value, Value):
            refuse(f"{what}: {name} must be a Value, got {kind_of(value)}")


_current = [GraphBuilder()]


def current() -> GraphBuilder:
    """Returns the graph that functions of this package add to."""
    return _current[-1]


def new_graph() -> GraphBuilder:
    """Starts a new graph and makes it the current one."""
    _current[-1] = GraphBuilder()
    return _current[-1]


def placeholder(name: str, dtype: str, shape: Sequence[int]) -> Value:
    """Adds a tensor to the current graph that data provides. `name` is the field of the batch that it reads."""
    return current().placeholder(name, dtype, shape)


def parameter(name: str, shape: Any, init: Init | None = None, decay: bool = True, placement: str = "worker") -> Value:
    """Adds a trainable float32 tensor to the current graph, from a shape and an initializer, or with the values of an
    array.

    decay: use False for biases and norms, to exempt them from weight decay.
    placement: "server" puts an embedding table [rows, width] on the parameter servers of the job (`heturun`). These run the
    optimizer on the rows that a step has looked up. A worker holds only these rows (docs/parameter-server.md).
    """
    return current().parameter(name, shape, init, decay, placement)


def buffer(name: str, shape: Sequence[int], init: Init) -> Value:
    """Adds state to the current graph that training forwards replace and that no optimizer changes, such as running
    statistics.

    One operator reads it, as an input that it replaces (`batch_norm`'s running_mean and running_var, `count_up`'s x).
    Validation reads it and does not change it. Each pipeline has its own copy, replaced micro-batch by micro-batch.
    Validation and checkpoints use the mean over pipelines, added in their order. After a save all pipelines continue from
    the mean.
    """
    return current().buffer(name, shape, init)


def cut() -> None:
    """Adds a cut-point: nodes after it may be on a later stage than nodes before it."""
    current().builder.cut()


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Prefixes all names that are created inside the `with` block with `name/`."""
    graph = current()
    graph.check_name("scope", name)
    graph.builder.push_scope(name)
    graph.scopes.append(name)
    try:
        yield
    finally:
        graph.scopes.pop()
        graph.builder.pop_scope()
