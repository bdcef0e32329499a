#!/usr/bin/env python3
"""Pre-trains BERT (masked language model + next sentence) on HDF5 shards, or on plain text: one sentence per line, a blank
line between documents.

    heturun -c config/local.yml python3 python/train_bert.py --data build/sample/bert --model tiny \\
            --devices pipe_2_2 --pipeline 1f1b --batch-size 32 --micro-batches 4 \\
            --learning-rate 1e-3 --warmup-steps 20 --steps 200

    python3 python/train_bert.py --data corpus.txt --vocab vocab.txt --model tiny --steps 200 …

Without heturun it trains in one process with one stage. Flags of Chimera's and PipeFisher's main_bert.py are accepted too.

The model is cut between blocks: the embeddings, each layer, the heads. Stages are cut so that the most expensive has the
fewest floating-point operations. The run prints the number of blocks per stage. The heads cost about half a layer: on 4
stages, base with 30522 words and 20 masked positions is the embeddings and 3 layers, 3 layers, 3 layers, and 3 layers and
the heads.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
from pathlib import Path
from typing import Any

import hetu as ht
from hetu import hold, training  # noqa: F401 hold: SIGUSR1 waits until one_line_errors takes it
from hetu.compat import chimera_flags, pipefisher_flags, tracking
from hetu.place import of_flags

STEPS_PER_EPOCH = 100
HEADS = ("cls.", "pooler.")  # weights with these in their names have no K-FAC factors, as in PipeFisher's pipelines


def options() -> training.Parser:
    parser = training.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(batch_size=64, learning_rate=1e-4, optimizer="adamw", weight_decay=0.01)
    add = parser.add_argument_group("model and data").add_argument
    add("--data", default="~/.cache/hetu/datasets/wikicorpus_en", help="folder of shards, or a text (default %(default)s)")
    add("--eval-data", metavar="PATH", help="shards or text for an evaluation after each epoch (default: none)")
    add("--vocab", metavar="FILE", help="WordPiece tokens for a text, one per line (default: vocab.txt beside it)")
    add("--cased", action="store_true", help="keep capital letters and accents of a text")
    add("--encoding", choices=("utf-8", "latin-1"), default="utf-8", help="of a text (default %(default)s)")
    add("--sequence-length", type=int, default=128, help="tokens per row of a text (default %(default)s)")
    add("--corpus-lines", type=int, default=0, help="use only the first sentences of a text (0 = all)")
    add("--model", default="base",
        help="base, tiny, deep (16 layers x 64), or a Hugging Face style JSON configuration (default %(default)s)")
    add("--warmup-steps", type=int, default=2000,
        help="updates of linear warm-up, as in SD-PIPE; use fewer for a short run (default %(default)s)")
    add("--schedule", choices=("constant", "linear", "bert_linear", "nvlamb"), default="constant",
        help="learning rate: constant, or linear down to 0 after --warmup-steps; or, with --warmup-share, BertAdam's "
             "(bert_linear) or NVIDIA's for LAMB (nvlamb) (default %(default)s)")
    add("--warmup-share", type=float,
        help="share of warm-up steps: bert_linear (default 0.1; selected without --schedule), nvlamb (default 0.2843)")
    add("--dropout", type=float, default=None, help="replaces the configuration's dropout")
    add("--plan-only", action="store_true",
        help="print the model, the learning rate, and the plan and memory of each stage for --devices "
             "pipe_<pipelines>_<stages>, then exit; the workers need not be started")
    add("--max-rows", type=int, default=0, help="use only the first rows of the data (0 = all)")
    training.add_options(parser)
    chimera_flags.add_also(parser)
    pipefisher_flags.add(parser)
    return parser


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = options()
    args = parser.parse_args(arguments)
    chimera_flags.take(args, parser)
    pipefisher_flags.take(args, parser)
    training.check(args, evaluates=bool(args.eval_data))
    if args.warmup_share is not None and args.schedule == "linear":
        raise ValueError("--warmup-share belongs to --schedule bert_linear and nvlamb; linear has --warmup-steps")
    if args.warmup_share is not None and args.schedule == "constant":
        args.schedule = "bert_linear"
    if args.steps is None and args.num_epochs is None:
        args.steps = args.epochs * STEPS_PER_EPOCH
    return args


def settle_steps(args: argparse.Namespace, batch: Any, pipelines: int) -> None:
    """Converts --num_epochs to steps, and sets the length of an epoch: a pass over the data with --num_epochs or
    --log_interval, else 100 steps."""
    args.epoch_steps = STEPS_PER_EPOCH
    if args.num_epochs is None and args.log_interval is None:
        return
    args.epoch_steps = training.batches(batch, training.global_batch(args, pipelines), "training")
    if args.steps is None:
        args.steps = args.num_epochs * args.epoch_steps


def rate_of(args: argparse.Namespace) -> ht.lr.Rate:
    """Returns the learning rate, by update."""
    share = {} if args.warmup_share is None else {"share": args.warmup_share}
    if args.schedule == "linear":
        return ht.lr.warmup_linear(args.learning_rate, args.warmup_steps, args.steps)
    if args.schedule in ("bert_linear", "nvlamb"):
        return getattr(ht.lr, args.schedule)(args.learning_rate, args.steps, **share)
    return ht.lr.warmup(args.learning_rate, args.warmup_steps)


def rows_of(args: argparse.Namespace, path: str, max_rows: int = 0) -> ht.data.BertHdf5 | ht.text.BertText:
    """Returns the rows of a folder of shards, or of a text."""
    at = Path(path)
    if not at.is_file():
        return ht.data.BertHdf5(path, args.batch_size, args.seed, max_rows=max_rows)
    if args.vocab is None and not (at.parent / "vocab.txt").is_file():
        raise ValueError(f"--data {path} is a text, and there is no vocab.txt beside it: give --vocab FILE (hetu data "
                         "vocabulary makes one)")
    return ht.text.BertText(path, args.vocab or str(at.parent / "vocab.txt"), args.batch_size, args.sequence_length,
                            seed=args.seed, lower_case=not args.cased, encoding=args.encoding,
                            corpus_lines=args.corpus_lines, max_rows=max_rows, threads=getattr(args, "row_threads", 0))


def trained(args: argparse.Namespace, batch: Any, rate: ht.lr.Rate | None = None,
            **changes: Any) -> tuple[ht.Value, ht.optim.Train]:
    """Returns the loss of the model on `batch`, and the handle of minimize(). `changes` replace fields of the
    configuration."""
    changes["vocab_size"] = batch.vocabulary_size
    if args.dropout is not None:
        changes.update(hidden_dropout_prob=args.dropout, attention_probs_dropout_prob=args.dropout)
    model = ht.models.Bert.from_config(args.model, **changes)
    loss = model.pretraining_loss(batch)
    own: dict[str, float] = {"epsilon": 1e-7} if args.optimizer in ("adam", "amsgrad", "adamw") else {}
    return loss, training.optimizer_of(args, rate or rate_of(args), without=HEADS, **own).minimize(loss)


def build(args: argparse.Namespace, batch: Any = None, rate: ht.lr.Rate | None = None, **changes: Any) -> ht.Executor:
    """Returns this worker's part of the job, with the model and its optimizer. `batch` and `rate` default to those of
    `args`. `changes` replace fields of the configuration."""
    batch = batch or rows_of(args, args.data, args.max_rows)
    settle_steps(args, batch, ht.devices.layout(args.devices).pipelines)
    loss, train = trained(args, batch, rate, **changes)
    return training.executor_of(args, {"train": [loss, train], "validate": [loss]})


def show_plan(args: argparse.Namespace) -> None:
    """Prints the output of --plan-only. Throws ValueError."""
    from hetu import _hetu  # imported late, because it must come after `hold`

    grid = re.fullmatch(r"pipe_(\d+)_(\d+)", args.devices or "pipe_1_1")
    if grid is None or not ht.schedule.is_method(args.pipeline):
        raise ValueError(f"--plan-only needs --devices pipe_<pipelines>_<stages> and a method, got --devices "
                         f"{args.devices} --pipeline {args.pipeline}")
    pipelines, stages = int(grid[1]), int(grid[2])
    batch = rows_of(args, args.data, args.max_rows)
    settle_steps(args, batch, pipelines)
    rate = rate_of(args)
    micros = args.micro_batches or _hetu.default_micro_batches(args.pipeline)
    print(f"{args.pipeline}: {pipelines} pipelines of {stages} stages, {micros} micro-batches of "
          f"{args.batch_size // micros} samples, {training.global_batch(args, pipelines)} per step; {args.steps} steps of "
          f"{args.optimizer}")
    print(ht.lr.describe(rate, args.steps, "step"))
    print(ht.summary(trained(args, batch, rate)[1], stages=stages, depth=2, batch_size=args.batch_size, micro_batches=micros,
                     pipeline=args.pipeline, dtype=args.dtype, state_dtype=args.state_dtype))


def train(args: argparse.Namespace, job: ht.Executor) -> None:
    """Trains in epochs of 100 steps, or of a pass over the data with --num_epochs. Prints SD-PIPE's line after each, and
    the reached loss at the end."""
    last: collections.deque[float] = collections.deque(maxlen=20)
    evaluation = rows_of(args, args.eval_data) if args.eval_data else None
    if evaluation:
        job.data.check_meaning(evaluation)
    evaluations = training.batches(evaluation, job.global_batch, "evaluation") if evaluation else 0

    def epoch_end(epoch: training.Epoch) -> dict[str, float]:
        last.extend(step.scalars["mlm_loss"] for step in epoch.steps)
        if job.is_chief:
            coming = rate_of(args).at(epoch.steps[-1].index + 2)  # SD-PIPE's line has the rate of the next update
            print(f"{epoch.number} TRAIN {losses(epoch)} lr {coming:.4e}, time {epoch.seconds:.4f}", flush=True)
        scalars = {"Train/loss": epoch.mean("loss"), "Train/samples_per_s": epoch.samples / epoch.seconds}
        if not evaluation or not epoch.drained:
            return scalars
        seen = training.Epoch(epoch.number, job.run("validate", steps=evaluations, data=evaluation))
        if job.is_chief:
            print(f"{epoch.number} EVAL  {losses(seen)}", flush=True)
        return scalars | {"Validation/loss": seen.mean("loss")}

    if args.profile:
        args.trace = str(chimera_flags.profile_trace(profile_name(args, job), job.is_chief))
    lines = [chimera_flags.StepLines(args.log_interval, args.epoch_steps, args.observe_norm)] if args.log_interval else []
    training.run(args, job, args.epoch_steps if args.num_epochs else STEPS_PER_EPOCH, epoch_end,
                 tokens=job.data.sequence_length, hooks=[*lines, *tracking.hooks_of(args)])
    if args.profile and job.is_chief:
        chimera_flags.draw(Path(args.trace))
    if job.is_chief and len(last) == last.maxlen:
        print(
            f"MLM loss, mean of the last {len(last)} steps: {sum(last) / len(last):.4f}; "
            f"unigram entropy of the targets: {job.data.target_entropy():.4f}", flush=True,
        )


def profile_name(args: argparse.Namespace, job: ht.Executor) -> str:
    """Returns the name of the profile's figure."""
    stages, micros = job.layout.stages * (args.chunks or 1), args.micro_batches or 1
    return chimera_flags.profile_name(args.model, args.pipeline_method or args.pipeline, stages, args.batch_size // micros,
                                      max(1, micros // stages))


def losses(epoch: training.Epoch) -> str:
    """Returns the losses in the form of the epoch lines."""
    return f"loss {epoch.mean('loss'):.4f}  lm {epoch.mean('mlm_loss'):.4e} ns {epoch.mean('nsp_loss'):.4e}"


def main(arguments: list[str] | None = None) -> int:
    with ht.one_line_errors("train_bert.py"), of_flags():
        args = parse(arguments)
        if args.plan_only:
            show_plan(args)
        else:
            train(args, build(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
