"""`hetu data sample --kind`: layouts, counts, and equal images for equal seeds, read through ht.data."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import numpy

import hetu as ht
from hetu import _hetu
from hetu.sample.__main__ import main

IMAGES = _hetu.reads_images()


def make(folder: Path, words: str) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            status = main([str(folder), *words.split()])
        except SystemExit as end:
            status = int(str(end.code))
    return status, said.getvalue()


def nearest_mean(train: dict, val: dict) -> float:
    """Returns the share of validation images whose mean colour is nearest to that of their class."""
    colours = [x["image"].mean(axis=(2, 3)) for x in (train, val)]
    labels = sorted(set(train["label"]))
    means = numpy.stack([colours[0][train["label"] == label].mean(axis=0) for label in labels])
    nearest = ((colours[1][:, None] - means[None]) ** 2).sum(axis=2).argmin(axis=1)
    return float((nearest == val["label"]).mean())


class Images(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name)

    def bytes_of(self, name: str) -> dict[str, bytes]:
        folder = self.root / name
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}

    @unittest.skipUnless(IMAGES, "a build without libjpeg")
    def test_a_folder_has_the_classes_and_counts_asked_for_and_they_differ(self):
        words = "--kind images --classes 5 --train 12 --val 4 --size 48 --seed 3"
        status, said = make(self.root / "a", words)
        self.assertEqual(status, 0, said)
        self.assertIn("5 classes of 12 training and 4 validation images, 48 x 48", said)
        train = ht.data.ImageFolder(str(self.root / "a" / "train"), 60, size=32, train=False)
        val = ht.data.ImageFolder(str(self.root / "a" / "val"), 20, size=32, train=False)
        self.assertEqual((len(train), len(val), train.num_classes, val.num_classes), (60, 20, 5, 5))
        right = nearest_mean(train.loader(1, 0, []).next(), val.loader(1, 0, []).next())
        self.assertGreater(right, 0.6)

    @unittest.skipUnless(IMAGES, "a build without libjpeg")
    def test_the_seed_fixes_every_byte(self):
        words = "--kind images --classes 3 --train 2 --val 1 --size 16 --seed "
        for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
            self.assertEqual(make(self.root / name, words + seed)[0], 0)
        self.assertEqual(self.bytes_of("a"), self.bytes_of("b"))
        other = self.bytes_of("c")
        self.assertEqual(set(other), set(self.bytes_of("a")))
        self.assertTrue(all(other[name] != data for name, data in self.bytes_of("a").items()))

    def test_cifar_files_hold_every_class_equally(self):
        status, said = make(self.root / "c", "--kind cifar100 --classes 20 --train 7 --val 3")
        self.assertEqual(status, 0, said)
        train = ht.data.Cifar100(str(self.root / "c"), 140, train=False)  # test.bin
        self.assertEqual(len(train), 60)
        rows = ht.data.Cifar100(str(self.root / "c" / "train.bin"), 140, train=False).loader(1, 0, []).next()
        labels, counts = numpy.unique(rows["label"], return_counts=True)
        self.assertEqual((list(labels), set(counts)), (list(range(20)), {7}))
        self.assertNotEqual(list(rows["label"]), sorted(rows["label"]))
        names = (self.root / "c" / "fine_label_names.txt").read_text().split()
        self.assertEqual(len(set(names)), 20)

    def test_wrong_options_are_one_line_and_leave_nothing(self):
        for words, found in (
            ("--kind pictures", "invalid choice"),
            ("--kind images --classes 101", "--classes 2 to 100"),
            ("--kind images --size 4", "--size 8"),
            ("--kind cifar100 --train 0", "--train and --val >= 1"),
            ("--kind cifar100 --rows 7", "unrecognized arguments"),
        ):
            status, said = make(self.root / "x", words)
            self.assertEqual(status, 2, words)
            self.assertIn(found, said)
        self.assertEqual(list(self.root.iterdir()), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
