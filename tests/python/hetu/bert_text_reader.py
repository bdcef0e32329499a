"""An independent reader of BERT rows from plain text, for bert_text_test.py.

It follows the rules of Chimera's bert_dataset.py, and datasets/bert_text.h for the counters of random draws. It is slow and
keeps all rows in memory."""

from __future__ import annotations

from pathlib import Path

WORD = 2**64 - 1


def mix(x: int) -> int:
    """Returns the hash of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = x + 0x9E3779B97F4A7C15 & WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


def drawn(key: int, counter: int) -> int:
    return mix(key + counter * 0x9E3779B97F4A7C15 & WORD)


def unit(bits: int) -> float:
    return (bits >> 11) / 2**53


def place(index: int, count: int, key: int) -> int:
    """Returns the permuted index: a Feistel network of six rounds over 2h bits, repeated until the result is below the
    count."""
    half = 1
    while 4**half < count:
        half += 1
    low = 2**half - 1
    while True:
        left, right = index >> half, index & low
        for turn in range(6):
            left, right = right, left ^ drawn(key + turn & WORD, right) & low
        index = left << half | right
        if index < count:
            return index


class Reader:
    """A reader of all rows of a text. `tokens` maps a sentence to its ids."""

    def __init__(self, text: Path, vocabulary: list[str], tokens: object, length: int, seed: int, most: int) -> None:
        self.documents: list[list[str]] = [[]]
        for line in text.read_text(encoding="utf-8").split("\n"):
            if line.strip():
                self.documents[-1].append(line.strip())
            elif self.documents[-1]:
                self.documents.append([])
        self.documents = [document for document in self.documents if document]
        self.pairs = [(d, s) for d, document in enumerate(self.documents) for s in range(len(document) - 1)]
        self.rows = len(self.pairs) - 1
        self.words, self.tokens, self.length, self.seed, self.most = vocabulary, tokens, length, seed, most
        self.pad, self.cls, self.sep, self.mask = (vocabulary.index(f"[{t}]") for t in ("PAD", "CLS", "SEP", "MASK"))

    def row(self, epoch: int, index: int) -> dict[str, list[int]]:
        of_epoch = drawn(drawn(self.seed, epoch), 0)
        pair = place(index, self.rows, of_epoch)
        key = drawn(drawn(of_epoch, 1), pair)
        document, number = self.pairs[pair]
        first, second = self.documents[document][number:number + 2]
        is_random = unit(drawn(key, 0)) >= 0.5
        if is_random:
            others = self.documents[:document] + self.documents[document + 1:]
            other = others[drawn(key, 1) % len(others)]
            second = other[drawn(key, 2) % len(other)]
        a, b = self.tokens(first), self.tokens(second)
        while len(a) + len(b) > self.length - 3:
            (a if len(a) > len(b) else b).pop()
        ids = [self.cls, *a, self.sep, *b, self.sep]
        labels, counter = [-1] * len(ids), 3
        for at in [*range(1, len(a) + 1), *range(len(a) + 2, len(ids) - 1)]:
            draw, any_word = unit(drawn(key, counter)) / 0.15, drawn(key, counter + 1) % len(self.words)
            counter += 2
            if draw < 1:
                labels[at] = ids[at]
                ids[at] = self.mask if draw < 0.8 else any_word if draw < 0.8 + 0.1 else ids[at]
        if not any(label >= 0 for label in labels) and a + b:  # at least one token is masked
            token = drawn(key, counter) % (len(a) + len(b))
            at = 1 + token + (token >= len(a))
            draw, any_word = unit(drawn(key, counter + 1)), drawn(key, counter + 2) % len(self.words)
            labels[at] = ids[at]
            ids[at] = self.mask if draw < 0.8 else any_word if draw < 0.8 + 0.1 else ids[at]
        padding = self.length - len(ids)
        positions = [at for at, label in enumerate(labels) if label >= 0]
        free = self.most - len(positions)
        return {
            "input_ids": ids + [self.pad] * padding, "input_mask": [1] * len(ids) + [0] * padding,
            "segment_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * padding,
            "masked_lm_labels": labels + [-1] * padding, "next_sentence_labels": [int(is_random)],
            "masked_lm_positions": positions + [0] * free, "masked_lm_ids": [labels[at] for at in positions] + [-1] * free,
        }
