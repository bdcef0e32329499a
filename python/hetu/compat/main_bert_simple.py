"""Pre-trains BERT by data parallelism on plain text with the flags, defaults and lines of PipeFisher's main_bert_simple.py.

    heturun -w 4 python3 python/main_bert_simple.py --corpus_path wikipedia.segmented.nltk.txt \\
            --vocab_path vocab.txt --do_lower_case \\
            --bert_config_path config/models/bert_config_bert-base-uncased.json --batch_size 128 \\
            --num_optimization_steps 1000

--batch_size is the number of samples per step of all workers together. Each worker computes an equal share of them, in
--gradient_accumulation_steps micro-batches. The trainer is that of train_bert.py, which has more options; there --batch-size
counts the samples of one pipeline.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType

import hetu as ht
from hetu import _hetu, training
from hetu.compat import chimera_flags, pipefisher_flags, tracking
from hetu.job.flags import check_log
from hetu.place import of_flags

NOT_OFFERED = {
    **pipefisher_flags.NOT_OFFERED,
    "resume": "--checkpoint_dir continues from the checkpoint in that folder",
    "profile": "train_bert.py --pipeline dp --trace FILE.json records what happened",
}
COUNTS = ("batch_size", "gradient_accumulation_steps", "num_optimization_steps", "num_epochs", "log_interval",
          "inv_interval")


def options() -> training.Parser:
    parser = training.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, default = parser.add_argument, "(default %(default)s)"
    add("--corpus_path", required=True, help="a sentence per line, a blank line between documents; latin-1")
    add("--corpus_lines", type=int, help="use only the first sentences")
    add("--vocab_path", required=True, help="WordPiece tokens, one per line")
    add("--bert_config_path", required=True, help="a Hugging Face style JSON file (config/models), or tiny, base")
    add("--do_lower_case", action="store_true", help="lower-case the text and remove accents")
    add("--max_seq_length", type=int, default=128, help=f"tokens per row {default}")
    add("--batch_size", type=int, default=32, help=f"samples per step, of all workers together {default}")
    add("--num_optimization_steps", type=int, help="number of steps, or give --num_epochs")
    add("--num_epochs", type=int, help="passes over the text")
    add("--gradient_accumulation_steps", type=int, default=1, help=f"micro-batches of a worker per step {default}")
    add("--learning_rate", type=float, default=3e-5, help=default)
    add("--momentum", type=float, default=0.9, help=f"of --sgd {default}")
    add("--ngd_learning_rate", type=float, default=3e-5,
        help=f"of --ngd_training without --ngd_with_lamb, for all weights {default}")
    add("--ngd_momentum", type=float, default=0.9, help=f"of --ngd_training without --ngd_with_lamb {default}")
    add("--max_grad_norm", type=float, default=1.0, help=f"of --adam: bound of the norm of all gradients together {default}")
    add("--ngd_max_grad_norm", type=float, default=100.0, help="accepted, and not used without --adam, as in the original")
    add("--weight_decay", type=float, default=0.01, help=default)
    add("--beta1", type=float, default=0.9, help=f"of --adam {default}")
    add("--beta2", type=float, default=0.999, help=f"of --adam {default}")
    add("--warmup_proportion", type=float, default=0.1, help=f"share of the steps {default}")
    add("--damping", type=float, default=0.01, help=f"of --ngd_training {default}")
    add("--inv_interval", type=int, default=1, help=f"of --ngd_training: steps from one refresh of the inverses to the next "
                                                    f"{default}")
    add("--adam", action="store_true", help="BertAdam (default: LAMB)")
    add("--sgd", action="store_true", help="SGD with momentum (default: LAMB)")
    add("--ngd_training", action="store_true", help="K-FAC before SGD with momentum")
    add("--ngd_with_lamb", action="store_true", help="of --ngd_training: K-FAC before LAMB, at --learning_rate")
    add("--ngd_with_adam", action="store_true", help="of --ngd_training with --adam: K-FAC before BertAdam")
    for name in NOT_OFFERED:
        takes = {"metavar": "FILE"} if name in ("resume", "ngd_schedule_path") else {"action": "store_true"}
        add(f"--{name}", help="not offered: the error names the replacement", **takes)  # type: ignore[arg-type]
    add("--checkpoint_dir", help="save here, and continue from a checkpoint that is there")
    add("--save_checkpoint_steps", type=int, default=200, help=f"steps between checkpoints {default}")
    add("--seed", type=int, default=1, help=default)
    add("--num_workers", type=int, default=4, help=f"maximum number of threads that make rows {default}")
    add("--observe_norm", action="store_true", help="print the norm of the gradients in each line")
    chimera_flags.add_common(add)
    add("--log", metavar="FILE", help="write a record per step: JSON lines, or CSV if the name ends in .csv")
    add("--log_interval", type=int, default=100, help=f"steps between two lines {default}")
    add("--subset_size", type=int, help="use only the first rows of the data")
    parser.add_config()
    return parser


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Returns the flags. Flags of --config override typed ones. Throws ValueError."""
    args = options().parse_args(arguments)
    tracking.check(args)
    chimera_flags.say_unused(args)
    check_log(args.log)
    for name, why in NOT_OFFERED.items():
        if getattr(args, name):
            raise ValueError(f"--{name} is not offered: {why}")
    if args.num_optimization_steps is None and args.num_epochs is None:
        raise ValueError("give --num_optimization_steps or --num_epochs")
    chimera_flags.check_counts(args, *COUNTS)
    kinds = [f"--{name}" for name in ("adam", "sgd") if getattr(args, name)]
    if len(kinds) > 1:
        raise ValueError("--adam and --sgd name two optimizers; give one of them")
    if (args.ngd_with_lamb or args.ngd_with_adam) and not args.ngd_training:
        raise ValueError("--ngd_with_lamb and --ngd_with_adam belong to --ngd_training")
    if args.ngd_with_adam != (args.adam and args.ngd_training):
        raise ValueError("--ngd_training with BertAdam needs both --adam and --ngd_with_adam")
    if args.ngd_with_lamb and args.ngd_with_adam:
        raise ValueError("--ngd_with_lamb and --ngd_with_adam name two optimizers; give one of them")
    if args.sgd and args.ngd_training:
        raise ValueError("--sgd with --ngd_training: one optimizer updates all weights here; leave --sgd out")
    return args


