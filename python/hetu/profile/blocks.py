"""`hetu profile-blocks`: measures one transformer block on this machine, as a table of costs.

    hetu profile-blocks MODEL -o FILE.csv [--largest 8] [--warm-up 5] [--runs 10] [--inverse-runs N] [--threads N]

MODEL is bert-base, bert-large (128 tokens), opt-125m, opt-350m (2048), t5-base, t5-large (512: an encoder's block), or a
Hugging Face config.json of such a model. There is a row per batch size, powers of two. Columns in ms: forward, backward,
K-FAC's factors (of one micro-batch), inverses and preconditioning. Columns in MiB: weights, memory that a micro-batch keeps
from forward to backward, additional working memory, output gradients that K-FAC saves, and K-FAC's factors.

Times are means without outliers. A block is trained like any model, with one micro-batch per step. Its share of the step is
read from the run's trace.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetu import _hetu, files, init, models, one_line_errors, optim
from hetu.command_parser import CommandParser
from hetu.data import Batches
from hetu.functions import step_mean
from hetu.graph import Value, cut, new_graph, parameter
from hetu.job.executor import Executor
from hetu.job.flags import check_suffix
from hetu.models.config_file import in_folder, load, model_type_of, values_of

MIB = 1 << 20
COLUMNS = ("bs", "time_f", "time_b", "time_kron", "time_inv", "time_prec", "mem_param", "mem_act", "mem_peak_err",
           "mem_save_err", "mem_kron")
LENGTHS = {"bert": 128, "opt": 2048, "t5": 512}
LARGE: dict[str, dict[str, Any]] = {
    "bert": {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096},
    "opt": {"hidden_size": 1024, "num_attention_heads": 16, "ffn_dim": 4096, "do_layer_norm_before": False},
    "t5": {"d_model": 1024, "num_heads": 16, "d_ff": 4096},
}
NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base": ("bert", {}), "bert-large": ("bert", LARGE["bert"]), "opt-125m": ("opt", {}),
    "opt-350m": ("opt", LARGE["opt"]), "t5-base": ("t5", {}), "t5-large": ("t5", LARGE["t5"]),
}
BLOCK, STAGES = 1, [0, 1, 2]  # blocks of the graph: the part before, the measured block, the loss


@dataclass
class Shape:
    """A block: widths of the model, of all attention heads together, and of the feed-forward part; tokens per row."""

    hidden: int
    heads: int
    wide: int
    length: int
    build: Callable[[Value, Value], Value]  # of x [B, T, H] and a mask [B, T]

    @property
    def layers(self) -> list[tuple[int, int]]:
        """The block's linear layers, as (inputs, outputs): queries, keys, values, attention's output, into and out of the
        wide part."""
        return [*[(self.hidden, self.heads)] * 3, (self.heads, self.hidden), (self.hidden, self.wide),
                (self.wide, self.hidden)]


def _bert(values: Any) -> Shape:
    return Shape(values.hidden_size, values.hidden_size, values.intermediate_size, 0,
                 lambda x, mask: models.Bert(values)._layer(x, mask, 0))


def _opt(values: Any) -> Shape:
    return Shape(values.hidden_size, values.hidden_size, values.ffn_dim, 0, lambda x, mask: models.OptLayer(values)(x))


def _t5(values: Any) -> Shape:
    return Shape(values.d_model, values.num_heads * values.d_kv, values.d_ff, 0, lambda x, mask: models.T5Block(values)(x))


FAMILIES: dict[str, tuple[Any, Callable[[Any], Shape]]] = {
    "bert": (models.BertConfig, _bert), "opt": (models.OptConfig, _opt), "t5": (models.T5Config, _t5),
}


def shape_of(name: str, length: int | None) -> Shape:
    """Returns the block of a model, given by name or by its file. Throws ValueError."""
    if name in NAMES:
        family, changes = NAMES[name]
        values = FAMILIES[family][0](**changes)
    else:
        path = in_folder(name)
        if not path.is_file():
            raise ValueError(f"model '{name}' is neither one of {', '.join(NAMES)} nor a config.json")
        loaded = load(path)
        family = model_type_of(loaded, FAMILIES, str(path))
        values = FAMILIES[family][0](**values_of(FAMILIES[family][0], loaded, str(path)))
    shape = FAMILIES[family][1](values)
    shape.length = length or LENGTHS[family]
    return shape


@dataclass
class Model:
    """A graph that trains only one block, on `size` samples per step."""

    loss: Value
    train: optim.Train


def model_of(shape: Shape, size: int, steps: int) -> Model:
    """Returns the graph of a block. x is a field plus a weight, so that the block computes an input gradient. The loss is
    the mean of the squares of its output."""
    import numpy

    new_graph()
    rows = numpy.random.default_rng(0).normal(size=(size, shape.length, shape.hidden)).astype(numpy.float32)
    data = Batches([{"x": rows, "mask": numpy.ones((size, shape.length), numpy.int32)}] * steps, size, "rows")
    x = data.x + parameter("before", [shape.hidden], init.zeros())
    cut()
    y = shape.build(x, data.mask)
    cut()
    loss = step_mean((y * y).mean([1, 2]), name="loss")
    return Model(loss, optim.SGD(0.0).minimize(loss))


def block_times(shape: Shape, size: int, warm_up: int, runs: int, threads: int) -> tuple[float, float]:
    """Returns the milliseconds of a forward and of a backward for a micro-batch of `size` samples."""
    model = model_of(shape, size, warm_up + runs + 2)
    job = Executor({"train": [model.loss, model.train]}, pipeline="gpipe", micro_batches=1, threads=threads)
    for _ in job.run("train", steps=max(1, warm_up)):
        pass
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        for _ in job.run("train", steps=runs + 1, trace=str(trace)):  # the first step of a trace does not count
            pass
        costs = files.read_json(trace)["metadata"]["costs"]["blocks"][BLOCK]
    return costs["forward"], costs["input_grad"] + costs["weight_grad"]


def block_bytes(shape: Shape, size: int) -> tuple[int, int, int]:
    """Returns the bytes of weights, of kept memory per micro-batch, and of working memory, from the plan of such a stage."""
    model = model_of(shape, size, 1)
    options = _hetu.TrainingOptions({"method": "gpipe", "pipelines": 1, "stages": len(STAGES), "batch_size": size,
                                     "micro_batches": 1, "device": "cpu", "threads": 1})
    options.first_block = STAGES
    graph = model.loss.graph.builder.finish()
    memory = _hetu.plan_memory(graph, model.train.optimizer.settings(), options)[BLOCK][0]
    received = 4 * size * shape.length * shape.hidden  # x, which stays in its receive buffer
    return memory["weights"], memory["activations"] + received, memory["other"] - received


def saved_bytes(shape: Shape, size: int) -> int:
    """Returns the bytes of the linear layers' output gradients: 4 bs T (5 h + i) if heads are as wide as the model."""
    return 4 * size * shape.length * sum(outputs for _, outputs in shape.layers)


