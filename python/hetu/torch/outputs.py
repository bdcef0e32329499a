"""Outputs of the model on every worker of a pipeline. The worker with the last stage keeps them, and sends them on request.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hetu.torch.boundaries import Form
from hetu.torch.values import flatten, unflatten


class Outputs:
    """The outputs of one call on this worker, by micro-batch. Empty on workers without the last stage."""

    def __init__(self) -> None:
        self.tensors: dict[int, list[torch.Tensor]] = {}

    def keep(self, micro: int, output: Any) -> None:
        """Keeps the tensors of a micro-batch's output."""
        self.tensors[micro] = [leaf.detach() for leaf in flatten(output)[0] if isinstance(leaf, torch.Tensor)]

    def share(self, exchange: Callable[[bytes], list[bytes]], forms: Sequence[Form], sizes: Sequence[int],
              device: torch.device) -> Any:
        """Returns the output of the whole batch. Collective: every worker of the pipeline calls it.

        exchange: takes this worker's bytes and returns those of all workers of the pipeline.
        Tensors with a row for each sample are concatenated. Other tensors are stacked, with one entry per micro-batch.
        """
        file = io.BytesIO()
        torch.save({micro: [t.cpu().clone() for t in kept] for micro, kept in self.tensors.items()}, file)
        found: dict[int, list[torch.Tensor]] = {}
        for text in exchange(file.getvalue()):
            found.update(torch.load(io.BytesIO(text), weights_only=True))
        form = forms[0].stages[-1]
        micros = [micro for micro, size in enumerate(sizes) if size]
        columns = iter(zip(*(found[micro] for micro in micros), strict=True))
        leaves = [source.value if source.kind == "constant" else
                  _joined(next(columns), [sizes[micro] for micro in micros]).to(device) for source in form.outputs]
        return unflatten(leaves, form.output_tree)


def _joined(parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor:
    if all(part.dim() > 0 and part.shape[0] == size for part, size in zip(parts, sizes, strict=True)):
        return torch.cat(list(parts))
    return torch.stack(list(parts))


def joined(outputs: Sequence[Any]) -> Any:
    """Returns one nesting for the outputs of several pipelines, in order. Tensors are concatenated; other values are those
    of the first pipeline."""
    leaves, tree = flatten(outputs[0])
    columns = zip(*(flatten(one)[0] for one in outputs), strict=True)
    return unflatten([torch.cat(list(column)) if isinstance(leaf, torch.Tensor) else leaf
                      for leaf, column in zip(leaves, columns, strict=True)], tree)


def metrics_of(metrics: Mapping[str, Callable[[Any, Any], Any]], outputs: Any, target: Any, rows: int, is_first: bool,
               sum_of: Callable[[list[float]], list[float]]) -> dict[str, float | tuple[float, ...]]:
    """Returns the values of metrics for all pipelines. A number is a mean over pipelines, weighted by their samples. A
    tuple of numbers, such as (hits, labels), is summed over pipelines.

    metrics: functions of this pipeline's outputs and target.
    is_first: true on the one worker of the pipeline that contributes its values.
    Throws ValueError for a metric that returns anything else.
    """
    with torch.no_grad():
        values = {name: metric(outputs, target) for name, metric in metrics.items()}
    numbers: list[float] = []
    for name, value in values.items():
        found = [_number(name, value, one) for one in (value if isinstance(value, tuple) else (value,))]
        numbers += [one * (1 if isinstance(value, tuple) else rows) if is_first else 0.0 for one in found]
    *sums, total = sum_of([*numbers, float(rows * is_first)])
    rest = iter(sums)
    return {name: tuple(next(rest) for _ in value) if isinstance(value, tuple) else next(rest) / total
            for name, value in values.items()}


def _number(name: str, value: Any, one: Any) -> float:
    """Returns one number of a metric's value."""
    if isinstance(one, torch.Tensor) and one.numel() == 1:
        one = one.item()
    try:
        return float(one)
    except (TypeError, ValueError):
        shape = f" of shape {list(one.shape)}" if isinstance(one, torch.Tensor) else ""
        found = f"a {type(one).__name__}{shape}{' in a tuple' if isinstance(value, tuple) else ''}"
        raise ValueError(f"evaluate: the metric '{name}' returned {found}. Return a number, which is averaged over "
                         f"pipelines by their samples, or a tuple of numbers such as (hits, labels), which are summed"
                         ) from None
