"""The flags of Chimera's and PipeFisher's main_bert.py, translated to those of train_bert.py. If names differ, both work."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetu import _hetu
from hetu.compat import tracking
from hetu.job.flags import Parser
from hetu.notice import notice

METHODS = {"1f1b": "1f1b", "gpipe": "gpipe", "chimera": "chimera", "interleave": "interleaved-1f1b"}
BACKENDS = ("gloo", "nccl", "mpi")  # of torch.distributed
PROFILED_STEPS, PROFILED_LINES = 8, 10_000  # size of Chimera's profiles, of which the middle steps are drawn
# Train_bert.py's flags -> second names with the same meaning.
ALSO = {
    "--data": "--corpus_path", "--vocab": "--vocab_path", "--model": "--bert_config_path",
    "--sequence-length": "--max_seq_length", "--steps": "--num_optimization_steps",
    "--learning-rate": "--adam_learning_rate", "--clip-norm": "--adam_max_grad_norm",
    "--warmup-share": "--warmup_proportion", "--with-recompute": "--recompute",
    "--checkpoint": "--checkpoint_dir", "--save-every": "--save_checkpoint_steps",
    "--curvature-every": "--inv_interval",
}


def add_also(parser: Parser) -> None:
    """Adds second names, and flags that take() translates to others of train_bert.py."""
    for ours, theirs in ALSO.items():
        parser.also(ours, theirs)
    same = ", ".join(f"{theirs} = {ours}" for ours, theirs in ALSO.items())
    parser.epilog = textwrap.fill(f"Names of Chimera's main_bert.py for flags above: {same}. Flags accept _ for -.", 100,
                                  break_on_hyphens=False)
    add = parser.add_argument_group("as in Chimera's main_bert.py").add_argument
    add("--pipeline_method", choices=tuple(METHODS), help="the same as --pipeline; interleave is interleaved-1f1b")
    add("--num_stages", type=int, help="stages of the model; sets --devices pipe_<replicas>_<workers per replica>")
    add("--gradient_accumulation_steps", type=int, help="sets --micro-batches to this number times --num_stages (default 1)")
    add("--micro_batch_size", type=int, help="sets --batch-size to this number times --micro-batches")
    add("--num_pipelines", type=int, help="chimera: number of directions, which is twice --pairs")
    add("--num_epochs", type=int, help="passes over the data, in place of --steps")
    add("--do_lower_case", action="store_true", help="lower-case a text and remove accents (the default without --cased)")
    add("--num_workers", type=int, help="maximum number of threads that make rows of a text")
    add("--profile", action="store_true", help="run 8 steps on 10,000 sentences, and draw them as bert_prof/NAME.pdf")
    add("--log_interval", type=int,
        help="steps between lines `epochE stepS loss = X` (default: none; 100 with --observe_norm)")
    add("--observe_norm", action="store_true", help="print the norm of the gradients in each such line")
    add_common(add)


def add_common(add: Any) -> None:
    """Adds flags that Chimera's and PipeFisher's scripts share. say_unused() reports those that change nothing here."""
    add("--on_memory", action="store_true", help="changes nothing: a text is read as it is needed, and a line says so")
    add("--p2p_backend", choices=BACKENDS, default="gloo",
        help="changes nothing: HETU_TRANSPORT chooses the transport, and a line says so unless it is %(default)s")
    add("--collective_backend", choices=BACKENDS, default="nccl", help="like --p2p_backend, unless it is %(default)s")
    add("--wandb", action="store_true", help="log each step to Weights & Biases; needs the package wandb")


def say_unused(args: argparse.Namespace) -> None:
    """Prints a line, once per job, for each given flag that changes nothing here."""
    if args.on_memory:
        notice("--on_memory changes nothing: Hetu reads a text as it is needed")
    for flag, value, usual in (("--p2p_backend", args.p2p_backend, "gloo"),
                               ("--collective_backend", args.collective_backend, "nccl")):
        if value != usual:
            notice(f"{flag} {value} changes nothing: HETU_TRANSPORT chooses the transport, and --gpu-messages of "
                   "train_bert.py chooses NCCL")


@dataclass(frozen=True)
class Grid:
    """The grid for --num_stages: `positions` workers in each of `copies` pipelines."""

    positions: int
    copies: int

    @property
    def devices(self) -> str:
        """The grid's name for --devices."""
        return f"pipe_{self.copies}_{self.positions}"


def grid_of(num_stages: int, chunks: int) -> Grid:
    """Returns the grid over the workers of this job. Throws ValueError if they don't form whole pipelines."""
    workers = int(_hetu.env()["workers"])
    positions, rest = divmod(num_stages, chunks)
    if rest:
        raise ValueError(f"--num_stages {num_stages} must be a multiple of --chunks {chunks}")
    copies, rest = divmod(workers, positions)
    if rest or not copies:
        of_chunks = f" with --chunks {chunks}" if chunks > 1 else ""
        raise ValueError(f"{workers} workers can't be divided into pipelines of {positions}: --num_stages {num_stages}"
                         f"{of_chunks} needs heturun -w {positions} or a multiple")
    return Grid(positions, copies)


