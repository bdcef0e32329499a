"""Modules: Python objects that hold parameters and, called on values, add operators to the graph of the values.

Parameters are created with a module, and become part of a graph at their first use. A parameter's name is the path to it
from the outermost module, as in PyTorch's state dicts. The first path counts, so a tied weight has one name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary

from hetu.graph import GraphBuilder, Value, current
from hetu.init import Init
from hetu.names import missing_of, near
from hetu.place import of_script, place


class _Leaf(Value):
    """A value that each graph in which it is used adds as its own."""

    init: Init | None
    name: str = ""  # type: ignore[misc, assignment]  # its path in the modules, not a node's
    other_names: tuple[str, ...] = ()  # further paths to it, if it is tied

    def __init__(self, shape: list[int]) -> None:
        self.dtype, self.shape = "float32", shape
        self._made: WeakKeyDictionary[GraphBuilder, Value] = WeakKeyDictionary()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Leaf:
        twin = copy.copy(self)
        twin._made = WeakKeyDictionary()
        return twin

    @property
    def graph(self) -> GraphBuilder:  # type: ignore[override]
        """The current graph."""
        return current()

    @property
    def number(self) -> int:  # type: ignore[override]
        """The value's number in the current graph, to which it is added at its first use."""
        graph = current()
        if graph not in self._made:
            if not self.name:
                graph.refuse(f"{self!r} has no name yet: call the module before you use its parameters alone")
            full = "/".join([*graph.scopes, self.name])
            if full in graph.parameters or full in graph.buffers:
                graph.refuse(f"'{full}' is already in this graph: give each outermost module a name of its own, as in "
                             "nn.Linear(3, 4).named('left')")
            self._made[graph] = self._make(graph)
            graph.tied.update({"/".join([*graph.scopes, other]): full for other in self.other_names})
        return self._made[graph].number

    def _make(self, graph: GraphBuilder) -> Value:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name or 'unnamed'}, float32{self.shape})"

    __str__ = __repr__  # works before any graph contains the value


class Parameter(_Leaf):
    """A trainable float32 tensor, from a shape and an initializer, or with the values of an array (like hetu.parameter).
    `decay` enables weight decay."""

    def __init__(self, shape: Any, init: Init | None = None, decay: bool = True) -> None:
        if init is None and not hasattr(shape, "__array__"):
            current().refuse(f"Parameter: expected a shape and an initializer of hetu.init, or an array; got only {shape!r}")
        self.start = None if init is not None else shape
        super().__init__(current().checked_shape("parameter", "", shape) if init else list(getattr(shape, "shape", [])))
        self.init, self.decay = init, decay

    def _make(self, graph: GraphBuilder) -> Value:
        return graph.parameter(self.name, self.shape if self.init else self.start, self.init, self.decay)


class Buffer(_Leaf):
    """State that the operator reading it replaces in training (see hetu.buffer)."""

    def __init__(self, shape: list[int], init: Init) -> None:
        super().__init__(current().checked_shape("buffer", "", shape))
        self.init = init

    def _make(self, graph: GraphBuilder) -> Value:
        assert self.init is not None
        return graph.buffer(self.name, self.shape, self.init)


