"""Prepares BERT's shards with the names and constants of NVIDIA's BERT scripts, which SD-PIPE's README uses.

    python3 -m hetu.compat.bert_prep --input_file wikipedia.txt --vocab_file vocab.txt --output_dir DIR --do_lower_case

The text has one sentence per line and a blank line between documents. The files are `wikicorpus_en_training_<i>.hdf5` and
`wikicorpus_en_test_<i>.hdf5`. Rows are made as BERT's create_pretraining_data does, with its constants as defaults:

- Documents are dealt to the shards at random. Each shard has its own random numbers, of --random_seed plus its number.
- A row takes sentences of one document until it has --max_seq_length tokens. With probability --short_seq_prob it takes
  fewer, a number from 2 up, drawn uniformly.
- The sentences are cut into A and B. Half of the time, B comes from another document of the shard, and the sentences that it
  replaces begin the next row.
- A row with too many tokens loses tokens at the front or the back of its longer part.
- 15 % of the tokens, at least one and at most --max_predictions_per_seq, are masked: 80 % [MASK], 10 % any, 10 % unchanged.
- Every document is used --dupe_factor times, each time with other rows.

`hetu data prepare` makes the pairs of neighbouring sentences that Chimera's reader makes.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hetu import _hetu, one_line_errors
from hetu.command_parser import CommandParser
from hetu.sample.folder import made_whole, refuse_used
from hetu.sample.prepare import TYPES
from hetu.text import WordPiece

Document = list[list[int]]  # sentences, each the ids of its tokens
TRIES = 10  # draws of another document


@dataclasses.dataclass(frozen=True)
class Settings:
    """The constants of the rows."""

    sequence_length: int
    most_masked: int
    masked_share: float
    short_share: float
    cls: int
    sep: int
    mask: int
    vocabulary_size: int


def truncate(a: list[int], b: list[int], most: int, draw: random.Random) -> None:
    """Removes tokens of the longer part, at its front or back, until both have at most `most` tokens."""
    while len(a) + len(b) > most:
        longer = a if len(a) > len(b) else b
        del longer[0 if draw.random() < 0.5 else -1]


def other_part(documents: Sequence[Document], own: int, most: int, draw: random.Random) -> list[int]:
    """Returns at least `most` tokens of consecutive sentences of another document, or all tokens to its end."""
    other = own
    for _ in range(TRIES):
        other = draw.randrange(len(documents))
        if other != own:
            break
    found: list[int] = []
    for sentence in documents[other][draw.randrange(len(documents[other])):]:
        found += sentence
        if len(found) >= most:
            break
    return found


def pairs_of(documents: Sequence[Document], own: int, by: Settings,
             draw: random.Random) -> Iterator[tuple[list[int], list[int], bool]]:
    """Yields (A, B, whether B is of another document) for the rows of one document."""
    document, most = documents[own], by.sequence_length - 3
    target = draw.randint(2, most) if draw.random() < by.short_share else most
    chunk: Document = []
    at = 0
    while at < len(document):
        chunk.append(document[at])
        at += 1
        if at < len(document) and sum(map(len, chunk)) < target:
            continue
        end = draw.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
        a = [token for sentence in chunk[:end] for token in sentence]
        is_random = len(chunk) == 1 or draw.random() < 0.5
        if is_random:
            b = other_part(documents, own, target - len(a), draw)
            at -= len(chunk) - end  # these sentences begin the next row
        else:
            b = [token for sentence in chunk[end:] for token in sentence]
        truncate(a, b, most, draw)
        if a and b:
            yield a, b, is_random
        chunk = []
        target = draw.randint(2, most) if draw.random() < by.short_share else most


def row_of(a: list[int], b: list[int], is_random: bool, by: Settings, draw: random.Random) -> dict[str, list[int] | int]:
    """Returns the fields of a row, masked and padded with 0."""
    tokens = [by.cls, *a, by.sep, *b, by.sep]
    length = len(tokens)
    places = [place for place in range(1, length - 1) if place != len(a) + 1]
    draw.shuffle(places)
    chosen = sorted(places[:min(by.most_masked, max(1, round(length * by.masked_share)))])
    labels = [tokens[place] for place in chosen]
    for place in chosen:
        if draw.random() < 0.8:
            tokens[place] = by.mask
        elif draw.random() < 0.5:
            tokens[place] = draw.randrange(by.vocabulary_size)
    empty, unmasked = [0] * (by.sequence_length - length), [0] * (by.most_masked - len(chosen))
    return {"input_ids": tokens + empty, "input_mask": [1] * length + empty,
            "segment_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1) + empty, "masked_lm_positions": chosen + unmasked,
            "masked_lm_ids": labels + unmasked, "next_sentence_labels": int(is_random)}


def rows_of(documents: list[Document], by: Settings, dupe_factor: int, seed: int) -> list[dict[str, list[int] | int]]:
    """Returns the rows of one shard, in random order."""
    draw = random.Random(seed)
    draw.shuffle(documents)
    rows = [row_of(*pair, by, draw) for _ in range(dupe_factor) for own in range(len(documents))
            for pair in pairs_of(documents, own, by, draw)]
    draw.shuffle(rows)
    return rows


def write(path: Path, rows: Sequence[dict[str, list[int] | int]]) -> None:
    """Writes a shard in NVIDIA's layout."""
    import h5py
    import numpy

    with h5py.File(path, "w") as file:
        for name, dtype in TYPES.items():
            values = numpy.array([row[name] for row in rows], dtype)
            file.create_dataset(name, data=values, compression="gzip")


