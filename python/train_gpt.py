#!/usr/bin/env python3
"""Trains a next-token model (GPT-2, Llama or one of its relatives) on text: its bytes, or the tokens of a vocabulary.

    heturun -w 4 python3 python/train_gpt.py --data TEXT --model tiny --devices pipe_2_2 \\
            --pipeline 1f1b --batch-size 16 --micro-batches 4 --learning-rate 1e-3 \\
            --warmup-steps 20 --steps 200

Without heturun it trains in one process with one stage. TEXT is a file, or a folder whose *.txt files are read. The model
is cut between blocks: the embeddings, each layer, the head.
"""

from __future__ import annotations

import argparse
import collections
import math
import sys
from typing import Any

import hetu as ht
from hetu import hold, training  # noqa: F401 hold: SIGUSR1 waits until one_line_errors takes it
from hetu.models.config_file import READERS, in_folder, load
from hetu.place import of_flags

FAMILIES: dict[str, Any] = {"gpt": ht.models.Gpt, "llama": ht.models.Llama}


def options() -> training.Parser:
    parser = training.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(batch_size=16, learning_rate=3e-4, optimizer="adamw", weight_decay=0.1, epochs=1)
    add = parser.add_argument_group("model and data").add_argument
    add("--data", required=True, metavar="TEXT", help="a text file, or a folder of *.txt")
    add("--eval-data", metavar="TEXT", help="text for an evaluation after each epoch (default: none)")
    add("--vocabulary", metavar="FILE", help="a tokenizer.json, read by Hugging Face's tokenizers (default: bytes)")
    add("--family", choices=sorted(FAMILIES), help="model family (default: that of the config.json of --model, else gpt)")
    add("--model", default="tiny",
        help="sizes by name (gpt: tiny, gpt2, gpt2-medium, gpt2-large, gpt2-xl; llama: tiny, 7b), or a Hugging Face "
             "config.json or its folder (default %(default)s)")
    add("--weights", metavar="FILE.safetensors",
        help="initial weights, with Hugging Face's names: a file, the index of sharded files, or a folder")
    add("--length", type=int, default=0, metavar="T", help="tokens per row; 0: the model's positions, at most 128 (default)")
    add("--warmup-steps", type=int, default=100, help="updates of linear warm-up (default %(default)s)")
    training.add_options(parser)
    return parser


def parse(arguments: list[str] | None) -> argparse.Namespace:
    args = options().parse_args(arguments)
    training.check(args, evaluates=bool(args.eval_data))
    return args


def family_of(args: argparse.Namespace) -> str:
    """Returns --family, or the family whose class reads the config.json of --model, or gpt."""
    path = in_folder(args.model)
    if args.family or not path.is_file():
        return args.family or "gpt"
    reader = READERS.get(str(load(path).get("model_type")))
    return next((family for family, model in FAMILIES.items() if model.__name__ == reader), "gpt")


def build(args: argparse.Namespace) -> ht.Executor:
    """Returns this worker's part of the job, with the model and its optimizer."""
    vocabulary = ht.text.Vocabulary(args.vocabulary)
    sizes = {} if args.weights else {"vocab_size": vocabulary.size}
    model = FAMILIES[family_of(args)].from_config(args.model, **sizes)
    if model.config.vocab_size < vocabulary.size:
        raise ValueError(f"--vocabulary has {vocabulary.size} tokens, but the model only {model.config.vocab_size}")
    args.length = args.length or min(model.positions, 128)
    data = ht.text.Text(args.data, args.batch_size, args.length, vocabulary, seed=args.seed)
    loss = model.loss(data)
    if args.weights:
        ht.load_weights(args.weights)
    train = training.optimizer_of(args, ht.lr.warmup(args.learning_rate, args.warmup_steps)).minimize(loss)
    return training.executor_of(args, {"train": [loss, train], "validate": [loss]})


def train(args: argparse.Namespace, job: ht.Executor) -> None:
    """Trains in epochs of a pass over the text each, and prints the reached loss at the end."""
    epoch_steps = training.batches(job.data, job.global_batch, "training")
    args.steps = args.steps or args.epochs * epoch_steps
    last: collections.deque[float] = collections.deque(maxlen=20)
    evaluation = ht.text.Text(args.eval_data, args.batch_size, args.length, job.data.vocabulary, train=False) \
        if args.eval_data else None
    evaluations = training.batches(evaluation, job.global_batch, "evaluation") if evaluation else 0

    def epoch_end(epoch: training.Epoch) -> dict[str, float]:
        last.extend(step.loss for step in epoch.steps)
        if job.is_chief:
            print(f"{epoch.number} TRAIN loss {epoch.mean('loss'):.4f} lr {epoch.learning_rate:.4e}, "
                  f"time {epoch.seconds:.4f}", flush=True)
        scalars = {"Train/loss": epoch.mean("loss"), "Train/samples_per_s": epoch.samples / epoch.seconds}
        if not evaluation or not epoch.drained:
            return scalars
        seen = training.Epoch(epoch.number, job.run("validate", steps=evaluations, data=evaluation))
        if job.is_chief:
            print(f"{epoch.number} EVAL  loss {seen.mean('loss'):.4f} perplexity {math.exp(seen.mean('loss')):.2f}",
                  flush=True)
        return scalars | {"Validation/loss": seen.mean("loss")}

    training.run(args, job, epoch_steps, epoch_end, tokens=args.length)
    if job.is_chief and len(last) == last.maxlen:
        print(f"loss, mean of the last {len(last)} steps: {sum(last) / len(last):.4f}; unigram entropy of the text: "
              f"{job.data.entropy():.4f}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    with ht.one_line_errors("train_gpt.py"), of_flags():
        args = parse(arguments)
        train(args, build(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
