"""Generates sample data of all kinds.

    python3 -m hetu.sample DIR [--kind bert] [--rows N] [--sequence-length 128] [--max-predictions 20]
                               [--vocab-size 2000] [--shards K] [--seed S]
    python3 -m hetu.sample DIR --kind images|cifar100 [--classes N] [--train N] [--val N] [--size N] [--seed S]
    python3 -m hetu.sample DIR --kind criteo [--train N] [--val N] [--days N] [--seed S]
"""

from __future__ import annotations

import argparse
import sys

from hetu import one_line_errors
from hetu.sample import bert, criteo, images


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    kind = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    kind.add_argument("--kind", default="bert")
    asked = kind.parse_known_args(arguments)[0].kind
    made_by = next((module for module in (images, criteo) if asked in module.KINDS), bert)
    return made_by.main(arguments)


if __name__ == "__main__":
    with one_line_errors("hetu data sample"):
        status = main()
    sys.exit(status)
