"""Processes on different numbers of threads train ResNet-18 and BERT to the bits of one process. --whole: every synchronous
method that adds gradients in the order of one process, and more threads."""
import sys
import unittest

from train_cases import TrainCase, checksums
from train_resnet_test import ResNetCase

WHOLE = "--whole" in sys.argv
METHODS = ("gpipe", "1f1b", "interleaved-1f1b", "hanayo", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "interleaved-zb",
           "dualpipev", "varuna", "zb-1p", "zb-2p", "auto") if WHOLE else ("gpipe", "zb-v")
ALONE = (1, 3, 0) if WHOLE else (2,)
TOGETHER = (1, 2, 0) if WHOLE else (1,)


class ManyThreads:
    """A mixin for TrainCase. 0 threads are the default."""

    micro_batches = 4
    batch = 8

    def saved(self, grid, threads, *options):
        folder = self.folder / f"saved{self.jobs}"
        self.train(grid, "--steps", 2, "--batch-size", self.batch, "--micro-batches", self.micro_batches,
                   "--threads", threads, "--checkpoint", folder, *options)
        return checksums(folder)

    def test_the_same_bits(self):
        alone = [self.saved((1, 1), threads, "--pipeline", "gpipe") for threads in ALONE]
        for one in alone[1:]:
            self.assertEqual(one, alone[0])
        for number, method in enumerate(METHODS):
            threads = TOGETHER[number % len(TOGETHER)]
            with self.subTest(method=method, threads=threads):
                self.assertEqual(self.saved((1, 2), threads, "--pipeline", method), alone[0])


class Bert(ManyThreads, TrainCase):
    pass


class ResNet(ManyThreads, ResNetCase):
    pass


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main()
