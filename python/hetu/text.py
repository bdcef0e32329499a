"""Text as rows of numbers: bytes or tokens for models of the next token, and pairs of sentences for BERT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetu import _hetu, files, keywords
from hetu.data import Data, checksum_of_file, decoding_threads
from hetu.graph import current
from hetu.names import missing_from
from hetu.notice import notice
from hetu.place import path_of, placed
from hetu.rows import checksum, spread

if TYPE_CHECKING:
    import numpy


def _files(path: str) -> list[Path]:
    """Returns a file, or all *.txt of a folder and its sub-folders, sorted by name. Files that are hidden, or in a hidden
    folder, are left out: an editor's copies, and the ._ files of macOS."""
    at = Path(path_of(path))
    found = [at] if at.exists() and not at.is_dir() else []
    if at.is_dir():
        found = sorted(file for file in at.rglob("*.txt")
                       if not file.is_dir() and not any(part.startswith(".") for part in file.relative_to(at).parts))
    if not found:
        current().refuse(f"text '{path}': {'no *.txt in this folder' if at.is_dir() else 'no such file or folder'}")
    return found


def _turn_off(tokenizer: Any) -> list[str]:
    """Turns off features that would drop, add or randomly change tokens of a text. Returns their descriptions."""
    unused = []
    if tokenizer.truncation is not None:
        unused.append(f"truncation to {tokenizer.truncation['max_length']} tokens")
        tokenizer.no_truncation()
    if tokenizer.padding is not None:
        unused.append("padding")
        tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None):  # of BPE
        unused.append(f"random merges (dropout {tokenizer.model.dropout:.3g})")
        tokenizer.model.dropout = None
    return unused


class Vocabulary:
    """Converts text to token numbers: its bytes (`file` None), or the tokens of a tokenizer.json or of the folder that
    contains it. The latter needs Hugging Face's tokenizers.

    `size` is the largest number plus one. Every token of a text counts, and the same text gives the same tokens in every
    worker. Truncation, padding and random merges that the file defines are therefore turned off, and a printed line says
    so. Added tokens, the normalizer and the special tokens of a template apply as the file defines them.
    """

    @placed()
    def __init__(self, file: str | None = None) -> None:
        self.size, self._tokenizer = 256, None
        self._checksum: int | None = None
        if file is None:
            return
        try:
            import tokenizers
        except ImportError:
            raise ValueError(f"vocabulary '{file}': tokenizers is not installed here (pip install tokenizers); without a "
                             "vocabulary the bytes of the text are read") from None
        path = Path(path_of(file))
        path = path / "tokenizer.json" if path.is_dir() else path
        try:
            raw = files.read_bytes(path)
            self._tokenizer = tokenizers.Tokenizer.from_str(raw.decode(json.detect_encoding(raw)))
        except Exception as error:  # tokenizers raises its own kinds of errors
            raise ValueError(f"vocabulary '{path}': not a tokenizer.json of Hugging Face's tokenizers: {error}") from None
        self.size = max(self._tokenizer.get_vocab().values(), default=-1) + 1
        unused = _turn_off(self._tokenizer)
        if unused:
            notice(f"vocabulary '{path}': not applied to text, although set in the file: {' and '.join(unused)}")

    def checksum(self) -> int:
        """Returns a checksum that differs between vocabularies, or 0 if bytes are the tokens."""
        if self._checksum is None:
            self._checksum = 0 if self._tokenizer is None else int(_hetu.crc32c(self._tokenizer.to_str().encode()))
        return self._checksum

    def encode(self, text: bytes, name: str = "text") -> numpy.ndarray:
        """Returns the tokens of a text as int32. Raises ValueError, which names `name`, if the vocabulary has tokens and
        the text is not UTF-8."""
        import numpy as np  # imported late: NumPy takes half of a worker's start

        if self._tokenizer is None:
            return np.frombuffer(text, np.uint8).astype(np.int32)
        try:
            words = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}: byte {error.start} (0x{text[error.start]:02x}) is not UTF-8; convert the file to "
                             "UTF-8, or train on its bytes without a vocabulary") from None
        ids = np.asarray(self._tokenizer.encode(words).ids, np.int32)
        if ids.size and ids.max() >= self.size:  # a template may contain any number
            raise ValueError(f"{name}: the vocabulary gives token {ids.max()}, but its tokens are 0 to {self.size - 1}")
        return ids

    def decode(self, ids: Any) -> str:
        """Returns the text of token numbers."""
        if self._tokenizer is None:
            return bytes(int(i) for i in ids).decode("utf-8", "replace")
        return str(self._tokenizer.decode([int(i) for i in ids]))


