"""Measures a model for the planner: `hetu.torch.profile`. Its file is the input of `hetu plan --costs`."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hetu import _hetu, files, profile_file
from hetu.counted import counted
from hetu.process import leave
from hetu.profile_file import SIZES
from hetu.torch import losses
from hetu.torch.batches import as_tensors
from hetu.torch.block_costs import Block, MakeOptimizer, Measuring, block_costs
from hetu.torch.cuts import Pieces, model_with_loss
from hetu.torch.device import StageDevice, choose
from hetu.torch.link_costs import measured_links
from hetu.torch.memory import share_processor
from hetu.torch.undisturbed import undisturbed
from hetu.torch.values import cut_batch, flatten, rows_of, unflatten

TURNS = 5
UNSTEADY = 0.15  # a variation above which the profile carries a warning
_FULL = ("not enough memory", "out of memory")  # in the errors of PyTorch's allocators


def profile(model: Any, loss: Callable[[Any, Any], torch.Tensor] | None, inputs: Any, target: Any,
            micro_batch_sizes: Sequence[int] = (1, 2, 4), file: str | os.PathLike[str] = "profile.json", *,
            optimizer: MakeOptimizer = torch.optim.Adam, turns: int = TURNS, device: Any = None) -> dict[str, Any]:
    """Measures each piece of a model for several micro-batch sizes, and writes the profile that `hetu plan --costs` reads.
    Returns the profile. The model isn't changed.

    Worker 0 measures: the times of forward, recompute, both parts of the backward and update, and the bytes of weights,
    kept tensors, outputs and gradients. With several workers (heturun -w N), they all call it; the links between them are
    measured too, and PyTorch uses the threads that a worker has in such a job.

    model, loss, device: as for a Pipeline.
    inputs, target: a batch with at least as many samples as the largest size.
    file: the profile to write. If it exists, this call adds its sizes, and replaces those that it measures again.
    optimizer: a function that makes the optimizer of a list of parameters: a class, or functools.partial of one. It is
    called for copies of the parameters.
    turns: the number of measurements of each piece.
    Throws ValueError for arguments that don't fit, and for a file of another model. Throws OSError.
    """
    links = leave.transport(_hetu.env()["worker"])
    sizes = _checked(micro_batch_sizes, turns)
    share_processor()
    told = b""
    if links.worker == 0:
        try:
            loss = losses.loss_of(model_with_loss(model)) if loss is None else loss
            found = _measured(model, loss, (inputs, target), sizes, _how(model, optimizer, turns, device))
            # Fails, for another model's file, before others wait for this worker.
            _added({SIZES: {size: _cost_file(blocks) for size, blocks in found.items()}}, file)
            told = json.dumps(_described(found)).encode()
        except (ValueError, OSError) as error:
            told = b"!" + str(error).encode()
    told = _hetu.exchange_bytes(links, list(range(links.workers)), told, 0, "the call of profile()")[0]
    if told.startswith(b"!"):
        raise ValueError(told[1:].decode())
    costs, spreads, variation = json.loads(told)
    measured = {int(size): one for size, one in costs.items()}
    link = measured_links(links, max(_out_bytes(one) for one in measured.values()))
    for one in measured.values():
        one["link"] = {"latency": link.latency, "bandwidth": link.bandwidth, "pairs": []}
        one["reduce_scalars"] = link.reduce_scalars
    made = profile_file.described(measured, os.path.basename(sys.argv[0]), links.workers)
    made.update(threads=torch.get_num_threads(), spread=spreads, variation=variation)
    if links.worker == 0:
        made = _added(made, file)
        files.write_text(file, json.dumps(made) + "\n")
        worst = max(variation.values(), key=lambda one: one["share"])
        if "says" in worst:
            print(f"hetu.torch.profile: {worst['says']}", file=sys.stderr)
    return made


def _added(new: dict[str, Any], file: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the profile in a file with the sizes of `new`, or `new` if there is no file yet. Throws ValueError."""
    if not os.path.exists(file):
        return new
    old = files.read_json(file)
    made = profile_file.merged(old, new, os.fspath(file))
    for key in ("spread", "variation"):
        made[key] = {**old.get(key, {}), **new.get(key, {})}
    return made


