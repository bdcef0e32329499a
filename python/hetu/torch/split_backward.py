r"""The backward of a stage in two: gradients of its inputs now (I), those of its parameters later (W).

The graph that autograd has recorded is cut where a path to the inputs and a path to a parameter part:

    loss - f3 - f2 - f1 - input      The trunk: nodes from which an input is reached.
            \    \    \
            w3   w2   w1             What hangs off the trunk leads to parameters only.

I runs the trunk, where each node computes only the gradients along the trunk, and notes what comes into the nodes off which
something hangs (forks). W computes the remaining gradients of the forks, and runs what hangs off. So no product is computed
twice, in any module, and without the module's help. The idea to split is that of Qi et al. 2024 (Zero Bubble), section 2;
where the graph is cut is our own.

Hooks run once, as in one backward: those of the trunk in I, all others in W. To that end W calls a fork directly, since the
engine would run its hooks again. A fork that is a custom autograd.Function computes all of its gradients in I, because
Python code can't compute some of them now and the others later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

Edge = tuple[Any, int]  # a node and which of its outputs, as in Node.next_functions


def keep_compiled_buffers() -> None:
    """Tells torch.compile that backwards run in parts: by default they give memory of saved tensors away, and refuse to keep
    the graph. Functions must be compiled, which their first call does, after this."""
    from torch._functorch import config

    config.donated_buffer = False


def refuse_old_hooks(whole: nn.Module, stages: Iterable[nn.Module]) -> None:
    """Throws ValueError for a module with a hook of register_backward_hook(). PyTorch attaches it to one node of the graph
    and gives it all gradients that this node computes, of which I has some and W the others."""
    everywhere = torch.nn.modules.module
    if everywhere._global_backward_hooks and not everywhere._global_is_full_backward_hook:
        raise ValueError("a hook of register_module_backward_hook() is there, which sees the gradients of inputs and "
                         "weights together, and the schedule computes them apart. Use "
                         "register_module_full_backward_hook(), or a schedule with whole backwards, such as 1f1b")
    for module in (module for stage in stages for module in stage.modules()):
        if module._backward_hooks and not module._is_full_backward_hook:
            name = next((name for name, one in whole.named_modules() if one is module), "")
            raise ValueError(f"'{name}' ({type(module).__name__}) has a hook of register_backward_hook(), which sees the "
                             f"gradients of inputs and weights together, and the schedule computes them apart. Use "
                             f"register_full_backward_hook(), or a schedule with whole backwards, such as 1f1b")


class DeferredGradients:
    """What is left of one backward after I: run() adds the gradients of parameters."""

    def __init__(self, roots: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None],
                 inputs: Sequence[torch.Tensor]) -> None:
        given = [torch.ones_like(root) if g is None else g for root, g in zip(roots, gradients, strict=True)]
        self.kept = (list(roots), list(inputs))  # their graph lives as long
        starts = [get_gradient_edge(root) for root in roots]
        ends = [get_gradient_edge(leaf).node for leaf in inputs]
        self.trunk, self.nodes = _trunk([edge.node for edge in starts], {id(node) for node in ends})
        self.nodes += ends  # kept, for else Python would give their identities to other nodes
        self.hanging: list[tuple[Edge, torch.Tensor]] = []  # of W: where it begins, and with what
        self.forks: list[tuple[Any, list[Any]]] = []  # in the engine's order; what came in, or a Python node has given
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
            for node, made in self._made_by_forks():
                for edge, gradient in zip(node.next_functions, made, strict=True):
                    if self._hangs(edge) and gradient is not None:
                        add(edge, _fitted(edge, gradient))
        if edges:
            torch.autograd.backward([GradientEdge(*edge) for edge in edges.values()], list(sums.values()))
        self._let_go()

    def _hangs(self, edge: Edge) -> bool:
        """Returns whether an edge of a fork goes off the trunk."""
        return edge[0] is not None and self.trunk.get(id(edge[0])) is not True

    def _made_by_forks(self) -> list[tuple[Any, Sequence[torch.Tensor | None]]]:
        """Returns what each fork computes for the edges that go off the trunk, and None for others."""
        made: dict[int, Any] = {}
        reached = [(node, came[0]) for node, came in self.forks if came]  # others have got no gradient
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
        """Returns a value with this node."""
        ctx.call = call
        return start.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Calls the function."""
        ctx.call()
        return gradients[0], None


def _call_for(call: Callable[[], None], edges: Sequence[Edge]) -> None:
    """Calls a function as if from a backward that was asked for the gradients of these edges: nodes that it calls directly
    compute no other gradients. Within the backward of autograd's engine they look up what is asked for, and find all edges
    outside of one."""
    if not edges:
        return
    with torch.enable_grad():
        start = torch.zeros((), requires_grad=True)
        end = _Within.apply(start, call)  # type: ignore[no-untyped-call]
    torch.autograd.grad([end], [start, *(GradientEdge(*edge) for edge in edges)], allow_unused=True)


def _is_python(node: Any) -> bool:
    """Returns whether a node is a custom autograd.Function."""
    return isinstance(node, torch._C._FunctionBase)


def _needs_whole_backward(node: Any) -> bool:
    """Returns whether a node refuses a backward that is asked for some gradients only, as reentrant checkpoints do."""
    backward = getattr(getattr(node, "_forward_cls", None), "backward", None)
    return "_is_checkpoint_valid" in getattr(getattr(backward, "__code__", None), "co_names", ())


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
