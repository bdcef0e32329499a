"""English text that every machine has, a WordPiece vocabulary trained on it, and the text as its ids.

The text is the docstrings of Python's standard library (its sources are parsed, never imported) and the topics of the
language reference.
"""

from __future__ import annotations

import ast
import heapq
import re
import sysconfig
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data import topics

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)
BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")  # fields of statements, in the order of ast
ALPHABET = 100  # most letters; words with other letters are [UNK]
SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data"}


def docstrings(path: Path) -> Iterator[str]:
    """Yields the docstrings of one source file, in order. Yields nothing if the file can't be parsed."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return
    level: list[ast.AST] = [tree]
    while level:  # like ast.walk, but skips expressions, which are most of a tree and contain no docstrings
        for node in level:
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield text
        level = [child for node in level for name in BLOCKS for child in getattr(node, name, ())]


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences of paragraphs that read like prose."""
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        letters = sum(map(str.isalpha, line)) + line.count(" ")
        if len(line) < 20 or ">>>" in line or letters < 0.85 * len(line):
            continue
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z\"'(])", line):
            if len(sentence.split()) >= 3:
                yield sentence


def documents() -> Iterator[list[str]]:
    """Yields the corpus: one document per topic and per source file with at least four sentences."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for name in sorted(topics.topics):
        document = list(sentences(topics.topics[name]))
        if len(document) >= 4:
            yield document
    for path in sorted(root.rglob("*.py")):
        if not SKIPPED.intersection(path.relative_to(root).parts):
            document = [s for text in docstrings(path) for s in sentences(text)]
            if len(document) >= 4:
                yield document


def stands_alone(c: str) -> bool:
    """Returns true if BERT's basic tokenizer makes a word of this non-ASCII character: punctuation, and Chinese ideographs.
    """
    return unicodedata.category(c).startswith("P") or unicodedata.name(c, "").startswith("CJK UNIFIED IDEOGRAPH")


def words(sentence: str) -> list[str]:
    """Returns lower-case words and single punctuation marks, without accents, like BERT's basic tokenizer. Non-ASCII
    symbols that are not punctuation stay in their words."""
    plain = sentence.lower()
    if not plain.isascii():
        plain = unicodedata.normalize("NFD", plain)
        kept = (c for c in plain if unicodedata.category(c) != "Mn" and (c.isspace() or unicodedata.category(c)[0] != "C"))
        plain = "".join(c if c.isascii() or not stands_alone(c) else f" {c} " for c in kept)
    return re.findall(r"[!-/:-@\[-`{-~]|[^\s!-/:-@\[-`{-~]+", plain)


def joined(left: str, right: str) -> str:
    """Joins two neighbouring pieces of a word."""
    return left + right.removeprefix("##")


def merge(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """Returns a word's pieces with each occurrence of the pair joined, from the left."""
    out: list[str] = []
    i = 0
    while i < len(pieces):
        if tuple(pieces[i : i + 2]) == pair:
            out.append(joined(*pair))
            i += 2
        else:
            out.append(pieces[i])
            i += 1
    return out


def train_vocabulary(counts: Counter[str], size: int, most_letters: int = ALPHABET,
                     progress: Callable[[int, int], object] = lambda done, size: None) -> list[str]:
    """Returns a WordPiece vocabulary: the most frequent letters, then repeatedly the most frequent pair of neighbouring
    pieces. Among equally frequent pairs, the first in sorted order wins. (The `tokenizers` library leaves ties to a hash,
    which differs between runs.)

    progress: receives the number of tokens and `size`, after each new token.
    """
    letters = Counter(c for word in sorted(counts) for c in word * counts[word])
    alphabet = {c for c, _ in sorted(letters.items(), key=lambda item: (-item[1], item[0]))[:most_letters]}
    split = [[word[0], *("##" + c for c in word[1:])] for word in sorted(counts) if alphabet.issuperset(word)]
    weight = [counts[word] for word in sorted(counts) if alphabet.issuperset(word)]
    total: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], set[int]] = {}

    def count(index: int, sign: int) -> None:
        for pair in zip(split[index], split[index][1:], strict=False):
            total[pair] += sign * weight[index]
            where.setdefault(pair, set()).add(index)

    for index in range(len(split)):
        count(index, 1)
    vocabulary = [*SPECIAL, *sorted({piece for pieces in split for piece in pieces})]
    known = set(vocabulary)
    # The heap holds pairs by descending count. A merge changes the counts of neighbouring pairs only. These are pushed
    # again, and entries whose count is outdated are skipped when they are popped. So a merge costs time only for the words
    # that contain the pair, not for the whole vocabulary.
    heap = [(-n, pair) for pair, n in total.items()]
    heapq.heapify(heap)
    while heap and len(vocabulary) < size:
        n, pair = heapq.heappop(heap)
        if -n != total[pair]:  # counted again since it was pushed
            continue
        if -n < 2:
            break
        touched: set[tuple[str, str]] = set()
        for index in where.pop(pair):
            touched.update(zip(split[index], split[index][1:], strict=False))
            count(index, -1)
            split[index] = merge(split[index], pair)
            count(index, 1)
            touched.update(zip(split[index], split[index][1:], strict=False))
        for other in touched:
            if total[other] > 0:
                heapq.heappush(heap, (-total[other], other))
        if joined(*pair) not in known:
            vocabulary.append(joined(*pair))
            known.add(joined(*pair))
            progress(len(vocabulary), size)
    return vocabulary


def pieces_of(word: str, ids: dict[str, int]) -> list[int]:
    """Returns a word's longest pieces from the left, or [UNK] if it can't be composed."""
    out: list[int] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in ids), start)
        if end == start:
            return [UNK]
        out.append(ids[prefix + word[start:end]])
        start = end
    return out


def encode(texts: list[list[str]], vocab_size: int) -> tuple[list[str], list[list[list[int]]]]:
    """Trains a vocabulary on the texts. Returns its tokens, and the texts as ids per sentence."""
    cut = [[words(sentence) for sentence in document] for document in texts]
    counts = Counter(word for document in cut for sentence in document for word in sentence)
    vocabulary = train_vocabulary(counts, vocab_size)
    ids = {token: i for i, token in enumerate(vocabulary)}
    spelt = {word: pieces_of(word, ids) for word in counts}
    encoded = [[[i for word in sentence for i in spelt[word]] for sentence in document] for document in cut]
    return vocabulary, [[sentence for sentence in document if sentence] for document in encoded]
