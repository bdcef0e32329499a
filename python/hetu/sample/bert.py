"""Small but real BERT pre-training shards, from prose that every machine has.

A WordPiece vocabulary is trained on the text of prose.py. The rows are made like in BERT's own preparation: pairs of
segments, half of them with a random second segment; 15 % of the tokens masked, of which 80 % become [MASK], 10 % a random
token, and 10 % stay; one row in ten shorter than necessary. Several passes over the text, each with its own cuts and masks,
produce the required number of rows. Names, columns, types and gzip are those of the published shards. The same seed and
Python version give the same bytes.

With the defaults, a small model learns from the data within minutes. There are 2000 word pieces, so that each is a target
often enough, and 20000 rows, about four passes over 300,000 words. A 4-layer, 128-wide BERT with GELU and weights of
deviation 0.02 falls below the targets' unigram entropy after about 150 steps of 32 rows at a rate of 1e-3. With Xavier's
deviations it did not within 280 steps (500 with ReLU): at that width, these make positions and segments several times
larger than words.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hetu.command_parser import CommandParser
from hetu.sample import criteo, images
from hetu.sample.folder import made_whole, refuse_used
from hetu.sample.prose import CLS, MASK, SEP, SPECIAL, documents, encode

TEST_FRACTION = 0.1
MASK_FRACTION = 0.15
SHORT_PROBABILITY = 0.1


@dataclass
class Options:
    """Properties of the sample. The defaults are those of the command line."""

    rows: int = 20000
    sequence_length: int = 128
    max_predictions: int = 20
    vocab_size: int = 2000
    shards: int = 4
    seed: int = 12345
    text: Path | None = None  # the user's own text, in place of prose.py's


@dataclass
class Row:
    """One sample, before padding."""

    ids: list[int]
    segments: list[int]
    positions: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    random_next: int = 0


def truncate(a: list[int], b: list[int], limit: int, rng: random.Random) -> None:
    """Shortens the longer of two segments, at a random end, until both fit."""
    while len(a) + len(b) > limit:
        longer = a if len(a) > len(b) else b
        longer.pop(0 if rng.random() < 0.5 else -1)


def random_tail(texts: list[list[list[int]]], but: int, length: int, rng: random.Random) -> list[int]:
    """Returns up to `length` tokens, completed to the end of their sentence, from a random position in another document."""
    other = but
    while other == but:
        other = rng.randrange(len(texts))
    out: list[int] = []
    for sentence in texts[other][rng.randrange(len(texts[other])) :]:
        out += sentence
        if len(out) >= length:
            break
    return out


def pairs(texts: list[list[list[int]]], index: int, length: int, rng: random.Random) -> Iterator[Row]:
    """Yields the unmasked rows of one document in one pass, of at most `length` tokens, as in BERT's
    create_pretraining_data."""

    def aim() -> int:
        return rng.randint(2, length - 3) if rng.random() < SHORT_PROBABILITY else length - 3

    document = texts[index]
    target, i = aim(), 0
    chunk: list[list[int]] = []
    while i < len(document):
        chunk.append(document[i])
        if i + 1 == len(document) or sum(map(len, chunk)) >= target:
            cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            a = [token for sentence in chunk[:cut] for token in sentence]
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                b = random_tail(texts, index, target - len(a), rng)
                i -= len(chunk) - cut  # the unused sentences are used again
            else:
                b = [token for sentence in chunk[cut:] for token in sentence]
            truncate(a, b, length - 3, rng)
            if a and b:
                ids = [CLS, *a, SEP, *b, SEP]
                yield Row(ids, [0] * (len(a) + 2) + [1] * (len(b) + 1), random_next=int(is_random))
            target, chunk = aim(), []
        i += 1


def mask(row: Row, max_predictions: int, vocabulary: int, rng: random.Random) -> None:
    """Masks 15 % of a row's tokens: 80 % become [MASK], 10 % a random token, 10 % stay unchanged."""
    places = [i for i, token in enumerate(row.ids) if token not in (CLS, SEP)]
    count = min(max_predictions, max(1, round(len(row.ids) * MASK_FRACTION)))
    row.positions = sorted(rng.sample(places, min(count, len(places))))
    row.labels = [row.ids[i] for i in row.positions]
    for i in row.positions:
        draw = rng.random()
        if draw < 0.8:
            row.ids[i] = MASK
        elif draw < 0.9:
            row.ids[i] = rng.randrange(len(SPECIAL), vocabulary)


def make_rows(
    texts: list[list[list[int]]], count: int, vocabulary: int, options: Options, rng: random.Random
) -> list[Row]:
    """Returns `count` masked rows, shuffled, from as many passes over the documents as necessary."""
    out: list[Row] = []
    while len(out) < count:
        for index in range(len(texts)):
            out.extend(pairs(texts, index, options.sequence_length, rng))
    rng.shuffle(out)
    out = out[:count]
    for row in out:
        mask(row, options.max_predictions, vocabulary, rng)
    return out


def target_entropy(rows: list[Row]) -> float:
    """Returns the unigram entropy of the masked targets in nats: the loss of a model that ignores its input."""
    counts = Counter(label for row in rows for label in row.labels)
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


