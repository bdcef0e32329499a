"""The parts that the training scripts share: options, optimizers by name, and the loop with progress, --log, epoch lines
and TensorBoard scalars. Scripts add their model, their data and their lines."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import io
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hetu import _hetu, averaging, lr, optim, options, schedule
from hetu.job import executor
from hetu.job.flags import Parser, check_log, check_suffix
from hetu.job.hooks import Epoch, Log, Progress, TensorBoard
from hetu.job.setup import PLANNING
from hetu.place import of_flags


def fields() -> list[options.Field]:
    """Returns the options of a job that are flags of the same names. `replicas` applies to plans from a FILE or a function.
    """
    return [*options.table("training").values(), options.table("plan")["replicas"]]


def _optimizer_fields() -> list[options.Field]:
    """Returns the options of optimizers that every script offers: kind, rate and others. LAMB clips gradients by default."""
    of_lamb = options.table("lamb")
    clip = dataclasses.replace(of_lamb["clip_norm"], otherwise=f"0; for lamb {of_lamb['clip_norm'].default:g}")
    lazy = options.table("adam")["lazy_rows"]
    return [of_lamb["kind"], options.table("rate")["base"], of_lamb["weight_decay"], clip, lazy]


def _kfac_fields() -> list[options.Field]:
    """Returns the options of K-FAC, which apply with any inner optimizer."""
    table = options.table("lamb")
    return [table[name] for name in ("kfac_damping", "curvature_every", "fill", "inverses", "fill_costs", "replan")]


_OF_DEVICES = ("device", "dtype", "state_dtype", "loss_scale", "wire", "sums", "cuda_graphs", "gpu_messages", "fuse",
               "pack_weights", "threads", "memory_limit", "seed")
_OF_TABLES = ("dense_tables", "cache_rows", "cache_policy", "pull_bound", "push_bound")


def _add_optimizer(parser: Parser) -> None:
    group = parser.add_argument_group("length, learning rate and optimizer")
    add = group.add_argument
    add("--epochs", type=int, default=100, help="passes over the data, or for BERT 100 steps each (default %(default)s)")
    add("--steps", type=int, default=None, help="steps in all, counted from step 0 also after --resume; overrides --epochs")
    options.add_flags(group, _optimizer_fields())
    kinds = next(action for action in parser._actions if action.dest == "optimizer")
    kinds.choices = [*(kinds.choices or ()), "kfac"]
    for beta in ("beta1", "beta2"):
        add(f"--{beta}", type=float, metavar="B", help=f"for adam, amsgrad, adamw, lamb, bertadam (default "
                                                       f"{options.table('lamb')[beta].default:g})")
    add("--momentum", type=float, metavar="M", help="for momentum and nesterov (default "
                                                    f"{options.table('momentum')['momentum'].default:g})")
    group = parser.add_argument_group("K-FAC (--optimizer kfac)")
    add = group.add_argument
    add("--inner", choices=tuple(optim.KINDS), help="kfac: optimizer that applies preconditioned gradients (default lamb)")
    options.add_flags(group, _kfac_fields(), [field.name for field in _kfac_fields()])
    add("--kfac-largest", type=int, metavar="N", help="kfac: exclude weights with a dimension above N (default 4096)")
    add("--kfac-except", metavar="TEXT,…", help="kfac: exclude weights whose names contain one of these texts (default: "
                                                "the heads of the script's model)")


def _add_pipeline(parser: Parser) -> None:
    group = parser.add_argument_group("pipelines and their plan")
    add = group.add_argument
    add("--devices", default=None, help="a device list of device_list.py, pipe_<pipelines>_<stages>, or rows of "
        "workers, one row per stage, such as gpu:0,gpu:2/gpu:1,gpu:3")
    add("--pipeline", default="pipedream", metavar="NAME|FILE|MODULE:FUNCTION",
        help="a method of `hetu schedule --help`, or dp; a plan's CSV or JSON file; a function of stages and micro_batches "
             "that returns rows of action strings; or choose: the fastest method by --costs (default %(default)s)")
    add("--costs", metavar="FILE",
        help="stage times, or the trace of a run with micro-batches of the same size; for --pipeline choose, --partition "
             "times and the methods zb-1p, zb-2p and auto (default for these methods: the operations of the model's blocks)")
    others = (*_OF_DEVICES, *_OF_TABLES)
    options.add_flags(group, [field for field in fields() if field.name not in others], PLANNING)
    add("--wave", type=int, metavar="N",
        help="hetpipe: micro-batches per wave (a wave is a step): each updates the worker's weights, and the parameter "
             "servers receive the sum of the wave; the same as --micro-batches")
    add("--no-drain", action="store_true", help="don't drain a method without a flush (pipedream) at the end of epochs")
    for title, names in (("devices, precision and memory", _OF_DEVICES), ("embedding tables", _OF_TABLES)):
        options.add_flags(parser.add_argument_group(title), [field for field in fields() if field.name in names])
    averaging.add_options(parser.add_argument_group("averaging in groups, and stragglers"))


def _add_output(parser: Parser) -> None:
    add = parser.add_argument_group("checkpoints, records and checks").add_argument
    add("--checkpoint", metavar="DIR", help="folder for checkpoints; if it already holds one, --resume is required")
    add("--save-every", type=int, default=0, metavar="N", help="steps between checkpoints; 0 = at the end only (default)")
    add("--keep", type=int, default=inspect.signature(executor.Executor.run).parameters["keep"].default,
        help="number of newest checkpoints to keep (default %(default)s)")
    add("--resume", action="store_true", help="continue from the newest checkpoint of --checkpoint")
    add("--log", metavar="FILE", help="write a record per step: JSON lines, or CSV if the name ends in .csv")
    add("--trace", metavar="FILE.json", help="write measured and planned events; opens in Perfetto")
    add("--name", default="", help="TensorBoard scalars go to runs/NAME (default: the start time)")
    add("--points-every", type=int, default=10, metavar="N",
        help="steps between TensorBoard points (loss, rate, gradient norm, speed); 0 = none (default %(default)s)")
    add("--compare-single", action="store_true",
        help="also do every step in one process; the first tensor that differs is reported and ends the job")


def add_options(parser: Parser) -> None:
    """Adds the options of every script, in groups. A script sets its own defaults with parser.set_defaults before the call.
    """
    _add_optimizer(parser)
    _add_pipeline(parser)
    _add_output(parser)
    parser.add_config()


def check(args: argparse.Namespace, evaluates: bool = False) -> None:
    """Throws ValueError in terms of the command line. `evaluates` is true if the script evaluates after each epoch."""
    check_log(args.log)
    check_suffix("--trace", args.trace, ".json")
    if args.payload != "whole":
        _check_payload(args)
    args.averaging, args.stragglers = averaging.averaging_of(args), averaging.stragglers_of(args)
    if args.averaging and args.pipeline == "dp":
        args.pipeline = "pipedream"  # one stage, which updates after each batch
    _take_wave(args)
    for name in ("epochs", "steps"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be >= 1, got {getattr(args, name)}")
    if args.points_every < 0:
        raise ValueError(f"--points-every must be >= 0, got {args.points_every}")
    _check_job(args)
    if args.no_drain and evaluates:
        raise ValueError("--no-drain: an evaluation after each epoch needs a drained pipeline; leave --no-drain out")
    if args.resume and not args.checkpoint:
        raise ValueError("--resume needs --checkpoint DIR")


class Labelled(io.TextIOBase):
    """A stream that begins every line with a label."""

    def __init__(self, stream: Any, label: str) -> None:
        self.stream, self.label, self._begins = stream, label, True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            self.stream.write(f"{self.label}{line}" if self._begins else line)
            self._begins = line.endswith(("\n", "\r"))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return bool(self.stream.isatty())

    def fileno(self) -> int:
        return int(self.stream.fileno())


def _check_payload(args: argparse.Namespace) -> None:
    """Prepares a run whose results are meaningless: every line that it prints says so, and options that save or compare are
    rejected."""
    for name in ("checkpoint", "compare_single", "resume"):
        if getattr(args, name):
            raise ValueError(f"--payload {args.payload}: meaningless results; remove --{name.replace('_', '-')}")
    sys.stdout = Labelled(sys.stdout, f"meaningless (--payload {args.payload}): ")  # type: ignore[assignment]


def _take_wave(args: argparse.Namespace) -> None:
    """Sets --micro-batches from --wave, because a wave of hetpipe is a step."""
    if args.wave is None:
        return
    if args.pipeline != "hetpipe":
        raise ValueError(f"--wave belongs to --pipeline hetpipe, and the pipeline is {args.pipeline}")
    if args.micro_batches not in (None, args.wave):
        raise ValueError(f"--wave {args.wave} and --micro-batches {args.micro_batches} set the same number of hetpipe; give "
                         "only one of them")
    args.micro_batches = args.wave


def _check_job(args: argparse.Namespace) -> None:
    """Throws ValueError for options that are wrong whatever the model is. A plan's own number of micro-batches is in its
    file."""
    chosen = options.of_args(args, fields())
    if not schedule.is_method(args.pipeline):
        chosen["micro_batches"] = args.micro_batches or 1
    try:
        _hetu.check_training_options({"method": args.pipeline, **chosen, "device": None})
    except ValueError as error:  # names the flag that was typed
        raise ValueError(str(error).replace("--micro-batches", "--wave") if args.wave is not None else str(error)) from None


def _shares(args: argparse.Namespace) -> dict[str, Any]:
    """Returns --momentum, or --beta1 and --beta2 as `betas`. A missing value is the optimizer's default."""
    kind = (args.inner or "lamb") if args.optimizer == "kfac" else args.optimizer
    table = options.table(kind)
    chosen = {name: getattr(args, name) for name in ("momentum", "beta1", "beta2") if getattr(args, name) is not None}
    for name, value in chosen.items():
        if name not in table:
            kinds = "momentum and nesterov" if name == "momentum" else "adam, amsgrad, adamw, lamb and bertadam"
            raise ValueError(f"--{name} belongs to {kinds}, and the optimizer is {kind}")
        if not 0 <= value < 1:
            raise ValueError(f"--{name} must be in [0, 1), got {value:g}")
    if "momentum" in chosen:
        return {"momentum": chosen["momentum"]}
    return {"betas": tuple(chosen.get(name, table[name].default) for name in ("beta1", "beta2"))} if chosen else {}


