"""Combines the losses of micro-batches into the loss of a step, and defines the losses of common heads.

A step's loss is a weighted mean of its micro-batches' losses. The right weight depends on the loss: a mean over samples
counts samples, a mean over tokens counts the tokens that have a label. A wrong weight gives a wrong gradient without any
visible error, so hetu.torch.loss_check compares the two on the first steps.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from hetu.torch.values import flatten

ROWS, SUM, TARGETS, OUTPUTS = "rows", "sum", "targets", "outputs"


class LossRule:
    """The weights of micro-batches. The attribute `kind` is one of:

    ROWS: the number of samples.
    SUM: 1, because the loss is a sum.
    TARGETS: a function of the target. Every worker evaluates it before the first backward.
    OUTPUTS: a function of output and target. The sum of weights is known only after the last forward, so
    gradients are divided by it after the step.
    """

    def __init__(self, kind: str, function: Callable[..., Any] | None = None) -> None:
        self.kind = kind
        self.function = function

    def before(self, targets: Sequence[Any], sizes: Sequence[int]) -> list[float]:
        """Returns the weight of each micro-batch, as far as it is known before the step: 1 each for OUTPUTS. Throws
        ValueError if a weight isn't a number of at least 0."""
        if self.kind == ROWS:
            return list(sizes)
        if self.kind != TARGETS:
            return [1.0 if size else 0.0 for size in sizes]
        assert self.function is not None
        with torch.no_grad():
            return [_number(self.function(target)) if size else 0.0 for target, size in zip(targets, sizes, strict=True)]

    def of_output(self, output: Any, target: Any) -> float:
        """Returns the weight of a micro-batch of kind OUTPUTS."""
        assert self.function is not None
        with torch.no_grad():
            return _number(self.function(output, target))


def rule_of(loss: Any, loss_weight: Callable[..., Any] | None, loss_reduction: str | None) -> LossRule:
    """Returns the rule that a Pipeline's arguments and its loss define. Without arguments, the rule comes from the loss:
    from its `loss_weight`, which the losses of this module have, or from the reduction of PyTorch's own loss modules.
    Throws ValueError."""
    if loss_reduction not in (None, "mean", "sum"):
        raise ValueError(f"loss_reduction={loss_reduction!r}: expected \"mean\" or \"sum\"")
    if loss_weight is not None and loss_reduction == "sum":
        raise ValueError("loss_weight with loss_reduction=\"sum\": a sum needs no weights; give one of the two")
    if loss_reduction is None and isinstance(loss, nn.modules.loss._Loss):
        loss_reduction = loss.reduction
    if loss_weight is None and loss_reduction == "sum":
        return LossRule(SUM)
    if loss_weight is None:
        loss_weight = getattr(loss, "loss_weight", None)
    if loss_weight is None and type(loss) in (nn.CrossEntropyLoss, nn.NLLLoss):
        loss_weight = _labels_of(loss)
    if loss_weight is None:
        return LossRule(ROWS)
    if not callable(loss_weight):
        raise ValueError(f"loss_weight={loss_weight!r}: expected a function of the target, or of the output and the "
                         f"target, such as hetu.torch.token_count()")
    return LossRule(TARGETS if _arguments(loss_weight) == 1 else OUTPUTS, loss_weight)


def _arguments(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    taken = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    if len(taken) not in (1, 2):
        raise ValueError(f"loss_weight takes {len(taken)} arguments; expected a function of the target, or of the output "
                         f"and the target")
    return len(taken)


def _number(weight: Any) -> float:
    if isinstance(weight, torch.Tensor) and weight.numel() == 1:
        weight = weight.item()
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight) or weight < 0:
        found = f"a tensor of shape {list(weight.shape)}" if isinstance(weight, torch.Tensor) else repr(weight)
        raise ValueError(f"loss_weight gave {found} for a micro-batch; expected a finite number of at least 0")
    return weight


def _labels_of(loss: Any) -> Callable[[Any], Any]:
    """Returns a function of the target that computes PyTorch's divisor in a mean of cross entropies: the number of labels
    that aren't ignored, or the sum of their class weights."""

    def labels(target: Any) -> Any:
        if not isinstance(target, torch.Tensor):
            raise ValueError(f"{type(loss).__name__}: expected a tensor of labels as the target, got a "
                             f"{type(target).__name__}")
        if target.is_floating_point():  # probabilities: the mean is over samples
            return target.shape[0] if target.dim() > 1 else 1
        kept = target != loss.ignore_index
        return kept.sum() if loss.weight is None else loss.weight[target[kept]].double().sum()

    return labels


# ---- weights and losses of common heads ----


