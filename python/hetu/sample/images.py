"""Generated images in the layouts of ImageNet (a folder per class) and CIFAR-100, for `hetu data sample --kind`.

A class is a colour and a shape (10 of each), so that a small network distinguishes them within a few hundred steps. The
same seed gives the same images.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hetu.command_parser import CommandParser
from hetu.sample.folder import made_whole, refuse_used

KINDS = {"images": "train/CLASS/N.jpg and val/CLASS/N.jpg", "cifar100": "train.bin and test.bin of CIFAR-100's binary form"}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Returns the options of a command line. Exits with status 2 if they are invalid."""
    parser = CommandParser(prog="hetu data sample", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR", help="new or empty folder")
    parser.add_argument("--kind", choices=KINDS, required=True, help="; ".join(f"{k}: {v}" for k, v in KINDS.items()))
    parser.add_argument("--classes", type=int, default=10, help="classes, 2 to 100 (%(default)s)")
    parser.add_argument("--train", type=int, default=100, help="training images per class (%(default)s)")
    parser.add_argument("--val", type=int, default=20, help="validation images per class (%(default)s)")
    parser.add_argument("--size", type=int, default=96, help="height and width in pixels; cifar100: always 32 (%(default)s)")
    parser.add_argument("--seed", type=int, default=12345, help="random seed (%(default)s)")
    given = parser.parse_args(arguments)
    given.folder = given.folder.absolute()
    if not 2 <= given.classes <= 100 or given.train < 1 or given.val < 1 or not 8 <= given.size <= 8192:
        parser.error("needs --classes 2 to 100, --train and --val >= 1, --size 8 to 8192")
    if given.seed < 0:
        parser.error("needs --seed >= 0")
    refuse_used(parser, given.folder)
    return given


def make_images(folder: Path, given: argparse.Namespace) -> str:
    """Writes the data set into a new folder, all or nothing. Returns a line that describes it."""
    from hetu import _hetu

    write = _hetu.write_drawn_folder if given.kind == "images" else _hetu.write_drawn_cifar100
    with made_whole(folder) as made:
        write(str(made), given.classes, given.train, given.val, given.size, given.seed)
    side = given.size if given.kind == "images" else 32
    return (
        f"{folder}: {given.classes} classes of {given.train} training and {given.val} validation images, "
        f"{side} x {side}, {KINDS[given.kind]}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    given = parse(arguments)
    try:
        from hetu import _hetu  # imported late, so that --help needs no compiled part

        with _hetu.ProgressLine("hetu data sample", ""):
            line = make_images(given.folder, given)
    except (ImportError, NotImplementedError) as error:
        print(f"hetu data sample: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"hetu data sample: {given.folder}: {error}", file=sys.stderr)
        return 4
    print(line)
    return 0
