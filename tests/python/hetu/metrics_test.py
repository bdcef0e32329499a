"""hetu.metrics.auc equals a count over all pairs."""
import unittest

import numpy as np

from hetu.metrics import auc


def by_pairs(scores, labels):
    """Returns the AUC by counting all pairs of a row of 1 and a row of 0 in integers: 2 for a right order, 1 for a tie."""
    ones, zeros = scores[labels == 1], scores[labels == 0]
    twice = sum(2 * int((one > zeros).sum()) + int((one == zeros).sum()) for one in ones)
    return twice / (2 * len(ones) * len(zeros))


class Auc(unittest.TestCase):
    def test_is_the_share_of_pairs(self):
        for seed in range(200):
            random = np.random.default_rng(seed)
            rows = int(random.integers(2, 60))
            scores = random.normal(size=rows)
            if seed % 2:
                scores = np.round(scores * random.choice([0, 1, 3]))  # many ties, or only ties
            labels = random.integers(0, 2, rows)
            labels[:2] = 0, 1
            with self.subTest(seed=seed):
                for kind in (np.float32, np.float64):
                    self.assertEqual(auc(scores.astype(kind), labels), by_pairs(scores.astype(kind), labels))
                self.assertEqual(auc(-scores, labels) + auc(scores, labels), 1.0)
                self.assertEqual(auc(scores, labels.astype(np.float32)), by_pairs(scores, labels))

    def test_the_ends(self):
        self.assertEqual(auc([1, 2, 3, 4], [0, 0, 1, 1]), 1.0)
        self.assertEqual(auc([4, 3, 2, 1], [0, 0, 1, 1]), 0.0)
        self.assertEqual(auc([7, 7, 7], [0, 1, 1]), 0.5)
        self.assertEqual(auc([2, 1, 3], [True, False, True]), 1.0)
        rows = 200_000  # twice the number of pairs doesn't fit in 32 bits
        self.assertEqual(auc(np.arange(rows), np.arange(rows) >= rows // 2), 1.0)

    def test_what_it_is_not_made_of_is_said(self):
        for scores, labels, says in (
            ([1, 2], [1, 1], "needs rows of both labels, found 2 of 1 and 0 of 0"),
            ([], [], "needs rows of both labels, found 0 of 1 and 0 of 0"),
            ([1, float("nan"), float("inf")], [0, 1, 1], "2 of 3 scores are not finite numbers"),
            ([1, 2, 3], [0, 1], r"AUC of \[3\] scores and \[2\] labels"),
            ([[1, 2]], [[0, 1]], r"AUC of \[1, 2\] scores"),
            ([1, 2, 3], [0, 1, -1], r"label -1 of row 2 is neither 0 nor 1; leave out rows that do not count"),
            ([1, 2, 3], [1, 2, 1], "label 2 of row 1 is neither 0 nor 1"),
            ([1, 2, 3], [-1, 1, -1], r"label -1 of row 0 is neither 0 nor 1; .* by \(labels \+ 1\) // 2"),
            ([1, 2, 3], [0, 1, 0.5], "label 0.5 of row 2 is neither 0 nor 1"),
            ([1, 2, 3], [0, 1, float("nan")], "label nan of row 2 is neither 0 nor 1"),
        ):
            with self.subTest(says), self.assertRaisesRegex(ValueError, says):
                auc(scores, labels)


if __name__ == "__main__":
    unittest.main()
