"""ht.data.ImageFolder and ht.data.Cifar100: fields, sizes, real pickles, locations of images, and wrong input."""

import os
import pickle
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy

import hetu as ht
from hetu import _hetu


class Cifar100(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name)
        rng = numpy.random.default_rng(4)
        self.pixels = rng.integers(0, 256, (21, 3072), dtype=numpy.uint8)
        self.fine = rng.integers(0, 100, 21).tolist()
        self.coarse = rng.integers(0, 20, 21).tolist()

    def write(self, keys=str, protocol: int = 2, **changes) -> Path:
        made = {"data": self.pixels, "fine_labels": self.fine, "coarse_labels": self.coarse, "filenames": ["a.png"] * 21}
        made = {key: value for key, value in (made | changes).items() if value is not None}
        path = self.root / "test"
        path.write_bytes(pickle.dumps({keys(key): value for key, value in made.items()}, protocol=protocol))
        return path

    def test_pickles_of_every_protocol_hold_the_rows(self):
        for protocol in (2, 3, 4, 5):
            for keys, laid_out in ((str, numpy.ascontiguousarray), (str.encode, numpy.ascontiguousarray),
                                   (str, numpy.asfortranarray), (str, lambda pixels: pixels[::-1][::-1])):
                self.write(keys, protocol, data=laid_out(self.pixels))
                data = ht.data.Cifar100(str(self.root), 21, train=False)
                self.assertEqual((len(data), data.num_classes), (21, 100))
                rows = data.loader(1, 0, []).next()
                self.assertEqual(rows["label"].tolist(), self.fine)
                image = rows["image"]
                self.assertEqual((image.dtype, image.shape), (numpy.float32, (21, 3, 32, 32)))
                back = image * numpy.array([0.2673, 0.2564, 0.2762])[:, None, None]
                back = (back + numpy.array([0.5071, 0.4865, 0.4409])[:, None, None]) * 255
                self.assertLess(abs(back - self.pixels.reshape(21, 3, 32, 32)).max(), 1e-3)

    def test_a_batch_is_read_into_arrays_that_nobody_holds_any_more(self):
        self.write()
        data = ht.data.Cifar100(str(self.root), 7, train=False)
        for ahead in (0, 2):
            loader = _hetu.cifar100_loader(data.set, False, 0, _hetu.LoaderOptions(1, 0, 7, [], ahead))
            held = loader.next()["image"]
            pixels = held.copy()
            for _ in range(9):
                batch = loader.next()
                self.assertFalse(numpy.shares_memory(batch["image"], held))
            self.assertTrue((held == pixels).all())
            del loader
            self.assertTrue(numpy.isfinite(batch["image"]).all(), "an array outlives its loader")

    def test_other_pickles_are_refused_and_nothing_in_them_runs(self):
        class Runs:
            def __reduce__(self):
                return os.mkdir, (str(touched),)

        touched = self.root / "touched"
        for changes, words in (
            ({"data": None}, "the pickle has no uint8 array 'data'"),
            ({"data": self.pixels.astype("float32")}, "the pickle has no uint8 array 'data'"),
            ({"data": self.pixels[:, :3000]}, "the pickle has no uint8 array 'data'"),
            ({"fine_labels": None, "labels": self.fine}, "CIFAR-10, not CIFAR-100"),
            ({"fine_labels": self.fine[:-1]}, "'fine_labels' is not a list of 21 labels"),
            ({"fine_labels": [100] * 21}, "row 0 has the labels"),
            ({"filenames": Runs()}, "does not occur in CIFAR files"),
        ):
            path = self.write(**changes)
            with self.assertRaises(OSError) as caught:
                ht.data.Cifar100(str(path), 4)
            self.assertIn(words, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
        self.assertFalse(touched.exists())


@unittest.skipUnless(_hetu.reads_images(), "a build without libjpeg")
class ImageFolder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name)
        _hetu.write_drawn_folder(temporary.name, 3, 5, 2, 40, 1)

    def test_fields_sizes_and_slices(self):
        data = ht.data.ImageFolder(str(self.root / "train"), 5, size=24, seed=2)
        self.assertEqual((len(data), data.num_classes), (15, 3))
        self.assertGreaterEqual(data.threads, 1)
        whole = ht.data.ImageFolder(str(self.root / "train"), 15, size=24, seed=2, threads=3).loader(1, 0, []).next()
        self.assertEqual((whole["image"].shape, whole["image"].dtype), ((15, 3, 24, 24), numpy.float32))
        self.assertEqual((whole["label"].shape, whole["label"].dtype), ((15,), numpy.int32))
        for pipeline in range(3):
            mine = data.loader(3, pipeline, ["label", "image"]).next()
            for name, values in mine.items():
                numpy.testing.assert_array_equal(values, whole[name][5 * pipeline : 5 * pipeline + 5])

    def test_folders_of_other_classes_are_not_evaluated_on(self):
        """Evaluation on a folder with other classes is refused, because its labels mean other classes. It is accepted if
        only the images are read."""
        data = ht.data.ImageFolder(str(self.root / "train"), 5, size=8)
        names = data.class_names
        self.assertEqual(names, sorted(folder.name for folder in (self.root / "train").iterdir()))
        (self.root / "val" / names[2]).rename(self.root / "val" / "aaa")
        other = ht.data.ImageFolder(str(self.root / "val"), 5, size=8, train=False)
        ht.new_graph()
        seen = ht.ops.linear(ht.ops.global_avg_pool(data.image), ht.parameter("w", [3, 3], ht.graph.normal(1)))
        loss = ht.models.mean_cross_entropy(seen, data.label)
        train = ht.optim.SGD(0.1).minimize(loss)
        job = ht.Executor({"train": [loss, train], "validate": [loss], "predict": [seen]}, threads=1)
        for evaluated in (lambda: job.evaluate(other, run="validate"), lambda: list(job.run("validate", data=other))):
            with self.assertRaisesRegex(ValueError, "run 'validate': field 'label': the classes differ: number 0 is "
                                                    f"'{names[0]}' in the training data and 'aaa' in the evaluation data"):
                evaluated()
        self.assertEqual(job.predict(other, run="predict").shape, (6, 3))

    def test_images_in_folders_below_a_class_count(self):
        names = sorted(folder.name for folder in (self.root / "train").iterdir())
        deep = self.root / "train" / names[0] / "more" / "deep"
        deep.mkdir(parents=True)
        next((self.root / "train" / names[1]).glob("*.jpg")).rename(deep / "moved.jpg")
        data = ht.data.ImageFolder(str(self.root / "train"), 15, size=8, train=False)
        labels = data.loader(1, 0, ["label"]).next()["label"]
        self.assertEqual(numpy.bincount(labels).tolist(), [6, 4, 5])
        done = subprocess.run(["hetu", "data", "check", str(self.root / "train")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\b15 images")

    def test_wrong_input_is_one_line(self):
        for make, kind, words in (
            (lambda: ht.data.ImageFolder(str(self.root / "none"), 2), OSError, "none: No such file"),
            (lambda: ht.data.ImageFolder(str(self.root / "train"), 0), ValueError, "batch_size must be a whole number >= 1"),
            (lambda: ht.data.ImageFolder(str(self.root / "train"), 2, size=0), ValueError, "size 0"),
            (lambda: ht.data.ImageFolder(str(self.root / "train"), 99).loader(1, 0, []), ValueError, "15 rows is shorter"),
        ):
            with self.assertRaises(kind) as caught:
                make()
            self.assertIn(words, str(caught.exception))

    def test_training_goes_on_and_says_how_many_images_were_damaged(self):
        """A linear layer on the mean colour learns to separate the generated classes, although one image is damaged."""
        next((self.root / "train").glob("*/00002.jpg")).write_bytes(b"none")
        code = (
            "import sys, hetu as ht\n"
            "from hetu.models.losses import mean_cross_entropy\n"
            "data = ht.data.ImageFolder(sys.argv[1], 15, size=16)\n"
            "weight, bias = (ht.parameter(n, s, ht.graph.uniform(-1, 1)) for n, s in (('w', [3, 3]), ('b', [3])))\n"
            "logits = ht.ops.linear(ht.ops.global_avg_pool(data.image), weight, bias)\n"
            "loss = mean_cross_entropy(logits, data.label, 'label')\n"
            "job = ht.Executor({'train': [loss, ht.optim.Adam(0.1).minimize(loss)]}, threads=1)\n"
            "losses = [step.loss for step in job.run('train', steps=30)]\n"
            "print(losses[0] > 2 * losses[-1], losses[0], losses[-1])\n"
            "ht.close()\n"
        )
        done = subprocess.run([sys.executable, "-c", code, str(self.root / "train")], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        damaged, learnt = done.stdout.splitlines()[-2:]
        self.assertRegex(damaged, r"worker 0: 3[0-9] damaged images among those read")
        self.assertRegex(learnt, "^True")
        self.assertEqual(done.stderr.count("is replaced by another image of its class"), 1, done.stderr)

    def roots(self, data: str, **environment: str) -> str:
        """Returns the result of imagenet_roots, or its error, in a process with these environment variables."""
        code = f"import hetu as ht\ntry: print(*ht.data.imagenet_roots({data}))\nexcept ValueError as e: print(e)"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("IMAGENET_")}
        done = subprocess.run([sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True,
                              timeout=60)
        return done.stdout.strip()

    def test_where_imagenet_lies(self):
        both = {"IMAGENET_TRAIN_ROOT": "a", "IMAGENET_VAL_ROOT": "b"}
        self.assertEqual(self.roots("None", **both), "a b")
        self.assertEqual(self.roots("'x'", **both), "x/train x/val")
        self.assertIn("set IMAGENET_VAL_ROOT", self.roots("None", IMAGENET_TRAIN_ROOT="a"))
        self.assertIn("give --data FOLDER", self.roots("None"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
