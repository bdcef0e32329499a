"""Finds which gradients flow across boundaries, and which values a stage changes in place.

PyTorch leaves .grad of a parameter at None if no gradient reaches it. A zero gradient is not equivalent: AdamW changes such
a parameter. So a stage must not send zeros for a value that the loss does not depend on. The autograd graph shows which
values these are.
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

Key = tuple[int, int]  # a stage, and the number of a tensor that it makes


class Reads:
    """Finds the stages that use a tensor to compute the loss, from the graph that autograd has recorded. A stage that only
    passes a tensor on has no gradient for it."""

    def __init__(self) -> None:
        self.edges: dict[Key, Any] = {}
        self.ends: list[int] = []  # by stage: the sequence number of the first node behind the stage

    def note(self, key: Key, tensor: torch.Tensor) -> None:
        """Notes the tensor's position in the graph, before another stage may change it in place."""
        if tensor.requires_grad:
            self.edges[key] = get_gradient_edge(tensor)

    def end_stage(self) -> None:
        """Notes that later nodes belong to the next stage."""
        with torch.enable_grad():
            node = torch.ones((), requires_grad=True).clone().grad_fn
        assert node is not None
        self.ends.append(node._sequence_nr())

    def read(self, outputs: Sequence[Any]) -> set[tuple[int, int, int]]:
        """Returns (stage, number of a tensor, reading stage) for all paths that lead to one of these outputs of the last
        stage, or to the loss."""
        keys: dict[tuple[int, int], list[Key]] = {}
        for key, edge in self.edges.items():
            keys.setdefault((id(edge.node), edge.output_nr), []).append(key)
        last = len(self.ends) - 1
        found: set[tuple[int, int, int]] = set()
        tensors = [leaf for leaf in outputs if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        todo = [(edge.node, edge.output_nr, last) for edge in map(get_gradient_edge, tensors)]
        seen: dict[int, Any] = {}  # nodes, kept alive so that no id() is reused
        # Walks from the outputs back through the graph. `reader` is the stage that the walk comes from: when it meets the
        # edge of a noted tensor, that stage reads the tensor. Sequence numbers ascend in the order in which forward made
        # nodes, so they show the stage of each node.
        while todo:
            node, output, reader = todo.pop()
            found.update((*key, reader) for key in keys.get((id(node), output), ()))
            if id(node) not in seen:
                seen[id(node)] = node
                stage = min(bisect.bisect_right(self.ends, node._sequence_nr()), last)
                todo += [(below, nr, stage) for below, nr in node.next_functions if below is not None]
        return found


def without_views(outputs: Sequence[Any], known: Container[int]) -> list[Any]:
    """Returns a stage's outputs with copies in place of views.

    If the next stage changes a view in place, autograd skips the node that made the view, by which Reads finds its
    gradient. Two outputs that share memory stay as they are, so that InPlace detects a change in both. Outputs whose
    identities are in `known` also stay as they are, because a stage passes them on.
    """
    memories = collections.Counter(leaf.untyped_storage()._cdata for leaf in outputs if isinstance(leaf, torch.Tensor))
    with torch.enable_grad():
        return [leaf.clone() if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf._is_view()
                and id(leaf) not in known and memories[leaf.untyped_storage()._cdata] == 1 else leaf for leaf in outputs]


class InPlace:
    """Finds the inputs of a stage that it changes in place."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.leaves = leaves
        self.versions = [leaf._version if isinstance(leaf, torch.Tensor) else 0 for leaf in leaves]

    def changed(self, number: int, stage: Any) -> list[int]:
        """Returns the inputs that have changed. Throws ValueError if two of them are views of the same memory: in a single
        process the stage would change both, but here only one."""
        found = [n for n, leaf in enumerate(self.leaves)
                 if isinstance(leaf, torch.Tensor) and leaf._version != self.versions[n]]
        values = {id(self.leaves[n]): self.leaves[n].untyped_storage()._cdata for n in found}
        if len(set(values.values())) < len(values):
            kinds = ", ".join(type(piece).__name__ for piece in stage.pieces)
            raise ValueError(f"model stage {number} ({kinds}) changes a value in place and also receives another view of "
                             f"it: pass the stage only one of the two, or change a clone")
        return found


def last_values(mode: Any, outputs: Sequence[Any], loss: Callable[[], Any]) -> Sequence[Any]:
    """Returns the values that gradients start from: the loss on values without elements, or all outputs of the last stage
    if the loss can't be computed on such values."""
    before, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True  # a loss may use its own tensors
    try:
        return [loss()]
    except Exception:  # a loss may read values
        return outputs
    finally:
        mode.allow_non_fake_inputs = before


def found(gradient: torch.Tensor | None, key: Key, stage: int) -> torch.Tensor:
    """Returns a gradient that another stage waits for. Throws ValueError if it is None."""
    if gradient is None:
        raise ValueError(f"model stage {stage} has no gradient for tensor {key[1]} of model stage {key[0]}, although its "
                         f"output depends on it: the loss or an autograd.Function omits it. Detach the value, or call "
                         f"requires_grad_(False) on the tensor that it is computed from.")
    return gradient


def check_expected(gradients: Mapping[Key, torch.Tensor | None], expected: Container[Key], stage: int) -> None:
    """Throws ValueError if a stage has a gradient for a value that had none when shapes were determined."""
    for key, gradient in gradients.items():
        if gradient is not None and key not in expected:
            raise ValueError(f"model stage {stage} has a gradient for tensor {key[1]} of model stage {key[0]}, but had none "
                             f"when shapes were determined: the computation of a stage must not depend on the contents "
                             f"of tensors")
