"""Summary of a model: layers, shapes, parameters, operations, and bytes per stage."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from hetu import _hetu
from hetu.graph import GraphBuilder, Value
from hetu.optim import Train
from hetu.place import placed, refuse
from hetu.progress import quantity


@dataclass
class Layer:
    """The operators of one name scope. `shape` is the output shape of the last operator in the forward pass, with -1 for
    the batch. `operations` counts the forward pass of one sample."""

    name: str
    stage: int
    shape: list[int] = field(default_factory=list)
    parameters: int = 0
    operations: int = 0
    operators: int = 0


@dataclass
class StageSummary:
    """A stage: its blocks, parameters, operations and bytes of weights. `operations` counts one sample, forward and, if
    gradients exist, backward. If the summary covers the plan of a job, `memory` holds a worker's bytes by purpose, and
    `peak` their peak."""

    number: int
    blocks: int = 0
    parameters: int = 0
    operations: int = 0
    weight_bytes: int = 0
    memory: dict[str, int] = field(default_factory=dict)
    peak: int = 0


@dataclass
class Summary:
    """The summary of a model. It prints as a table. `parameters` counts a tied parameter once, although each stage that
    shares it holds it. `operations` counts the forward pass of one sample; `backward` counts its gradients, 0 without
    gradients."""

    layers: list[Layer]
    stages: list[StageSummary]
    parameters: int
    buffers: int
    operations: int
    backward: int

    def __str__(self) -> str:
        rows = [["layer", "output", "parameters", "operations", "stage"]]
        for layer in self.layers:
            shape = ", ".join("B" if n == -1 else f"{-n}B" if n < 0 else str(n) for n in layer.shape)
            rows.append([layer.name, f"[{shape}]" if layer.operators else "",
                         f"{layer.parameters:,}" if layer.parameters else "",
                         quantity(layer.operations) if layer.operations else "", str(layer.stage)])
        if len(self.stages) == 1:
            rows = [row[:-1] for row in rows]
        both = f", backward {quantity(self.backward)}" if self.backward else ""
        lines = [*_table(rows), f"{self.parameters:,} parameters, {4 * self.parameters:,} bytes"
                 + (f"; {self.buffers:,} in buffers" if self.buffers else "")
                 + f"; operations of one sample: forward {quantity(self.operations)}{both}"]
        if len(self.stages) > 1 or self.stages[0].peak:
            names = list(self.stages[0].memory)
            rows = [["stage", "blocks", "parameters", "operations", *(names or ["weights"]), *(["peak"] if names else [])]]
            for s in self.stages:
                rows.append([str(s.number), str(s.blocks), f"{s.parameters:,}", quantity(s.operations),
                             *(_bytes(s.memory[name]) for name in names), *([] if names else [_bytes(s.weight_bytes)]),
                             *([_bytes(s.peak)] if names else [])])
            lines += ["", *_table(rows)]
        return "\n".join(lines)

    __repr__ = __str__


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[cell.ljust(w) if i == 0 or (i == 1 and cell.startswith(("[", "output"))) else cell.rjust(w)
              for i, (cell, w) in enumerate(zip(row, widths, strict=True))] for row in rows]
    return ["  ".join(row).rstrip() for row in cells]


def _elements(shape: list[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _scope(name: str) -> str:
    """Returns the name without its last part, or "" for a name with one part."""
    return re.sub(r"(^|[./])[^./]*$", "", name)


class _Scopes:
    """The layers that nodes belong to: scopes that contain parameters, and scopes of operators outside of these."""

    def __init__(self, nodes: list[dict[str, Any]], depth: int | None) -> None:
        self.known = {_scope(node["name"]) for node in nodes if node["op"] in ("parameter", "buffer")}
        self.depth = depth

    def of(self, node: dict[str, Any]) -> str:
        """Returns the layer of a node. An operator `a.b` belongs to the scope a.b if it contains parameters, else to the
        nearest enclosing scope that does."""
        name = node["name"]
        if node["op"] not in ("parameter", "buffer"):
            around = name
            while around and around not in self.known:
                around = _scope(around)
            name = f"{around or _scope(name)}/-"
        found = _scope(name)
        return found if self.depth is None else "".join(re.split(r"([./])", found)[:2 * self.depth - 1])


def _graph_of(what: Any) -> tuple[Any, Train | None]:
    """Returns the finished graph, and the handle of minimize() or None."""
    if isinstance(what, Train):
        if "loss" not in what.graph.fetches:  # as an Executor reports it
            what.graph.fetch("loss", what.loss)
        return what.graph.builder.finish(), what
    if isinstance(what, Value):
        return what.graph.builder.whole(), None
    if isinstance(what, GraphBuilder):
        return what.builder.whole(), None
    if isinstance(what, _hetu.Graph):
        return what, None
    if hasattr(what, "train_handle"):  # an Executor
        return what.graph, what.train_handle
    refuse(f"summary: expected a graph, a value, the result of minimize() or an Executor, got {type(what).__name__}"
           + (" (call the module, and give the result)" if hasattr(what, "named_parameters") else ""))


def summary(what: Any, stages: int = 1, depth: int | None = None, batch_size: int | None = None,
            micro_batches: int = 1, pipeline: str = "1f1b", dtype: str = "float32", state_dtype: str = "float32") -> Summary:
    """Returns layers, shapes, parameters and operations of a graph, cut into `stages` like a job would cut it.

    what: a loss or another value, the result of minimize(), a graph or an Executor.
    depth: the number of levels of name scopes that have their own rows. None: all.
    batch_size: rows per pipeline. With the result of minimize(), the summary then contains the bytes of each stage's worker
    by purpose, as the job would print them. The job has one pipeline, the method `pipeline`, the dtype `dtype` and
    optimizer states of `state_dtype`.
    """
    with placed():
        graph, train = _graph_of(what)
        if batch_size is not None and train is None:
            raise ValueError("summary: the bytes of a job depend on the optimizer, so give the result of minimize(): "
                             "hetu.summary(train, batch_size=…)")
        starts = list(_hetu.balance_stages(graph, stages))
        memory = []
        if batch_size is not None and train is not None:
            settings = {"method": pipeline, "pipelines": 1, "stages": stages, "batch_size": batch_size,
                        "micro_batches": micro_batches, "dtype": dtype, "state_dtype": state_dtype, "device": "cpu",
                        "threads": 1, "first_block": starts}
            options = _hetu.TrainingOptions({name: value for name, value in settings.items() if name != "first_block"})
            options.first_block = starts
            memory = _hetu.plan_memory(graph, train.optimizer.settings(), options)
    return _sum_up(graph, starts, depth, memory)


def _sum_up(graph: Any, starts: list[int], depth: int | None, memory: list[Any]) -> Summary:
    ends = [*starts[1:], graph.blocks]
    found = [StageSummary(n, end - start) for n, (start, end) in enumerate(zip(starts, ends, strict=True))]
    layers: dict[str, Layer] = {}
    sizes = {name: _elements(shape) for name, shape in graph.parameters}
    of_value: dict[int, str] = {}
    holders: dict[str, set[int]] = {name: set() for name in sizes}
    total = backward = 0
    last = ""
    nodes = _hetu.graph_nodes(graph)
    scopes = _Scopes(nodes, depth)
    for node in nodes:
        stage = next(n for n, end in enumerate(ends) if node["block"] < end)
        if node["op"] in ("parameter", "buffer"):
            of_value.update({value: node["name"] for value in node["values"]})
        for name in (of_value[value] for value in node["inputs"] if value in of_value):
            holders.get(name, set()).add(stage)
        found[stage].operations += node["flops"]
        if node["backward"]:
            backward += node["flops"]
            continue
        total += node["flops"]
        if node["op"] == "placeholder":
            continue
        last = scopes.of(node) or last
        layer = layers.setdefault(last, Layer(last, stage))
        layer.parameters += sizes.get(node["name"], 0) if node["op"] == "parameter" else 0
        layer.operations += node["flops"]
        if node["op"] not in ("parameter", "buffer"):
            layer.shape, layer.stage = list(node["outputs"][0][1]), stage
            layer.operators += 1
    for name, stages in holders.items():
        for stage in stages:
            found[stage].parameters += sizes[name]
            found[stage].weight_bytes += 4 * sizes[name]
    purposes = ["weights", "optimizer", "gradients", "activations", "other"]
    if any(row["kfac"] for of_worker in memory for row in of_worker):
        purposes.insert(4, "kfac")
    for of_worker in memory:
        for row in of_worker:
            stage = found[row["stage"]]
            stage.memory = {name: row[name] for name in purposes}
            stage.peak = row["peak"]
    buffers = sum(_elements(shape) for _, shape in graph.buffers)
    return Summary(list(layers.values()), found, sum(sizes.values()), buffers, total, backward)
