"""Pre-trains BERT on plain text with the flags, defaults and lines of Chimera's and PipeFisher's main_bert.py.

    heturun -w 4 python3 python/main_bert.py --corpus_path wikipedia.segmented.nltk.txt \\
            --vocab_path vocab.txt --do_lower_case \\
            --bert_config_path config/models/bert_config_bert-base-uncased.json --num_stages 4 \\
            --pipeline_method chimera --num_optimization_steps 1000

The workers of a replica hold the stages. The job has as many replicas as its number of workers allows. A step has
num_stages x gradient_accumulation_steps micro-batches per replica. The trainer is that of train_bert.py, which has more
options.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType

import hetu as ht
from hetu import training
from hetu.compat import chimera_flags, timelines, tracking
from hetu.job.flags import check_log
from hetu.place import of_flags


def options() -> training.Parser:
    parser = training.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, default = parser.add_argument, "(default %(default)s)"
    add("--corpus_path", required=True, help="a sentence per line, a blank line between documents; latin-1")
    add("--corpus_encoding", choices=("latin-1", "utf-8"), default="latin-1", help=default)
    add("--corpus_lines", type=int, help="use only the first sentences")
    add("--vocab_path", required=True, help="WordPiece tokens, one per line")
    add("--bert_config_path", required=True, help="a Hugging Face style JSON file (config/models), or tiny, base")
    add("--do_lower_case", action="store_true", help="lower-case the text and remove accents")
    add("--max_seq_length", type=int, default=128, help=f"tokens per row {default}")
    add("--micro_batch_size", type=int, default=32, help=default)
    add("--num_optimization_steps", type=int, help="number of steps, or give --num_epochs")
    add("--num_epochs", type=int, help="passes over the text")
    add("--gradient_accumulation_steps", type=int, default=1,
        help=f"a step has num_stages times this number of micro-batches {default}")
    add("--adam_learning_rate", type=float, default=3e-5, help=default)
    add("--adam_max_grad_norm", type=float, default=1.0, help=f"bound of the norm of all gradients together {default}")
    add("--beta1", type=float, default=0.9, help=default)
    add("--weight_decay", type=float, default=0.01, help=default)
    add("--warmup_proportion", type=float, default=0.1, help=f"share of the steps {default}")
    add("--pipeline_method", choices=tuple(chimera_flags.METHODS), default="1f1b", help=default)
    add("--num_stages", type=int, default=4, help=default)
    add("--num_pipelines", type=int, default=2, help=f"chimera: number of directions, two per pair {default}")
    add("--chunks", type=int, default=2, help=f"interleave: stages per worker {default}")
    add("--partition", metavar="HOW",
        help="cut into stages: published, with the layers per stage of the original, or as for train_bert.py (default: by "
             "operations)")
    add("--recompute", action="store_true", help="store only the inputs of stages, and recompute activations")
    add("--checkpoint_dir", help="save here, and continue from a checkpoint that is there")
    add("--save_checkpoint_steps", type=int, default=200, help=f"steps between checkpoints {default}")
    add("--seed", type=int, default=1, help=default)
    add("--num_workers", type=int, default=4, help=f"maximum number of threads that make rows {default}")
    add("--record_ngd", action="store_true", help="PipeFisher's K-FAC before BertAdam, with its work after each step")
    add("--fill", choices=("after", "best", "wrap"),
        help="of --record_ngd: where K-FAC's work runs: after the step (default), or in bubbles as for train_bert.py")
    add("--damping", type=float, help="of --record_ngd (default 0.01)")
    add("--ngd_learning_rate", type=float, help="of --record_ngd: must equal --adam_learning_rate")
    add("--ngd_max_grad_norm", type=float, help="of --record_ngd: must equal --adam_max_grad_norm")
    add("--ngd_schedule_path", metavar="FILE", help="not offered: the error names the replacement")
    add("--profile", action="store_true", help="run 8 steps on 10,000 sentences, and draw them as bert_prof/NAME.pdf")
    add("--timelines", action="store_true",
        help="of --profile: also write bert_prof/NAME_node<stage>_timeline.pickle, which hetu fill reads")
    add("--observe_norm", action="store_true", help="print the norm of the gradients in each line")
    chimera_flags.add_common(add)
    add("--log", metavar="FILE", help="write a record per step: JSON lines, or CSV if the name ends in .csv")
    add("--log_interval", type=int, default=100, help=f"steps between two lines {default}")
    parser.add_config()
    return parser


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Returns the flags. Flags of --config override typed ones, as in the original."""
    args = options().parse_args(arguments)
    tracking.check(args)
    chimera_flags.say_unused(args)
    check_log(args.log)
    check_kfac(args)
    if args.timelines and not args.profile:
        raise ValueError("--timelines belongs to --profile, which is not given; add it, or remove --timelines")
    if args.profile:
        args.num_optimization_steps, args.corpus_lines = chimera_flags.PROFILED_STEPS, chimera_flags.PROFILED_LINES
    if args.num_optimization_steps is None and args.num_epochs is None:
        raise ValueError("give --num_optimization_steps or --num_epochs")
    chimera_flags.check_counts(args, "num_stages", "micro_batch_size", "gradient_accumulation_steps", "chunks",
                               "log_interval")
    return args


