"""Reports of a learning rate before a run: its future rates, and a warning if the run ends during the warm-up. Rates of
your own, and changes of a rate that would have no effect."""

import math
import re
import tempfile
import unittest

import numpy as np

import hetu as ht

BASE, TOTAL = 0.004, 500
RATES = {
    "constant": lambda w: ht.lr.warmup(BASE, w),
    "linear to 0 at step 500": lambda w: ht.lr.warmup_linear(BASE, w, TOTAL),
    "x 0.2 every 30": lambda w: ht.lr.step(BASE, 30, 0.2, warmup=w),
    "x 0.1 after 40, 80": lambda w: ht.lr.multi_step(BASE, [40, 80], warmup=w),
    "x 0.99 every 1": lambda w: ht.lr.exponential(BASE, 0.99, warmup=w),
    "polynomial of power 2 to 0 at step 500": lambda w: ht.lr.polynomial(BASE, TOTAL, 2.0, warmup=w),
    "half a cosine wave to 0.001 at step 500": lambda w: ht.lr.cosine(BASE, TOTAL, 0.001, warmup=w),
    "constant; x 0.1 when the measure has not improved for 10 reports":
        lambda w: ht.lr.ReduceOnPlateau(ht.lr.warmup(BASE, w)),
}
LINE = re.compile(r"learning rate: (\S+?)(?: to (\S+))? over (\d+) steps \((?:warm-up of (\d+) to (\S+), then )?(.*)\)")


class Descriptions(unittest.TestCase):
    def test_they_have_the_rates_that_the_run_has(self):
        for shape, make in RATES.items():
            for warmup in (0, 1, 7, 100, 499):
                rate = make(warmup)
                for steps in (1, 2, 6, 7, 8, 99, 100, 101, 500, 2000):
                    with self.subTest(shape, warmup=warmup, steps=steps):
                        said = LINE.fullmatch(ht.lr.describe(rate, steps, "step"))
                        self.assertIsNotNone(said)
                        plain = ht.lr.as_rate(rate)
                        self.assertEqual(said[1], f"{plain.at(1):.4g}")
                        self.assertEqual(said[2], f"{plain.at(steps):.4g}" if steps > 1 else None)
                        self.assertEqual((int(said[3]), said[6]), (steps, shape))
                        self.assertEqual(said[4], str(warmup) if warmup else None)
                        self.assertEqual(said[5], "0.004" if warmup else None)
                        warning = ht.lr.cut_short(rate, steps, "--warm")
                        self.assertEqual(bool(warning), plain.at(steps) < BASE and steps < warmup)
                        if warning:
                            self.assertIn(f"{steps} of {warmup} updates reach a rate of {plain.at(steps):.4g}, ", warning)
                            self.assertTrue(warning.endswith("(--warm)"))

    def test_numbers_are_rates_too(self):
        self.assertEqual(ht.lr.describe(0.1, 3), "learning rate: 0.1 to 0.1 over 3 updates (constant)")
        self.assertEqual(ht.lr.cut_short(0.1, 3), "")
        self.assertEqual(ht.lr.cut_short(ht.lr.warmup(0.0, 10), 3), "")


def build(optimizer, devices=None, pipeline="1f1b"):
    ht.new_graph()
    x = np.random.default_rng(2).standard_normal((24, 3)).astype(np.float32)
    data = ht.data.Arrays(x=x, y=x.sum(1), batch_size=8, seed=2)
    hidden = ht.ops.linear(data.x, ht.parameter("w", [3, 3], ht.graph.normal(0.6)))
    ht.cut()
    found = ht.ops.linear(hidden, ht.parameter("v", [1, 3], ht.graph.normal(0.6)))[:, 0]
    loss = ht.models.mean_squared_error(found, data.y)
    return ht.Executor({"train": [loss, optimizer.minimize(loss)]}, devices, pipeline, threads=1)


def rates(job, **more):
    return [step.learning_rate for step in job.run(**more)]


def falling(update):
    return 0.1 / update ** 0.5


