"""WordPiece compared with Hugging Face's tokenizers on a million lines of this machine's own files, with the time of each.
For parity.py; alone: python3 tests/python/references/word_piece_parity.py VOCAB [LINES]."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import hetu as ht

ROOTS = ("/usr/share", sys.prefix + "/lib", sys.base_prefix + "/lib", "/usr/include")
LARGEST = 3_000_000  # limit in bytes of a file that is read


def lines_of_files(count: int) -> Iterator[str]:
    """Yields the lines of text files in UTF-8, folder by folder."""
    for root in ROOTS:
        for folder, _, files in os.walk(root):
            for name in sorted(files):
                path = Path(folder, name)
                try:
                    data = b"" if path.is_symlink() or path.stat().st_size > LARGEST else path.read_bytes()
                    text = "" if b"\0" in data else data.decode()
                except (OSError, UnicodeDecodeError):
                    continue
                for line in text.split("\n"):
                    if line.strip():
                        yield line.strip()
                        count -= 1
                        if count == 0:
                            return


def reader_seconds(lines: list[str], vocabulary: str) -> tuple[float, int]:
    """Returns the CPU time of an epoch of BERT's rows of these lines, ten to a document, and the number of tokens in them.
    """
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "lines.txt"
        text.write_text("".join(line + ("\n\n" if i % 10 == 9 else "\n") for i, line in enumerate(lines)))
        data = ht.text.BertText(str(text), vocabulary, 64, threads=1)
        loader = data.loader(1, 0, ["input_ids", "input_mask", "masked_lm_ids"])
        tokens, start = 0, time.process_time()
        for _ in range(loader.batches_per_epoch):
            tokens += int(loader.next()["input_mask"].sum())
        return time.process_time() - start, tokens


def check(vocabulary: str, count: int = 1_000_000) -> bool:
    """Returns true if every line has the same ids, both lower-cased and cased."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers

    lines = list(lines_of_files(count))
    other = sum(not line.isascii() for line in lines)
    good = True
    for lower_case in (True, False):
        theirs = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=lower_case)
        theirs.enable_truncation(1 << 30)
        ours = ht.text.WordPiece(vocabulary, lower_case)
        start, expected = time.process_time(), []
        for i in range(0, len(lines), 1000):
            expected += [e.ids for e in theirs.encode_batch(lines[i:i + 1000], add_special_tokens=False)]
        middle = time.process_time()
        found = [ours.encode(line) for line in lines]
        seconds = middle - start, time.process_time() - middle
        # For the library, "[MASK]" in a text is one token. For Hetu it is three words.
        differ = [i for i, line in enumerate(lines) if found[i] != expected[i] and "[" not in line]
        tokens = sum(map(len, expected))
        kind, where = "small letters" if lower_case else "cased", f", the first {lines[differ[0]]!a}" if differ else ""
        print(f"WordPiece, {kind}: {len(lines)} lines, {other} not ASCII, {tokens} tokens: {len(differ)} differ{where}\n"
              f"  {seconds[1]:.2f} s for {seconds[0]:.2f} of tokenizers {tokenizers.__version__}, ratio "
              f"{seconds[1] / seconds[0]:.2f}")
        good &= not differ
        if lower_case:
            of_rows, in_rows = reader_seconds(lines, vocabulary)
            ratio = (of_rows / in_rows) / (seconds[0] / tokens)
            print(f"BERT's rows of them: {in_rows / of_rows / 1e6:.1f} million tokens/s and core, time per token "
                  f"{ratio:.2f} of tokenizers' alone")
    return good


if __name__ == "__main__":
    sys.exit(not check(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000))