def share_of(batch_size: int, workers: int, accumulation: int) -> int:
    """Returns the samples per step of one worker. Throws ValueError if the global batch can't be divided."""
    if batch_size % (workers * accumulation):
        raise ValueError(f"--batch_size {batch_size} is not divisible by {workers} workers x --gradient_accumulation_steps "
                         f"{accumulation}; choose a multiple of {workers * accumulation}")
    return batch_size // workers


def optimizer_words(args: argparse.Namespace) -> list[object]:
    """Returns the optimizer and its settings as flags of train_bert.py. LAMB clips to a norm of 1; SGD doesn't clip."""
    of_kfac = ["--damping", args.damping, "--curvature-every", args.inv_interval] if args.ngd_training else []
    if args.adam:
        kind, rate = "bertadam", args.learning_rate
        more = ["--beta1", args.beta1, "--beta2", args.beta2, "--clip-norm", args.max_grad_norm]
    elif args.sgd or (args.ngd_training and not args.ngd_with_lamb):
        kind, rate = "momentum", args.learning_rate if args.sgd else args.ngd_learning_rate
        more = ["--momentum", args.momentum if args.sgd else args.ngd_momentum, "--clip-norm", 0]
    else:
        kind, rate, more = "lamb", args.learning_rate, []
    named = ["--optimizer", "kfac", "--inner", kind] if args.ngd_training else ["--optimizer", kind]
    return [*named, *of_kfac, *more, "--learning-rate", rate, "--weight-decay", args.weight_decay, "--warmup-share",
            args.warmup_proportion, "--schedule", "bert_linear" if args.adam else "nvlamb"]