class Own(unittest.TestCase):
    def test_a_function_of_the_update(self):
        """Rates and losses are those of the same shape of hetu.lr, on any layout and after a resume."""
        shape = ht.lr.polynomial(0.1, 40, 2.0, warmup=2)
        wanted = [(step.learning_rate, step.loss) for step in build(ht.optim.Momentum(shape)).run(steps=6)]
        for devices in (None, "threads:1x2"):
            with self.subTest(devices), tempfile.TemporaryDirectory() as folder:
                found = []
                for until in (4, 6):
                    job = build(ht.optim.Momentum(ht.lr.Custom(shape.at)), devices)
                    found += [(step.learning_rate, step.loss)
                              for step in job.run(until=until, checkpoint=folder, resume=until == 6)]
                self.assertEqual(found, wanted)
        self.assertEqual(rates(build(ht.optim.SGD(ht.lr.Custom(falling))), steps=3), [falling(k) for k in (1, 2, 3)])
        self.assertEqual(ht.lr.describe(ht.lr.Custom(falling), 4),
                         "learning rate: 0.1 to 0.05 over 4 updates (falling of the update)")

    def test_what_a_function_may_return(self):
        for wrong in (-1, math.nan, math.inf, "0.1", None, True):
            job = build(ht.optim.SGD(ht.lr.Custom(lambda update, wrong=wrong: wrong if update == 3 else 0.1)))
            with self.subTest(wrong=wrong), self.assertRaisesRegex(
                    ValueError, r"^lr_test\.py:\d+: Custom: the learning rate of update 3 must be a finite number >= 0, "):
                rates(job, steps=4)
        for says, make in (
            ("Custom: expected a function of the number of the update, got 0.1", lambda: ht.lr.Custom(0.1)),
            ("Custom: the function is called with .update., but takes ..", lambda: ht.lr.Custom(lambda: 0.1)),
            ("give a function as hetu.lr.Custom.function.", lambda: ht.optim.SGD(falling)),
            ("pipedream has no flush, so a rate of your own",
             lambda: rates(build(ht.optim.SGD(ht.lr.Custom(falling)), "threads:1x2", "pipedream"))),
        ):
            with self.subTest(says), self.assertRaisesRegex(ValueError, rf"^lr_test\.py:\d+: .*{says}"):
                make()

    def test_changes_without_an_effect_are_refused(self):
        optimizer = ht.optim.SGD(ht.lr.ReduceOnPlateau(0.1))
        optimizer.clip_norm = 2.0  # nothing has read it yet
        job = build(optimizer)
        kfac = ht.optim.KFAC(ht.optim.SGD(0.1))

        def subclass():
            class Mine(ht.lr.Rate):
                pass

        for kind, says, change in (
            (ValueError, "SGD.learning_rate can't be changed, because an Executor has read it; for a rate that changes, "
             "give the optimizer one of hetu.lr", lambda: setattr(optimizer, "learning_rate", 0.2)),
            (ValueError, "SGD.clip_norm can't be changed, .* make another optimizer",
             lambda: setattr(optimizer, "clip_norm", 1.0)),
            (AttributeError, "SGD has no 'lr'; .*learning_rate", lambda: setattr(ht.optim.SGD(0.1), "lr", 0.2)),
            (ValueError, "KFAC.learning_rate can't be changed, because it is read only once; make another KFAC",
             lambda: setattr(kfac, "learning_rate", 0.2)),
            (ValueError, "KFAC.damping can't be changed", lambda: setattr(kfac, "damping", 0.2)),
            (ValueError, "ReduceOnPlateau: its rate can't be changed, .* hetu.lr.Custom",
             lambda: setattr(job.plateau, "rate", 0.05)),
            (ValueError, "Mine: a subclass of hetu.lr.Rate is not used by trainings; .* hetu.lr.Custom", subclass),
            (ValueError, "Executor.learning_rate can't be set, .* hetu.lr.Custom", lambda: setattr(job, "learning_rate", 1)),
            (ValueError, "Executor.threads can't be set, because an Executor reads its arguments only once",
             lambda: setattr(job, "threads", 1)),
            (ValueError, "Arrays.batch_size can't be changed, because it is read only once; make new data with this batch",
             lambda: setattr(job.data, "batch_size", 4)),
            (ValueError, "Arrays.seed can't be changed", lambda: setattr(job.data, "seed", 4)),
        ):
            with self.subTest(says), self.assertRaisesRegex(kind, rf"^lr_test\.py:\d+: {says}"):
                change()
        with self.assertRaises(AttributeError):
            job.train_handle.optimizer = ht.optim.SGD(0.2)
        self.assertEqual(rates(job), [0.1])


if __name__ == "__main__":
    unittest.main()
