"""Comparisons of what workers report before a step, so that a mistake is the same error on all workers."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from hetu.torch.batches import Batch
from hetu.torch.losses import SUM, TARGETS, LossRule


def check_same(begins: Sequence[dict[str, Any]], workers: Sequence[int], width: int, batch: Batch) -> None:
    """Checks what each worker reports about the step that it begins.

    Workers of one pipeline must agree on everything. Workers of different pipelines must agree on the entry "all". Throws
    ValueError, which names two workers and the difference. `batch` is this worker's batch; it supplies the names of values.
    """
    for at, (worker, mine) in enumerate(zip(workers, begins, strict=True)):
        for first, part in ((0, "all"), (at // width * width, "pipeline")):
            _compare(worker, mine[part], workers[first], begins[first][part], batch)


def _compare(worker: int, mine: dict[str, Any], other: int, known: dict[str, Any], batch: Batch) -> None:
    for what, value in mine.items():
        if known[what] != value and what == "names":
            raise ValueError(f"worker {worker} has different parameter names than worker {other}. Make the same model on "
                             f"all workers. If torch.distributed.pipelining has cut the model and a parameter has several "
                             f"names, Python's hash seed decides which name it keeps: set PYTHONHASHSEED=0 for all workers.")
        if known[what] != value and what == "checksums":
            number = next(at for at, (one, two) in enumerate(zip(value, known[what], strict=True)) if one != two)
            needed = "all workers of a pipeline need the same batch" if batch.is_own else (
                "with whole_batches=True, all workers need the same batch, that of all pipelines")
            raise ValueError(f"worker {worker} begins a step with different values of {batch.name(number)} than worker "
                             f"{other}: {needed}. Use the same seed for shuffling and "
                             f"augmentation on all of them, for example "
                             f"DataLoader(generator=torch.Generator().manual_seed(n)).")
        if known[what] != value:
            raise ValueError(f"worker {worker} begins a step with {what} {value}, worker {other} with {known[what]}: all "
                             f"workers of a pipeline must get the same batch, and all pipelines must take the same kind of "
                             f"step")


def total_weight(begins: Sequence[dict[str, Any]], width: int, rule: LossRule) -> float:
    """Returns the divisor of a step's loss, summed over all pipelines: the weights, the samples if weights depend on
    outputs, or 1 if the loss is a sum."""
    if rule.kind == SUM:
        return 1.0
    what = "weights" if rule.kind == TARGETS else "samples"
    return sum(sum(begin["pipeline"][what]) for begin in begins[::width])


def names_sum(names: Iterable[str]) -> int:
    """Returns a checksum of the names of a model's parameters, in order."""
    return zlib.crc32("\n".join(names).encode())


def bytes_sum(tensor: torch.Tensor) -> int:
    """Returns a checksum of a tensor's bytes."""
    return zlib.crc32(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())


def check_copies(texts: Iterable[bytes]) -> None:
    """Checks that the copies of a stage begin with equal weights and that all workers have the same PyTorch. `texts` holds
    each worker's copies_of(). Throws ValueError."""
    first: dict[str, tuple[int, Any]] = {}
    version = ""
    for worker, text in enumerate(texts):
        found = json.loads(text)
        version = version or found["torch"]
        if found["torch"] != version:
            raise ValueError(f"worker {worker} has PyTorch {found['torch']}, worker 0 has {version}; install the same "
                             f"version on all workers")
        for stage, sums in found["stages"].items():
            known = first.setdefault(stage, (worker, sums))
            if known[1] != sums:
                raise ValueError(f"model stage {stage} begins with different weights on worker {worker} than on worker "
                                 f"{known[0]}: make the model from the same seed on all workers (call torch.manual_seed "
                                 f"before)")


def copies_of(stages: Iterable[tuple[int, torch.nn.Module]]) -> bytes:
    """Returns the input of check_copies(): this worker's PyTorch version and checksums of its stages' parameters."""
    sums = {str(number): [bytes_sum(p) for p in stage.parameters()] for number, stage in stages}
    return json.dumps({"torch": torch.__version__, "stages": sums}).encode()
