"""Click-through rates: Wide & Deep (Cheng et al. 2016) and DLRM (Naumov et al. 2019).

Both read dense [B, D] and ids [B, C], and return a logit per sample. The ids are rows of one embedding table, in which each
of the C columns has its own part. B batch, D integers, C columns, W embedding width.
"""

from __future__ import annotations

import math
from typing import Any

from hetu import ops
from hetu.graph import BATCH, Init, Value, constant, current, cut, parameter, uniform, xavier_normal


def _linear(x: Value, out: int, name: str) -> Value:
    weight = parameter(f"{name}.weight", [out, x.shape[-1]], xavier_normal())
    bias = parameter(f"{name}.bias", [out], constant(0.0), decay=False)
    return ops.linear(x, weight, bias, name=name)


def _looked_up(ids: Value, rows: int, width: int, name: str, init: Init, placement: str) -> Value:
    """Returns the rows of an embedding table [rows, width] given by ids. Only this function knows the table's placement;
    models don't access tables otherwise."""
    return ops.embedding(parameter(f"{name}.weight", [rows, width], init, placement=placement), ids, name=name)


def mean_sigmoid_cross_entropy(logits: Value, labels: Value, name: str) -> Value:
    """Returns the logistic loss of logits [N] and int32 labels [N] of 0 and 1, divided by the number of labels in the whole
    step. A step with another label fails, and the error names its value and row."""
    total = ops.sigmoid_cross_entropy(logits, labels, name=f"{name}.cross_entropy")
    count = ops.step_sum(ops.count_labels(labels, name=f"{name}.count"), name=f"{name}.step_count")
    return ops.div_scalar(total, count, name=name)


class _ClickModel:
    """The common part of both models: sizes, the table of C x `hash_size` rows, layers, the loss. `tables` is the placement
    of embedding tables, "worker" or "server" (see hetu.parameter)."""

    def __init__(self, hash_size: int, width: int = 16, hidden: tuple[int, ...] = (256, 128, 64), *,
                 tables: str = "worker") -> None:
        if hash_size < 1 or width < 1 or not hidden or min(hidden) < 1:
            raise ValueError(f"hash size {hash_size}, embedding width {width} and hidden layers {hidden} must be >= 1")
        self.hash_size, self.width, self.hidden, self.tables = hash_size, width, tuple(hidden), tables

    def _embedded(self, ids: Value) -> Value:
        """Returns the embeddings [B, C * W]. They start like DLRM's tables, uniform within 1 / sqrt(rows of a column)."""
        columns, bound = ids.shape[1], 1 / math.sqrt(self.hash_size)
        rows = _looked_up(ids, columns * self.hash_size, self.width, "embedding", uniform(-bound, bound), self.tables)
        return ops.reshape(rows, shape=[BATCH, columns * self.width], name="embedding.flat")

    def _layers(self, x: Value, name: str) -> Value:
        """Applies the hidden layers, each in its own block, and returns the logit [B]."""
        for i, size in enumerate(self.hidden):
            cut()
            x = ops.relu(_linear(x, size, f"{name}.{i}"), name=f"{name}.{i}.relu")
        cut()
        return ops.reshape(_linear(x, 1, f"{name}.out"), shape=[BATCH], name=f"{name}.logit")

    def logits(self, dense: Value, ids: Value) -> Value:
        """Returns the logit of a click, [B], before the sigmoid."""
        raise NotImplementedError

    def loss(self, batch: Any) -> Value:
        """Returns the mean logistic loss over the samples of the step, a scalar.

        batch: a data object of `hetu.data`, or any object with the attributes label int32 [B], dense float32 [B, D] and ids
        int32 [B, C].
        Also reports `logit` and `click` of each sample in validation.
        """
        logits = self.logits(batch.dense, batch.ids)
        loss = mean_sigmoid_cross_entropy(logits, batch.label, "click")
        current().fetch("loss", loss)
        current().fetch("logit", logits)
        current().fetch("click", ops.cast(batch.label, dtype="float32", name="click"))
        return loss


class WideDeep(_ClickModel):
    """Wide & Deep: the sum of a weight per category and integer, plus a multi-layer perceptron of embeddings and integers.

    The wide part has no products of columns, which would be chosen by hand for each data set. Blocks: tables, hidden
    layers, output.
    """

    def logits(self, dense: Value, ids: Value) -> Value:
        columns = ids.shape[1]
        weights = _looked_up(ids, columns * self.hash_size, 1, "wide.categories", constant(0.0), self.tables)
        chosen = ops.reshape(weights, shape=[BATCH, columns], name="wide.flat")
        wide = ops.sum_last(chosen, name="wide.sum")
        integers = ops.reshape(_linear(dense, 1, "wide.integers"), shape=[BATCH], name="wide.integers.flat")
        wide = ops.add(wide, integers, name="wide")
        deep = self._layers(ops.concat(self._embedded(ids), dense, name="deep.inputs"), "deep")
        return ops.add(wide, deep, name="logit")


class Dlrm(_ClickModel):
    """DLRM: integers become a vector of the embeddings' width. The dot products of all pairs of vectors, and the first
    vector, pass through a multi-layer perceptron. Blocks: tables and bottom layers, products, hidden layers, output."""

    def __init__(self, hash_size: int, width: int = 16, hidden: tuple[int, ...] = (256, 128, 64),
                 bottom: tuple[int, ...] = (64,), *, tables: str = "worker") -> None:
        super().__init__(hash_size, width, hidden, tables=tables)
        self.bottom = (*bottom, width)

    def logits(self, dense: Value, ids: Value) -> Value:
        x = dense
        for i, size in enumerate(self.bottom):
            x = ops.relu(_linear(x, size, f"bottom.{i}"), name=f"bottom.{i}.relu")
        vectors = ops.concat(x, self._embedded(ids), name="vectors.flat")
        cut()
        vectors = ops.reshape(vectors, shape=[BATCH, ids.shape[1] + 1, self.width], name="vectors")
        return self._layers(ops.concat(x, ops.dot_interaction(vectors, name="products"), name="top.inputs"), "top")


MODELS: dict[str, type[_ClickModel]] = {"wide-deep": WideDeep, "dlrm": Dlrm}

__all__ = ["MODELS", "Dlrm", "WideDeep", "mean_sigmoid_cross_entropy"]