class Module:
    """The base class of layers and models. Attributes may be parameters, buffers or modules; `forward` defines the
    computation."""

    _parent: Module | None = None
    _prefix = ""
    _path = ""

    if TYPE_CHECKING:  # hides __getattr__ from type checkers, which can't know a module's attributes

        def __getattr__(self, name: str) -> Any: ...

    else:

        def __getattr__(self, name: str) -> NoReturn:
            missing_of("Module", name, [*vars(self), *dir(type(self))], type(self).__name__)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (list, tuple)) and any(isinstance(item, Module) for item in value):
            current().refuse(f"{type(self).__name__}.{name}: modules in a {type(value).__name__} have no names; use "
                             "nn.ModuleList or nn.Sequential")
        if isinstance(value, Mapping) and any(isinstance(item, Module) for item in value.values()):
            current().refuse(f"{type(self).__name__}.{name}: modules in a {type(value).__name__} are not found; use "
                             "nn.ModuleDict")
        if name[:1] != "_" and isinstance(value, Module) and value._parent is None and value is not self:
            object.__setattr__(value, "_parent", self)
        object.__setattr__(self, name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Module:
        """Copies the module without its link to the parent module."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        for name, value in vars(self).items():
            if name not in ("_parent", "_path"):
                setattr(twin, name, copy.deepcopy(value, memo))
        return twin

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Computes the result of a call. Subclasses override it."""
        current().refuse(f"{type(self).__name__} has no method forward, which computes the result of a call")

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        graph = current()
        outer = graph.path
        if not outer:
            self._outermost()._give_names()
        graph.path = self._path or outer
        try:
            return self.forward(*inputs, **named)
        finally:
            graph.path = outer

    def named(self, name: str) -> Module:
        """Sets a name that prefixes the names of the parameters, and returns the module. Needed if a graph has several
        outermost modules."""
        if not isinstance(name, str) or not name:
            current().refuse(f"{type(self).__name__}.named: expected a string, got {name!r}")
        self._prefix = name
        return self

    # -- contents
    # ------------------------------------------------------------------------------------------------------

    def children(self) -> Iterator[tuple[str, Module]]:
        """Yields (attribute, module), in order."""
        for name, value in vars(self).items():
            if isinstance(value, Module) and name[:1] != "_":
                yield name, value

    def named_modules(self, path: str = "") -> Iterator[tuple[str, Module]]:
        """Yields (path, module), the module itself first. A module in several places occurs once."""
        seen: set[int] = set()

        def visit(at: str, module: Module) -> Iterator[tuple[str, Module]]:
            if id(module) in seen:
                return
            seen.add(id(module))
            yield at, module
            for name, child in module.children():
                yield from visit(f"{at}.{name}" if at else name, child)

        return visit(path or self._prefix, self)

    def _leaves(self) -> Iterator[tuple[str, _Leaf]]:
        seen: set[int] = set()
        for path, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, _Leaf) and id(value) not in seen:
                    seen.add(id(value))
                    yield f"{path}.{name}" if path else name, value

    def _every_name(self, path: str, around: frozenset[int] = frozenset()) -> Iterator[tuple[str, _Leaf]]:
        """Yields (name, leaf) like _leaves(), but a tied leaf under each of its names. `around` holds the enclosing
        modules."""
        around |= {id(self)}
        for name, value in vars(self).items():
            here = f"{path}.{name}" if path else name
            if isinstance(value, _Leaf):
                yield here, value
            elif isinstance(value, Module) and name[:1] != "_" and id(value) not in around:
                yield from value._every_name(here, around)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yields (name, parameter), as in PyTorch. A tied parameter occurs once, under its first name."""
        return ((name, leaf) for name, leaf in self._leaves() if isinstance(leaf, Parameter))

    def parameters(self) -> Iterator[Parameter]:
        """Yields the parameters in the order of named_parameters()."""
        return (leaf for _, leaf in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Buffer]]:
        """Yields (name, buffer)."""
        return ((name, leaf) for name, leaf in self._leaves() if isinstance(leaf, Buffer))

    def _outermost(self) -> Module:
        module = self
        while module._parent is not None:
            module = module._parent
        return module

    def _give_names(self) -> None:
        for path, module in self.named_modules():
            object.__setattr__(module, "_path", path)
        for name, leaf in self._leaves():
            leaf.name, leaf.other_names = name, ()
        for name, leaf in self._every_name(self._prefix):
            if name != leaf.name:
                leaf.other_names += (name,)

    def __repr__(self) -> str:
        inner = "".join(f"\n  ({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.children())
        return f"{type(self).__name__}({self.describe()}{inner + chr(10) if inner else ''})"

    def describe(self) -> str:
        """Returns the layer's description in a printed model."""
        return ""


def _found(what: Any) -> str:
    """Describes an object that was passed in place of a module, with a hint."""
    if isinstance(what, type) and issubclass(what, Module):
        return f"the class {what.__name__}; make one: {what.__name__}(…)"
    if isinstance(what, (list, tuple)) and any(isinstance(item, Module) for item in what):
        return f"a {type(what).__name__}; give them one by one: *{type(what).__name__}"
    if callable(what):
        return f"the function {getattr(what, '__name__', what)}; use a Module whose forward calls it"
    return repr(what)


class ModuleList(Module):
    """A list of modules, whose numbers are part of their parameters' names: `blocks.0.weight`."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        """Appends a module."""
        if not isinstance(module, Module):
            current().refuse(f"{type(self).__name__}: expected modules, got {_found(module)}")
        setattr(self, str(len(self)), module)
        return self

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Module]:
        return (child for _, child in self.children())

    def __getitem__(self, number: int) -> Module:
        return list(self)[number]


class Sequential(ModuleList):
    """Modules that run one after the other, named by number or, for a dict, by its keys. `cuts` adds a cut-point (hetu.cut)
    between any two of them."""

    def __init__(self, *modules: Any, cuts: bool = False) -> None:
        self.cuts = cuts
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                if not isinstance(module, Module):
                    current().refuse(f"Sequential: '{name}' must be a module, got {_found(module)}")
                setattr(self, name, module)
        else:
            super().__init__(modules)

    def forward(self, x: Any) -> Any:
        for module in self:
            if self.cuts:
                current().builder.cut()
            x = module(x)
        return x


class ModuleDict(Module):
    """A dictionary of modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        for name, module in (modules or {}).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(module, Module):
            current().refuse(f"ModuleDict: '{name}' must be a module, got {_found(module)}")
        if not isinstance(name, str) or hasattr(type(self), name):
            current().refuse(f"ModuleDict: a module can't be named {name!r}: not a string, or an attribute of ModuleDict")
        setattr(self, name, module)

    def __getitem__(self, name: str) -> Module:
        found = dict(self.children())
        if name not in found:
            raise of_script(KeyError(f"{place()}ModuleDict has no '{name}'; {near(name, found)}"))
        return found[name]

    def __len__(self) -> int:
        return len(self.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def keys(self) -> list[str]:
        """Returns the names, in order."""
        return [name for name, _ in self.children()]

    def values(self) -> list[Module]:
        """Returns the modules, in order."""
        return [module for _, module in self.children()]

    def items(self) -> list[tuple[str, Module]]:
        """Returns (name, module) pairs, in order."""
        return list(self.children())
