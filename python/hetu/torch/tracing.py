"""Cuts a module of any class into pieces: traces its forward, and cuts it at CutPoints or before named modules.

Only modules that contain CutPoints or such named modules are traced. All other modules are called unchanged, whatever they
do inside. Values that are computed before a cut and read behind it, such as a mask or a skip connection, are passed on with
the CutPoint's value.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from hetu.names import near
from hetu.torch.containers import refuse_hooks
from hetu.torch.cuts import MORE_IN_AT, CutPoint, PiecewiseModel
from hetu.torch.example import split_by_example
from hetu.torch.modes import keeping_modes


def split(model: Any, at: Sequence[str] = (), inputs: Sequence[str] = (), example: Any = None) -> PiecewiseModel:
    """Returns the pieces of a model of any class, for a Pipeline. A piece begins before each module in `at`, named as in
    `model.named_modules()`. The model is not changed.

    model: an nn.Module; or a program of torch.export, which has its own example; or a Pipe of
    torch.distributed.pipelining.pipeline(), which is already cut, so `at` must be empty.
    example: inputs as step() receives them, of any size. A dict holds keywords of forward, a tuple its positional
    arguments. With an example the forward is recorded (see recording.py), so it may use shapes and arguments like any
    Python code.
    inputs: without an example, torch.fx traces the forward. The model receives the batch unchanged or, if `inputs` names
    keywords of its forward, a dict of them.
    Throws ValueError if a module doesn't exist, if forward doesn't call it exactly once and with a value, or if forward
    can't be recorded or traced. The error names the module or the line of the user's source.
    """
    kind = type(model).__name__
    if kind in ("ExportedProgram", "Pipe") and type(model).__module__.startswith("torch."):
        from hetu.torch import exported  # imported here, because torch.export and torch.distributed are slow to import

        if inputs or example is not None or (kind == "Pipe" and at):
            raise ValueError(f"split() of {kind} takes no example or inputs, and no at= for a Pipe")
        return exported.split_pipe(model) if kind == "Pipe" else exported.split_exported(model, at)
    if not at:
        raise ValueError(f"at is empty: name the modules of {type(model).__name__} that pieces begin with")
    if example is not None:
        if inputs and (not isinstance(example, Mapping) or set(example) != set(inputs)):
            raise ValueError(f"inputs {list(inputs)} differ from the example's keys. Leave inputs out")
        return split_by_example(model, at, example)
    known = [name for name, _ in model.named_modules() if name]
    for name in at:
        if name not in known:
            raise ValueError(f"{type(model).__name__} has no module '{name}' to be cut at; {near(name, known)}")
    entered = {"", *(name[:n] for name in at for n, letter in enumerate(name) if letter == ".")}
    refuse_hooks({name: model.get_submodule(name) for name in sorted(entered)}, type(model).__name__)
    called = _Called(model, inputs, {}) if inputs else _Given(model)
    called.cuts = nn.ModuleList(CutPoint() for _ in at)
    graph = _trace_alike(called, _TracerTo(at))
    for number, name in enumerate(at):
        calls = [node for node in graph.nodes if node.op == "call_module" and node.target == f"model.{name}"]
        values = calls[0].all_input_nodes if len(calls) == 1 else []
        if not values:
            count = f"{len(calls)} times in forward{', on no value' if len(calls) == 1 else ''}"
            raise ValueError(f"'{name}' is called {count}: cut a model at a module that is called once, with the output of "
                             f"the part before it")
        with graph.inserting_before(calls[0]):
            cut = graph.call_module(f"cuts.{number}", (values[0],))
        calls[0].replace_input_with(values[0], cut)
    return PiecewiseModel(model, _pieces(called, graph), MORE_IN_AT)


def split_at_cut_points(model: nn.Module, names: Sequence[str], fixed: Mapping[str, Any]) -> PiecewiseModel:
    """Returns the pieces of a model that is called with keywords, cut at its CutPoints.

    names: keywords whose tensors the first piece receives as a dict.
    fixed: further keywords, with their values.
    Throws ValueError, which names the module, if the forward can't be traced, or if a CutPoint isn't used exactly once.
    """
    _take_in(model)
    refuse_hooks({name: module for name, module in model.named_modules()
                  if _cut_points(module) and not isinstance(module, CutPoint)}, type(model).__name__)
    called = _Called(model, names, fixed)
    graph = _trace_alike(called, _Tracer())
    _check_used_once(called, graph)
    return PiecewiseModel(model, _pieces(called, graph), "add CutPoints")


def _take_in(model: nn.Module) -> None:
    """Registers CutPoints that are in a plain list or dict of a module, as in Varuna's README, as submodules. PyTorch does
    not search lists and dicts."""
    for module in list(model.modules()):
        for name, value in list(vars(module).items()):
            held = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
            for key, one in held:
                if isinstance(one, CutPoint) and one not in module.children():
                    module.add_module(f"{name}_{key}", one)


class _Called(nn.Module):
    """The model as a function of one dict."""

    def __init__(self, model: nn.Module, names: Sequence[str], fixed: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, list(names), dict(fixed)

    def forward(self, value: Any) -> Any:
        return self.model(**{name: value[name] for name in self.names}, **self.fixed)


class _Given(nn.Module):
    """The model as a function of the batch that a Pipeline receives."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, value: Any) -> Any:
        return self.model(value)


