"""Training scripts on `--device far`, whose memory host code can't read. Results equal those of the CPU, through validation,
checkpoints, resuming and a trace. --whole: every method, and ResNet."""

import json
import sys
import unittest

from train_cases import TrainCase, checksums
from train_resnet_test import ResNetCase

WHOLE = "--whole" in sys.argv
SYNCHRONOUS = ("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "chimera", "gems", "hanayo", "zb-h1", "zb-h2", "zb-v",
               "v-half", "v-min", "interleaved-zb", "dualpipe", "dualpipev", "varuna", "zb-1p", "zb-2p", "auto", "dp")


class OnFar(TrainCase):
    """Jobs that leave the same files on both devices."""

    def saved(self, device, grid, *options, steps=(4,)):
        folder = self.folder / f"{device}{self.jobs}"
        resume = ()
        for step in steps:
            self.train(grid, "--device", device, "--steps", step, "--checkpoint", folder, *resume, *options)
            resume = ("--resume",)
        return checksums(folder)

    def assert_same(self, grid, *options, steps=(4,)):
        with self.subTest(grid=grid, options=options):
            self.assertEqual(self.saved("far", grid, *options, steps=steps), self.saved("cpu", grid, *options, steps=steps))


class Bert(OnFar):
    def test_synchronous(self):
        self.assert_same((2, 2), "--pipeline", "1f1b", "--micro-batches", 2, "--batch-size", 8, steps=(2, 4))

    def test_asynchronous(self):
        self.assert_same((1, 2), "--pipeline", "pipedream", "--batch-size", 4, "--micro-batches", 1)

    def test_a_trace_has_the_times_of_the_device(self):
        trace = self.folder / "far.json"
        self.train((1, 2), "--device", "far", "--pipeline", "gpipe", "--batch-size", 8, "--micro-batches", 4, "--steps", 2,
                   "--trace", trace)
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("ph") == "X" and e["pid"] == 1]
        for worker in (0, 1):
            computes = sorted((e["ts"], e["ts"] + e["dur"]) for e in events
                              if e["tid"] == worker and e["args"]["kind"] in ("F", "B"))
            self.assertEqual(len(computes), 16)
            for before, after in zip(computes, computes[1:], strict=False):
                self.assertGreaterEqual(after[0], before[1] - 0.01)

    def test_the_same_as_one_process(self):
        done = self.train((1, 2), "--device", "far", "--pipeline", "zb-v", "--batch-size", 8, "--micro-batches", 4,
                          "--steps", 2, "--compare-single")
        self.assertIn("equal in 2 steps, bit for bit", done.out + done.err)

    @unittest.skipUnless(WHOLE, "every method: far_whole_test")
    def test_every_method(self):
        for method in SYNCHRONOUS:
            grid = (2, 1) if method == "dp" else (1, 2)
            self.assert_same(grid, "--pipeline", method, "--batch-size", 8, "--micro-batches", 4, steps=(1, 2))
        for method in ("pipedream", "pipedream-2bw"):
            micro = 1 if method == "pipedream" else 4
            for more in ((), ("--with-recompute",)):
                self.assert_same((2, 2), "--pipeline", method, "--batch-size", 8, "--micro-batches", micro, *more,
                                 steps=(3, 6))


class ResNet(OnFar, ResNetCase):
    @unittest.skipUnless(WHOLE, "running statistics: far_whole_test")
    def test_running_statistics(self):
        self.assert_same((2, 2), "--pipeline", "1f1b", "--batch-size", 4, "--micro-batches", 2, steps=(2, 4))


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main(verbosity=2)
