#!/usr/bin/env python3
"""Writes tests/fixtures/word_piece.json: texts of many scripts, and their ids by Hugging Face's tokenizers (install it from
PyPI).

Characters newer than Unicode 8 are left out, because that library uses the tables of Unicode 8. Also left out are the 256
rare ideographs that it treats as letters: its range begins at U+2B920, and BERT's own at U+2B820."""

from __future__ import annotations

import json
import random
import tempfile
import unicodedata
from collections import Counter
from pathlib import Path

import tokenizers

from hetu.sample.prose import train_vocabulary

OUT = Path(__file__).resolve().parents[2] / "fixtures" / "word_piece.json"
SEED = 7
SENTENCES = [
    "The café's naïve résumé: 3.14 > 2.71 -- ISN'T it?  (Über-cool!)", "ΑΒΓ Ὀδυσσεύς ΣΊΣΥΦΟΣ", "Привет, Мир! Ёжик.",
    "日本語のテキスト と 漢字。", "한국어 문장입니다.", "हिन्दी में लिखा", "שָׁלוֹם עולם", "السَّلَامُ عَلَيْكُم", "İstanbul ıssız DİKKAT",
    "tab\tand\u00a0no\u200bbreak\u2028line\u3000wide", "e\u0301 and \u00e9, n\u0303 and \u00f1", "ﬁ ligature ½ Ⅷ ℃ ㎏",
    "x" * 100, "x" * 101,
    "a\u0000b\ufffdc\u0007d\u00ade", "[MASKED] ##ing # # $5 ^_^ `q` ~", "emoji 😀 👨‍👩‍👧 ❤️", "ẞ ß SS Ǆ ǅ Ω K Å",
]


def draws(rng: random.Random) -> list[str]:
    """Returns random strings of characters of one block and of ASCII."""
    blocks = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x530), (0x590, 0x600), (0x600, 0x61D), (0x620, 0x700), (0x900, 0x97F),
              (0xE00, 0xE7F), (0x10A0, 0x1100), (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2400),
              (0x3000, 0x3130), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0xE000, 0xE010), (0xF900, 0xFB00), (0xFF00, 0xFFF0),
              (0x1F300, 0x1F5FF), (0x20000, 0x20040), (0x1D400, 0x1D440)]
    out = []
    for begin, end in blocks:
        for _ in range(6):
            known = [c for c in map(chr, range(begin, end)) if unicodedata.category(c) != "Cn"]
            out.append("".join(rng.choice([*rng.choices(known, k=3), "a", "Z", " ", ".", "9"]) for _ in range(24)))
    return out


def main() -> None:
    rng = random.Random(SEED)
    texts = SENTENCES + draws(rng)
    seen = "".join(unicodedata.normalize("NFD", text).lower() + text for text in texts)
    letters = sorted({c for c in seen if unicodedata.category(c)[0] not in "CZ"})
    words = Counter(word for text in texts * 3 for word in text.lower().split())
    pieces = [*train_vocabulary(words, 600, 60), *letters, *("##" + c for c in letters[::2])]
    vocabulary = list(dict.fromkeys(pieces))
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
        file.write("".join(token + "\n" for token in vocabulary))
        file.flush()
        by = {name: tokenizers.BertWordPieceTokenizer(file.name, lowercase=name == "lower") for name in ("lower", "cased")}
    ids = {name: [by[name].encode(text, add_special_tokens=False).ids for text in texts] for name in by}
    made = {"tokenizers": tokenizers.__version__, "vocabulary": vocabulary, "texts": texts, "ids": ids}
    OUT.write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