class Text(Data):
    """Rows of `length` + 1 tokens of a text file, or of a folder's *.txt, one after the other. Each row begins with the
    last token of the row before, so that every token is predicted once.

    Field: ids int32 [length + 1]. An epoch takes whole global batches in a random order that depends on seed and epoch, or
    in order with `train` False.
    """

    _order_names_rows = False

    def __init__(self, path: str, batch_size: int, length: int, vocabulary: Vocabulary | None = None, train: bool = True,
                 seed: int = 0) -> None:
        import numpy as np  # imported late: NumPy takes half of a worker's start

        if length < 1:
            current().refuse(f"text '{path}': length must be >= 1, got {length}")
        self.vocabulary, self.train, self.seed, self.length = vocabulary or Vocabulary(), train, seed, length
        tokens = np.concatenate([self.vocabulary.encode(files.read_bytes(file), str(file)) for file in _files(path)])
        count = (len(tokens) - 1) // length
        if count < 1:
            current().refuse(f"text '{path}': {len(tokens)} tokens are fewer than one row of {length + 1}")
        self._rows = np.stack([tokens[i * length:(i + 1) * length + 1] for i in range(count)])
        self._order: tuple[int, numpy.ndarray] = (-1, np.arange(count))
        super().__init__([("ids", "int32", [length + 1])], batch_size)

    def __len__(self) -> int:
        return len(self._rows)

    def meaning(self) -> dict[str, tuple[str, Any]]:
        return {"ids": ("vocabulary", self.vocabulary.checksum())}

    def _read_checksums(self) -> Any:
        return [self.train, checksum({"ids": self._rows[spread(len(self._rows))]})]

    def _batch(self, epoch: int, number: int, rows: int) -> dict[str, numpy.ndarray] | None:
        import numpy as np  # imported late: NumPy takes half of a worker's start

        if number * rows >= len(self._rows):
            return None
        if self.train and self._order[0] != epoch:
            self._order = epoch, np.random.default_rng([self.seed, epoch]).permutation(len(self._rows))
        return {"ids": self._rows[self._order[1][number * rows:(number + 1) * rows]]}

    def loader(self, pipelines: int, pipeline: int, fields: list[str], together: Any = None) -> Any:
        rows = self._global_batch(pipelines)
        if rows > len(self._rows) and not self._once:
            current().refuse(f"text: {len(self._rows)} rows of {self.length} tokens are fewer than one global batch of "
                             f"{rows}; choose a smaller batch_size or length")
        options = self._options(pipelines, pipeline, fields, 1)
        return _hetu.stream_loader("text", [tuple(f) for f in self.fields], lambda e, n: self._batch(e, n, rows), rows,
                                   options, None)

    def entropy(self) -> float:
        """Returns the unigram entropy of the tokens in nats: the loss of a model that knows only how often each token
        occurs."""
        import numpy as np  # imported late: NumPy takes half of a worker's start

        share = np.bincount(self._rows[:, 1:].ravel()) / self._rows[:, 1:].size
        return float(-(share[share > 0] * np.log(share[share > 0])).sum())


# A vocabulary below this size may lack capital letters by chance.
_LEAST_TOKENS = 1000


def _notice_case(file: str, lower_case: bool) -> None:
    """Prints a line if a vocabulary doesn't fit `lower_case`: either its capital letters are never looked up, or it has no
    capital letters, so that every word with one becomes [UNK]."""
    lines = Path(file).read_bytes().decode("utf-8", "replace").splitlines()
    words = [word for word in lines if not word.startswith("[")]
    capital = sum(word != word.lower() for word in words)
    if lower_case and capital > len(words) // 20:
        notice(f"vocabulary '{file}': {capital} of {len(words)} tokens have capital letters, which lower-cased text never "
               "has; for a cased vocabulary, give lower_case=False (--cased)")
    elif not lower_case and not capital and len(words) >= _LEAST_TOKENS:
        notice(f"vocabulary '{file}': none of {len(words)} tokens has a capital letter, so words with one become [UNK]; "
               "for an uncased vocabulary, give lower_case=True")


