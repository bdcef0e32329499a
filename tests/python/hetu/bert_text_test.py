"""BERT from plain text, and the commands around it.

Rows equal those of an independent reader, for any number of pipelines and after any restart. WordPiece equals Hugging
Face's. Training works, and each error is one line."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hetu as ht
from bert_text_reader import Reader
from prose_text import write_prose
from train_cases import HETURUN, ROOT

FIXTURE = ROOT / "tests" / "fixtures" / "word_piece.json"
LENGTH, SEED = 32, 11


def hetu(*arguments):
    return subprocess.run(["hetu", *map(str, arguments)], capture_output=True, text=True, timeout=600)


class TextCase(unittest.TestCase):
    """A folder with corpus.txt, which holds the sample's prose, and a vocabulary made from it."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.text, cls.vocabulary = cls.folder / "corpus.txt", cls.folder / "vocab.txt"
        write_prose(cls.text, 60)
        done = hetu("data", "vocabulary", cls.text, "-o", cls.vocabulary, "--size", "900")
        assert done.returncode == 0, done.stderr
        cls.words = cls.vocabulary.read_text(encoding="utf-8").splitlines()

    def data(self, batch_size, **more):
        return ht.text.BertText(self.text, self.vocabulary, batch_size, LENGTH, seed=SEED, **more)