def write_shard(path: Path, rows: list[Row], options: Options) -> None:
    """Writes one shard, with the columns and types of the published shards."""
    import h5py
    import numpy as np

    tokens, predictions = options.sequence_length, options.max_predictions
    columns = {
        "input_ids": (np.zeros((len(rows), tokens), "i4"), lambda r: r.ids),
        "input_mask": (np.zeros((len(rows), tokens), "i1"), lambda r: [1] * len(r.ids)),
        "segment_ids": (np.zeros((len(rows), tokens), "i1"), lambda r: r.segments),
        "masked_lm_positions": (np.zeros((len(rows), predictions), "i4"), lambda r: r.positions),
        "masked_lm_ids": (np.zeros((len(rows), predictions), "i4"), lambda r: r.labels),
    }
    with h5py.File(path, "w") as file:
        for name, (data, values) in columns.items():
            for i, row in enumerate(rows):
                found = values(row)
                data[i, : len(found)] = found
            file.create_dataset(name, data=data, compression="gzip")
        next_sentence = np.array([row.random_next for row in rows], "i1")
        file.create_dataset("next_sentence_labels", data=next_sentence, compression="gzip")


def documents_of(text: Path) -> list[list[str]]:
    """Returns the documents of a text: a sentence per line, a blank line between documents."""
    try:
        pieces = re.split(r"\n\s*\n", text.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{text}: {error}; if it is latin-1, convert it with iconv -f latin1 -t utf-8") from None
    # str.splitlines would also split at U+2028, form feeds and other characters.
    out = [[line.strip() for line in piece.split("\n") if line.strip()] for piece in pieces]
    out = [document for document in out if document]
    if len(out) < math.ceil(2 / TEST_FRACTION) or sum(map(len, out)) < 4 * len(out):
        raise ValueError(f"{text}: {sum(map(len, out))} sentences in {len(out)} documents are too few for a sample: at "
                         f"least {math.ceil(2 / TEST_FRACTION)} documents of 4, with a blank line between them")
    return out


def make_sample(folder: Path, options: Options, progress: Callable[[int, int], object] = lambda done, shards: None) -> str:
    """Writes the shards and vocab.txt into a new folder, all or nothing. Returns a line that describes them. `progress`
    receives the numbers of written and of all training shards."""
    rng = random.Random(options.seed)
    vocabulary, texts = encode(documents_of(options.text) if options.text else list(documents()), options.vocab_size)
    rng.shuffle(texts)
    held_out = round(len(texts) * TEST_FRACTION)
    rows = make_rows(texts[held_out:], options.rows, len(vocabulary), options, rng)
    tests = make_rows(texts[:held_out], max(1, options.rows // 20), len(vocabulary), options, rng)

    with made_whole(folder) as made:
        for i in range(options.shards):
            write_shard(made / f"wikicorpus_en_training_{i}.hdf5", rows[i :: options.shards], options)
            progress(i + 1, options.shards)
        write_shard(made / "wikicorpus_en_test_0.hdf5", tests, options)
        (made / "vocab.txt").write_text("".join(token + "\n" for token in vocabulary), encoding="utf-8")
    return (
        f"{folder}: {len(rows)} rows of {options.sequence_length} tokens in {options.shards} training shards, "
        f"{len(tests)} test rows, {len(vocabulary)} words in the vocabulary, "
        f"unigram entropy of the targets {target_entropy(rows):.4f} nats"
    )


def parse(arguments: list[str] | None) -> tuple[Path, Options]:
    """Returns the folder and options of a command line. Exits with status 2 if they are invalid."""
    d = Options()
    parser = CommandParser(
        prog="hetu data sample",
        description="Makes small but real BERT pre-training shards from prose that every machine has, or other sample data "
                    "with --kind.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="new or empty folder for shards and vocab.txt")
    parser.add_argument(
        "--kind", choices=("bert", *images.KINDS, *criteo.KINDS), default="bert",
        help="what to make (%(default)s); --kind images --help and --kind cifar100 --help list their options",
    )
    parser.add_argument("--rows", type=int, default=d.rows, help="training rows (%(default)s)")
    parser.add_argument("--sequence-length", type=int, default=d.sequence_length, help="tokens per row (%(default)s)")
    parser.add_argument(
        "--max-predictions", type=int, default=d.max_predictions, help="masked tokens per row at most (%(default)s)"
    )
    parser.add_argument("--vocab-size", type=int, default=d.vocab_size, help="WordPiece tokens (%(default)s)")
    parser.add_argument("--shards", type=int, default=d.shards, help="training files (%(default)s)")
    parser.add_argument("--seed", type=int, default=d.seed, help="random seed of cuts, pairs and masks (%(default)s)")
    parser.add_argument("--text", type=Path, metavar="FILE",
                        help="use this text instead: a sentence per line, a blank line between documents, utf-8")
    given = parser.parse_args(arguments)
    folder = given.folder.absolute()
    options = Options(**{name: getattr(given, name) for name in vars(d)})
    if options.sequence_length < 16 or options.max_predictions < 1 or options.vocab_size < 300:
        parser.error("needs --sequence-length >= 16, --max-predictions >= 1 and --vocab-size >= 300")
    if not 1 <= options.shards <= options.rows:
        parser.error(f"{options.rows} rows in {options.shards} shards: each shard needs a row")
    refuse_used(parser, folder)
    return folder, options


def main(arguments: list[str] | None = None) -> int:
    """Runs the command for --kind bert and returns its exit status."""
    folder, options = parse(arguments)
    try:
        from hetu import _hetu  # imported late, so that --help needs no compiled part

        progress = _hetu.ProgressLine("hetu data sample", "shards")
        with progress:
            line = make_sample(folder, options, progress)
    except ImportError as error:
        print(f"hetu data sample: {error}; pip install h5py numpy", file=sys.stderr)
        return 3
    except (OSError, ValueError) as error:
        print(f"hetu data sample: {error}" if isinstance(error, ValueError) else f"hetu data sample: {folder}: {error}",
              file=sys.stderr)
        return 4
    print(line)
    return 0
