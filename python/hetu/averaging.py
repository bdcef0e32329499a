"""How pipelines keep together without waiting for the slowest: partial reduce and AD-PSGD; and stragglers on purpose."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from hetu import _hetu


@dataclasses.dataclass
class Averaging:
    """Pipelines average weights in groups instead of summing gradients. The constants are those of
    pipeline/groups/options.h; 0 (min_group, max_group) and -1 (wait, horizon): chosen by sync_period.

    method: "preduce", "adpsgd" (as published) or "adpsgd-lockstep" (the pairs of SD-PIPE's artifact).
    weights: "uniform", or "staleness": who lags in a group counts less. overlap: averages go on beside compute; with
    sync_period 1 they never do. group_log: file of the groups, one JSON object per line.
    """

    method: str = "preduce"
    sync_period: int = 10
    min_group: int = 0
    max_group: int = 0
    pair_above: int = 8
    wait: float = -1.0
    horizon: float = -1.0
    soft: float = 0.6
    hard: float = 0.85
    patience: float = 1.0
    smoothing: float = 0.25
    late_us: int = 2000
    late_share: float = 0.05
    late_spread: float = 3.0
    weights: str = "uniform"
    stale_share: float = 0.9
    seed: int = 0
    overlap: bool = True
    group_log: str = ""

    def settings(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass
class Stragglers:
    """Stragglers on purpose: each forward or backward first sleeps `hetero` seconds with probability 0.1; who is named in
    `slow` takes `factor` times as long for what starts between its seconds `from` and `to`."""

    hetero: float = 0.0
    slow: list[dict[str, float]] = dataclasses.field(default_factory=list)
    seed: int = 0

    def settings(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--preduce", action="store_true", help="partial reduce: pipelines average weights in groups of whoever is there")
    add("--adpsgd", nargs="?", const="published", choices=["published", "lockstep"],
        help="AD-PSGD: averages with one other pipeline; lockstep: the pairs of SD-PIPE's artifact, which wait")
    add("--sync-period", type=int, default=10, metavar="P",
        help="of partial reduce: all are connected every P updates; 1 = every update of all (default %(default)s)")
    add("--min-group", type=int, default=0, help="of partial reduce; 0: by --sync-period (default)")
    add("--max-group", type=int, default=0, help="2 = pairs; 0: all, or pairs, see --pair-above (default)")
    add("--pair-above", type=int, default=8, help="pairs with more pipelines than this (default %(default)s)")
    add("--preduce-weights", choices=["uniform", "staleness"], default="uniform",
        help="of partial reduce, what members count for in a mean; staleness: less who lags (default %(default)s)")
    add("--group-options", default="", metavar="K=V,…",
        help="further constants of the groups: " + ", ".join(_hetu.group_constants("")))
    add("--group-log", default="", metavar="FILE.jsonl", help="write who averaged with whom and when")
    add("--no-overlap", action="store_true", help="averages are waited for instead of going on beside compute")
    add("--hetero", type=float, default=0.0, metavar="S",
        help="each forward or backward first sleeps S seconds with probability 0.1, to mimic uneven hosts")
    add("--slow", action="append", default=[], metavar="WHO",
        help='"pipeline=1,factor=2" or "worker=5,factor=1.3,from=100,to=300" (seconds); may be repeated')


def averaging_of(args: argparse.Namespace) -> Averaging | None:
    """What the options ask for; None: gradients are summed. Throws ValueError."""
    of_preduce = {"sync_period": 10, "min_group": 0, "max_group": 0, "pair_above": 8, "preduce_weights": "uniform",
                  "group_options": ""}
    of_both = {"group_log": "", "no_overlap": False}
    averages = args.preduce or args.adpsgd is not None
    for name, default in {**of_preduce, **({} if averages else of_both)}.items():
        option = f"--{name.replace('_', '-')}"
        if getattr(args, name) != default and not averages:
            raise ValueError(f"{option} belongs to --preduce or --adpsgd, and neither is given")
        if getattr(args, name) != default and args.adpsgd is not None:
            raise ValueError(f"{option} belongs to --preduce: AD-PSGD averages two pipelines alike")
    if not averages:
        return None
    if args.sync_period < 1:
        raise ValueError(f"--sync-period must be >= 1, got {args.sync_period}")
    for name in ("min_group", "max_group", "pair_above"):
        if getattr(args, name) < 0:
            raise ValueError(f"--{name.replace('_', '-')} must be >= 0, got {getattr(args, name)}")
    method = {None: "preduce", "published": "adpsgd", "lockstep": "adpsgd-lockstep"}[args.adpsgd]
    constants = _hetu.group_constants(args.group_options)
    return Averaging(
        method, args.sync_period, args.min_group, args.max_group, args.pair_above, seed=args.seed,
        overlap=not args.no_overlap, group_log=args.group_log, weights=args.preduce_weights, **constants,
    )


def stragglers_of(args: argparse.Namespace) -> Stragglers:
    """What --hetero and --slow ask for. Throws ValueError."""
    if args.hetero < 0:
        raise ValueError(f"--hetero must be >= 0 s, got {args.hetero}")
    return Stragglers(args.hetero, [_hetu.slow_of(text) for text in args.slow], args.seed)
