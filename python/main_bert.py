#!/usr/bin/env python3
"""Pre-trains BERT on plain text with the flags, defaults and lines of Chimera's and PipeFisher's main_bert.py.

    heturun -w 4 python3 python/main_bert.py --corpus_path wikipedia.segmented.nltk.txt --vocab_path vocab.txt \\
            --do_lower_case --bert_config_path config/models/bert_config_bert-base-uncased.json --num_stages 4 \\
            --pipeline_method chimera --num_optimization_steps 1000

The workers of a replica hold the stages, and the job has as many replicas as its workers make. A step has num_stages x
gradient_accumulation_steps micro-batches per replica. The trainer is that of train_bert.py, which has more options.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import hetu as ht
import train_bert
from hetu import hold, training  # noqa: F401 hold: SIGUSR1 waits until one_line_errors takes it

METHODS = {"1f1b": "1f1b", "gpipe": "gpipe", "chimera": "chimera", "interleave": "interleaved-1f1b"}
PROFILE = {"num_optimization_steps": 8, "corpus_lines": 10_000}  # Chimera's: the middle steps are drawn


def options() -> training.Parser:
    parser = training.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, default = parser.add_argument, "(default %(default)s)"
    add("--corpus_path", required=True, help="a sentence per line, a blank line between documents; latin-1")
    add("--corpus_encoding", choices=("latin-1", "utf-8"), default="latin-1", help=default)
    add("--corpus_lines", type=int, help="only the first sentences")
    add("--vocab_path", required=True, help="WordPiece tokens, one per line")
    add("--bert_config_path", required=True, help="a Hugging Face style JSON file (config/models), or tiny, base")
    add("--on_memory", action="store_true", help="taken and not needed: the text is mapped into memory")
    add("--do_lower_case", action="store_true", help="small letters without accents")
    add("--max_seq_length", type=int, default=128, help=f"tokens of a row {default}")
    add("--micro_batch_size", type=int, default=32, help=default)
    add("--num_optimization_steps", type=int, help="steps in all; or")
    add("--num_epochs", type=int, help="passes over the text")
    add("--gradient_accumulation_steps", type=int, default=1, help=f"times num_stages micro-batches per step {default}")
    add("--adam_learning_rate", type=float, default=3e-5, help=default)
    add("--adam_max_grad_norm", type=float, default=1.0, help=f"of all gradients together {default}")
    add("--beta1", type=float, default=0.9, help=default)
    add("--weight_decay", type=float, default=0.01, help=default)
    add("--warmup_proportion", type=float, default=0.1, help=f"of the steps {default}")
    add("--pipeline_method", choices=tuple(METHODS), default="1f1b", help=default)
    add("--num_stages", type=int, default=4, help=default)
    add("--num_pipelines", type=int, default=2, help=f"of chimera: directions, two for each pair {default}")
    add("--chunks", type=int, default=2, help=f"of interleave: stages of a worker {default}")
    add("--recompute", action="store_true", help="keep the inputs of stages only")
    add("--p2p_backend", default="gloo", help="taken and not needed: HETU_TRANSPORT says how messages go")
    add("--collective_backend", default="nccl", help="the same")
    add("--checkpoint_dir", help="save here, and go on from what is there")
    add("--save_checkpoint_steps", type=int, default=200, help=f"between checkpoints {default}")
    add("--seed", type=int, default=1, help=default)
    add("--num_workers", type=int, default=4, help=f"threads that make rows, at most {default}")
    add("--profile", action="store_true", help="8 steps on 10,000 sentences, drawn as bert_prof/NAME.pdf")
    add("--observe_norm", action="store_true", help="the norm of the gradients in each line, too")
    add("--wandb", action="store_true", help="not offered: --log writes a record per step")
    add("--log", metavar="FILE", help="a record per step: JSON lines, or CSV where the name ends in .csv")
    add("--log_interval", type=int, default=100, help=f"steps between two lines {default}")
    add("--config", metavar="FILE.yml", help="lines of `flag: value`; they override what is typed")
    return parser


def from_file(path: str, parser: training.Parser) -> dict[str, Any]:
    """The flags that a file of `flag: value` lines sets, each read as the flag would be."""
    actions = {action.dest: action for action in parser._actions if action.dest != "help"}
    found: dict[str, Any] = {}
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if not (text := line.split(" #")[0].strip()) or text.startswith("#") or text == "---":
            continue
        name, colon, value = (part.strip() for part in text.partition(":"))
        if not colon or name not in actions or not value:
            raise ValueError(f"{path}:{number}: '{text}' is no line of `flag: value` with a flag of this script")
        action, value = actions[name], value.strip("'\"")
        if action.nargs == 0 and value not in ("true", "True", "false", "False"):
            raise ValueError(f"{path}:{number}: {name} is true or false, got {value}")
        try:
            found[name] = value in ("true", "True") if action.nargs == 0 else (action.type or str)(value)  # type: ignore
        except ValueError:
            raise ValueError(f"{path}:{number}: {name}: {value} is no {action.type.__name__}") from None  # type: ignore
        if action.choices and found[name] not in action.choices:
            raise ValueError(f"{path}:{number}: {name} is one of {', '.join(map(str, action.choices))}, got {value}")
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Flags; those of --config override what is typed, as they did."""
    parser = options()
    before = training.Parser(add_help=False)
    before.add_argument("--config")
    if config := before.parse_known_args(arguments)[0].config:
        set_there = from_file(config, parser)
        for action in parser._actions:
            action.required &= action.dest not in set_there
    args = parser.parse_args(arguments)
    if config:
        vars(args).update(set_there)
    if args.wandb:
        raise ValueError("--wandb is not offered; --log FILE.jsonl writes a record per step, runs/ has TensorBoard's")
    if args.profile:
        vars(args).update(PROFILE)
    if args.num_optimization_steps is None and args.num_epochs is None:
        raise ValueError("give --num_optimization_steps or --num_epochs")
    for name in ("num_stages", "micro_batch_size", "gradient_accumulation_steps", "chunks", "log_interval"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} must be >= 1, got {getattr(args, name)}")
    return args


