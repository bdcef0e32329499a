#!/usr/bin/env python3
"""Pre-trains BERT (masked language model + next sentence) on HDF5 shards.

    heturun -c config/local.yml python3 python/train_bert.py --data build/sample/bert --model tiny --devices pipe_2_2 \\
            --pipeline 1f1b --batch-size 32 --micro-batches 4 --learning-rate 1e-3 --warmup-steps 20 --steps 200

Without heturun it trains in one process with one stage.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from typing import Any, NoReturn, TextIO

import hetu as ht
from hetu.progress import Reporter

STEPS_PER_EPOCH = 100


class Parser(argparse.ArgumentParser):
    """Complains in one line: every worker parses, one speaks."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; --help lists the options")


def options() -> Parser:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", default="~/.cache/hetu/datasets/wikicorpus_en", help="folder of shards (default %(default)s)")
    add("--model", default="base", help="base, tiny, or a Hugging Face style JSON configuration (default %(default)s)")
    add("--epochs", type=int, default=100, help=f"of {STEPS_PER_EPOCH} steps each (default %(default)s)")
    add("--steps", type=int, default=None, help="steps in all, counted from step 0 also after --resume; overrides --epochs")
    add("--batch-size", type=int, default=64, help="samples per pipeline and step (default %(default)s)")
    add("--micro-batches", type=int, default=4, help="pieces that a batch is split into (default %(default)s)")
    add("--learning-rate", type=float, default=1e-4, help="after warm-up (default %(default)s)")
    add("--warmup-steps", type=int, default=2000, help="updates of linear warm-up (default %(default)s)")
    add("--optimizer", default="adamw", choices=["adamw", "sgd"], help="default %(default)s")
    add("--weight-decay", type=float, default=0.01, help="decoupled, adamw only (default %(default)s)")
    add("--clip-norm", type=float, default=0.0, help="global gradient norm; 0 = off (default)")
    add("--dropout", type=float, default=None, help="replaces the configuration's dropout")
    add("--pipeline", default="1f1b", help="a method of `hetu schedule --help`, or dp (default %(default)s)")
    add("--devices", default=None, help="a list of device_list.py, or pipe_<pipelines>_<stages>")
    add("--device", default="auto", choices=["auto", "cpu", "cuda"], help="what a worker computes on (default %(default)s)")
    add("--threads", type=int, default=0, help="per worker; 0 = cores / workers of the host (default)")
    add("--memory-limit", default="0", help="per worker, e.g. 4GiB; refused at the start if the plan needs more")
    add("--seed", type=int, default=0, help="of weights, data order and dropout (default %(default)s)")
    add("--max-rows", type=int, default=0, help="use only the first rows of the data (0 = all)")
    add("--log", metavar="FILE.jsonl", help="one JSON object per step")
    add("--checkpoint", metavar="DIR", help="save here; a folder that holds one already needs --resume")
    add("--save-every", type=int, default=0, metavar="N", help="steps between checkpoints; 0 = at the end only (default)")
    add("--keep", type=int, default=3, help="newest checkpoints that are kept (default %(default)s)")
    add("--resume", action="store_true", help="go on from the newest checkpoint of --checkpoint")
    add("--trace", metavar="FILE.json", help="write what happened beside what was planned; opens in Perfetto")
    return parser


