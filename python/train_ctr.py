#!/usr/bin/env python3
"""Trains Wide & Deep or DLRM on click logs in Criteo's format, and evaluates it after each epoch: loss and AUC.

    heturun -c config/local.yml python3 python/train_ctr.py --data build/sample/criteo \\
            --hash-size 1000 --devices pipe_2_2 --pipeline gpipe --batch-size 256 \\
            --micro-batches 4 --epochs 2

Without heturun it trains in one process with one stage. The model is cut between blocks: the tables, each hidden layer, the
output.
"""

from __future__ import annotations

import argparse
import os
import sys

import hetu as ht
from hetu import hold, training  # noqa: F401 hold: SIGUSR1 waits until one_line_errors takes it
from hetu.graph import PLACEMENTS
from hetu.models.ctr import MODELS
from hetu.place import of_flags


def sizes(text: str) -> tuple[int, ...]:
    """Parses layer sizes such as 256,128,64."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of layer sizes; write 256,128,64")
    return tuple(map(int, parts))


def options() -> training.Parser:
    parser = training.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(batch_size=256, learning_rate=0.02, optimizer="adagrad", weight_decay=0.0, epochs=1)
    add = parser.add_argument_group("model and data").add_argument
    add("--data", required=True, metavar="PATH",
        help="a file of click logs, a folder of day files, or a folder that contains train and val")
    add("--eval-data", metavar="PATH",
        help="click logs for an evaluation after each epoch (default: val of --data, if it exists)")
    add("--model", default="wide-deep", choices=list(MODELS), help="default %(default)s")
    add("--hash-size", type=int, default=10000, metavar="N",
        help="rows of the embedding table for each of the 26 columns; categories are taken modulo N (default %(default)s)")
    add("--embedding-width", type=int, default=16, metavar="N", help="numbers per row of the table (default %(default)s)")
    add("--tables", default="worker", choices=PLACEMENTS,
        help="where embedding tables are kept: on the worker of their stage, or on heturun's parameter servers, with a "
             "cache (default %(default)s)")
    add("--hidden", type=sizes, default=(256, 128, 64), metavar="N,N,…", help="hidden layers (default 256,128,64)")
    add("--warmup-steps", type=int, default=0, help="updates of linear warm-up (default %(default)s)")
    add("--max-rows", type=int, default=0, help="use only the first rows of the data (0 = all)")
    training.add_options(parser)
    return parser


def parse(arguments: list[str] | None) -> argparse.Namespace:
    args = options().parse_args(arguments)
    train, val = (os.path.join(args.data, below) for below in ("train", "val"))
    if os.path.isdir(train):
        args.data = train
        args.eval_data = args.eval_data or (val if os.path.isdir(val) else None)
    training.check(args, evaluates=bool(args.eval_data))
    for name in ("hash_size", "embedding_width"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be >= 1, got {getattr(args, name)}")
    for name in ("warmup_steps", "max_rows"):
        if getattr(args, name) < 0:
            raise ValueError(f"--{name.replace('_', '-')} must be >= 0, got {getattr(args, name)}")
    return args


def evaluate(job: ht.Executor, data: ht.data.Data, batches: int) -> tuple[float, float]:
    """Returns the mean loss and the AUC over whole batches. Collective: every worker calls it."""
    import numpy as np

    seen = list(job.run("validate", steps=batches, data=data))
    logits, clicks = (np.concatenate([step.samples_of[name] for step in seen]) for name in ("logit", "click"))
    return sum(step.loss for step in seen) / len(seen), ht.metrics.auc(logits, clicks)


def train(args: argparse.Namespace) -> None:
    """Trains in epochs of whole batches, and prints a line after each."""
    data = ht.data.Criteo(args.data, args.batch_size, args.hash_size, seed=args.seed, max_rows=args.max_rows)
    evaluation = None
    if args.eval_data:
        evaluation = ht.data.Criteo(args.eval_data, args.batch_size, args.hash_size, train=False, seed=args.seed)
    pipelines = ht.devices.layout(args.devices).pipelines
    iterations = training.batches(data, training.global_batch(args, pipelines), "training")
    evaluations = training.batches(evaluation, training.global_batch(args, pipelines), "evaluation") if evaluation else 0
    args.steps = args.steps or args.epochs * iterations
    loss = MODELS[args.model](args.hash_size, args.embedding_width, args.hidden, tables=args.tables).loss(data)
    goal = training.optimizer_of(args, ht.lr.warmup(args.learning_rate, args.warmup_steps)).minimize(loss)
    job = training.executor_of(args, {"train": [loss, goal], "validate": [loss]})

    def epoch_end(epoch: training.Epoch) -> dict[str, float]:
        if job.is_chief:
            print(f"{epoch.number} TRAIN loss {epoch.mean('loss'):.4f} "
                  f"lr {epoch.learning_rate:.2e}, time {epoch.seconds:.4f}", flush=True)
        scalars = {"Train/loss": epoch.mean("loss"), "Train/samples_per_s": epoch.samples / epoch.seconds}
        if not evaluation or not epoch.drained:
            return scalars
        mean, area = evaluate(job, evaluation, evaluations)
        if job.is_chief:
            print(f"{epoch.number} EVAL  loss {mean:.4f} auc {area:.4f}", flush=True)
        return scalars | {"Validation/loss": mean, "Validation/auc": area}

    training.run(args, job, iterations, epoch_end)


def main(arguments: list[str] | None = None) -> int:
    with ht.one_line_errors("train_ctr.py"), of_flags():
        train(parse(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
