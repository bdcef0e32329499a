"""tokenizer.json as the vocabulary of text. Every token of a text counts, although the file stores truncation, padding and
random merges. Covers ids with gaps and encodings. Where Hugging Face's tokenizers is not installed, a stand-in with its
interface reads the files, and the test reports this."""

import contextlib
import io
import json
import pathlib
import tempfile
import types
import unittest
from functools import partial
from unittest import mock

import numpy as np

import hetu as ht

try:
    import tokenizers
except ImportError:
    tokenizers = None
    print("tokenizers is not installed here: a stand-in with its interface reads the vocabularies", flush=True)

WORDS = {"[UNK]": 0, "[PAD]": 1, "one": 2, "two": 3, "three": 9}
TRUNCATION = {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0}
PADDING = {"strategy": {"Fixed": 4096}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 1, "pad_type_id": 0,
           "pad_token": "[PAD]"}


class StandIn:
    """The part of tokenizers.Tokenizer that hetu.text uses, for words between spaces."""

    def __init__(self, text):
        self.text, given = text, json.loads(text)
        self.truncation, self.padding = given["truncation"], given["padding"]
        self.vocab = given["model"]["vocab"]
        self.model = types.SimpleNamespace(dropout=given["model"].get("dropout"))

    from_str = classmethod(lambda kind, text: kind(text))

    def no_truncation(self):
        self.truncation = None

    def no_padding(self):
        self.padding = None

    def to_str(self):
        return self.text

    def get_vocab(self):
        return self.vocab

    def get_vocab_size(self):
        return len(self.vocab)

    def encode(self, text):
        assert not self.model.dropout, "random merges"
        ids = [self.vocab.get(word, 0) for word in text.split()]
        if self.truncation:
            ids = ids[:self.truncation["max_length"]]
        if self.padding:
            ids += [1] * (self.padding["strategy"]["Fixed"] - len(ids))
        return types.SimpleNamespace(ids=ids)


def spec(**more):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "[UNK]"}, **more}


