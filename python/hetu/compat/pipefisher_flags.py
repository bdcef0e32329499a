"""The flags of PipeFisher's main_bert_simple.py, translated to those of train_bert.py. A flag without a counterpart is
rejected with the reason."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from hetu.compat import chimera_flags
from hetu.job.flags import Parser

# Train_bert.py's flags -> second names with the same meaning.
ALSO = {"--clip-norm": "--max_grad_norm", "--max-rows": "--subset_size"}
NOT_OFFERED = {
    "lars": "use --optimizer lamb, which has the same trust ratio, and moments",
    "weight_scaling": "Hetu does not rescale weights; --optimizer lamb scales each update by the norm of its weight",
    "record_ngd": "use --optimizer kfac --fill after, which does the work after the step, and --trace FILE",
    "ngd_schedule_path": "use --fill best, which places the work itself; hetu fill writes PipeFisher's orders",
}


def add(parser: Parser) -> None:
    """Adds second names, and flags that take() translates to others of train_bert.py."""
    for ours, theirs in ALSO.items():
        parser.also(ours, theirs)
    same = ", ".join(f"{theirs} = {ours}" for ours, theirs in ALSO.items())
    names = textwrap.fill(f"Names of PipeFisher's main_bert_simple.py: {same}.", 100, break_on_hyphens=False)
    parser.epilog = f"{parser.epilog}\n{names}"
    flag = parser.add_argument_group("as in PipeFisher's main_bert_simple.py").add_argument
    flag("--adam", action="store_true", help="the same as --optimizer adam")
    flag("--sgd", action="store_true", help="the same as --optimizer momentum")
    flag("--ngd_training", action="store_true", help="the same as --optimizer kfac --inner momentum")
    flag("--ngd_with_lamb", action="store_true", help="with --ngd_training: the same as --inner lamb")
    flag("--ngd_with_adam", action="store_true", help="with --ngd_training: the same as --inner adam")
    flag("--ngd_learning_rate", type=float, metavar="R",
         help="with --ngd_training: the same as --learning-rate, for all weights")
    flag("--ngd_momentum", type=float, metavar="M", help="with --ngd_training: the same as --momentum")
    flag("--ngd_max_grad_norm", type=float, metavar="NORM", help="with --ngd_training: the same as --clip-norm")
    for name in NOT_OFFERED:
        takes: dict[str, Any] = {"metavar": "FILE"} if name.endswith("_path") else {"action": "store_true"}
        flag(f"--{name}", help="not offered: the error names the replacement", **takes)


def take(args: argparse.Namespace, parser: Parser) -> None:
    """Translates these flags to those of train_bert.py. Throws ValueError."""
    for name, why in NOT_OFFERED.items():
        if getattr(args, name):
            raise ValueError(f"--{name} is not offered: {why}")
    for name, value in (("ngd_training", "kfac"), ("adam", "adam"), ("sgd", "momentum")):
        if getattr(args, name):
            chimera_flags.set_once(args, parser.get_default("optimizer"), "optimizer", value, f"--{name}")
    of_kfac = [name for name in vars(args) if name.startswith("ngd_") and getattr(args, name) not in (None, False)]
    if of_kfac and args.optimizer != "kfac":
        raise ValueError(f"--{of_kfac[0]} belongs to --ngd_training, and the optimizer is {args.optimizer}")
    inner = [kind for kind in ("lamb", "adam") if getattr(args, f"ngd_with_{kind}")]
    if inner or args.ngd_training:
        kind = inner[0] if inner else args.inner or "momentum"
        chimera_flags.set_once(args, None, "inner", kind, f"--ngd_with_{kind}")
    if len(inner) > 1:
        raise ValueError("--ngd_with_lamb and --ngd_with_adam contradict each other; give only one of them")
    for theirs, ours in (("ngd_learning_rate", "learning_rate"), ("ngd_max_grad_norm", "clip_norm"),
                         ("ngd_momentum", "momentum")):
        value = getattr(args, theirs)
        if value is not None:
            chimera_flags.set_once(args, parser.get_default(ours), ours, value, f"--{theirs} {value:g}")
