"""`hetu data prepare`: writes BERT pre-training shards of a text, in the HDF5 layout of NVIDIA's BERT examples.

    hetu data prepare TEXT --vocab vocab.txt -o DIR [--passes 5] [--shards 4] [--sequence-length 128] [--seed S]

The rows are those that a training on the text itself would read, epoch by epoch (ht.text.BertText). Each pass has its own
order, random sentences and masks.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetu import _hetu, one_line_errors
from hetu.command_parser import CommandParser
from hetu.sample.folder import made_whole, refuse_used
from hetu.sample.vocabulary import add_text_options
from hetu.text import BertText

if TYPE_CHECKING:
    import numpy

ROWS_AT_ONCE = 1024
TYPES = {"input_ids": "i4", "input_mask": "i1", "segment_ids": "i1", "masked_lm_positions": "i4", "masked_lm_ids": "i4",
         "next_sentence_labels": "i1"}


class Shards:
    """The files of a folder. Each receives a block of rows in turn."""

    def __init__(self, folder: Path, count: int, data: BertText) -> None:
        import h5py

        shapes = {name: shape for name, _, shape in data.fields}
        self.files = [h5py.File(folder / f"text_training_{i}.hdf5", "w") for i in range(count)]
        for file in self.files:
            for name, dtype in TYPES.items():
                file.create_dataset(name, (0, *shapes[name]), dtype, maxshape=(None, *shapes[name]), compression="gzip",
                                    chunks=(ROWS_AT_ONCE, *shapes[name]))
        self.pieces = 0

    def add(self, rows: dict[str, numpy.ndarray]) -> None:
        """Appends rows from the reader. Ids behind the last masked token are -1 in the reader's rows, and 0 in a shard."""
        file = self.files[self.pieces % len(self.files)]
        self.pieces += 1
        for name in TYPES:
            values = rows[name].clip(0) if name == "masked_lm_ids" else rows[name]
            column = file[name]
            column.resize(len(column) + len(values), 0)
            column[-len(values):] = values

    def close(self) -> None:
        for file in self.files:
            file.close()


def write(folder: Path, data: BertText, passes: int, count: int, progress: _hetu.ProgressLine) -> int:
    """Writes all rows of `passes` epochs. Returns their number."""
    shards, done = Shards(folder, count, data), 0
    for epoch in range(passes):
        loader = data.once().loader(1, 0, list(TYPES))
        loader.seek(loader.position() | {"epoch": epoch})
        while done < (epoch + 1) * len(data):
            rows = loader.next()
            shards.add(rows)
            done += len(rows["input_ids"])
            progress(done, passes * len(data))
    shards.close()
    return done


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="hetu data prepare",
                           description="Writes BERT shards (HDF5, NVIDIA's layout) from a text.")
    add_text_options(parser)
    more: Any = parser.add_argument
    more("--vocab", required=True, metavar="FILE", help="WordPiece tokens, one per line (hetu data vocabulary)")
    more("-o", "--output", type=Path, required=True, metavar="DIR", help="new or empty folder for shards and vocab.txt")
    more("--passes", type=int, default=1, help="passes over the text, each with its own masks and pairs (%(default)s)")
    more("--shards", type=int, default=4, help="maximum number of files (%(default)s)")
    more("--sequence-length", type=int, default=128, help="tokens per row (%(default)s)")
    more("--seed", type=int, default=0, help="random seed of order, pairs and masks (%(default)s)")
    given = parser.parse_args(arguments)
    if given.passes < 1 or given.shards < 1:
        parser.error(f"--passes {given.passes} --shards {given.shards}: at least 1 of each")
    refuse_used(parser, given.output)
    return given


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    given = parse(arguments)
    with one_line_errors("hetu data prepare"):
        progress = _hetu.ProgressLine("hetu data prepare", "rows")
        data = BertText(str(given.text), given.vocab, ROWS_AT_ONCE, given.sequence_length, seed=given.seed,
                        lower_case=not given.cased, encoding=given.encoding, corpus_lines=given.corpus_lines)
        with made_whole(given.output.absolute()) as made:
            pieces = -(-len(data) // ROWS_AT_ONCE) * given.passes
            rows = write(made, data, given.passes, min(given.shards, pieces), progress)
            shutil.copyfile(given.vocab, made / "vocab.txt")
        progress.close()
        print(f"{given.output}: {rows} rows of {given.sequence_length} tokens, at most {data.fields[-1][2][0]} masked, "
              f"{data.vocabulary_size} words in the vocabulary")
    return 0


if __name__ == "__main__":
    sys.exit(main())