def trainer(train_bert: ModuleType, args: argparse.Namespace) -> argparse.Namespace:
    """Returns the same settings as flags of train_bert.py."""
    workers = int(_hetu.env()["workers"])
    accumulation = args.gradient_accumulation_steps
    share = share_of(args.batch_size, workers, accumulation)
    words = ["--data", args.corpus_path, "--vocab", args.vocab_path, "--encoding", "latin-1", "--model",
             args.bert_config_path, "--sequence-length", args.max_seq_length, "--corpus-lines", args.corpus_lines or 0,
             "--max-rows", args.subset_size or 0, "--seed", args.seed, "--pipeline", "dp", "--devices", f"pipe_{workers}_1",
             "--batch-size", share, "--micro-batches", accumulation, *optimizer_words(args)]
    told = train_bert.parse([str(word) for word in words] + ([] if args.do_lower_case else ["--cased"]))
    told.row_threads = min(args.num_workers, ht.data.decoding_threads())
    return told


def banner(args: argparse.Namespace, epochs: int, steps: int, workers: int) -> str:
    lines = {"num_epochs": epochs, "num_optimization_steps": steps, "world_size": workers}
    rule, thin = "=" * 28, "-" * 28
    shown = {name: value for name, value in vars(args).items() if name not in NOT_OFFERED}
    return "\n".join([rule, *(f"{name}: {value}" for name, value in lines.items()), thin,
                      *(f"{name}: {value}" for name, value in shown.items()), rule])


class StepLines(chimera_flags.StepLines):
    """Prints `epochE stepS loss = total (mlm + nsp)` at the first step and every `interval` steps after it. A hook."""

    def on_step(self, job: ht.Executor, step: ht.Step) -> None:
        if not job.is_chief or step.index % self.interval:
            return
        norm = f" norm = {step.gradient_norm:.6g}" if self.norm else ""
        parts = f"{step.scalars['mlm_loss']:.6f} + {step.scalars['nsp_loss']:.6f}"
        print(f"epoch{step.index // self.per_epoch + 1} step{step.index + 1} loss = {step.loss:.6f} ({parts}){norm}",
              flush=True)


def train(train_bert: ModuleType, args: argparse.Namespace) -> None:
    told = trainer(train_bert, args)
    data = train_bert.rows_of(told, told.data, told.max_rows)
    workers = int(_hetu.env()["workers"])
    per_epoch = training.batches(data, workers * data.batch_size, "training")
    told.steps = args.num_optimization_steps or args.num_epochs * per_epoch
    job = train_bert.build(told, data, tie_word_embeddings=False)
    if job.is_chief:
        print(job.describe_batch(), flush=True)
        print(banner(args, -(-told.steps // per_epoch), told.steps, workers), flush=True)
        print(job.describe(), flush=True)
    resume = bool(args.checkpoint_dir) and any(Path(args.checkpoint_dir).glob("step-*"))
    hooks = [ht.hooks.Progress(told.steps, args.max_seq_length, says_batch=False),
             *([ht.hooks.Log(args.log)] if args.log else []), StepLines(args.log_interval, per_epoch, args.observe_norm),
             *tracking.hooks_of(args)]
    for _ in job.run("train", until=told.steps, checkpoint=args.checkpoint_dir, resume=resume, hooks=hooks,
                     every=args.save_checkpoint_steps if args.checkpoint_dir else 0, epoch_steps=per_epoch):
        pass
    if job.is_chief:
        print("Finished.", flush=True)


def main(train_bert: ModuleType, arguments: list[str] | None = None) -> int:
    """Runs the script. `train_bert` is the module of the script of that name, whose trainer is used."""
    with ht.one_line_errors("main_bert_simple.py"), of_flags():
        train(train_bert, parse(arguments))
    return 0
