"""Metrics computed from a validation's numbers per sample."""

from __future__ import annotations

from typing import Any

from hetu import keywords
from hetu.names import missing_from
from hetu.place import placed


@placed()
def auc(scores: Any, labels: Any) -> float:
    """Returns the exact area under the ROC curve: the share of pairs of a row with label 1 and a row with label 0 in which
    the first has the higher score. Equal scores count half. Computed by the sum of ranks (Mann and Whitney 1947).

    labels: 0 and 1, as integers, floats or bools. Any other label raises ValueError, also -1, because it could be a class
    or a row that is meant to be left out.
    Throws ValueError for such labels, for scores that are not finite, and if one of the two labels does not occur.
    """
    import numpy as np  # imported late: NumPy takes half of a worker's start, and most workers compute no metric

    scores, labels = np.asarray(scores), np.asarray(labels)
    positive = labels == 1
    if scores.shape != positive.shape or scores.ndim != 1:
        raise ValueError(f"AUC of {list(scores.shape)} scores and {list(positive.shape)} labels; give one each per row")
    if len(others := np.flatnonzero((labels != 0) & ~positive)):
        raise ValueError(f"AUC: label {labels[others[0]]} of row {others[0]} is neither 0 nor 1; leave out rows that do not "
                         "count, and turn labels of -1 and 1 into 0 and 1 by (labels + 1) // 2")
    if not np.isfinite(scores).all():
        raise ValueError(f"AUC: {int((~np.isfinite(scores)).sum())} of {scores.size} scores are not finite numbers")
    positives = int(positive.sum())
    negatives = positive.size - positives
    if positives == 0 or negatives == 0:
        raise ValueError(f"AUC needs rows of both labels, found {positives} of 1 and {negatives} of 0")
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    above = np.cumsum(count) - count  # rows with a lower score
    twice_rank = 2 * above + count + 1  # ranks count from 1; equal scores share their mean rank
    twice_sum = int(twice_rank[place[positive]].sum())
    return (twice_sum - positives * (positives + 1)) / (2 * positives * negatives)


__all__ = ["auc"]

keywords.check_module(__name__)
globals()["__getattr__"] = missing_from(__name__)  # assigned, not defined: otherwise mypy would accept any name
