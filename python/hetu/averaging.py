"""Options of weight averaging without waiting for the slowest pipeline (partial reduce and AD-PSGD), and of artificial
stragglers."""

from __future__ import annotations

import argparse

from hetu import _hetu, options

METHODS = {None: "preduce", "published": "adpsgd", "lockstep": "adpsgd-lockstep"}  # by the value of --adpsgd


class Averaging(options.Options, table="averaging"):
    """Pipelines average weights in groups instead of summing gradients. A min_group or max_group of 0, and a wait or
    horizon of -1, is derived from sync_period and the number of pipelines."""


class Stragglers(options.Options, table="stragglers"):
    """Artificial stragglers. Each forward or backward first sleeps `hetero` seconds with probability 0.1. A worker listed
    in `slow` takes `factor` times as long for instructions that start between its seconds `from` and `to`."""


def _of_preduce() -> list[options.Field]:
    """Returns the fields that belong only to partial reduce."""
    both = ("method", "seed", "overlap", "group_log")
    return [field for name, field in options.table("averaging").items() if name not in both]


def _of_both() -> list[options.Field]:
    return [options.table("averaging")[name] for name in ("group_log", "overlap")]


def _of_stragglers() -> list[options.Field]:
    return [options.table("stragglers")[name] for name in ("hetero", "slow")]


def add_options(parser: options.Flags) -> None:
    """Adds the scripts' flags for pipelines that average weights, and for stragglers."""
    add = parser.add_argument
    add("--preduce", action="store_true", help="partial reduce: pipelines average weights in groups, as they become ready")
    add("--adpsgd", nargs="?", const="published", choices=["published", "lockstep"],
        help="AD-PSGD: a pipeline averages with one other (lockstep: and waits for it, as in SD-PIPE's artifact)")
    options.add_flags(parser, [*_of_preduce(), *_of_both(), *_of_stragglers()])


def averaging_of(args: argparse.Namespace) -> Averaging | None:
    """Returns the averaging that the arguments define, or None if gradients are summed. Throws ValueError."""
    unsaid = argparse.ArgumentParser(add_help=False)
    add_options(unsaid)
    averages = args.preduce or args.adpsgd is not None
    for fields, belongs in ((_of_preduce(), True), (_of_both(), not averages)):
        for flag in dict.fromkeys(_flag(field) for field in fields) if belongs else ():
            dest = flag.lstrip("-").replace("-", "_")
            if getattr(args, dest) == unsaid.get_default(dest):
                continue
            if not averages:
                raise ValueError(f"{flag} belongs to --preduce, --adpsgd and --adpsgd lockstep, and none of them is given; "
                                 "add one of them, or remove the flag")
            if args.adpsgd is not None:
                raise ValueError(f"{flag} belongs to --preduce: AD-PSGD always averages two pipelines, with equal weights")
    if not averages:
        return None
    chosen = options.of_args(args, [*_of_preduce(), *_of_both()])
    made = Averaging(METHODS[args.adpsgd], seed=args.seed, **chosen, **_hetu.group_constants(args.group_options))
    options.check("averaging", made.settings())
    return made


def _flag(field: options.Field) -> str:
    """Returns the script's flag for a field of averaging."""
    return field.within or (f"--no-{field.flag[2:]}" if field.negated else field.flag)


def stragglers_of(args: argparse.Namespace) -> Stragglers:
    """Returns the stragglers that --hetero and --slow define. Throws ValueError."""
    made = Stragglers(args.hetero, [_hetu.slow_of(text) for text in args.slow], args.seed)
    options.check("stragglers", made.settings())
    return made
