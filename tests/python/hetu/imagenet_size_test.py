"""Sizes of the published data sets: iterations per epoch with SD-PIPE's settings, and a listing of ImageNet's names in
little memory."""

import os
import resource
import shutil
import tempfile
import time
import unittest
from pathlib import Path

import hetu as ht
from hetu import _hetu

TRAIN, VAL, CLASSES = 1281167, 50000, 1000
# A file system in memory, where there is one: the million files are empty, so they need names only.
ROOM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def make_names(folder: Path, images: int) -> None:
    """Creates empty files with names as long as ImageNet's."""
    for c in range(CLASSES):
        name = f"n{1440764 + 7919 * c:08}"
        (folder / name).mkdir(parents=True)
        at = os.open(folder / name, os.O_RDONLY)
        for i in range(images * c // CLASSES, images * (c + 1) // CLASSES):
            os.close(os.open(f"{name}_{i % 100000}.JPEG", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.close(at)


def steps(data: ht.data.Data) -> list[int]:
    """Returns the iterations per epoch that each of four pipelines counts."""
    return [data.loader(4, pipeline, ["label"]).batches_per_epoch for pipeline in range(4)]


class Sizes(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp(dir=ROOM))
        self.addCleanup(shutil.rmtree, self.root)

    @unittest.skipUnless(_hetu.reads_images(), "a build without libjpeg")
    def test_imagenet(self):
        make_names(self.root / "train", TRAIN)
        make_names(self.root / "val", VAL)
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        train = ht.data.ImageFolder(str(self.root / "train"), 64)
        val = ht.data.ImageFolder(str(self.root / "val"), 64, train=False)
        self.assertLess(time.process_time() - start, 20)
        self.assertEqual((len(train), train.num_classes, len(val)), (TRAIN, CLASSES, VAL))
        self.assertEqual(steps(train), [5004] * 4)
        self.assertEqual(steps(val), [195] * 4)
        train.loader(4, 1, ["label"]).next()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        self.assertLess(grown, 150 * 1024, "KB for the names and the order of an epoch")

    def test_cifar(self):
        for name, rows in (("train.bin", 50000), ("test.bin", 10000)):
            with open(self.root / name, "wb") as file:
                file.truncate(3074 * rows)
        self.assertEqual(steps(ht.data.Cifar100(str(self.root), 128)), [97] * 4)
        self.assertEqual(steps(ht.data.Cifar100(str(self.root), 128, train=False)), [19] * 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
