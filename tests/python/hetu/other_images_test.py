"""Images that need OpenCV's module. A job without such images loads none of its libraries, and a job with them trains.
Without the module, the error names the image, its format and the package. An installed Hetu finds the module. The test
writes the images itself."""

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

from hetu import _hetu
from train_cases import MANY_S, ROOT

BUILD = Path(os.environ.get("HETU_BUILD_DIR", ROOT / "build"))
MODULE = BUILD / "lib" / "libhetu_opencv.so"
SIDE = 40
# Reads a batch of each folder and prints the digest of its pixels. Then prints the number of mapped libraries, and whether
# OpenCV's are among them.
READS = """
import sys, zlib
from pathlib import Path
from hetu import data
for folder in sys.argv[1:]:
    batch = data.ImageFolder(folder, batch_size=4, size=32, train=False)
    print(zlib.crc32(batch.loader(1, 0, ["image", "label"]).next()["image"].tobytes()))
libraries = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
print(len(libraries), any("opencv" in name or "gdal" in name for name in libraries))
"""


def pixels(number: int) -> bytes:
    """Returns rows of red, green and blue with a different soft gradient for each number."""
    return bytes((x * 5 + number * 31, y * 5 + number * 17, (x + y) * 3)[k] % 256 for y in range(SIDE) for x in range(SIDE)
                 for k in range(3))


def bmp(number: int) -> bytes:
    rows = [pixels(number)[y * SIDE * 3:(y + 1) * SIDE * 3] for y in reversed(range(SIDE))]
    data = b"".join(bytes(row[i + 2 - 2 * (i % 3)] for i in range(len(row))) for row in rows)  # blue first
    return (b"BM" + struct.pack("<IHHI", 54 + len(data), 0, 0, 54)
            + struct.pack("<IiiHHIIiiII", 40, SIDE, SIDE, 1, 24, 0, len(data), 1, 1, 0, 0) + data)


def ppm(number: int) -> bytes:
    return b"P6 %d %d 255\n" % (SIDE, SIDE) + pixels(number)


def tiff(number: int) -> bytes:
    entries = [(256, 3, 1, SIDE), (257, 3, 1, SIDE), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 122),
               (277, 3, 1, 3), (278, 3, 1, SIDE), (279, 4, 1, SIDE * SIDE * 3)]
    return (b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(struct.pack("<HHII", *e) for e in entries) + bytes(4)
            + pixels(number))


def png(number: int) -> bytes:
    rows = b"".join(b"\0" + pixels(number)[y * SIDE * 3:(y + 1) * SIDE * 3] for y in range(SIDE))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks)


FORMS = {"bmp": bmp, "ppm": ppm, "tif": tiff, "png": png}


@unittest.skipUnless(_hetu.reads_images() and MODULE.exists(), "a build without libjpeg or OpenCV")
class OtherImages(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name)

    def fill(self, name: str, *forms: str) -> Path:
        """Creates two classes of four images each. The images of a class take the forms in turn."""
        for part in ("train", "val"):
            for label in ("a", "b"):
                folder = self.root / name / part / label
                folder.mkdir(parents=True)
                for i in range(4):
                    form = forms[i % len(forms)]
                    (folder / f"{i}.{form}").write_bytes(FORMS[form](2 * i + (label == "b")))
        return self.root / name

    def said(self, *words: object, status: int = 0, **more: object) -> str:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=MANY_S, cwd=self.root,
                              **more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_only_a_job_that_meets_one_opens_opencv(self):
        drawn = self.root / "drawn"
        _hetu.write_drawn_folder(str(drawn), 2, 4, 2, 40, 1)
        known = [drawn / "train", self.fill("png", "png") / "train"]
        count, opened = self.said(sys.executable, "-c", READS, *known).split()[-2:]
        more, other = self.said(sys.executable, "-c", READS, *known, self.fill("mixed", "png", "bmp") / "train").split()[-2:]
        print(f"libraries mapped: {count} after JPEG and PNG, {more} after BMP")
        self.assertEqual((opened, other), ("False", "True"))
        for linked in (BUILD / "bin" / "hetu", _hetu.__file__):
            self.assertNotIn("opencv", self.said("ldd", linked))

    def test_every_form_gives_the_same_pixels(self):
        """An image gives the same pixels in each format."""
        digests = self.said(sys.executable, "-c", READS, *(self.fill(form, form) / "train" for form in FORMS)).split()[:-2]
        self.assertEqual((len(digests), len(set(digests))), (len(FORMS), 1))

    def test_a_mixed_folder_trains(self):
        words = ["--dataset", "imagenet", "--data", self.fill("mixed", *FORMS), "--size", 32, "--threads", 1,
                 "--batch-size", 4, "--micro-batches", 2, "--pipeline", "1f1b", "--learning-rate", 0.01, "--epochs", 1]
        said = self.said(sys.executable, ROOT / "python" / "train_resnet.py", *words)
        self.assertRegex(said, r"\n0 TRAIN loss \d+\.\d+ acc")
        self.assertNotIn("damaged", said)

    def test_without_the_module_each_is_named(self):
        folder = self.fill("mixed", "png", "bmp", "tif", "ppm") / "train"
        alone = self.root / "bin" / "hetu"  # a folder without other files
        alone.parent.mkdir()
        shutil.copy(BUILD / "bin" / "hetu", alone)
        said = self.said(alone, "data", "check", folder, status=4)
        lines = [line for line in said.splitlines() if line.startswith("hetu data check")]
        self.assertEqual(len(lines), 6, said)
        for line, (name, kind) in zip(lines, (("a/1.bmp", "BMP"), ("a/2.tif", "TIFF"), ("a/3.ppm", "PNM")), strict=False):
            self.assertRegex(line, re.escape(f"{folder}/{name}: a {kind} image needs Hetu's OpenCV module: ")
                             + f".*libhetu_opencv.so.*searched from {re.escape(str(alone.parent))}.*"
                             + "install libopencv-imgcodecs-dev and configure with -DHETU_OPENCV=ON")
        module = self.root / "lib" / MODULE.name
        module.parent.mkdir()
        module.write_bytes(b"none")
        self.assertIn(f"{module}: file too short", self.said(alone, "data", "check", folder, status=4))
        shutil.copy(MODULE, module)
        self.assertIn("0 cannot be read", self.said(alone, "data", "check", folder))

    def test_a_loader_without_the_module_ends_in_one_line(self):
        """As in a build without OpenCV: only the package's Python module is copied."""
        folder = self.fill("mixed", "png", "bmp") / "train"
        package = self.root / "python" / "hetu"
        shutil.copytree(ROOT / "python" / "hetu", package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(_hetu.__file__, package)
        environment = {**os.environ, "PYTHONPATH": str(package.parent)}
        said = self.said(sys.executable, "-c", READS, folder, status=1, env=environment)
        self.assertRegex(said.splitlines()[-1], "^NotImplementedError: .*/a/1.bmp: a BMP image needs Hetu's OpenCV module")


if __name__ == "__main__":
    unittest.main(verbosity=2)