def optimizer_of(args: argparse.Namespace, rate: lr.Rate | lr.ReduceOnPlateau, *, without: tuple[str, ...] = (),
                 **settings: Any) -> optim.Optimizer:
    """Returns the optimizer of --optimizer, --weight-decay, --clip-norm, --momentum, --beta1, --beta2 and --lazy-rows, with
    further settings of its class. For kfac, --inner names the inner optimizer.

    without: parts of names of weights that kfac leaves out by default; --kfac-except overrides it.
    """
    chosen = {"weight_decay": args.weight_decay, "clip_norm": args.clip_norm, "lazy_rows": args.lazy_rows,
              **_shares(args)}
    of_kfac = {"damping": args.damping, "every": args.curvature_every, "fill": args.fill,
               "inverses": args.inverses, "costs": args.fill_costs, "replan": args.replan, "largest": args.kfac_largest,
               "but": tuple(args.kfac_except.split(",")) if args.kfac_except is not None else None}
    of_kfac = {name: value for name, value in of_kfac.items() if value is not None}
    if args.optimizer == "kfac":
        return optim.KFAC(optim.named(args.inner or "lamb", rate, **chosen, **settings), **{"but": without} | of_kfac)
    if of_kfac or args.inner:
        raise ValueError("--inner, --damping, --curvature-every, --fill, --inverses, --fill-costs, --replan, --kfac-largest "
                         f"and --kfac-except belong to --optimizer kfac, and the optimizer is {args.optimizer}")
    return optim.named(args.optimizer, rate, **chosen, **settings)


