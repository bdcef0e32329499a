"""`hetu data check` of images and CIFAR-100 reports the contents, and reports each error in one line with status 4."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from hetu import _hetu


def check(path: Path) -> subprocess.CompletedProcess:
    return subprocess.run(["hetu", "data", "check", str(path)], capture_output=True, text=True, timeout=100)


class Check(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name)

    def wrong(self, path: Path, *words: str, status: int = 4):
        found = check(path)
        self.assertEqual(found.returncode, status, found.stderr)
        lines = found.stderr.splitlines()
        self.assertEqual(len(lines), len(words), lines)
        for line, word in zip(lines, words, strict=True):
            self.assertIn(word, line)

    def test_cifar(self):
        _hetu.write_drawn_cifar100(str(self.root), 100, 3, 2, 32, 1)
        found = check(self.root)
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn("training: 300 images in 100 classes (3 to 3 each), 0.9 MB, sides of 32 to 32", found.stdout)
        self.assertIn("testing: 200 images in 100 classes (2 to 2 each)", found.stdout)
        self.assertEqual(check(self.root / "test.bin").returncode, 0)
        (self.root / "test.bin").write_bytes(b"abc")
        self.wrong(self.root, "test.bin: not a CIFAR-100 file: 3 bytes")
        (self.root / "test.bin").unlink()
        self.wrong(self.root, "found neither test.bin nor test in this folder")

    def test_nothing_known(self):
        self.wrong(self.root, "no class folders of images", status=2)

    @unittest.skipUnless(_hetu.reads_images(), "a build without libjpeg")
    def test_folders(self):
        _hetu.write_drawn_folder(str(self.root), 3, 30, 2, 40, 1)
        train = self.root / "train"
        for path, words in ((self.root, "val: 6 images in 3 classes (2 to 2 each)"),
                            (train, "train: 90 images in 3 classes (30 to 30 each)")):
            found = check(path)
            self.assertEqual((found.returncode, found.stderr), (0, ""))
            self.assertIn(words, found.stdout)
            self.assertIn("sides of 40 to 40 pixels, 0 cannot be read", found.stdout)
        images = sorted(train.glob("*/*.jpg"))
        images[40].write_bytes(images[40].read_bytes()[:300])
        images[50].write_bytes(b"")
        self.wrong(train, f"{images[40]}: damaged JPEG", f"{images[50]}: the file is empty")
        for path in images[:30]:
            path.write_bytes(b"")
        self.assertIn("and 12 more", check(train).stderr.splitlines()[-1])
        shutil.rmtree(images[0].parent)
        self.wrong(self.root, "damaged JPEG", "is empty", "different classes, starting with class 0")
        shutil.rmtree(self.root / "val")
        self.wrong(self.root, "damaged JPEG", "is empty", "there are no class folders in val")
        self.wrong(images[50].parent, "has no class folders (but 30 images)", status=2)
        (train / "empty").mkdir()
        self.wrong(train, "train/empty: the class folder has no images", status=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
