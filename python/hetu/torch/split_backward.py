r"""Splits the backward of a stage in two: gradients of its inputs first (I), gradients of its parameters later (W).

The graph that autograd has recorded is cut where a path to the inputs and a path to a parameter separate:

    loss - f3 - f2 - f1 - input      The trunk: nodes from which an input can be reached.
            \    \    \
            w3   w2   w1             Branches off the trunk, which lead only to parameters.

I runs the trunk. Each node there computes only the gradients along the trunk. I also records the incoming gradients of
forks, the nodes with a branch. W computes the remaining gradients of the forks, and runs the branches. So no product is
computed twice, for any module, and modules need no changes. The idea of splitting is from Qi et al. 2024 (Zero Bubble),
section 2. Cutting the graph at forks is Hetu's own method.

Hooks run once, as in a single backward: hooks of the trunk in I, all others in W. For that reason W calls a fork directly,
because the engine would run its hooks again. A fork that is a custom autograd.Function computes all of its gradients in I,
because Python code can't compute some of them in I and the rest in W.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

Edge = tuple[Any, int]  # a node and the number of its output, as in Node.next_functions


def keep_compiled_buffers() -> None:
    """Configures torch.compile for backwards that run in parts. By default, compiled backwards reuse the memory of saved
    tensors, and refuse to keep the graph. Call it before functions are compiled, which happens at their first call."""
    from torch._functorch import config

    config.donated_buffer = False


def refuse_old_hooks(whole: nn.Module, stages: Iterable[nn.Module]) -> None:
    """Throws ValueError for a module with a hook of register_backward_hook(). PyTorch attaches such a hook to one node of
    the graph and passes it all gradients that this node computes. With a split, I computes some of them and W the others."""
    everywhere = torch.nn.modules.module
    if everywhere._global_backward_hooks and not everywhere._global_is_full_backward_hook:
        raise ValueError("register_module_backward_hook() has registered a hook, which gets the gradients of inputs and "
                         "weights together, but the schedule computes them separately. Use "
                         "register_module_full_backward_hook(), or a schedule with whole backwards, such as 1f1b.")
    for module in (module for stage in stages for module in stage.modules()):
        if module._backward_hooks and not module._is_full_backward_hook:
            name = next((name for name, one in whole.named_modules() if one is module), "")
            raise ValueError(f"'{name}' ({type(module).__name__}) has a hook of register_backward_hook(), which gets the "
                             f"gradients of inputs and weights together, but the schedule computes them separately. Use "
                             f"register_full_backward_hook(), or a schedule with whole backwards, such as 1f1b.")


class DeferredGradients:
    """The part of one backward that remains after I. run() adds the gradients of parameters."""

    def __init__(self, roots: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None],
                 inputs: Sequence[torch.Tensor]) -> None:
        given = [torch.ones_like(root) if g is None else g for root, g in zip(roots, gradients, strict=True)]
        self.kept = (list(roots), list(inputs))  # keeps their graph alive
        starts = [get_gradient_edge(root) for root in roots]
        ends = [get_gradient_edge(leaf).node for leaf in inputs]
        self.trunk, self.nodes = _trunk([edge.node for edge in starts], {id(node) for node in ends})
        self.nodes += ends  # kept alive, so that no id() is reused
        self.hanging: list[tuple[Edge, torch.Tensor]] = []  # starts of W: an edge, and its gradient
        # In the engine's order; the incoming gradients, or all gradients that a Python node computed.
        self.forks: list[tuple[Any, list[Any]]] = []
        self.of_inputs: list[torch.Tensor | None] = [None] * len(inputs)
        if any(self.trunk[id(node)] and _needs_whole_backward(node) for node in self.nodes if id(node) in self.trunk):
            torch.autograd.backward(list(roots), given)
            self.of_inputs = [leaf.grad for leaf in inputs]
            self._let_go()
            return
        inside: list[int] = []
        for n, edge in enumerate(starts):
            if self.trunk.get(id(edge.node)) is True:
                inside.append(n)
            else:
                self.hanging.append(((edge.node, edge.output_nr), given[n]))
        handles = []
        for node in _forks(self.trunk, [starts[n].node for n in inside]):
            came: list[Any] = []
            if _is_python(node):
                handles.append(node.register_hook(lambda made, _, came=came: came.append(made)))
            else:
                handles.append(node.register_prehook(came.append))
            self.forks.append((node, came))
        if inside and inputs:
            self.of_inputs = list(torch.autograd.grad([roots[n] for n in inside], inputs, [given[n] for n in inside],
                                                      retain_graph=True, allow_unused=True))
        for handle in handles:
            handle.remove()

    def run(self) -> None:
        """Runs W: adds to .grad of every parameter that the roots depend on, and releases the graph."""
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
            for node, made in self._made_by_forks():
                for edge, found in zip(node.next_functions, made, strict=True):
                    if self._hangs(edge) and found is not None:
                        add(edge, _fitted(edge, found))
        if edges:
            torch.autograd.backward([GradientEdge(*edge) for edge in edges.values()], list(sums.values()))
        self._let_go()

    def _hangs(self, edge: Edge) -> bool:
        """Returns true if an edge of a fork leads off the trunk."""
        return edge[0] is not None and self.trunk.get(id(edge[0])) is not True

    def _made_by_forks(self) -> list[tuple[Any, Sequence[torch.Tensor | None]]]:
        """Returns the gradients that each fork computes for the edges that lead off the trunk, and None for other edges."""
        made: dict[int, Any] = {}
        reached = [(node, came[0]) for node, came in self.forks if came]  # the others have received no gradient
        direct = [(node, came) for node, came in reached if not _is_python(node)]

        def call() -> None:
            for node, came in direct:
                out = node(*came)
                made[id(node)] = out if isinstance(out, tuple) else (out,)

        wanted = {(id(edge[0]), edge[1]): edge for node, _ in direct for edge in node.next_functions if self._hangs(edge)}
        _call_for(call, list(wanted.values()))
        return [(node, made.get(id(node), came)) for node, came in reached]

    def _let_go(self) -> None:
        self.kept, self.forks, self.hanging, self.trunk = ([], []), [], [], {}
        self.nodes = []


class _Within(torch.autograd.Function):
    """A node whose backward calls a function."""

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, call: Callable[[], None]) -> torch.Tensor:
        """Returns a value that this node has computed."""
        ctx.call = call
        return start.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Calls the function."""
        ctx.call()
        return gradients[0], None


