"""`hetu data sample`: the layout of the published shards, BERT's masking rates, and equal rows for equal seeds."""

import contextlib
import importlib.util
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hetu.sample import bert, prose
from hetu.sample.__main__ import main

NEEDED = [name for name in ("h5py", "numpy") if importlib.util.find_spec(name) is None]
OPTIONS = bert.Options(rows=900, sequence_length=64, max_predictions=12, vocab_size=1500, shards=3, seed=7)
COLUMNS = {
    "input_ids": ("int32", 64),
    "input_mask": ("int8", 64),
    "segment_ids": ("int8", 64),
    "masked_lm_positions": ("int32", 12),
    "masked_lm_ids": ("int32", 12),
    "next_sentence_labels": ("int8", 0),
}


def read(folder: Path, kind: str) -> dict:
    """Returns the concatenated columns of all shards of a kind."""
    import h5py
    import numpy as np

    out: dict = {name: [] for name in COLUMNS}
    for path in sorted(folder.glob(f"*{kind}*")):
        with h5py.File(path) as file:
            for name, parts in out.items():
                parts.append(file[name][:])
    return {name: np.concatenate(parts) for name, parts in out.items()}


@unittest.skipIf(NEEDED, f"not installed: {', '.join(NEEDED)}")
class Sample(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        third = list(bert.documents())[::3]  # read once; a third is enough
        once = mock.patch.object(bert, "documents", lambda: third)
        once.start()
        cls.addClassCleanup(once.stop)
        cls.root = Path(cls.temporary.name)
        cls.folder = cls.root / "sample"
        cls.told = []
        cls.line = bert.make_sample(cls.folder, OPTIONS, lambda done, shards: cls.told.append((done, shards)))
        cls.rows = read(cls.folder, "training")
        cls.vocabulary = (cls.folder / "vocab.txt").read_text().splitlines()

    def test_files_and_columns_are_those_of_the_published_shards(self):
        import h5py

        names = sorted(path.name for path in self.folder.iterdir())
        shards = [f"wikicorpus_en_training_{i}.hdf5" for i in range(3)]
        self.assertEqual(names, ["vocab.txt", "wikicorpus_en_test_0.hdf5", *shards])
        for name in names[1:]:
            with h5py.File(self.folder / name) as file:
                self.assertEqual(set(file), set(COLUMNS))
                rows = 300 if "training" in name else 45
                for column, (dtype, width) in COLUMNS.items():
                    self.assertEqual(file[column].dtype, dtype, column)
                    self.assertEqual(file[column].shape, (rows, width) if width else (rows,), column)
                    self.assertEqual(file[column].compression, "gzip", column)

    def test_progress_counts_the_training_shards(self):
        self.assertEqual(self.told, [(1, 3), (2, 3), (3, 3)])

    def test_the_vocabulary_is_wordpiece_of_the_size_asked_for(self):
        self.assertEqual(self.vocabulary[:5], ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
        self.assertEqual(len(self.vocabulary), 1500)
        self.assertEqual(len(set(self.vocabulary)), 1500)
        self.assertTrue(any(token.startswith("##") for token in self.vocabulary))
        self.assertTrue(all(token == token.lower() for token in self.vocabulary[5:]))
        self.assertIn("1500 words", self.line)

    def test_words_are_spelt_as_berts_tokenizer_spells_them(self):
        if importlib.util.find_spec("tokenizers") is None:
            self.skipTest("not installed: tokenizers")
        from tokenizers.implementations import BertWordPieceTokenizer

        theirs = BertWordPieceTokenizer(str(self.folder / "vocab.txt"), lowercase=True)
        ids = {token: i for i, token in enumerate(self.vocabulary)}
        texts = [sentence for document in bert.documents() for sentence in document]
        self.assertGreater(len(texts), 1000)
        strange = ["naïve_Café: it's \u4f60\u597d x-y (z)",
                   "\u00b4a\u00b4 b\u20acc \u00abd\u00bb e\u2026\u200b$f g\u2014h ^i~"]
        for text in texts + strange:
            mine = [i for word in prose.words(text) for i in prose.pieces_of(word, ids)]
            self.assertEqual(mine, theirs.encode(text, add_special_tokens=False).ids, text)

    def test_the_vocabulary_holds_the_most_frequent_pieces(self):
        counts = prose.Counter({"low": 5, "lower": 2, "newest": 6, "widest": 3})
        made = prose.train_vocabulary(counts, 100)
        alphabet = sorted("l ##o ##w ##e ##r n ##s ##t w ##i ##d".split())
        self.assertEqual(made[5 : 5 + len(alphabet)], alphabet)
        # es 9, est 9 (its e-s pair), then lo 7, low 7, and so on down to 2.
        self.assertEqual(made[5 + len(alphabet) :][:4], ["##es", "##est", "##ow", "low"])
        self.assertEqual(made[-1], "lower")
        told = []
        self.assertEqual(prose.train_vocabulary(counts, 100, progress=lambda done, size: told.append((done, size))), made)
        first = 5 + len(alphabet)
        self.assertEqual(told, [(done, 100) for done in range(first + 1, len(made) + 1)])

    def test_rows_are_two_segments_between_their_marks(self):
        for ids, used, segments in zip(
            self.rows["input_ids"], self.rows["input_mask"], self.rows["segment_ids"], strict=True
        ):
            length = int(used.sum())
            self.assertEqual(list(used), [1] * length + [0] * (64 - length))
            self.assertEqual(ids[0], prose.CLS)
            self.assertEqual(list(ids[length:]), [prose.PAD] * (64 - length))
            ends = [i for i in range(length) if ids[i] == prose.SEP]
            self.assertEqual(len(ends), 2)
            self.assertEqual(ends[1], length - 1)
            first = ends[0] + 1
            self.assertEqual(list(segments), [0] * first + [1] * (length - first) + [0] * (64 - length))
            self.assertGreater(first, 2)
            self.assertGreater(length - first, 1)

    def test_masked_positions_ascend_and_miss_the_marks(self):
        rows = self.rows
        for ids, used, places, labels in zip(
            rows["input_ids"], rows["input_mask"], rows["masked_lm_positions"], rows["masked_lm_ids"], strict=True
        ):
            length = int(used.sum())
            count = min(12, max(1, round(0.15 * length)), length - 3)
            self.assertEqual(list(places[count:]), [0] * (12 - count))
            self.assertEqual(list(labels[count:]), [0] * (12 - count))
            self.assertEqual(list(places[:count]), sorted(set(places[:count])))
            for place, label in zip(places[:count], labels[:count], strict=True):
                self.assertTrue(0 < place < length - 1)
                self.assertNotIn(ids[place], (prose.CLS, prose.SEP, prose.PAD))
                self.assertTrue(prose.UNK <= label < len(self.vocabulary) and label not in (2, 3, 4))

    def test_masks_are_80_10_10_and_half_of_the_pairs_random(self):
        import numpy as np

        at, column = np.nonzero(self.rows["masked_lm_positions"])
        seen = self.rows["input_ids"][at, self.rows["masked_lm_positions"][at, column]]
        labels = self.rows["masked_lm_ids"][at, column]
        total = len(labels)
        self.assertGreater(total, 6000)
        for share, right in (
            (np.mean(seen == prose.MASK), 0.8),
            (np.mean(seen == labels), 0.1),
            (np.mean((seen != prose.MASK) & (seen != labels)), 0.1),
        ):
            self.assertAlmostEqual(share, right, delta=4 * (right * (1 - right) / total) ** 0.5)
        # A chunk of one sentence has no true next sentence. Slightly more than half are therefore random, as in BERT.
        self.assertTrue(0.47 < np.mean(self.rows["next_sentence_labels"]) < 0.70)
        short = np.mean(self.rows["input_mask"].sum(axis=1) < 48)
        self.assertTrue(0.03 < short < 0.25, short)

    def test_true_next_segments_follow_in_the_text(self):
        text = [[[1000 * d + 10 * s + k for k in range(5)] for s in range(1, 9)] for d in range(1, 5)]
        rng = bert.random.Random(3)
        kinds = set()
        for _ in range(50):
            for index in range(4):
                for row in bert.pairs(text, index, 32, rng):
                    cut = row.ids.index(prose.SEP)
                    a, b = row.ids[1:cut], row.ids[cut + 1 : -1]
                    self.assertEqual({token // 1000 for token in a}, {index + 1})
                    self.assertLessEqual(len(row.ids), 32)
                    same = {token // 1000 for token in b} == {index + 1}
                    self.assertEqual(same, not row.random_next)
                    if same:
                        self.assertLess(a[-1], b[0])
                    kinds.add(row.random_next)
        self.assertEqual(kinds, {0, 1})

    def test_the_seed_fixes_every_byte(self):
        again, other = self.root / "again", self.root / "other"
        bert.make_sample(again, OPTIONS)
        for path in self.folder.iterdir():
            self.assertEqual(path.read_bytes(), (again / path.name).read_bytes(), path.name)
        bert.make_sample(other, bert.Options(**{**vars(OPTIONS), "seed": 8}))
        self.assertEqual((other / "vocab.txt").read_text().splitlines(), self.vocabulary)
        self.assertFalse((read(other, "training")["input_ids"] == self.rows["input_ids"]).all())

    def test_sentences_end_at_line_ends_only(self):
        """Sentences don't end at other characters that str.splitlines splits at. A byte order mark isn't text."""
        inside = ["one\u2028one", "two\x0ctwo", "three\x85three", "four"]
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "own.txt"
            for end in ("\n", "\r\n"):
                document = end.join(inside)
                text.write_bytes(("\ufeff" + (end * 2).join([document] * 60)).encode())
                self.assertEqual(bert.documents_of(text), [inside] * 60)

    def test_a_failure_leaves_nothing_behind(self):
        with mock.patch.object(bert, "write_shard", side_effect=OSError("disk full")):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors):
                self.assertEqual(main([str(self.root / "failed"), "--rows", "20"]), 4)
        self.assertIn("disk full", errors.getvalue())
        self.assertEqual([path.name for path in self.root.iterdir() if "failed" in path.name], [])

    def test_what_cannot_be_made_is_refused_in_a_line(self):
        for arguments, words in (
            ([str(self.folder)], "exists and is not an empty folder"),
            (["x", "--rows", "2", "--shards", "3"], "each shard needs a row"),
            (["x", "--sequence-length", "8"], "--sequence-length >= 16"),
        ):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as end:
                main(arguments)
            self.assertEqual(end.exception.code, 2)
            self.assertIn(words, errors.getvalue())


if __name__ == "__main__":
    unittest.main(verbosity=2)