def token_count(ignore_index: int = -100, *, shift: bool = False, key: str = "labels") -> Callable[[Any], int]:
    """Returns a function of the target that counts its labels other than `ignore_index`, for `Pipeline(loss_weight=)`.

    shift: the loss compares position i with label i + 1, so the first label of each row doesn't count.
    key: the entry of a target that is a dict.
    """

    def count(target: Any) -> int:
        labels = target[key] if isinstance(target, Mapping) and key in target else target
        if not isinstance(labels, torch.Tensor) or labels.is_floating_point():
            found = sorted(labels) if isinstance(labels, Mapping) else type(labels).__name__
            raise ValueError(f"token_count: expected a tensor of labels, or a dict that has them as '{key}'; got {found}")
        return int((labels[..., 1:] if shift else labels).ne(ignore_index).sum())

    return count


class TokenLoss:
    """The cross entropy of language models, a mean over the labels other than `ignore_index`.

    Called with logits [batch, length, words] (or an output that has `logits`) and labels [batch, length]. A Pipeline
    weights micro-batches by their labels, because the loss has a `loss_weight`.
    """

    def __init__(self, ignore_index: int = -100, *, shift: bool = False) -> None:
        self.ignore_index = ignore_index
        self.shift = shift
        self.loss_weight = token_count(ignore_index, shift=shift)

    def __call__(self, output: Any, target: Any) -> torch.Tensor:
        """Returns the loss of a micro-batch: the same operations as in transformers, so the same bits."""
        logits = logits_of(output).float()
        labels = target["labels"] if isinstance(target, Mapping) else target
        if self.shift:  # the last position has no label
            labels = nn.functional.pad(labels, (0, 1), value=self.ignore_index)[..., 1:].contiguous()
        rows = logits.view(-1, logits.shape[-1])
        return nn.functional.cross_entropy(rows, labels.view(-1), ignore_index=self.ignore_index)


def causal_lm_loss(ignore_index: int = -100) -> TokenLoss:
    """Returns the loss of a decoder. It compares the logits at a position with the label of the next position, with the
    same shift as transformers."""
    return TokenLoss(ignore_index, shift=True)


def masked_lm_loss(ignore_index: int = -100) -> TokenLoss:
    """Returns the loss of an encoder, or of an encoder with a decoder. It compares logits with the labels of the same
    positions."""
    return TokenLoss(ignore_index)


class ClassLoss:
    """The cross entropy of classes, logits [batch, classes] and labels [batch]: a mean over samples."""

    def __call__(self, output: Any, target: Any) -> torch.Tensor:
        """Returns the loss of a micro-batch."""
        labels = target["labels"] if isinstance(target, Mapping) else target
        return nn.functional.cross_entropy(logits_of(output), labels)


def logits_of(output: Any) -> Any:
    """Returns the logits of a model's output: a tensor, a dict, or an output of transformers."""
    if isinstance(output, torch.Tensor):
        return output
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if not isinstance(found, torch.Tensor):
        raise ValueError(f"the loss needs logits; the model's output is a {type(output).__name__} without them")
    return found


def loss_of(model: nn.Module) -> Any:
    """Returns the loss that a model of transformers (or a ResNet of torchvision) computes itself when it receives labels.
    Throws ValueError for an unknown head."""
    name, config = type(model).__name__, getattr(model, "config", None)
    if name.endswith(("ForCausalLM", "GPT2LMHeadModel")):
        return causal_lm_loss()
    if name.endswith(("ForMaskedLM", "ForConditionalGeneration")):
        return masked_lm_loss()
    if name == "ResNet" or name.endswith("ForImageClassification"):
        return ClassLoss()
    if name.endswith("ForSequenceClassification") and getattr(config, "num_labels", 1) > 1 and (
            getattr(config, "problem_type", None) in (None, "single_label_classification")):
        return ClassLoss()
    raise ValueError(f"hetu.torch has no default loss for a {name}; give one, a function of output and target")


def without_gradient(output: Any, loss: torch.Tensor) -> torch.Tensor:
    """Returns the loss of a micro-batch of weight 0: a zero that depends on the same tensors of the output as the loss,
    with gradients of exactly zero. Gradients of the loss itself may be NaN, for example of a mean over no label."""
    zero = torch.zeros((), device=loss.device)
    if not loss.requires_grad:
        return zero
    edges = {}
    for leaf in flatten(output)[0]:
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            edge = get_gradient_edge(leaf)
            edges[id(edge.node), edge.output_nr] = leaf
    start = get_gradient_edge(loss)
    todo = [(start.node, start.output_nr)]
    seen: dict[int, Any] = {}  # nodes, kept alive so that no id() is reused
    while todo:
        node, number = todo.pop()
        leaf = edges.pop((id(node), number), None)
        if leaf is not None:
            zero = zero + leaf.masked_fill(torch.ones((), dtype=torch.bool, device=leaf.device), 0).sum()
        elif id(node) not in seen:
            seen[id(node)] = node
            todo += [(below, nr) for below, nr in node.next_functions if below is not None]
    return zero