def _call_for(call: Callable[[], None], edges: Sequence[Edge]) -> None:
    """Calls a function as if from a backward that requests the gradients of these edges: nodes that it calls directly
    compute no other gradients. Nodes look up the requested edges in autograd's running backward. Outside of a backward they
    would compute the gradients of all edges."""
    if not edges:
        return
    with torch.enable_grad():
        start = torch.zeros((), requires_grad=True)
        end = _Within.apply(start, call)  # type: ignore[no-untyped-call]
    wanted: list[Any] = [start, *(GradientEdge(*edge) for edge in edges)]
    torch.autograd.grad([end], wanted, allow_unused=True)


def _is_python(node: Any) -> bool:
    """Returns true if a node is a custom autograd.Function."""
    return isinstance(node, torch._C._FunctionBase)


def _needs_whole_backward(node: Any) -> bool:
    """Returns true if a node refuses a backward that requests only some gradients. Reentrant checkpoints do."""
    backward = getattr(getattr(node, "_forward_cls", None), "backward", None)
    return "_is_checkpoint_valid" in getattr(getattr(backward, "__code__", None), "co_names", ())


def _fitted(edge: Edge, gradient: torch.Tensor) -> torch.Tensor:
    """Returns a gradient in the form in which the engine passes it on: summed if a value was broadcast (a bias), and in the
    value's dtype."""
    form = edge[0]._input_metadata[edge[1]]
    return gradient.sum_to_size(form.shape).to(form.dtype)


def _trunk(starts: Sequence[Any], ends: set[int]) -> tuple[dict[int, bool], list[Any]]:
    """Returns, by the id of each node that the starts lead to, True if it leads to one of the ends. Also returns these
    nodes. (Depth-first search; a node's result follows from those below it.)"""
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
    """Returns the nodes of the trunk that have a branch, the last one that forward created first. This is the engine's own
    order."""
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