class Plan:
    """What the flags make of the job: where stages lie, and how many micro-batches there are."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.workers = int(ht._hetu.env()["workers"])
        chunks = args.chunks if args.pipeline_method == "interleave" else 1
        self.positions, rest = divmod(args.num_stages, chunks)
        if rest:
            raise ValueError(f"--num_stages {args.num_stages} with --chunks {chunks}: each worker of a pipeline has as many")
        self.copies, rest = divmod(self.workers, self.positions)
        if rest or not self.copies:
            of_chunks = f" in --chunks {chunks}" if chunks > 1 else ""
            raise ValueError(f"{self.workers} workers make no replicas of {self.positions}: --num_stages {args.num_stages}"
                             f"{of_chunks} needs heturun -w {self.positions}, or a multiple")
        is_chimera = args.pipeline_method == "chimera"
        if is_chimera and (args.num_pipelines < 2 or args.num_pipelines % 2):
            raise ValueError(f"--num_pipelines {args.num_pipelines}: chimera has two for each pair")
        self.pipelines = args.num_pipelines if is_chimera else 1
        self.micro_batches = args.num_stages * args.gradient_accumulation_steps
        self.words = ["--pipeline", METHODS[args.pipeline_method], "--devices", f"pipe_{self.copies}_{self.positions}",
                      "--micro-batches", str(self.micro_batches), "--batch-size",
                      str(self.micro_batches * args.micro_batch_size)]
        if is_chimera:
            self.words += ["--pairs", str(self.pipelines // 2)]
        if args.pipeline_method == "interleave":
            self.words += ["--chunks", str(chunks)]
        if args.recompute:
            self.words += ["--with-recompute"]

    def ranks(self, stage: int) -> list[int]:
        """The workers that hold a stage."""
        one = {stage % self.positions}
        for k in range(self.pipelines // 2):  # pair k begins a share of the workers later, its second direction goes back
            first = k * self.positions // (self.pipelines // 2)
            up = (first + stage) % self.positions
            one |= {up, self.positions - 1 - up}
        return sorted(copy * self.positions + rank for copy in range(self.copies) for rank in one)


def trainer(args: argparse.Namespace, plan: Plan) -> argparse.Namespace:
    """The same in the words of train_bert.py."""
    words = [
        "--data", args.corpus_path, "--vocab", args.vocab_path, "--encoding", args.corpus_encoding, "--model",
        args.bert_config_path, "--sequence-length", args.max_seq_length, "--corpus-lines", args.corpus_lines or 0,
        "--optimizer", "bertadam", "--learning-rate", args.adam_learning_rate, "--clip-norm", args.adam_max_grad_norm,
        "--weight-decay", args.weight_decay, "--seed", args.seed, *plan.words,
    ]
    told = train_bert.parse([str(word) for word in words] + ([] if args.do_lower_case else ["--cased"]))
    told.row_threads = min(args.num_workers, ht.data.decoding_threads())
    return told


def banner(args: argparse.Namespace, plan: Plan, steps: int) -> str:
    lines = {
        "pipeline_method": args.pipeline_method, "num_epochs": args.num_epochs, "num_optimization_steps": steps,
        "world_size": plan.workers, "num_replica": len(plan.ranks(0)), "num_pipeline": plan.pipelines,
        "num_micro_batches_per_step": plan.micro_batches // plan.pipelines, "recompute": args.recompute,
        **{f"stage{stage}": f"ranks {plan.ranks(stage)}" for stage in range(args.num_stages)},
    }
    rule = "=" * 28
    every = [f"{name}: {value}" for name, value in vars(args).items()]
    return "\n".join([rule, *(f"{name}: {value}" for name, value in lines.items()), rule, *every, rule])


def train(args: argparse.Namespace, plan: Plan) -> None:
    told = trainer(args, plan)
    data = train_bert.rows_of(told, told.data)
    per_epoch = training.batches(data, plan.copies, "training")
    steps = args.num_optimization_steps or args.num_epochs * per_epoch
    rate = ht.lr.bert_linear(args.adam_learning_rate, steps, args.warmup_proportion)
    job = train_bert.build(told, data, rate, {"betas": (args.beta1, 0.999)}, tie_word_embeddings=False)
    if job.is_chief:
        print(banner(args, plan, steps), flush=True)
        print(job.describe(), flush=True)
    trace = Path("bert_prof") / f"{name_of(args, plan)}.json" if args.profile else None
    if trace and job.is_chief:
        trace.parent.mkdir(exist_ok=True)
    resume = bool(args.checkpoint_dir) and any(Path(args.checkpoint_dir).glob("step-*"))
    hooks = [ht.hooks.Progress(steps, args.max_seq_length), *([ht.hooks.Log(args.log)] if args.log else [])]
    every = args.save_checkpoint_steps if args.checkpoint_dir else 0
    for step in job.run("train", until=steps, checkpoint=args.checkpoint_dir, every=every, resume=resume,
                        trace=str(trace) if trace else None, hooks=hooks, epoch_steps=per_epoch):
        if job.is_chief and (step.index + 1) % args.log_interval == 0:
            norm = f" norm = {step.gradient_norm:.6g}" if args.observe_norm else ""
            print(f"epoch{step.index // per_epoch + 1} step{step.index + 1} loss = {step.loss:.6f}{norm}", flush=True)
    if not job.is_chief:
        return
    if trace:
        draw(trace)
    print("Finished.", flush=True)


def name_of(args: argparse.Namespace, plan: Plan) -> str:
    """bert-large_chimera_8stages_8gpus_microbs32_acc1."""
    model = Path(args.bert_config_path).stem.removeprefix("bert_config_").removesuffix("-uncased")
    return (f"{model}_{args.pipeline_method}_{args.num_stages}stages_{plan.workers}gpus_microbs{args.micro_batch_size}"
            f"_acc{args.gradient_accumulation_steps}")


def draw(trace: Path) -> None:
    """The steps in the middle of a profile, as Chimera draws them."""
    picture = trace.with_suffix(".pdf")
    subprocess.run(["hetu", "timeline", trace, "--style", "profile", "--step", "5", "-o", picture], check=True)
    print(f"{picture}: steps 5, 6, 7 of {trace}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    with ht.one_line_errors("main_bert.py"):
        args = parse(arguments)
        train(args, Plan(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