class WordPiece:
    """A WordPiece vocabulary, BERT's vocab.txt, with a token per line. `encoding` is the encoding of bytes: utf-8 or
    latin-1. Prints a line if the capital letters of the vocabulary don't fit `lower_case`."""

    @placed()
    def __init__(self, file: str, lower_case: bool = True, encoding: str = "utf-8") -> None:
        self._words = _hetu.WordPiece(path_of(file), lower_case)
        self.encoding = encoding
        self.size: int = self._words.size
        _notice_case(str(file), lower_case)

    def encode(self, text: str | bytes) -> list[int]:
        """Returns the ids of a text's tokens, without [CLS] and [SEP]."""
        if isinstance(text, str):
            return list(self._words.encode(text.encode(), "utf-8"))
        return list(self._words.encode(text, self.encoding))


class BertText(Data):
    """BERT pre-training rows of a plain text, created during training. The text has one sentence per line, and a blank line
    between documents.

    Fields, all int32, as in ht.data.BertHdf5: input_ids, input_mask, segment_ids, masked_lm_labels [S],
    next_sentence_labels [], masked_lm_positions, masked_lm_ids [P]. datasets/bert_text.h defines the rules.
    vocabulary: a vocab.txt.
    lower_case: converts to lower case and removes accents.
    encoding: utf-8 or latin-1.
    corpus_lines: uses only this number of sentences from the beginning (0 = all).
    max_rows: uses only this number of pairs from the beginning (0 = all).
    threads: the number of threads that create rows. 0: half of this worker's cores, at least one.
    An index, PATH.hetu-index, is written next to the text when it is first opened.
    """

    def __init__(self, path: str, vocabulary: str, batch_size: int, sequence_length: int = 128, *, seed: int = 0,
                 lower_case: bool = True, encoding: str = "utf-8", corpus_lines: int = 0, max_rows: int = 0,
                 threads: int = 0) -> None:
        self.how = {
            "path": path_of(path), "vocabulary": path_of(vocabulary), "seed": seed,
            "sequence_length": sequence_length, "lower_case": lower_case, "encoding": encoding,
            "corpus_lines": corpus_lines, "max_rows": max_rows, "threads": threads or decoding_threads(),
        }
        about = _hetu.bert_text_about(self.how)
        _notice_case(str(self.how["vocabulary"]), lower_case)
        self.rows: int = about["rows"]
        self.vocabulary_size: int = about["vocabulary_size"]
        self.sequence_length = sequence_length
        row, masked = [sequence_length], [about["most_masked"]]
        shapes = {"input_ids": row, "input_mask": row, "segment_ids": row, "masked_lm_labels": row,
                  "next_sentence_labels": [], "masked_lm_positions": masked, "masked_lm_ids": masked}
        super().__init__([(name, "int32", shape) for name, shape in shapes.items()], batch_size)

    def __len__(self) -> int:
        return self.rows

    def loader(self, pipelines: int, pipeline: int, fields: list[str], together: Any = None) -> Any:
        return _hetu.bert_text_loader(self.how, self._options(pipelines, pipeline, fields, 4))

    def _read_checksums(self) -> Any:
        return [checksum_of_file(str(self.how["path"]), 1 << 16), checksum_of_file(str(self.how["vocabulary"]))]

    def meaning(self) -> dict[str, tuple[str, Any]]:
        return {"input_ids": ("vocabulary", checksum_of_file(str(self.how["vocabulary"])))}

    def target_entropy(self, rows: int = 20_000) -> float:
        """Returns the unigram entropy of the masked tokens in this number of rows, in nats: the loss of a model that knows
        only how often each token occurs."""
        return float(_hetu.bert_text_entropy(self.how, rows))


__all__ = ["BertText", "Text", "Vocabulary", "WordPiece"]

keywords.check_module(__name__)
globals()["__getattr__"] = missing_from(__name__)  # assigned, not defined: otherwise mypy would accept any name