def check_kfac(args: argparse.Namespace) -> None:
    """Throws ValueError for flags of PipeFisher's K-FAC that don't fit together."""
    if args.ngd_schedule_path:
        raise ValueError("--ngd_schedule_path is not offered: use --record_ngd --fill best (or wrap, PipeFisher's rule), "
                         "which places the work itself")
    for name in ("fill", "damping", "ngd_learning_rate", "ngd_max_grad_norm"):
        if getattr(args, name) is not None and not args.record_ngd:
            raise ValueError(f"--{name} belongs to --record_ngd, which is not given; add it, or remove --{name}")
    for name in ("learning_rate", "max_grad_norm"):
        ngd, adam = getattr(args, f"ngd_{name}"), getattr(args, f"adam_{name}")
        if ngd not in (None, adam):
            raise ValueError(f"--ngd_{name} {ngd:g} and --adam_{name} {adam:g}: one optimizer updates all weights here; "
                             "give both the same value")


class Plan:
    """The job that the flags define: the placement of stages, and the number of micro-batches."""

    def __init__(self, args: argparse.Namespace) -> None:
        chunks = args.chunks if args.pipeline_method == "interleave" else 1
        grid = chimera_flags.grid_of(args.num_stages, chunks)
        self.positions, self.copies = grid.positions, grid.copies
        self.workers = self.positions * self.copies
        is_chimera = args.pipeline_method == "chimera"
        self.pipelines = 2 * chimera_flags.pairs_of(args.num_pipelines) if is_chimera else 1
        self.micro_batches = args.num_stages * args.gradient_accumulation_steps
        self.words = ["--pipeline", chimera_flags.METHODS[args.pipeline_method], "--devices", grid.devices,
                      "--micro-batches", str(self.micro_batches), "--batch-size",
                      str(self.micro_batches * args.micro_batch_size)]
        if is_chimera:
            self.words += ["--pairs", str(self.pipelines // 2)]
        if args.pipeline_method == "interleave":
            self.words += ["--chunks", str(chunks)]
        if args.recompute:
            self.words += ["--with-recompute"]

    def ranks(self, stage: int) -> list[int]:
        """Returns the workers that hold a stage."""
        one = {stage % self.positions}
        # Each pair starts a share of the workers further on; its second direction runs backwards.
        for k in range(self.pipelines // 2):
            first = k * self.positions // (self.pipelines // 2)
            up = (first + stage) % self.positions
            one |= {up, self.positions - 1 - up}
        return sorted(copy * self.positions + rank for copy in range(self.copies) for rank in one)


def optimizer_words(args: argparse.Namespace) -> list[object]:
    """Returns the optimizer as flags of train_bert.py."""
    if not args.record_ngd:
        return ["--optimizer", "bertadam"]
    damping = 0.01 if args.damping is None else args.damping
    return ["--optimizer", "kfac", "--inner", "bertadam", "--damping", damping, "--curvature-every", 1, "--fill",
            args.fill or "after"]


def published_cut(layers: int, stages: int) -> list[int]:
    """Returns the blocks per stage of Chimera's cut. It deals layers to stages D-2, D-3, ..., 0, D-1, and over again, so
    that the last stage has the fewest, and the middle stages have the most. The first stage also has the block of
    embeddings, and the last one that of the heads."""
    blocks = [0] * stages
    for layer in range(layers):
        blocks[(stages - 2 - layer) % stages] += 1
    blocks[0] += 1
    blocks[-1] += 1
    return blocks


def cut_words(args: argparse.Namespace) -> list[str]:
    """Returns --partition as a flag of train_bert.py. Throws ValueError for fewer layers than stages."""
    if args.partition != "published":
        return ["--partition", args.partition] if args.partition else []
    layers = ht.models.Bert.from_config(args.bert_config_path).config.num_hidden_layers
    if layers < args.num_stages:
        raise ValueError(f"--partition published: {args.bert_config_path} has {layers} layers, fewer than --num_stages "
                         f"{args.num_stages}; leave --partition out, or use fewer stages")
    return ["--partition", ",".join(map(str, published_cut(layers, args.num_stages)))]


def trainer(train_bert: ModuleType, args: argparse.Namespace, plan: Plan) -> argparse.Namespace:
    """Returns the same settings as flags of train_bert.py."""
    words = [
        "--data", args.corpus_path, "--vocab", args.vocab_path, "--encoding", args.corpus_encoding, "--model",
        args.bert_config_path, "--sequence-length", args.max_seq_length, "--corpus-lines", args.corpus_lines or 0,
        *optimizer_words(args), "--learning-rate", args.adam_learning_rate, "--clip-norm", args.adam_max_grad_norm,
        "--weight-decay", args.weight_decay, "--beta1", args.beta1, "--seed", args.seed, *plan.words, *cut_words(args),
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


def train(train_bert: ModuleType, args: argparse.Namespace, plan: Plan) -> None:
    told = trainer(train_bert, args, plan)
    data = train_bert.rows_of(told, told.data)
    per_epoch = training.batches(data, plan.copies * data.batch_size, "training")
    steps = args.num_optimization_steps or args.num_epochs * per_epoch
    rate = ht.lr.bert_linear(args.adam_learning_rate, steps, args.warmup_proportion)
    job = train_bert.build(told, data, rate, tie_word_embeddings=False)
    if job.is_chief:
        print(job.describe_batch(), flush=True)
        print(banner(args, plan, steps), flush=True)
        print(job.describe(), flush=True)
    trace = chimera_flags.profile_trace(name_of(args, plan), job.is_chief) if args.profile else None
    resume = bool(args.checkpoint_dir) and any(Path(args.checkpoint_dir).glob("step-*"))
    hooks = [ht.hooks.Progress(steps, args.max_seq_length, says_batch=False),
             *([ht.hooks.Log(args.log)] if args.log else []),
             chimera_flags.StepLines(args.log_interval, per_epoch, args.observe_norm),
             *tracking.hooks_of(args)]
    every = args.save_checkpoint_steps if args.checkpoint_dir else 0
    for _ in job.run("train", until=steps, checkpoint=args.checkpoint_dir, every=every, resume=resume,
                        trace=str(trace) if trace else None, hooks=hooks, epoch_steps=per_epoch):
        pass
    if not job.is_chief:
        return
    if trace:
        chimera_flags.draw(trace, whole=args.fill in ("best", "wrap"))
    if trace and args.timelines:
        paths = timelines.write(trace)
        print(f"{paths[0]}: timelines of {len(paths)} nodes, for hetu fill", flush=True)
    print("Finished.", flush=True)


def name_of(args: argparse.Namespace, plan: Plan) -> str:
    """Returns a profile's name, such as bert-large_chimera_8stages_8gpus_microbs32_acc1; with K-FAC, it ends in _kfac or
    _pipefisher, as PipeFisher's names do."""
    name = chimera_flags.profile_name(args.bert_config_path, args.pipeline_method, args.num_stages, args.micro_batch_size,
                                      args.gradient_accumulation_steps)
    if not args.record_ngd:
        return name
    return name + ("_kfac" if args.fill in (None, "after") else "_pipefisher")


def main(train_bert: ModuleType, arguments: list[str] | None = None) -> int:
    """Runs the script. `train_bert` is the module of the script of that name, whose trainer is used."""
    with ht.one_line_errors("main_bert.py"), of_flags():
        args = parse(arguments)
        train(train_bert, args, Plan(args))
    return 0