def documents_of(path: Path, words: WordPiece) -> list[Document]:
    """Returns the documents of a text that have tokens."""
    documents: list[Document] = [[]]
    for line in path.read_bytes().split(b"\n"):
        tokens = words.encode(line) if line.strip() else []
        if tokens:
            documents[-1].append(tokens)
        elif not line.strip() and documents[-1]:
            documents.append([])
    return [document for document in documents if document]


def deal(documents: list[Document], given: argparse.Namespace) -> dict[str, list[list[Document]]]:
    """Returns the documents of each training and test shard. Throws ValueError if a shard would have fewer than two."""
    random.Random(given.random_seed).shuffle(documents)
    tests = round(len(documents) * given.fraction_test_set) if given.n_test_shards else 0
    dealt = {}
    for kind, mine in (("training", documents[tests:]), ("test", documents[:tests])):
        flag = f"n_{kind}_shards"
        count = getattr(given, flag)
        if len(mine) < 2 * count:
            raise ValueError(f"--{flag} {count}: each shard needs 2 documents, and the text has {len(mine)} for {kind}; "
                             f"give at most {len(mine) // 2}")
        dealt[kind] = [mine[shard::count] for shard in range(count)]
    return dealt


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="python3 -m hetu.compat.bert_prep", description=__doc__, allow_abbrev=False,
                           formatter_class=argparse.RawDescriptionHelpFormatter)
    add, default = parser.add_argument, "(default %(default)s)"
    add("--input_file", type=Path, required=True, help="one sentence per line, a blank line between documents; utf-8")
    add("--vocab_file", type=Path, required=True, help="WordPiece tokens, one per line")
    add("--output_dir", type=Path, required=True, help="new or empty folder")
    add("--do_lower_case", action="store_true", help="lower-case the text and remove accents")
    add("--max_seq_length", type=int, default=128, help=f"tokens per row {default}")
    add("--max_predictions_per_seq", type=int, default=20, help=f"masked tokens per row; 80 with 512 tokens {default}")
    add("--n_training_shards", type=int, default=256, help=f"number of training files {default}")
    add("--n_test_shards", type=int, default=256, help=f"number of test files; 0 for none {default}")
    add("--fraction_test_set", type=float, default=0.1, help=f"share of the documents in test files {default}")
    add("--random_seed", type=int, default=12345, help=default)
    add("--dupe_factor", type=int, default=5, help=f"number of times that each document is used {default}")
    add("--masked_lm_prob", type=float, default=0.15, help=default)
    add("--short_seq_prob", type=float, default=0.1, help=f"share of rows with fewer tokens {default}")
    given = parser.parse_args(arguments)
    for name, least in (("max_seq_length", 5), ("max_predictions_per_seq", 1), ("n_training_shards", 1),
                        ("n_test_shards", 0), ("dupe_factor", 1)):
        if getattr(given, name) < least:
            parser.error(f"--{name} {getattr(given, name)}: at least {least}")
    for name in ("fraction_test_set", "masked_lm_prob", "short_seq_prob"):
        if not 0 <= getattr(given, name) < 1:
            parser.error(f"--{name} {getattr(given, name):g}: from 0 to less than 1")
    refuse_used(parser, given.output_dir)
    return given


def settings_of(given: argparse.Namespace) -> Settings:
    """Returns the constants. Throws ValueError for a vocabulary without BERT's special tokens."""
    known = {token: number for number, token in enumerate(given.vocab_file.read_text(encoding="utf-8").split("\n"))}
    missing = [token for token in ("[CLS]", "[SEP]", "[MASK]") if token not in known]
    if missing:
        raise ValueError(f"{given.vocab_file}: no line {missing[0]}; give the vocabulary of a BERT model, or make one with "
                         "hetu data vocabulary")
    size = len(known) - ("" in known)
    return Settings(given.max_seq_length, given.max_predictions_per_seq, given.masked_lm_prob, given.short_seq_prob,
                    known["[CLS]"], known["[SEP]"], known["[MASK]"], size)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    given = parse(arguments)
    with one_line_errors("bert_prep"):
        by = settings_of(given)
        words = WordPiece(str(given.vocab_file), given.do_lower_case)
        dealt = deal(documents_of(given.input_file, words), given)
        progress, done, counts = _hetu.ProgressLine("bert_prep", "files"), 0, {"training": 0, "test": 0}
        with made_whole(given.output_dir.absolute()) as made:
            for kind, shards in dealt.items():
                for number, documents in enumerate(shards):
                    rows = rows_of(documents, by, given.dupe_factor, given.random_seed + done)
                    write(made / f"wikicorpus_en_{kind}_{number}.hdf5", rows)
                    counts[kind] += len(rows)
                    done += 1
                    progress(done, len(dealt["training"]) + len(dealt["test"]))
        progress.close()
        print(f"{given.output_dir}: {counts['training']} training and {counts['test']} test rows of {by.sequence_length} "
              "tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