def _checked(sizes: Sequence[int], turns: int) -> list[int]:
    if not sizes or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        raise ValueError(f"micro_batch_sizes={sizes!r}: expected numbers of samples, at least 1 each, such as (1, 2, 4)")
    if turns < 1:
        raise ValueError(f"turns={turns}: expected at least 1 measurement of each piece")
    return sorted(set(sizes))


def _how(model: Any, optimizer: MakeOptimizer, turns: int, device: Any) -> Measuring:
    pieces = Pieces(model)
    if any(parameter.is_meta for piece in pieces.pieces for parameter in piece.parameters()):
        raise ValueError("a model that was made in empty() has no memory to measure with; make the model without empty()")
    return Measuring(optimizer, turns, StageDevice(choose(device, pieces.whole.named_parameters(), 0)))


def _measured(model: Any, loss: Callable[[Any, Any], torch.Tensor], batch: tuple[Any, Any], sizes: Sequence[int],
              how: Measuring) -> dict[int, list[Block]]:
    """Returns the measured pieces by size. A size that doesn't fit into memory ends the sweep."""
    pieces = Pieces(model)
    inputs, target = as_tensors(batch[0], "inputs"), as_tensors(batch[1], "target")
    rows = rows_of(inputs)
    if rows < sizes[-1]:
        raise ValueError(f"micro_batch_sizes has {sizes[-1]}, but the batch has {counted(rows, 'sample')}; "
                         f"pass a batch of at least {sizes[-1]} samples, or leave larger sizes out")
    buffers = [(buffer, buffer.clone()) for buffer in pieces.whole.buffers()]
    found: dict[int, list[Block]] = {}
    try:
        with undisturbed(pieces.pieces, compiled=True):
            for size in sizes:
                try:
                    found[size] = block_costs(pieces.pieces, loss, _first(inputs, rows, size, "inputs"),
                                              _first(target, rows, size, "target"), how)
                except (MemoryError, RuntimeError) as error:
                    if not found or not _is_full(error):
                        raise
                    print(f"hetu.torch.profile: micro-batches of {size} don't fit into memory; the profile ends at "
                          f"{max(found)}", file=sys.stderr)
                    break
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
    return found


def _described(found: dict[int, list[Block]]) -> tuple[dict[int, Any], dict[int, Any], dict[int, Any]]:
    """Returns the costs, the spreads and the variation by size. `hetu plan` repeats what the variation says."""
    variation: dict[int, Any] = {}
    for size, blocks in found.items():
        worst = max(range(len(blocks)), key=lambda number: blocks[number].variation)
        share = blocks[worst].variation
        variation[size] = {"share": share, "block": worst}
        if share > UNSTEADY:
            variation[size]["says"] = (f"the costs varied by up to {100 * share:.0f} % while they were measured (block "
                                       f"{worst}, micro-batches of {size}): the machine was busy. Measure again on an idle "
                                       f"machine, or with a larger turns=")
    return ({size: _cost_file(blocks) for size, blocks in found.items()},
            {size: [block.spread for block in blocks] for size, blocks in found.items()}, variation)


def _first(value: Any, rows: int, size: int, what: str) -> Any:
    """Returns the first samples of a part of the batch, in memory of their own."""
    parts = [size, rows - size] if size < rows else [size]
    leaves = cut_batch(value, rows, parts, what)[0]
    return unflatten([leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], flatten(value)[1])


def _is_full(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(text in str(error) for text in _FULL)


def _cost_file(blocks: Sequence[Block]) -> dict[str, Any]:
    """Returns costs in the format of config/costs: the blocks, and the whole model as the only stage."""
    costs = [block.costs for block in blocks]
    whole = {key: sum(one[key] for one in costs) for key in costs[0] if key != "weight"}
    whole["working_bytes"] = max(one["working_bytes"] for one in costs)
    return {"unit": "ms", "stages": [whole], "blocks": costs}


def _out_bytes(costs: dict[str, Any]) -> float:
    """Returns the typical size of a message between two blocks; 0 for a model that can't be cut."""
    sizes = [block["bytes_out"] for block in costs["blocks"][:-1]]
    return statistics.median(sizes) if sizes else 0.0
