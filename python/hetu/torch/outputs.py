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


def mean_metrics(metrics: Mapping[str, Callable[[Any, Any], Any]], outputs: Any, target: Any, rows: int, is_first: bool,
                 sum_of: Callable[[list[float]], list[float]]) -> dict[str, float]:
    """Returns the mean of each metric over pipelines, weighted by their samples.

    metrics: functions of this pipeline's outputs and target.
    is_first: true on the one worker of the pipeline that contributes its values.
    """
    with torch.no_grad():
        values = [float(metric(outputs, target)) for metric in metrics.values()]
    *sums, total = sum_of([value * rows * is_first for value in values] + [float(rows * is_first)])
    return {name: value / total for name, value in zip(metrics, sums, strict=True)}