def parse(arguments: list[str] | None) -> argparse.Namespace:
    args = options().parse_args(arguments)
    if args.steps is None:
        args.steps = args.epochs * STEPS_PER_EPOCH
    for name in ("steps", "batch_size", "micro_batches"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be >= 1, got {getattr(args, name)}")
    if args.batch_size % args.micro_batches:
        raise ValueError(
            f"--batch-size {args.batch_size} is not divided by --micro-batches {args.micro_batches}; "
            f"choose a multiple of {args.micro_batches}"
        )
    if args.resume and not args.checkpoint:
        raise ValueError("--resume needs --checkpoint DIR")
    return args


def build(args: argparse.Namespace) -> ht.Executor:
    """The model, its optimizer and this worker's part of the job."""
    batch = ht.data.BertHdf5(args.data, batch_size=args.batch_size, seed=args.seed, max_rows=args.max_rows)
    changes: dict[str, Any] = {"vocab_size": batch.vocabulary_size}
    if args.dropout is not None:
        changes.update(hidden_dropout_prob=args.dropout, attention_probs_dropout_prob=args.dropout)
    model = ht.models.Bert.from_config(args.model, **changes)
    loss = model.pretraining_loss(batch)
    rate = ht.lr.warmup(args.learning_rate, args.warmup_steps)
    if args.optimizer == "adamw":
        optimizer: ht.optim.Optimizer = ht.optim.AdamW(
            rate, clip_norm=args.clip_norm, epsilon=1e-7, weight_decay=args.weight_decay
        )
    else:
        optimizer = ht.optim.SGD(rate, clip_norm=args.clip_norm)
    train = optimizer.minimize(loss)
    return ht.Executor(
        {"train": [loss, train], "validate": [loss]}, devices=args.devices, pipeline=args.pipeline,
        micro_batches=args.micro_batches, seed=args.seed, threads=args.threads,
        memory_limit=ht.parse_bytes(args.memory_limit), device=args.device,
    )


class Records:
    """--log: one JSON object per step, written by the chief, whole lines only."""

    def __init__(self, path: str | None, resume: bool) -> None:
        self.file: TextIO | None = open(path, "a" if resume else "w", buffering=1) if path else None

    def write(self, step: ht.Step) -> None:
        if self.file:
            record = {
                "step": step.index, **step.scalars, "samples_per_s": round(step.samples_per_s, 2),
                "learning_rate": step.learning_rate, "gradient_norm": step.gradient_norm,
            }
            self.file.write(json.dumps(record) + "\n")

    def close(self) -> None:
        if self.file:
            self.file.close()


def train(args: argparse.Namespace, job: ht.Executor) -> None:
    """Steps, with progress, log and epoch lines from the chief."""
    if job.is_chief:
        print(job.describe(), flush=True)
        print(f"Training {args.steps / STEPS_PER_EPOCH:g} epoch, each epoch runs {STEPS_PER_EPOCH} iteration", flush=True)
    records = Records(args.log if job.is_chief else None, args.resume)
    reporter = Reporter(args.steps) if job.is_chief else None
    epoch: list[ht.Step] = []
    last: collections.deque[float] = collections.deque(maxlen=20)
    started = time.monotonic()
    tokens = job.data.sequence_length
    for step in job.run(
        "train", steps=args.steps, checkpoint=args.checkpoint, every=args.save_every, keep=args.keep,
        resume=args.resume, trace=args.trace,
    ):
        if reporter is None:
            continue
        records.write(step)
        reporter.update(
            step.index + 1, loss=step.loss, samples_per_s=step.samples_per_s, tokens_per_s=step.samples_per_s * tokens
        )
        epoch.append(step)
        last.append(step.scalars["mlm_loss"])
        if (step.index + 1) % STEPS_PER_EPOCH == 0 or step.index + 1 == args.steps:
            print_epoch(step.index // STEPS_PER_EPOCH, epoch, time.monotonic() - started)
            epoch, started = [], time.monotonic()
    if reporter is not None:
        reporter.close()
        print_gate(job, last)
    records.close()


def print_epoch(number: int, steps: list[ht.Step], seconds: float) -> None:
    """SD-PIPE's line."""

    def mean(name: str) -> float:
        return sum(s.scalars[name] for s in steps) / len(steps)

    print(
        f"{number} TRAIN loss {mean('loss'):.4f}  lm {mean('mlm_loss'):.4e} ns {mean('nsp_loss'):.4e} "
        f"lr {steps[-1].learning_rate:.4e}, time {seconds:.4f}",
        flush=True,
    )


def print_gate(job: ht.Executor, losses: collections.deque[float]) -> None:
    """What has been learnt: the loss beside that of knowing only how often each token occurs."""
    if len(losses) == losses.maxlen:
        print(
            f"MLM loss, mean of the last {len(losses)} steps: {sum(losses) / len(losses):.4f}; "
            f"unigram entropy of the targets: {job.data.target_entropy():.4f}", flush=True,
        )


def main(arguments: list[str] | None = None) -> int:
    with ht.one_line_errors("train_bert.py"):
        args = parse(arguments)
        train(args, build(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