class Rows(TextCase):
    def reader(self, data):
        tokens = ht.text.WordPiece(self.vocabulary).encode  # compared with Hugging Face's below
        return Reader(self.text, self.words, tokens, LENGTH, SEED, data.fields[-1][2][0])

    def test_equal_those_of_another_reader(self):
        """Batches of 1, 2 and 4 pipelines equal the independent reader's over slightly more than two epochs."""
        reader = self.reader(self.data(8))
        for pipelines in (1, 2, 4):
            data = self.data(8)
            self.assertEqual(len(data), reader.rows)
            loaders = [data.loader(pipelines, p, [name for name, _, _ in data.fields]) for p in range(pipelines)]
            steps = reader.rows // (8 * pipelines)
            checked = [0, 1, steps - 1, steps, 2 * steps, 2 * steps + 1]
            for step in range(max(checked) + 1):
                batches = [loader.next() for loader in loaders]
                if step not in checked:
                    continue
                for p, batch in enumerate(batches):
                    for i in range(8):
                        row = reader.row(step // steps, step % steps * 8 * pipelines + p * 8 + i)
                        for name, values in row.items():
                            found = np.atleast_1d(batch[name][i]).tolist()
                            self.assertEqual(found, values, f"{pipelines} pipelines, step {step}, row {i} of {p}: {name}")

    def test_are_the_same_after_a_restart(self):
        names = ["input_ids", "masked_lm_ids", "next_sentence_labels"]
        loader = self.data(8).loader(2, 1, names)
        steps = loader.batches_per_epoch
        for step in (0, 3, steps - 1, steps, steps + 2):
            loader.seek_step(step)
            position, expected = loader.position(), [loader.next() for _ in range(3)]
            other = self.data(8, threads=3).loader(2, 1, names)
            other.seek(position)
            for batch in expected:
                again = other.next()
                for name in names:
                    np.testing.assert_array_equal(again[name], batch[name])

    def test_a_position_of_another_text_is_refused(self):
        position = self.data(8).loader(1, 0, ["input_ids"]).position()
        with self.assertRaisesRegex(ValueError, "bert_text .* seed"):
            self.data(8, corpus_lines=300).loader(1, 0, ["input_ids"]).seek(position)

    def test_corpus_lines_and_max_rows(self):
        whole, few = self.data(4), self.data(4, corpus_lines=100)
        self.assertLess(len(few), 100)
        self.assertEqual(len(self.data(4, max_rows=10)), 10)
        self.assertGreater(len(whole), len(few))
        self.assertGreater(whole.target_entropy(), 3)


class Tokens(unittest.TestCase):
    def test_are_hugging_faces(self):
        made = json.loads(FIXTURE.read_text())
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "vocab.txt"
            file.write_text("".join(token + "\n" for token in made["vocabulary"]), encoding="utf-8")
            for name, ids in made["ids"].items():
                cutter = ht.text.WordPiece(file, lower_case=name == "lower")
                for text, expected in zip(made["texts"], ids, strict=True):
                    self.assertEqual(cutter.encode(text), expected, f"{name}: {text!a}")

    def test_latin_1_is_the_text_that_it_stands_for(self):
        made = json.loads(FIXTURE.read_text())
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "vocab.txt"
            file.write_text("".join(token + "\n" for token in made["vocabulary"]), encoding="utf-8")
            text = "".join(map(chr, range(1, 256)))
            latin = ht.text.WordPiece(file, encoding="latin-1")
            self.assertEqual(latin.encode(text.encode("latin-1")), latin.encode(text))
            with self.assertRaisesRegex(OSError, "byte 1, 0xe9, is not UTF-8; is the text latin-1"):
                ht.text.WordPiece(file).encode(b"\xe9")


class Commands(TextCase):
    def test_shards_have_the_rows_of_the_text(self):
        import h5py

        done = hetu("data", "prepare", self.text, "--vocab", self.vocabulary, "-o", self.folder / "shards", "--passes", "2",
                    "--shards", "2", "--sequence-length", LENGTH, "--seed", SEED)
        self.assertEqual(done.returncode, 0, done.stderr)
        data = self.data(64)
        rows = len(data)
        self.assertIn(f"{2 * rows} rows of {LENGTH} tokens", done.stdout)
        files = [h5py.File(self.folder / "shards" / f"text_training_{i}.hdf5") for i in range(2)]
        self.addCleanup(lambda: [file.close() for file in files])
        loader = data.loader(1, 0, ["input_ids", "segment_ids"])
        pieces = -(-rows // 1024)
        for epoch in range(2):
            loader.seek_step(epoch * loader.batches_per_epoch)
            batch = loader.next()
            file = files[epoch * pieces % 2]
            first = sum(min(1024, rows - 1024 * (i % pieces)) for i in range(epoch * pieces) if i % 2 == epoch * pieces % 2)
            for name in ("input_ids", "segment_ids"):
                np.testing.assert_array_equal(file[name][first:first + 64], batch[name])
        done = hetu("data", "check", self.folder / "shards")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{2 * rows} rows of {LENGTH} tokens", done.stdout)

    def test_check_says_what_a_text_has(self):
        done = hetu("data", "check", self.text, "--sequence-length", LENGTH)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"in 60 documents, {len(self.data(1))} rows of {LENGTH} tokens", done.stdout)
        self.assertIn("0.00 % of them not in the vocabulary", done.stdout)

    def test_a_sample_of_ones_own_text(self):
        done = hetu("data", "sample", self.folder / "own", "--text", self.text, "--rows", "50")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(hetu("data", "check", self.folder / "own").returncode, 0)

    def test_wrong_input_is_one_line(self):
        latin = self.folder / "latin.txt"
        latin.write_bytes("Caf\xe9 noir\nund Tee\n\nMehr\nTee\nund Rum\n".encode("latin-1"))
        one = self.folder / "one.txt"
        one.write_text("a b\nc d\n")
        vocabulary = ["--vocab", self.vocabulary]
        for words_, said in [
            (["data", "check", latin, *vocabulary], "latin.txt:1: byte 4, 0xe9, is not UTF-8; is the text latin-1?"),
            (["data", "check", one, *vocabulary], "found 2 sentences in 1 document, but at least 2 documents are needed"),
            (["data", "check", sys.executable, *vocabulary], "is 0, so this is not a text file"),
            (["data", "check", one, "--vocab", one], "one.txt: none of the 2 tokens is [PAD]"),
            (["data", "check", one, *vocabulary, "--encoding", "utf16"], "unknown text encoding 'utf16'; use utf-8"),
            (["data", "vocabulary", latin, "-o", self.folder / "v"], "latin.txt:1: byte 4"),
            (["data", "vocabulary", self.folder / "none", "-o", "v"], "none: cannot be opened: No such file"),
            (["data", "prepare", one, *vocabulary, "-o", self.folder / "x"], "2 sentences in 1 document"),
            (["data", "sample", self.folder / "y", "--text", one], "one.txt: 2 sentences in 1 documents are too few"),
        ]:
            with self.subTest(words_):
                done = hetu(*words_)
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(said, done.stderr)
        self.assertEqual([f.name for f in self.folder.iterdir() if f.name in ("v", "x", "y")], [])


class Training(TextCase):
    def train(self, *more, workers=1):
        script = [sys.executable, ROOT / "python" / "train_bert.py", "--data", self.text, "--model", "tiny", "--steps", "8",
                  "--sequence-length", LENGTH, "--warmup-steps", "4", "--log", self.folder / "log.jsonl", *more]
        start = [*HETURUN, "-w", workers] if workers > 1 else []
        command = [str(w) for w in [*start, *script]]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=self.folder)

    def test_paths_may_begin_with_the_home_folder(self):
        """Paths that begin with ~, as the default of --data does, are expanded although no shell expands them."""
        home = self.folder / "home"
        shards = home / ".cache" / "hetu" / "datasets" / "wikicorpus_en"
        made = hetu("data", "prepare", self.text, "--vocab", self.vocabulary, "-o", shards, "--sequence-length", LENGTH)
        self.assertEqual(made.returncode, 0, made.stderr)
        script = [sys.executable, str(ROOT / "python" / "train_bert.py"), "--model", "tiny", "--steps", "2", "--batch-size",
                  "8", "--pipeline", "1f1b"]
        run = {"capture_output": True, "text": True, "timeout": 600, "cwd": self.folder,
               "env": {**os.environ, "HOME": str(home)}}
        for more in ([], ["--data=~/.cache/hetu/datasets/wikicorpus_en", "--log=~/log.jsonl", "--checkpoint=~/saved"]):
            done = subprocess.run([*script, *more], **run)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue((home / "log.jsonl").is_file())
        self.assertTrue((home / "saved").is_dir())
        self.assertFalse((self.folder / "~").exists())
        code = ("import hetu as ht\nprint(len(ht.data.BertHdf5('~/.cache/hetu/datasets/wikicorpus_en', 1)), "
                "len(ht.data.Lines('~/lines.txt', 1, 4)))")
        (home / "lines.txt").write_text("a\nb\n")
        done = subprocess.run([sys.executable, "-c", code], **run)
        self.assertRegex(done.stdout, r"^\d+ 2$", done.stderr)

    def test_of_two_pipelines_sees_the_rows_of_one(self):
        losses = {}
        for workers, words_ in [(1, ["--batch-size", "16"]), (4, ["--batch-size", "8", "--devices", "pipe_2_2"])]:
            done = self.train("--micro-batches", "2", "--pipeline", "1f1b", "--dropout", "0", *words_, workers=workers)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            log = (self.folder / "log.jsonl").read_text().splitlines()
            losses[workers] = [json.loads(line)["loss"] for line in log[-8:]]
        np.testing.assert_allclose(losses[4], losses[1], rtol=1e-3)  # sums in another order; other rows differ by 1e-1
        self.assertLess(losses[1][-1], losses[1][0])

    def test_evaluation_by_another_vocabulary_is_refused(self):
        """Each text uses the vocab.txt next to it: ids of two vocabularies stand for different words."""
        other = self.folder / "other"
        other.mkdir(exist_ok=True)
        (other / "corpus.txt").write_text(self.text.read_text())
        (other / "vocab.txt").write_text("\n".join([*self.words[:5], *reversed(self.words[5:])]) + "\n")
        done = self.train("--eval-data", other / "corpus.txt", "--batch-size", "8")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("field 'input_ids': the vocabulary of the training data and of the evaluation data differ",
                      done.stderr)
        self.assertNotIn("TRAIN", done.stdout)

    def test_wrong_input_is_one_line(self):
        alone = self.folder / "alone"
        alone.mkdir(exist_ok=True)
        (alone / "corpus.txt").write_text(self.text.read_text())
        for words_, said in [
            (["--data", alone / "corpus.txt"], "is a text, and there is no vocab.txt beside it: give --vocab FILE"),
            (["--vocab", self.folder / "none.txt"], "none.txt: cannot be opened: No such file"),
            (["--sequence-length", "200"], "200"),
        ]:
            with self.subTest(words_):
                done = self.train(*words_)
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