def factor_bytes(shape: Shape) -> int:
    """Returns the bytes of K-FAC's factors: 4 (10 h^2 + 2 i^2) if heads are as wide as the model."""
    return 4 * sum(inputs**2 + outputs**2 for inputs, outputs in shape.layers)


def typical(times: list[float]) -> float:
    """Returns the mean of the times that are at most twice the median, like costs in traces (pipeline/cost/averages.h)."""
    most = 2 * sorted(times)[len(times) // 2]
    counted = [ms for ms in times if ms <= most]
    return sum(counted) / len(counted)


def rows_of(shape: Shape, given: argparse.Namespace, progress: _hetu.ProgressLine) -> list[dict[str, float]]:
    """Returns a row per batch size."""
    inverse_runs = given.inverse_runs or given.runs
    inversion, precondition = _hetu.time_inverses(shape.layers, min(given.warm_up, inverse_runs), inverse_runs)
    rows: list[dict[str, float]] = []
    size = 1
    while size <= given.largest:
        progress(len(rows), given.largest.bit_length())
        forward, backward = block_times(shape, size, given.warm_up, given.runs, given.threads)
        factors = _hetu.time_factors(shape.layers, size * shape.length, given.warm_up, given.runs)
        weights, kept, working = block_bytes(shape, size)
        memory = (weights, kept, working, saved_bytes(shape, size), factor_bytes(shape))
        values = (size, forward, backward, typical(factors), typical(inversion), typical(precondition),
                  *(count / MIB for count in memory))
        rows.append(dict(zip(COLUMNS, values, strict=True)))
        size *= 2
    return rows


def table(rows: list[dict[str, float]]) -> str:
    """Returns the table as CSV, in the format of --costs."""
    return "\n".join([",".join(COLUMNS), *(",".join(f"{row[name]:.5g}" for name in COLUMNS) for row in rows)]) + "\n"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        prog="hetu profile-blocks", description="Measures a transformer block on this machine, and writes the table of "
        "costs that hetu simulate --costs and hetu choose --costs read.")
    add: Any = parser.add_argument
    add("model", metavar="MODEL", help=f"{', '.join(NAMES)}, or a config.json of Hugging Face's (bert, opt, t5)")
    add("-o", "--output", type=Path, metavar="FILE.csv", help="output file (default: standard output)")
    add("--largest", type=int, default=8, metavar="B", help="batch sizes are 1, 2, 4, … up to B (%(default)s)")
    add("--sequence-length", type=int, metavar="T", help="tokens per row (default: bert 128, opt 2048, t5 512)")
    add("--warm-up", type=int, default=5, help="runs before the measured ones (%(default)s)")
    add("--runs", type=int, default=10, help="measured runs (%(default)s)")
    add("--inverse-runs", type=int, metavar="N", help="measured runs of the inverses, which take longest (default: --runs)")
    add("--threads", type=int, default=0, help="threads to compute with; 0 = as in a training (%(default)s)")
    given = parser.parse_args(arguments)
    for name in ("largest", "runs", "sequence_length", "inverse_runs"):
        if getattr(given, name) is not None and getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be >= 1, got {getattr(given, name)}")
    for name in ("warm_up", "threads"):
        if getattr(given, name) < 0:
            parser.error(f"--{name.replace('_', '-')} must be >= 0, got {getattr(given, name)}")
    try:
        check_suffix("-o", given.output, ".csv")
    except ValueError as error:
        parser.error(str(error))
    return given


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    given = parse(arguments)
    with one_line_errors("hetu profile-blocks"):
        if given.threads:
            os.environ["OMP_NUM_THREADS"] = str(given.threads)
        progress = _hetu.ProgressLine("hetu profile-blocks", "batch sizes")
        with progress:
            text = table(rows_of(shape_of(given.model, given.sequence_length), given, progress))
        if given.output is None:
            print(text, end="")
        else:
            files.write_text(given.output, text)
            print(f"{given.output}: {given.model}, batch sizes 1 to {given.largest}, means of {given.runs} runs after "
                  f"{given.warm_up}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