class Vocabularies(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hetu-vocabulary-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "tokenizer.json"
        if tokenizers is None:
            module = mock.patch.dict("sys.modules", tokenizers=types.SimpleNamespace(Tokenizer=StandIn))
            module.start()
            self.addCleanup(module.stop)

    def read(self, given, place=None, encoding="utf-8"):
        """Returns (the vocabulary of a file, the printed text)."""
        self.file.write_text(json.dumps(given), encoding=encoding)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            return ht.text.Vocabulary(str(place or self.file)), said.getvalue()

    def test_every_word_is_read(self):
        words = " ".join(["one two three five"] * 500)
        expected = [2, 3, 9, 0] * 500
        for more, says in (({}, ""),
                           ({"truncation": TRUNCATION},
                            "not applied to text, although set in the file: truncation to 16 tokens"),
                           ({"padding": PADDING}, "not applied to text, although set in the file: padding"),
                           ({"truncation": TRUNCATION, "padding": PADDING},
                            "not applied to text, although set in the file: truncation to 16 tokens and padding")):
            with self.subTest(says):
                vocabulary, said = self.read(spec(**more))
                self.assertEqual(said, f"vocabulary '{self.file}': {says}\n" if says else "")
                self.assertEqual(vocabulary.encode(words.encode()).tolist(), expected)
                (self.folder / "text.txt").write_text(words)
                ht.new_graph()
                self.assertEqual(len(ht.text.Text(str(self.folder / "text.txt"), 2, 10, vocabulary)), 199)

    def test_merges_are_not_random(self):
        model = {"type": "BPE", "dropout": 0.5, "unk_token": None, "continuing_subword_prefix": None,
                 "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                 "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
        vocabulary, said = self.read(spec(model=model))
        self.assertIn("not applied to text, although set in the file: random merges (dropout 0.5)", said)
        for _ in range(20):
            self.assertEqual(vocabulary.encode(b"ab ab ab ab").tolist(), [2, 2, 2, 2])

    def test_numbers_may_have_holes(self):
        self.assertEqual(self.read(spec())[0].size, 10)

    def test_a_folder_and_other_encodings(self):
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
            vocabulary = self.read(spec(), self.folder, encoding)[0]
            self.assertEqual(vocabulary.encode(b"three two").tolist(), [9, 3], encoding)

    def test_text_is_utf_8(self):
        vocabulary = self.read(spec())[0]
        self.assertEqual(vocabulary.encode("\ufeffone".encode()).tolist(), [2])
        (self.folder / "text.txt").write_bytes(b"one two \xe9t\xe9")
        ht.new_graph()
        with self.assertRaisesRegex(ValueError, r"text\.txt: byte 8 \(0xe9\) is not UTF-8; convert the file to UTF-8, or "
                                                "train on its bytes without a vocabulary"):
            ht.text.Text(str(self.folder / "text.txt"), 1, 1, vocabulary)
        np.testing.assert_array_equal(ht.text.Vocabulary().encode(b"\xe9"), [0xe9])

    def test_the_case_of_a_word_piece_vocabulary(self):
        """A cased vocabulary for lower-cased text, and the reverse, give a warning of one line."""
        special, file = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], self.folder / "vocab.txt"
        text = self.folder / "text.txt"
        text.write_text("w1 w2\nw3\n\nw4 w1\nw2\n")
        for lower_case, words, says in (
            (True, [f"w{i}" for i in range(1200)], ""),
            (True, [f"W{i}" for i in range(1200)],
             "1200 of 1200 tokens have capital letters, which lower-cased text never has"),
            (False, [f"W{i}" for i in range(1200)], ""),
            (False, [f"w{i}" for i in range(1200)],
             "none of 1200 tokens has a capital letter, so words with one become [UNK]"),
            (False, ["w", "x"], ""),
        ):
            with self.subTest(says, lower_case=lower_case):
                file.write_text("\n".join(special + words) + "\n")
                ht.new_graph()
                for make in (ht.text.WordPiece, partial(ht.text.BertText, str(text), batch_size=1, sequence_length=16)):
                    said = io.StringIO()
                    with contextlib.redirect_stdout(said):
                        make(**{"file" if make is ht.text.WordPiece else "vocabulary": str(file)}, lower_case=lower_case)
                    self.assertEqual(said.getvalue().count("\n"), int(bool(says)))
                    self.assertIn(says, said.getvalue())

    def test_what_is_no_vocabulary_is_one_line(self):
        for content in (b"{", b"[]", b"\x00\x01", b"PK\x03\x04"):
            self.file.write_bytes(content)
            with self.subTest(content), self.assertRaises(ValueError) as caught:
                ht.text.Vocabulary(str(self.file))
            self.assertIn("not a tokenizer.json of Hugging Face's tokenizers", str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))

    @unittest.skipIf(tokenizers is None, "the stand-in has no templates; tokenizers is not installed here")
    def test_added_tokens_normalizer_and_template_apply(self):
        special = {"id": 4, "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                   "special": True}
        model = {"type": "WordLevel", "vocab": {"[UNK]": 0, "one": 1, "two": 2, "three": 3}, "unk_token": "[UNK]"}
        template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<end>", "type_id": 0}},
                                                             {"Sequence": {"id": "A", "type_id": 0}}],
                    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                    "special_tokens": {"<end>": {"id": "<end>", "ids": [4], "tokens": ["<end>"]}}}
        given = spec(model=model, added_tokens=[special], normalizer={"type": "Lowercase"}, post_processor=template)
        vocabulary = self.read(given)[0]
        self.assertEqual(vocabulary.size, 5)
        self.assertEqual(vocabulary.encode(b"ONE <end> Two").tolist(), [4, 1, 4, 2])
        template["special_tokens"]["<end>"]["ids"] = [12]
        with self.assertRaisesRegex(ValueError, "the vocabulary gives token 12, but its tokens are 0 to 4"):
            self.read(given)[0].encode(b"one")


if __name__ == "__main__":
    unittest.main(verbosity=2)
