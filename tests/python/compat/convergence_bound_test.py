"""The convergence bound of partial reduce agrees with the theorem's formula in exact fractions, also where its values exceed
every float."""
import contextlib
import io
import math
import unittest
from decimal import Decimal, getcontext

from hetu.compat import convergence_bound as page
from hetu.compat.convergence_bound import bound

getcontext().prec = 1000


def by_formula(n, period, group):
    """Returns log10 of t1, 1 - t2, and log10 of K, by the formula as written."""
    power = Decimal(group) ** (n * period)
    t1 = 4 * n * ((1 + power) / (1 - 1 / power)) ** 2
    t2 = (1 - 1 / power) ** (Decimal(2) / (n * period))
    gap = 1 - t2.sqrt()
    steps = max(12 * n**2 * t1 / gap**2, 36 * n**5 * t1**2 / gap**4)
    return float(t1.log10()), float(1 - t2), float(steps.log10())


class Values(unittest.TestCase):
    def test_they_are_those_of_the_formula(self):
        for n, period, group in ((2, 1, 2), (4, 1, 4), (4, 10, 2), (8, 2, 8), (8, 10, 4), (16, 20, 8)):
            with self.subTest(n=n, period=period, group=group):
                found = bound(n, period, group)
                log10_t1, rest, log10_steps = by_formula(n, period, group)
                self.assertAlmostEqual(found.log10_t1 / log10_t1, 1, delta=1e-12)
                self.assertAlmostEqual(found.log10_steps / log10_steps, 1, delta=1e-12)
                self.assertLessEqual(abs(found.one_minus_t2 - rest), 1e-12 * rest)

    def test_a_value_by_hand(self):
        """N = 2, P = 1, n1 = 2: t1 = 8 (5 / 0.75)^2 = 355.56 and t2 = 0.75."""
        found = bound(2, 1, 2)
        self.assertAlmostEqual(10**found.log10_t1, 355.5556, delta=1e-3)
        self.assertAlmostEqual(found.one_minus_t2, 0.25, delta=1e-12)
        gap = 1 - math.sqrt(0.75)
        self.assertAlmostEqual(10**found.log10_steps / (36 * 32 * 355.5556**2 / gap**4), 1, delta=1e-5)
        self.assertAlmostEqual(found.learning_rate(steps=800, smoothness=5), math.sqrt(2 / 800) / 5)
        self.assertAlmostEqual(found.learning_rate(), math.sqrt(2 / 10**found.log10_steps), delta=1e-15)

    def test_more_connections_lower_it(self):
        self.assertLess(bound(8, 1, 8).log10_steps, bound(8, 10, 8).log10_steps)

    def test_what_is_wrong_is_said(self):
        for words in ((1, 1, 2), (4, 0, 2), (4, 1, 1), (4, 1, 5)):
            with self.assertRaisesRegex(ValueError, "expected at least 2 pipelines, a sync period"):
                bound(*words)

    def test_the_command_prints_them(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(page.main(["--pipelines", "2", "--sync-period", "1", "--steps", "800", "--smoothness", "5"]), 0)
        found = bound(2, 1, 2)
        self.assertIn(f"updates K >= 10^{found.log10_steps:.4f}   (t1 = 10^2.5509, 1 - t2 = 0.25)\n", said.getvalue())
        self.assertIn("at K = 800: 0.01\nK = 800 is below the bound", said.getvalue())


if __name__ == "__main__":
    unittest.main()
