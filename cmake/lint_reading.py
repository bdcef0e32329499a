"""Checks how easy the pages are to read, by Flesch's reading ease (Flesch 1948, "A new readability yardstick"). Its two
terms are the words per sentence and the syllables per word. Code, tables and headings don't count. Part of `./run lint`,
because it takes syllables from pyphen (PyPI)."""

from __future__ import annotations

import re
from pathlib import Path

LEAST = 60.0  # of 100; in Flesch's scale 30 to 50 is difficult and 60 to 70 is standard
LEAST_WORDS = 120  # the measure of a shorter page is mostly chance
REMOVED = re.compile(r"^```.*?^```\s*$|<!--.*?-->|^\s*\|.*?$|^\s*#.*?$|^ {4,}\S.*?$|!\[[^\]]*\]\([^)]*\)|https?://\S+",
                     re.M | re.S)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+", re.M)
END = re.compile(r"[.:;!?](?=[\s)\"]|$)")
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")


def prose(text: str) -> str:
    """Returns the sentences of a page. A name in code counts as one short word, and a list item as a sentence of its own."""
    text = LINK.sub(r"\1", REMOVED.sub("\n", text))
    return ITEM.sub(". ", CODE.sub("it", text))


def reading_ease(text: str, syllables) -> tuple[float, int]:
    """Returns the reading ease of prose, and its number of words. `syllables` counts those of a word."""
    sentences = [words for part in re.split(END, text) for paragraph in re.split(r"\n\s*\n", part)
                 if (words := WORD.findall(paragraph))]
    words = [word for sentence in sentences for word in sentence]
    if not words:
        return 100.0, 0
    return (206.835 - 1.015 * len(words) / len(sentences) - 84.6 * sum(map(syllables, words)) / len(words), len(words))


def check(root: Path, files: list[str]) -> list[str] | None:
    """Returns the pages that are too hard to read, or None if pyphen isn't installed."""
    try:
        import pyphen  # noqa: PLC0415
    except ImportError:
        return None
    dictionary = pyphen.Pyphen(lang="en_US")
    found = []
    for name in files:
        if not name.endswith(".md"):
            continue
        ease, words = reading_ease(prose((root / name).read_text(errors="replace")),
                                   lambda word: len(dictionary.positions(word.lower())) + 1)
        if words >= LEAST_WORDS and ease < LEAST:
            found.append(f"{name}: reading ease {ease:.0f} of 100 over {words} words; write shorter sentences and words, "
                         f"for at least {LEAST:.0f}")
    return found
