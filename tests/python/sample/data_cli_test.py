"""`hetu data` as users call it: sample, then check. The check reports damaged shards."""

import importlib.util
import subprocess
import tempfile
import unittest
from pathlib import Path

from prose_text import write_prose

MISSING = [name for name in ("h5py", "numpy") if importlib.util.find_spec(name) is None]


def hetu(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["hetu", *arguments], capture_output=True, text=True, timeout=250)


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Data(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name) / "bert"
        text = Path(cls.temporary.name) / "text.txt"
        write_prose(text, 40)
        options = "--rows 60 --sequence-length 64 --max-predictions 10 --vocab-size 400 --shards 3".split()
        cls.made = hetu("data", "sample", str(cls.folder), *options, "--text", str(text))

    def shard(self, index: int):
        import h5py

        return h5py.File(self.folder / f"wikicorpus_en_training_{index}.hdf5", "r+")

    def test_a_sample_is_right_and_check_says_what_it_holds(self):
        self.assertEqual(self.made.returncode, 0, self.made.stderr)
        found = hetu("data", "check", str(self.folder))
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn("3 training shards (1 other HDF5 files ignored), 60 rows of 64 tokens", found.stdout)
        self.assertIn("vocabulary 400;", found.stdout)
        nats = self.made.stdout.split("targets ")[1].split(" nats")[0]
        self.assertIn(f"masked targets {nats} nats", found.stdout)

    def test_each_damaged_shard_is_named_and_the_status_is_4(self):
        with self.shard(0) as first, self.shard(2) as last:
            kept = int(first["input_ids"][5, 3]), int(last["masked_lm_ids"][7, 0])
            first["input_ids"][5, 3] = 400
            last["masked_lm_ids"][7, 0] = -3
        found = hetu("data", "check", str(self.folder))
        with self.shard(0) as first, self.shard(2) as last:
            first["input_ids"][5, 3], last["masked_lm_ids"][7, 0] = kept
        self.assertEqual(found.returncode, 4)
        lines = found.stderr.splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertIn("training_0.hdf5: row 5 of 'input_ids': token id 400 is not in [0, 400)", lines[0])
        self.assertIn("training_2.hdf5: row 7 of 'masked_lm_ids': label id -3 is not in", lines[1])

    def test_wrong_words_are_refused(self):
        for arguments, words in (
            (["data"], "\n  data check       reads"),
            (["data", "chekc"], "unknown 'data chekc'"),
            (["data", "chekc"], "hetu data: unknown"),
            (["data", "check"], "hetu data check: expected one folder"),
            (["data", "check", "/nowhere"], "hetu data check: /nowhere: no such file or folder"),
            (["data", "check", str(self.folder / "vocab.txt")], "400 sentences in 1 document"),
            (["data", "check", str(self.folder / "wikicorpus_en_training_0.hdf5")], "give the folder of the shards"),
            (["data", "sample", str(self.folder)], "is not an empty folder"),
        ):
            found = hetu(*arguments)
            self.assertEqual(found.returncode, 2, arguments)
            self.assertIn(words, found.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