class _Tracer(fx.Tracer):
    """Traces into modules that contain CutPoints, and into no others."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Returns true if the module is called unchanged."""
        return isinstance(m, CutPoint) or not _cut_points(m)


class _TracerTo(fx.Tracer):
    """Traces into modules that contain those of `at`, and into no others."""

    def __init__(self, at: Sequence[str]) -> None:
        super().__init__()
        self.at = [f"model.{name}" for name in at]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Returns true if the module is called unchanged."""
        return not any(name.startswith(f"{module_qualified_name}.") for name in self.at)


def _cut_points(module: nn.Module) -> list[nn.Module]:
    return [inner for inner in module.modules() if isinstance(inner, CutPoint)]


def _trace_alike(called: _Called | _Given, tracer: fx.Tracer) -> fx.Graph:
    """Returns the graph of forward. Throws ValueError unless it is the same in train() and in eval()."""
    graphs = []
    with keeping_modes(list(called.model.modules())):
        for training in (True, False):
            called.train(training)
            graphs.append(_trace(called, tracer))
    if str(graphs[0]) != str(graphs[1]):
        raise ValueError(f"{type(called.model).__name__}: its forward takes different paths in train() and in eval(); move "
                         f"the code that does so into a module of its own, without cuts")
    return graphs[0]


def _trace(called: _Called | _Given, tracer: fx.Tracer) -> fx.Graph:
    try:
        return tracer.trace(called)
    except Exception as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{type(called.model).__name__}: its forward cannot be traced from cut to cut: "
                         f"{type(error).__name__}: {text}; give split() example=inputs, or move code that depends on values "
                         f"into a module of its own, without cuts") from error


def _check_used_once(called: _Called, graph: fx.Graph) -> None:
    names = {id(m): name.removeprefix("model.") for name, m in called.named_modules()}
    uses = {id(m): 0 for m in _cut_points(called)}
    for node in graph.nodes:
        if node.op == "call_module" and id(called.get_submodule(node.target)) in uses:
            uses[id(called.get_submodule(node.target))] += 1
    for key, count in uses.items():
        if count != 1:
            raise ValueError(f"CutPoint '{names[key]}' is used {count} times in forward; use each CutPoint once, on the "
                             f"value that goes from one part to the next")


def _pieces(called: _Called | _Given, graph: fx.Graph) -> list[nn.Module]:
    """Returns a module for each run of nodes between CutPoints, in the order of execution."""
    runs: list[list[fx.Node]] = [[]]
    same: dict[fx.Node, fx.Node] = {}  # a CutPoint's value is its input
    place: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.op == "call_module" and isinstance(called.get_submodule(node.target), CutPoint):
            given = node.args[0] if node.args else next(iter(node.kwargs.values()))
            assert isinstance(given, fx.Node)
            same[node] = same.get(given, given)
            runs.append([])
        elif node.op != "get_attr":  # a parameter belongs to the piece that reads it
            place[node] = len(runs) - 1
            runs[-1].append(node)
    last_read: dict[fx.Node, int] = {}
    for node, number in place.items():
        for read in node.all_input_nodes:
            last_read[same.get(read, read)] = number
    pieces = []
    given_in: list[fx.Node] = []
    for number, run in enumerate(runs):
        out = [n for n in [*given_in, *run] if n in place and last_read.get(n, -1) > number]
        pieces.append(_piece(called, run, (given_in, None if number == len(runs) - 1 else out), same))
        given_in = out
    return pieces


def _piece(called: _Called | _Given, run: Sequence[fx.Node], live: tuple[list[fx.Node], list[fx.Node] | None],
           same: Mapping[fx.Node, fx.Node]) -> nn.Module:
    """Returns the module of a run. It receives and returns lists of the values that are live before and after it. The last
    piece returns the model's result."""
    graph = fx.Graph()
    had: dict[fx.Node, fx.Node] = {}
    given, out = live
    if given:
        value = graph.placeholder("value")
        had = {node: graph.call_function(operator.getitem, (value, k)) for k, node in enumerate(given)}

    def of(node: fx.Node) -> fx.Node:
        node = same.get(node, node)
        if node not in had:  # a parameter
            had[node] = graph.node_copy(node, of)
        return had[node]

    for node in run:
        had[node] = graph.node_copy(node, of)
    if out is not None:
        graph.output([had[node] for node in out])
    return fx.GraphModule(called, graph, f"{type(called.model).__name__}Piece")


def first_tensor(out: Any) -> torch.Tensor:
    """Returns the loss of a model: its result, or the first value of a tuple."""
    return out if isinstance(out, torch.Tensor) else out[0]
