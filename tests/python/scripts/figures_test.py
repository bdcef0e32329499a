"""SD-PIPE's figures: learning rates of the epoch lines, first losses. (Iterations per epoch: imagenet_size_test.py.)"""
import importlib.util
import math
import pathlib
import re
import sys
import unittest

import numpy

import hetu as ht

ROOT = pathlib.Path(__file__).resolve().parents[3]
ITERATIONS = 5004
RESNET = ["--dataset", "imagenet", "--model", "resnet50", "--batch-size", "64", "--learning-rate", "0.01",
          "--weight-decay", "1e-4", "--epochs", "100"]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "python" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.path.insert(0, str(ROOT / "docs"))
from figures import chimera  # noqa: E402

resnet, bert = script("train_resnet"), script("train_bert")


def lines(rate, iterations, epochs, form):
    """Returns the learning rate that each epoch's line prints."""
    return [format(rate.at((epoch + 1) * iterations), form) for epoch in range(epochs)]


class Cuts(unittest.TestCase):
    """Layers on each stage of SD-PIPE's BERT, as docs/training.md and train_bert.py's --help state them."""

    def test_layers_per_stage(self):
        model = chimera.bert_graph(ht.models.BertConfig(**ht.models.bert.CONFIGS["base"]), masked=20)
        page = (ROOT / "docs" / "training.md").read_text().split("## Where a model is cut")[1].split("\n## ")[0]
        rows = re.findall(r"^\| (\d+) \| ([\d, ]+) \|", page, re.M)
        self.assertEqual([int(stages) for stages, _ in rows], [2, 4, 8])
        for stages, said in rows:
            blocks = chimera.blocks_of_stages(model, int(stages))
            blocks[0], blocks[-1] = blocks[0] - 1, blocks[-1] - 1  # the embeddings and the heads
            self.assertEqual(said, ", ".join(map(str, blocks)))
        self.assertIn("the embeddings and 3 layers, 3 layers, 3 layers, and 3 layers and the heads",
                      " ".join(bert.__doc__.split()))


class Rates(unittest.TestCase):
    def test_imagenet(self):
        args = resnet.parse([*RESNET, "--data", "nowhere"])
        found = lines(resnet.rate_of(args, ITERATIONS), ITERATIONS, 100, ".2e")
        self.assertEqual(found, ["1.00e-02"] * 31 + ["2.00e-03"] * 30 + ["4.00e-04"] * 30 + ["8.00e-05"] * 9)

    def test_cifar(self):
        found = lines(resnet.rate_of(resnet.parse(["--data", "nowhere"]), 97), 97, 100, ".2e")
        self.assertEqual(found, ["1.00e-01"] * 61 + ["1.00e-02"] * 39)

    def test_bert(self):
        rate = bert.rate_of(bert.parse(["--batch-size", "64", "--learning-rate", "1e-5", "--epochs", "5000"]))
        found = [format(rate.at((epoch + 1) * bert.STEPS_PER_EPOCH + 1), ".4e") for epoch in range(40)]
        self.assertEqual((found[0], found[18]), ("5.0500e-07", "9.5050e-06"))
        self.assertEqual(found[19:], ["1.0000e-05"] * 21)


class FirstLosses(unittest.TestCase):
    """First losses of untrained weights on random data are near those of uniform predictions."""

    def first(self, data, loss_of):
        ht.new_graph()
        loss = loss_of(ht.data.Batches([data], len(next(iter(data.values())))))
        job = ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)]})
        (step,) = job.run("train", steps=1)
        return step.scalars

    def test_resnet(self):
        random = numpy.random.default_rng(1)
        for name, stem, classes, size in (("resnet50", "imagenet", 1000, 96), ("resnet18", "cifar", 100, 32)):
            image = random.standard_normal((8, 3, size, size)).astype(numpy.float32)
            data = {"image": image, "label": random.integers(0, classes, 8, dtype=numpy.int32)}
            found = self.first(data, ht.models.ResNet(name, classes, stem).loss)["loss"]
            print(f"{name}, {classes} classes: {found:.3f}, ln {classes} = {math.log(classes):.3f}")
            self.assertLess(abs(found - math.log(classes)), 0.5)

    def test_bert(self):
        random = numpy.random.default_rng(1)
        rows, length = 2, 128
        tokens = random.integers(5, 30522, (rows, length), dtype=numpy.int32)
        ones = numpy.ones((rows, length), numpy.int32)
        data = {
            "input_ids": tokens, "input_mask": ones, "segment_ids": 0 * ones,
            "masked_lm_labels": numpy.where(random.random((rows, length)) < 0.15, tokens, -1).astype(numpy.int32),
            "next_sentence_labels": random.integers(0, 2, rows, dtype=numpy.int32),
        }
        # Depth changes little at the start: two layers of the base model's size are enough.
        found = self.first(data, ht.models.Bert.from_config("base", num_hidden_layers=2).pretraining_loss)
        print(f"bert: lm {found['mlm_loss']:.3f}, ns {found['nsp_loss']:.4f}")
        self.assertLess(abs(found["mlm_loss"] - math.log(30522)), 0.6)
        self.assertLess(abs(found["nsp_loss"] - math.log(2)), 0.05)


if __name__ == "__main__":
    unittest.main(verbosity=2)
