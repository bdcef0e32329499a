"""Reports of a learning rate before a run: its future rates, and a warning if the run ends during the warm-up."""

import re
import unittest

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


if __name__ == "__main__":
    unittest.main()
