"""`hetu data vocabulary`: trains a WordPiece vocabulary on your own text.

    hetu data vocabulary TEXT -o vocab.txt [--size 30522] [--cased] [--encoding latin-1] [--corpus-lines N]

The text is split into words as in training. The pieces are made like in prose.py: letters, then repeatedly the most
frequent pair of neighbouring pieces.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from hetu import _hetu, files, one_line_errors
from hetu.command_parser import CommandParser
from hetu.sample.prose import SPECIAL, train_vocabulary

LETTERS = 1000  # most letters; words with other letters are [UNK]


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that describe a text, for all commands that read one."""
    parser.add_argument("text", type=Path, metavar="TEXT",
                        help="one sentence per line, a blank line between documents")
    parser.add_argument("--cased", action="store_true", help="keep capital letters and accents")
    parser.add_argument("--encoding", choices=("utf-8", "latin-1"), default="utf-8", help="of TEXT (%(default)s)")
    parser.add_argument("--corpus-lines", type=int, default=0, metavar="N", help="use only the first N sentences (0 = all)")


def text_options(given: argparse.Namespace) -> dict[str, object]:
    """Returns these options for the reader."""
    return {"path": str(given.text), "lower_case": not given.cased, "encoding": given.encoding,
            "corpus_lines": given.corpus_lines}


def write_vocabulary(path: Path, tokens: list[str]) -> None:
    """Writes a token per line, atomically."""
    files.write_text(path, "".join(token + "\n" for token in tokens))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = CommandParser(prog="hetu data vocabulary", description="Makes a WordPiece vocabulary from a text.")
    add_text_options(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="output file, one token per line")
    parser.add_argument("--size", type=int, default=30522, help="maximum number of tokens (%(default)s)")
    parser.add_argument("--letters", type=int,
                        help=f"letters at most; words with others are [UNK] ({LETTERS}, or a quarter of the tokens)")
    given = parser.parse_args(arguments)
    given.letters = min(LETTERS, max(1, given.size // 4)) if given.letters is None else given.letters
    if given.letters < 1 or given.size < 2 * given.letters + len(SPECIAL):
        parser.error(f"--size {given.size} with --letters {given.letters}: each letter needs two tokens (at the beginning "
                     f"and within a word), and BERT needs its own: give at least --size {2 * given.letters + len(SPECIAL)}")
    with one_line_errors("hetu data vocabulary"):
        progress = _hetu.ProgressLine("hetu data vocabulary", "tokens")
        with progress:
            counts = Counter(dict(_hetu.count_words(text_options(given))))
            if not counts:
                raise ValueError(f"{given.text}: the text has no words")
            tokens = train_vocabulary(counts, given.size, given.letters, progress)
        write_vocabulary(given.output, tokens)
        print(f"{given.output}: {len(tokens)} tokens of {len(counts)} different words, {counts.total()} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
