#!/usr/bin/env python3
"""Trains a ResNet on CIFAR-100 or on folders of images, and evaluates it after each epoch (with --no-drain, at the end).

    heturun -c config/local.yml python3 python/train_resnet.py --data build/sample/images \\
            --dataset imagenet --size 64 --model resnet18 --devices pipe_2_2 --pipeline 1f1b \\
            --batch-size 32 --micro-batches 4 --epochs 5

Without heturun it trains in one process with one stage.
"""

from __future__ import annotations

import argparse
import os
import sys

import hetu as ht
from hetu import hold, training  # noqa: F401 hold: SIGUSR1 waits until one_line_errors takes it
from hetu.models.resnet import CONFIGS
from hetu.place import of_flags

# SD-PIPE's schedules: after the first epoch, in which the rate warms up, it is multiplied by `gamma` every
# `epochs` epochs.
RATES = {"cifar100": {"epochs": 60, "gamma": 0.1}, "imagenet": {"epochs": 30, "gamma": 0.2}}


def options() -> training.Parser:
    parser = training.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(batch_size=128, learning_rate=0.1, optimizer="momentum", weight_decay=5e-4)
    add = parser.add_argument_group("model and data").add_argument
    add("--dataset", default="cifar100", choices=["cifar100", "imagenet"],
        help="imagenet: any folders with a sub-folder per class (default %(default)s)")
    add("--model", default="resnet18", choices=list(CONFIGS), help="default %(default)s")
    add("--data", metavar="PATH",
        help="cifar100: its file or folder; imagenet: the folder with train and val (default: IMAGENET_TRAIN_ROOT and "
        "IMAGENET_VAL_ROOT)")
    add("--size", type=int, default=224, help="imagenet: height and width to which images are scaled (default %(default)s)")
    add("--schedule", default="sd-pipe", choices=["sd-pipe", "constant", "linear", "cosine", "plateau"],
        help="learning rate after warm-up; sd-pipe: x 0.2 every 30 epochs on imagenet, x 0.1 every 60 on cifar100; "
        "plateau: x 0.1 when the evaluated loss has not fallen for 10 epochs (default %(default)s)")
    add("--warmup-epochs", type=float, default=1.0, help="epochs of linear warm-up (default %(default)s)")
    training.add_options(parser)
    return parser


def parse(arguments: list[str] | None) -> argparse.Namespace:
    args = options().parse_args(arguments)
    training.check(args)  # with --no-drain it evaluates only at the end
    if args.dataset == "cifar100" and not args.data:
        raise ValueError("--dataset cifar100 needs --data PATH: the file or the folder of CIFAR-100")
    if args.warmup_epochs < 0:
        raise ValueError(f"--warmup-epochs must be >= 0, got {args.warmup_epochs}")
    return args


def open_data(args: argparse.Namespace) -> tuple[ht.data.Data, ht.data.Data]:
    """Returns the data for training and for evaluation."""
    if args.dataset == "cifar100":
        return (ht.data.Cifar100(args.data, args.batch_size, seed=args.seed),
                ht.data.Cifar100(args.data, args.batch_size, train=False, seed=args.seed))
    roots = ht.data.imagenet_roots(args.data)
    train, evaluation = (ht.data.ImageFolder(root, args.batch_size, args.size, train=i == 0, seed=args.seed)
                         for i, root in enumerate(roots))
    try:
        train.check_meaning(evaluation)
    except ValueError as error:
        raise ValueError(f"{roots[0]} and {roots[1]}: {error}") from None
    return train, evaluation


def rate_of(args: argparse.Namespace, iterations: int) -> ht.lr.Rate | ht.lr.ReduceOnPlateau:
    """Returns the learning rate, by update."""
    warmup, rate = round(args.warmup_epochs * iterations), args.learning_rate
    if args.schedule == "sd-pipe":
        steps = RATES[args.dataset]
        return ht.lr.step(rate, int(steps["epochs"]) * iterations, steps["gamma"], warmup=warmup)
    if args.schedule == "plateau":
        return ht.lr.ReduceOnPlateau(ht.lr.warmup(rate, warmup))
    if args.schedule == "cosine":
        return ht.lr.cosine(rate, args.steps, warmup=warmup)
    return ht.lr.warmup_linear(rate, warmup, args.steps) if args.schedule == "linear" else ht.lr.warmup(rate, warmup)


def train(args: argparse.Namespace) -> None:
    """Trains in epochs of whole batches, and prints SD-PIPE's two lines after each."""
    data, evaluation = open_data(args)
    pipelines = ht.devices.layout(args.devices).pipelines
    iterations = training.batches(data, training.global_batch(args, pipelines), "training")
    evaluations = training.batches(evaluation, training.global_batch(args, pipelines), "evaluation")
    args.steps = args.steps or args.epochs * iterations
    model = ht.models.ResNet(args.model, data.num_classes, "cifar" if args.dataset == "cifar100" else "imagenet")
    loss = model.loss(data)
    goal = training.optimizer_of(args, rate_of(args, iterations)).minimize(loss)
    job = training.executor_of(args, {"train": [loss, goal], "validate": [loss]}, model.first_blocks)
    if args.dataset == "cifar100" and os.path.isfile(args.data) and job.is_chief:
        print(f"--data {args.data} is one file: each epoch is evaluated on the rows that it trains on. Give the folder that "
              "has train and test to evaluate on other rows.", file=sys.stderr, flush=True)

    def epoch_end(epoch: training.Epoch) -> dict[str, float]:
        if job.is_chief:
            print(
                f"{epoch.number} TRAIN loss {epoch.mean('loss'):.4f} acc {epoch.share('hits1'):.4f} "
                f"lr {epoch.learning_rate:.2e}, time {epoch.seconds:.4f}", flush=True,
            )
        scalars = {
            "Train/loss": epoch.mean("loss"), "Train/acc": epoch.share("hits1"),
            "Train/samples_per_s": epoch.samples / epoch.seconds,
        }
        if not epoch.drained:
            return scalars
        seen = training.Epoch(epoch.number, job.run("validate", steps=evaluations, data=evaluation))
        loss, top1, top5 = seen.mean("loss"), seen.share("hits1"), seen.share("hits5")
        if job.plateau:
            job.plateau.report(loss)
        if job.is_chief:
            print(f"{epoch.number} EVAL  loss {loss:.4f} acc {top1:.4f}, top-5 {top5:.4f}", flush=True)
        return scalars | {"Validation/loss": loss, "Validation/acc": top1, "Validation/acc5": top5}

    training.run(args, job, iterations, epoch_end)


def main(arguments: list[str] | None = None) -> int:
    with ht.one_line_errors("train_resnet.py"), of_flags():
        train(parse(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
