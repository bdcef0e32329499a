"""`hetu data sample --kind criteo`: files, equal rows for equal seeds, and labels that follow the printed model. `hetu data
check` and ht.data.Criteo can read the files."""
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import hetu as ht
from hetu.sample import criteo
from images_test import make


def check(path):
    return subprocess.run(["hetu", "data", "check", str(path)], capture_output=True, text=True, timeout=100)


class Clicks(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name)

    def test_rows_days_and_the_printed_auc(self):
        status, said = make(self.root / "a", "--kind criteo --train 1000 --val 2000 --days 3 --seed 7")
        self.assertEqual(status, 0, said)
        line = re.fullmatch(r"\S+/a: 1000 rows in 3 training days, 2000 validation rows, (\S+) % of them clicked; "
                            r"AUC of the true model on the validation rows (0\.\d{4})\n", said)
        self.assertTrue(line, said)
        self.assertTrue(0.75 < float(line[2]) < 0.95, said)
        self.assertEqual(sorted(str(p.relative_to(self.root / "a")) for p in (self.root / "a").rglob("day_*")),
                         ["train/day_0", "train/day_1", "train/day_2", "val/day_0"])
        found = check(self.root / "a")
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertRegex(found.stdout, r"/a/train: click logs, 3 files, 1000 rows, 0 of them bad; \d+\.\d\d % clicked, ")
        self.assertIn(f"/a/val: click logs, 1 files, 2000 rows, 0 of them bad; {line[1]}", found.stdout)
        rows = ht.data.Criteo(str(self.root / "a" / "val"), 2000, hash_size=50, train=False).loader(1, 0, []).next()
        self.assertEqual(f"{100 * rows['label'].mean():.1f}", line[1])
        self.assertEqual(rows["ids"].shape, (2000, 26))
        self.assertTrue((rows["ids"] // 50 == np.arange(26)).all())
        self.assertTrue((rows["dense"] >= 0).all())

    def test_progress_counts_the_training_days(self):
        told = []
        criteo.make_clicks(self.root / "a", criteo.Options(30, 100, 3), lambda done, days: told.append((done, days)))
        self.assertEqual(told, [(1, 3), (2, 3), (3, 3)])

    def test_the_seed_fixes_every_byte(self):
        for name, seed in (("a", 3), ("b", 3), ("c", 4)):
            self.assertEqual(make(self.root / name, f"--kind criteo --train 50 --val 100 --days 1 --seed {seed}")[0], 0)
        a, b, c = ([(self.root / name / file).read_bytes() for file in ("train/day_0", "val/day_0")] for name in "abc")
        self.assertEqual(a, b)
        self.assertTrue(all(one != other for one, other in zip(a, c, strict=True)))

    def test_a_bad_row_is_found(self):
        make(self.root / "a", "--kind criteo --train 20 --val 100 --days 1")
        path = self.root / "a" / "train" / "day_0"
        lines = path.read_text().splitlines()
        lines[4] = lines[4].replace("\t", "\tx", 1)
        path.write_text("\n".join(lines))
        for where in (self.root / "a", path.parent, path):
            found = check(where)
            self.assertEqual(found.returncode, 4, found.stdout)
            self.assertIn("20 rows, 1 of them bad", found.stdout)
            self.assertRegex(found.stderr, rf"{path}:5: column 2 \(I1\) is 'x\d*', expected a decimal integer")
        named = path.rename(path.with_name("train.txt"))
        self.assertIn(f"{named}:5: column 2 (I1)", check(named).stderr)

    def test_wrong_options_are_one_line_and_leave_nothing(self):
        for words, found in (
            ("--kind criteo --train 0", "needs --train >= 1"),
            ("--kind criteo --val 99", "--val >= 100"),
            ("--kind criteo --days 0", "--days 1 to --train"),
            ("--kind criteo --train 3 --days 4", "--days 1 to --train"),
            ("--kind criteo --seed -1", "--seed >= 0"),
            ("--kind criteo --classes 3", "unrecognized arguments"),
        ):
            status, said = make(self.root / "x", words)
            self.assertEqual(status, 2, words)
            self.assertIn(found, said)
        self.assertEqual(list(self.root.iterdir()), [])

    def test_data_that_does_not_do_is_refused(self):
        make(self.root / "a", "--kind criteo --train 20 --val 100 --days 1")
        train = str(self.root / "a" / "train")
        for path, options, kind, says in (
            (train, {"hash_size": 0}, ValueError, "hash size 0 is out of range; use 1 to 82595524 rows"),
            (train, {"batch_size": 0}, ValueError, "batch_size must be a whole number >= 1"),
            (train, {"max_rows": -1}, ValueError, r"the limit of rows must be 0 \(no limit\) or more, got -1"),
            (str(self.root / "b"), {}, OSError, "b: no such file or folder"),
            (str(self.root / "a"), {}, OSError, "a: has no click logs; expected day_0, day_1, …, or"),
        ):
            with self.subTest(says), self.assertRaisesRegex(kind, says):
                ht.data.Criteo(path, **{"batch_size": 2, **options})


if __name__ == "__main__":
    unittest.main()