def pairs_of(num_pipelines: int) -> int:
    """Returns --pairs of chimera. Throws ValueError."""
    if num_pipelines < 2 or num_pipelines % 2:
        raise ValueError(f"--num_pipelines {num_pipelines}: chimera runs two directions per pair, so give an even number")
    return num_pipelines // 2


def check_counts(args: argparse.Namespace, *names: str) -> None:
    """Throws ValueError, which names the flag, if a given number is below 1."""
    for name in names:
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise ValueError(f"--{name} must be >= 1, got {getattr(args, name)}")


def set_once(args: argparse.Namespace, unless: Any, name: str, value: Any, said: str) -> None:
    """Sets a flag of train_bert.py. Throws ValueError if it already has another value. `unless` is its default."""
    there = getattr(args, name)
    if there not in (unless, value):
        raise ValueError(f"{said} and --{name.replace('_', '-')} {there} contradict each other; give only one of them")
    setattr(args, name, value)


def take(args: argparse.Namespace, parser: Parser) -> None:
    """Translates Chimera's flags to those of train_bert.py. Throws ValueError."""
    tracking.check(args)
    say_unused(args)
    check_counts(args, "num_stages", "micro_batch_size", "gradient_accumulation_steps", "num_pipelines", "num_epochs",
                 "num_workers", "log_interval")
    if args.pipeline_method:
        set_once(args, parser.get_default("pipeline"), "pipeline", METHODS[args.pipeline_method],
             f"--pipeline_method {args.pipeline_method}")
    if args.num_pipelines is not None:
        if args.pipeline != "chimera":
            raise ValueError(f"--num_pipelines belongs to --pipeline_method chimera, and the method is {args.pipeline}")
        set_once(args, None, "pairs", pairs_of(args.num_pipelines), f"--num_pipelines {args.num_pipelines}")
    if args.num_stages is not None:
        interleaved = args.pipeline == "interleaved-1f1b"
        if interleaved and args.chunks is None:
            args.chunks = 2
        grid = grid_of(args.num_stages, args.chunks if interleaved else 1)
        set_once(args, None, "devices", grid.devices, f"--num_stages {args.num_stages}")
        count = args.num_stages * (args.gradient_accumulation_steps or 1)
        if args.gradient_accumulation_steps is not None or args.micro_batches is None:
            set_once(args, None, "micro_batches", count, f"--num_stages {args.num_stages} x --gradient_accumulation_steps")
    elif args.gradient_accumulation_steps is not None:
        raise ValueError("--gradient_accumulation_steps multiplies --num_stages: give --num_stages too, or --micro-batches")
    if args.micro_batch_size is not None:
        micros = args.micro_batches or _hetu.default_micro_batches(args.pipeline)
        set_once(args, parser.get_default("batch_size"), "batch_size", args.micro_batch_size * micros,
             f"--micro_batch_size {args.micro_batch_size} x {micros} micro-batches")
    if args.do_lower_case and args.cased:
        raise ValueError("--do_lower_case and --cased contradict each other; give only one of them")
    if args.num_workers is not None:
        args.row_threads = args.num_workers
    if args.observe_norm and args.log_interval is None:
        args.log_interval = 100
    if args.profile:
        args.steps, args.corpus_lines = PROFILED_STEPS, PROFILED_LINES


class StepLines:
    """Prints `epochE stepS loss = X` every `interval` steps. A hook."""

    def __init__(self, interval: int, per_epoch: int, norm: bool = False) -> None:
        self.interval, self.per_epoch, self.norm = interval, per_epoch, norm

    def on_step(self, job: Any, step: Any) -> None:
        if not job.is_chief or (step.index + 1) % self.interval:
            return
        norm = f" norm = {step.gradient_norm:.6g}" if self.norm else ""
        print(f"epoch{step.index // self.per_epoch + 1} step{step.index + 1} loss = {step.loss:.6f}{norm}", flush=True)


def profile_name(model: str, method: str, stages: int, micro_batch_size: int, accumulation: int) -> str:
    """Returns a profile's name for this job's workers, such as bert-large_chimera_8stages_8gpus_microbs32_acc1."""
    short = Path(model).stem.removeprefix("bert_config_").removesuffix("-uncased")
    return (f"{short}_{method}_{stages}stages_{_hetu.env()['workers']}gpus_microbs{micro_batch_size}_acc{accumulation}")


def profile_trace(name: str, make: bool) -> Path:
    """Returns the path of a profile's trace. With `make`, also creates its folder."""
    trace = Path("bert_prof") / f"{name}.json"
    if make:
        trace.parent.mkdir(exist_ok=True)
    return trace


def draw(trace: Path, whole: bool = False) -> None:
    """Draws the steps in the middle of a profile, in Chimera's style. With `whole`, draws the whole trace: a plan with
    work in its bubbles has cycles of several steps, and its trace holds one cycle."""
    picture = trace.with_suffix(".pdf")
    import subprocess  # imported late, to save the time at each start of a worker

    middle = [] if whole else ["--step", "5"]
    subprocess.run(["hetu", "timeline", trace, "--style", "profile", *middle, "-o", picture], check=True)
    print(f"{picture}: {'one cycle' if whole else 'steps 5, 6, 7'} of {trace}", flush=True)
