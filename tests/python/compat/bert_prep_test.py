"""Shards by NVIDIA's names and constants: files, layout, and the rules of the rows."""
import contextlib
import io
import pathlib
import random
import subprocess
import tempfile
import unittest

import h5py

from hetu import data
from hetu.compat import bert_prep

CLS, SEP, MASK = 2, 3, 4


def settings(**changes):
    return bert_prep.Settings(**{"sequence_length": 32, "most_masked": 5, "masked_share": 0.15, "short_share": 0.1,
                                 "cls": CLS, "sep": SEP, "mask": MASK, "vocabulary_size": 5000, **changes})


def documents(count=30):
    """Returns documents whose token ids tell the document and the position: 100 + 100 * document + position."""
    return [[list(range(100 * d + 100 + 7 * s, 100 * d + 107 + 7 * s)) for s in range(12)] for d in range(count)]


def unmasked(row):
    """Returns the tokens of a row before masking, without padding."""
    tokens = row["input_ids"][:sum(row["input_mask"])]
    for place, token in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
        if place:
            tokens[place] = token
    return tokens


class Rows(unittest.TestCase):
    def setUp(self):
        self.rows = bert_prep.rows_of(documents(), settings(), 40, 1)

    def test_parts_are_of_one_document_or_of_two(self):
        different = 0
        for row in self.rows:
            tokens = unmasked(row)
            self.assertEqual((tokens[0], tokens[-1], tokens.count(SEP)), (CLS, SEP, 2))
            cut = tokens.index(SEP)
            a, b = tokens[1:cut], tokens[cut + 1:-1]
            self.assertEqual(a, list(range(a[0], a[0] + len(a))))
            self.assertEqual(b, list(range(b[0], b[0] + len(b))))
            self.assertEqual(row["segment_ids"][:len(tokens)], [0] * (cut + 1) + [1] * (len(b) + 1))
            if row["next_sentence_labels"]:
                different += a[0] // 100 != b[0] // 100
            else:
                self.assertEqual(a[0] // 100, b[0] // 100)
                self.assertLess(a[-1], b[0])
        kept = [row for row in self.rows if not row["next_sentence_labels"]]
        self.assertGreater(different, 0.99 * (len(self.rows) - len(kept)))  # 10 draws in 30 documents
        self.assertAlmostEqual(len(kept) / len(self.rows), 0.45, delta=0.1)  # below a half: a document's last row is alone

    def test_masks_have_their_shares(self):
        kinds = {"mask": 0, "same": 0, "other": 0}
        for row in self.rows:
            length = sum(row["input_mask"])
            places = [place for place in row["masked_lm_positions"] if place]
            self.assertEqual(len(places), min(5, max(1, round(0.15 * length))))
            self.assertEqual(places, sorted(set(places)))
            for place, label in zip(places, row["masked_lm_ids"], strict=False):
                self.assertGreater(label, MASK)
                now = row["input_ids"][place]
                kinds["mask" if now == MASK else "same" if now == label else "other"] += 1
        whole = sum(kinds.values())
        for kind, share in (("mask", 0.8), ("same", 0.1), ("other", 0.1)):
            self.assertAlmostEqual(kinds[kind] / whole, share, delta=0.03, msg=kind)

    def test_some_rows_are_short(self):
        def share_of_short(rows):
            return sum(sum(row["input_mask"]) < 24 for row in rows) / len(rows)
        never = bert_prep.rows_of(documents(), settings(short_share=0.0), 40, 1)
        self.assertGreater(share_of_short(self.rows), share_of_short(never) + 0.02)

    def test_the_longer_part_is_cut_on_both_sides(self):
        draw, fronts, backs = random.Random(1), 0, 0
        for _ in range(100):
            a, b = list(range(30)), [0] * 5
            bert_prep.truncate(a, b, 25, draw)
            self.assertEqual((len(a), len(b)), (20, 5))
            fronts, backs = fronts + (a[0] > 0), backs + (a[-1] < 29)
        self.assertGreater(min(fronts, backs), 90)

    def test_the_seed_decides(self):
        again = bert_prep.rows_of(documents(), settings(), 40, 1)
        self.assertEqual(self.rows, again)
        self.assertNotEqual(self.rows, bert_prep.rows_of(documents(), settings(), 40, 2))


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text, self.vocabulary = self.folder / "text.txt", self.folder / "vocab.txt"
        self.text.write_text("\n\n".join("\n".join(f"the {d} white house has {s} doors ." for s in range(9))
                                         for d in range(20)) + "\n")
        self.vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "white", "house", "has",
                                              "doors", ".", *map(str, range(30))]) + "\n")
        self.words = ["--input_file", str(self.text), "--vocab_file", str(self.vocabulary), "--output_dir",
                      str(self.folder / "out"), "--do_lower_case", "--max_seq_length", "32"]

    def test_the_defaults_are_those_of_the_scripts(self):
        given = bert_prep.parse(self.words[:6])
        self.assertEqual((given.n_training_shards, given.n_test_shards, given.fraction_test_set, given.random_seed,
                          given.dupe_factor, given.masked_lm_prob, given.short_seq_prob, given.max_seq_length,
                          given.max_predictions_per_seq), (256, 256, 0.1, 12345, 5, 0.15, 0.1, 128, 20))

    def test_files_and_layout(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(bert_prep.main([*self.words, "--n_training_shards", "3", "--n_test_shards", "1"]), 0)
        out = self.folder / "out"
        self.assertEqual(sorted(file.name for file in out.iterdir()),
                         ["wikicorpus_en_test_0.hdf5", *(f"wikicorpus_en_training_{i}.hdf5" for i in range(3))])
        with h5py.File(out / "wikicorpus_en_training_0.hdf5") as file:
            self.assertEqual({name: str(column.dtype) for name, column in file.items()},
                             {"input_ids": "int32", "input_mask": "int8", "segment_ids": "int8", "masked_lm_ids": "int32",
                              "masked_lm_positions": "int32", "next_sentence_labels": "int8"})
            self.assertEqual(file["masked_lm_ids"].shape[1], 20)
        rows = len(data.BertHdf5(str(out), batch_size=1))
        self.assertIn(f": {rows} training and ", said.getvalue())
        done = subprocess.run(["hetu", "data", "check", out], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_too_many_shards_are_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            with self.assertRaises(SystemExit) as end:
                bert_prep.main(self.words)
        self.assertEqual(end.exception.code, 2)
        self.assertIn("--n_training_shards 256: each shard needs 2 documents, and the text has 18 for training; give at "
                      "most 9", said.getvalue())
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()