def executor_of(args: argparse.Namespace, fetches: dict[str, list[Any]], first_blocks: Any = None) -> executor.Executor:
    """Returns this worker's part of the job that the options describe. `first_blocks` is that of Executor."""
    with of_flags():
        return executor.Executor(
            fetches, devices=args.devices, pipeline=args.pipeline, costs=args.costs, first_blocks=first_blocks,
            averaging=args.averaging, stragglers=args.stragglers, compare_single=args.compare_single,
            **{name: value for name, value in options.of_args(args, fields()).items() if name != "batch_size"},
        )


def global_batch(args: argparse.Namespace, pipelines: int) -> int:
    """Returns the samples per step of all pipelines together."""
    if args.shares is None:
        return int(args.batch_size * pipelines)
    micros = args.micro_batches or _hetu.default_micro_batches(args.pipeline)
    return int(args.batch_size // micros * sum(map(int, args.shares.split(","))))


def batches(data: Any, together: int, of: str) -> int:
    """Returns the whole global batches of `together` rows in one pass over `data`, which must have a known length. Throws
    ValueError if there are none."""
    count = len(data) // together
    if count == 0:
        raise ValueError(f"the {of} data has {len(data)} rows, fewer than one global batch of {together}; choose a smaller "
                         "--batch-size")
    return int(count)


def group_counts(job: executor.Executor) -> dict[str, float]:
    """Returns TensorBoard's scalars of the groups since the last call, if pipelines average weights, else {}. Every worker
    calls it; workers of the last stage print."""
    if not job.averages:
        return {}
    mean, by_size = job.job.take_group_counts()
    if job.job.stage == job.layout.stages - 1:
        sizes = ", ".join(f"{size}: {count}" for size, count in enumerate(by_size) if count)
        print(f"pipeline {job.job.pipeline}: mean group size {mean:.4f} (groups by size {sizes})", flush=True)
    return {"Train/Partner": mean} | {f"Train/Partner/{size}": float(n) for size, n in enumerate(by_size) if size}


def announce(args: argparse.Namespace, job: executor.Executor, epoch_steps: int) -> None:
    """Prints the lines before the first step: the global batch, the learning rate, the job and its length."""
    print(job.describe_batch(), flush=True)
    rate = job.train_handle.optimizer.learning_rate
    print(lr.describe(rate, args.steps, "step"), flush=True)
    option = next((f"--{name.replace('_', '-')}" for name in vars(args) if name.startswith("warmup_")), "")
    if warning := lr.cut_short(rate, args.steps, option):
        print(warning, flush=True)
    print(job.describe(), flush=True)
    whole, rest = divmod(args.steps, epoch_steps)
    to = f"Continuing to step {args.steps}" if args.resume else f"Training {args.steps} steps"
    print(f"{to}; an epoch is {epoch_steps} steps" if rest or args.resume else
          f"Training {whole} epoch, each epoch runs {epoch_steps} iteration", flush=True)


# Called in every worker at the end of each epoch; it may validate. Returns TensorBoard's scalars. The chief
# prints.
EpochEnd = Callable[[Epoch], dict[str, float]]


class _EpochEnd:
    """A hook that calls the script's own function at the end of an epoch."""

    def __init__(self, end: EpochEnd) -> None:
        self.end = end

    def on_epoch(self, job: executor.Executor, epoch: Epoch) -> None:
        epoch.scalars |= group_counts(job) | self.end(epoch)


def run(args: argparse.Namespace, job: executor.Executor, epoch_steps: int, epoch_end: EpochEnd, *, tokens: int = 0,
        hooks: Sequence[Any] = ()) -> None:
    """Trains for args.steps steps, with progress, log, epochs of `epoch_steps` steps, and TensorBoard.

    tokens: tokens per sample.
    hooks: additional hooks.
    """
    if job.is_chief:
        announce(args, job, epoch_steps)
    folder = Path("runs") / (args.name or time.strftime("%b%d_%H-%M-%S"))
    every = [
        *hooks,
        _EpochEnd(epoch_end),
        *([Log(args.log, args.resume, "--log ")] if args.log else []),
        TensorBoard(folder, args.points_every, args.steps, epoch_steps, args.resume),
        Progress(args.steps, tokens, says_batch=False),
    ]
    with of_flags():
        for _ in job.run(
            "train", until=args.steps, checkpoint=args.checkpoint, every=args.save_every, keep=args.keep,
            resume=args.resume, trace=args.trace, drain=0 if args.no_drain else epoch_steps, hooks=every,
            epoch_steps=epoch_steps,
        ):
            pass
