"""The backward of a stage in two: gradients of its inputs now (I), those of its parameters later (W).

The graph that autograd has recorded is cut where a way to the inputs and a way to a parameter part. Nodes from which an
input
is reached make up the trunk; what hangs off it leads to parameters alone. I runs the trunk, each node computing only what
goes on along it, and notes what comes in where something hangs off. W computes of these nodes what I left out, and runs what
hangs off. So no product is computed twice, in any module, and without the module's help. The idea to split is that of Qi et
al. 2024 (Zero Bubble), section 2; where the graph is cut is our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

Edge = tuple[Any, int]  # a node and which of its outputs, as in Node.next_functions


class DeferredGradients:
    """What is left of one backward after I: run() adds the gradients of parameters."""

    def __init__(self, roots: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None],
                 inputs: Sequence[torch.Tensor]) -> None:
        given = [torch.ones_like(root) if g is None else g for root, g in zip(roots, gradients, strict=True)]
        self.kept = (list(roots), list(inputs))  # their graph lives as long
        starts = [get_gradient_edge(root) for root in roots]
        ends = [get_gradient_edge(leaf).node for leaf in inputs]
        trunk, self.nodes = _trunk([edge.node for edge in starts], {id(node) for node in ends})
        self.nodes += ends  # kept, for else Python would give their identities to other nodes
        self.hanging: list[tuple[Edge, torch.Tensor]] = []  # of W: where it begins, and with what
        inside: list[int] = []
        for n, edge in enumerate(starts):
            if trunk.get(id(edge.node)) is True:
                inside.append(n)
            else:
                self.hanging.append(((edge.node, edge.output_nr), given[n]))
        self.forks: list[tuple[Any, list[Any]]] = []  # nodes of the trunk off which something hangs; what came in
        handles = []
        for node in _forks(trunk, [starts[n].node for n in inside]):
            came: list[Any] = []
            handles.append(node.register_prehook(came.append))
            self.forks.append((node, came))
        wanted = list(inputs)
        self.of_inputs: list[torch.Tensor | None] = [None] * len(wanted)
        if inside and wanted:
            self.of_inputs = list(torch.autograd.grad([roots[n] for n in inside], wanted, [given[n] for n in inside],
                                                      retain_graph=True, allow_unused=True))
        for handle in handles:
            handle.remove()
        self.trunk = trunk

    def run(self) -> None:
        """W: adds to .grad of every parameter that the roots depend on, and lets go of the graph."""
        edges: dict[tuple[int, int], Edge] = {}
        sums: dict[tuple[int, int], torch.Tensor] = {}

        def add(edge: Edge, gradient: torch.Tensor | None) -> None:
            if gradient is None:
                return
            key = (id(edge[0]), edge[1])
            edges[key] = edge
            sums[key] = gradient if key not in sums else sums[key] + gradient

        with torch.no_grad():
            for edge, gradient in self.hanging:
                add(edge, gradient)
            owners = self._owners()
            for node, came in self.forks:
                if not came:
                    continue  # no gradient has come this way
                for edge, gradient in self._off(node, came[0], owners):
                    add(edge, gradient)
        if edges:
            torch.autograd.backward([GradientEdge(*edge) for edge in edges.values()], list(sums.values()))
        self.kept, self.forks, self.hanging, self.trunk = ([], []), [], [], {}
        self.nodes = []

    def _off(self, node: Any, came: Sequence[torch.Tensor | None], owners: dict[int, int]) -> list[tuple[Edge, Any]]:
        """What of a fork goes off the trunk. The engine follows all ways to where it is asked; a parameter that two forks
        lead to, such as one used twice, would get the second one's share too. There the node alone is called."""
        off = [edge for edge in node.next_functions if edge[0] is not None and self.trunk.get(id(edge[0])) is not True]
        slots = [(i, g) for i, g in enumerate(came) if g is not None]
        if all(owners[id(edge[0])] == id(node) for edge in off):
            made = torch.autograd.grad([GradientEdge(node, i) for i, _ in slots], [GradientEdge(*edge) for edge in off],
                                       [g for _, g in slots], retain_graph=True, allow_unused=True)
            return list(zip(off, made, strict=True))
        made = node(*came)
        made = made if isinstance(made, tuple) else (made,)
        return [(edge, None if g is None else _fitted(edge, g)) for edge, g in zip(node.next_functions, made, strict=True)
                if edge[0] is not None and self.trunk.get(id(edge[0])) is not True]

    def _owners(self) -> dict[int, int]:
        """By node off the trunk, the one fork that leads to it; -1 where several do."""
        owners: dict[int, int] = {}
        for fork, _ in self.forks:
            todo = [edge[0] for edge in fork.next_functions
                    if edge[0] is not None and self.trunk.get(id(edge[0])) is not True]
            seen: set[int] = set()
            while todo:
                node = todo.pop()
                if id(node) in seen:
                    continue
                seen.add(id(node))
                owners[id(node)] = id(fork) if owners.get(id(node), id(fork)) == id(fork) else -1
                todo += [edge[0] for edge in node.next_functions if edge[0] is not None]
        return owners


def _fitted(edge: Edge, gradient: torch.Tensor) -> torch.Tensor:
    """As the engine hands on what a node makes: summed where a value was broadcast (a bias), in the type of the value."""
    form = edge[0]._input_metadata[edge[1]]
    return gradient.sum_to_size(form.shape).to(form.dtype)


def _trunk(starts: Sequence[Any], ends: set[int]) -> tuple[dict[int, bool], list[Any]]:
    """By node that the starts lead to: whether it leads to one of the ends. And all of these nodes."""
    leads: dict[int, bool] = {}
    nodes: list[Any] = []
    todo = [(node, False) for node in starts]
    while todo:
        node, left = todo.pop()
        if left:
            below = (n for n, _ in node.next_functions if n is not None)
            leads[id(node)] = id(node) in ends or any(leads.get(id(n), False) for n in below)
        elif id(node) not in leads:
            leads[id(node)] = False
            nodes.append(node)
            todo.append((node, True))
            todo += [(n, False) for n, _ in node.next_functions if n is not None]
    return leads, nodes


def _forks(trunk: dict[int, bool], starts: Sequence[Any]) -> list[Any]:
    """Nodes of the trunk off which something hangs, the last that forward made first: the engine's own order."""
    found: list[Any] = []
    seen: set[int] = set()
    todo = list(starts)
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        next_nodes = [n for n, _ in node.next_functions if n is not None]
        if any(not trunk[id(n)] for n in next_nodes):
            found.append(node)
        todo += [n for n in next_nodes if trunk[id(n)]]
    return sorted(found, key=lambda node: -node._sequence_nr())
