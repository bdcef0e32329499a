"""A module of any class with CutPoints inside, as pieces: its forward is traced, and cut where CutPoints stand.

Traced is only what holds CutPoints; a module without one is called as it is, whatever it does inside. What is read behind a
CutPoint and made before it, such as a mask or a skip connection, is handed on beside the CutPoint's value.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from hetu.torch.cuts import CutPoint, PiecewiseModel


def split(model: nn.Module, names: Sequence[str], fixed: Mapping[str, Any]) -> PiecewiseModel:
    """The pieces of a model that is called with keywords: tensors of `names`, of which the first piece is given a dict, and
    `fixed` values. Throws ValueError, naming the module: a forward that cannot be traced, CutPoints that are used more or
    less than once."""
    _take_in(model)
    called = _Called(model, names, fixed)
    before = model.training
    graphs = []
    for training in (True, False):
        called.train(training)
        graphs.append(_trace(called))
    called.train(before)
    if str(graphs[0]) != str(graphs[1]):
        raise ValueError(f"{type(model).__name__}: its forward goes other ways in train() than in eval(); put what does so "
                         f"into a module of its own, without CutPoints")
    graph = graphs[0]
    _check_used_once(called, graph)
    return PiecewiseModel(model, _pieces(called, graph))


def _take_in(model: nn.Module) -> None:
    """CutPoints that stand in a plain list or dict of a module, as Varuna's README has them, become parts of it: PyTorch
    does not look into those."""
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


class _Tracer(fx.Tracer):
    """Goes into modules that hold CutPoints, and into no other."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether it is called as it is."""
        return isinstance(m, CutPoint) or not _cut_points(m)


def _cut_points(module: nn.Module) -> list[nn.Module]:
    return [inner for inner in module.modules() if isinstance(inner, CutPoint)]


def _trace(called: _Called) -> fx.Graph:
    try:
        return _Tracer().trace(called)
    except Exception as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{type(called.model).__name__}: its forward cannot be traced from CutPoint to CutPoint: "
                         f"{type(error).__name__}: {text}; what depends on values goes into a module of its own, without "
                         f"CutPoints") from error


def _check_used_once(called: _Called, graph: fx.Graph) -> None:
    names = {id(m): name.removeprefix("model.") for name, m in called.named_modules()}
    uses = {id(m): 0 for m in _cut_points(called)}
    for node in graph.nodes:
        if node.op == "call_module" and id(called.get_submodule(node.target)) in uses:
            uses[id(called.get_submodule(node.target))] += 1
    for key, count in uses.items():
        if count != 1:
            raise ValueError(f"CutPoint '{names[key]}' is used {count} times in forward; a CutPoint is used once, on what "
                             f"goes from the part before to the part after")


def _pieces(called: _Called, graph: fx.Graph) -> list[nn.Module]:
    """A module for each run of nodes between CutPoints, in the order of execution."""
    runs: list[list[fx.Node]] = [[]]
    same: dict[fx.Node, fx.Node] = {}  # a CutPoint's value is that which it is given
    place: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.op == "call_module" and isinstance(called.get_submodule(node.target), CutPoint):
            given = node.args[0] if node.args else next(iter(node.kwargs.values()))
            assert isinstance(given, fx.Node)
            same[node] = same.get(given, given)
            runs.append([])
        elif node.op != "get_attr":  # a parameter, had where it is read
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


def _piece(called: _Called, run: Sequence[fx.Node], live: tuple[list[fx.Node], list[fx.Node] | None],
           same: Mapping[fx.Node, fx.Node]) -> nn.Module:
    """The module of a run: given and giving lists of the values that live before and after it; the last gives what the model
    gives."""
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
    """The loss that a model gives: the value itself, or the first of several."""
    return out if isinstance(out, torch.Tensor) else out[0]
