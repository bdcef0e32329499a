"""Errors about rows of a step name the row of the user's data, in any order of reading, and the first input that is not
finite."""

import unittest

import numpy as np

import hetu as ht

ROWS, BATCH, BAD, SEED = 200, 40, 70, 1


def build(devices=None, bad="", batches=False, rate=0.01):
    """Returns an Executor and its arrays, in which row BAD is wrong: "id" for an embedding, "nan" in a float field."""
    ht.new_graph()
    draw = np.random.default_rng(SEED)
    x, ids = draw.standard_normal((ROWS, 3)), np.arange(ROWS) % 5
    y = x.sum(1)
    if bad == "nan":
        x[BAD, 1] = np.nan
    if bad == "id":
        ids[BAD] = 12
    arrays = {"x": x, "y": y, "ids": ids}
    size = BATCH // (int(devices[8]) if devices else 1)
    if batches:
        data = ht.data.Batches([{name: a[i:i + BATCH] for name, a in arrays.items()} for i in range(0, ROWS, BATCH)], size)
    else:
        data = ht.data.Arrays(**arrays, batch_size=size, seed=SEED)
    found = ht.nn.Embedding(5, 3).named("table")(data.ids)
    ht.cut()
    scores = ht.ops.linear(found + data.x, ht.parameter("w", [1, 3], ht.graph.normal(0.5)))[:, 0]
    loss = ht.models.mean_squared_error(scores, data.y)
    train = ht.optim.SGD(rate).minimize(loss)
    return ht.Executor({"train": [loss, train], "predict": [scores], "validate": [loss]}, devices, micro_batches=2,
                       threads=1), arrays


class BadRows(unittest.TestCase):
    def test_of_an_index(self):
        for devices in (None, "threads:1x2", "threads:2x1"):
            job, arrays = build(devices, "id")
            named = {name: arrays[name] for name in ("x", "ids")}
            place = r"^bad_rows_test\.py:\d+: 'table/embedding': index 12 of field 'ids' is outside \[0, 5\): "
            with self.subTest(devices):
                with self.assertRaisesRegex(ValueError, place + r"row 30 of the batch, row 70 of the data$"):
                    job.predict(named)
                # A training of several workers can't continue after an error, so it comes last.
                if devices is None:
                    for call in (job.predict, job.evaluate):
                        with self.assertRaisesRegex(ValueError, place + r"row 30 of the batch, row 70 of the data$"):
                            call(job.data)
                job, _ = build(devices, "id")
                with self.assertRaisesRegex(ValueError, place + r"step \d, .*, row \d+ of the global batch, row 70 of the"):
                    list(job.run("train", steps=5))

    def test_in_a_later_epoch(self):
        """The row is that of the order in the epoch of the step that fails. An epoch of 5 batches reads all rows."""
        for before in (2, 3, 5):
            job, _ = build()
            list(job.run("train", steps=before))
            step = before + 2  # the loader may have read the batch before it
            row = job.data.drawn.numbers(step // 5)[step % 5 * BATCH + 3]
            job.data.drawn.source.arrays["ids"][row] = 9
            with self.subTest(before), self.assertRaisesRegex(
                    ValueError, rf"step {step}, .* row 3 of the global batch, row {row} of the data$"):
                list(job.run("train", steps=3))

    def test_of_a_number_that_is_not_finite(self):
        for devices in (None, "threads:1x2"):
            job, _ = build(devices, "nan")
            with self.subTest(devices), self.assertRaisesRegex(
                    ValueError, r"^bad_rows_test\.py:\d+: loss is nan at .* look at the data of this step; field 'x' has "
                                r"nan in row \d+ of the global batch, row 70 of the data$"):
                list(job.run("train", steps=5))
        job, _ = build(rate=1e15)
        with self.assertRaisesRegex(ValueError, "loss is inf at .*; all numbers that it reads are finite$"):
            list(job.run("train", steps=5))

    def test_of_ready_batches(self):
        for bad, says in (("nan", "field 'x' has nan in row 30 of the global batch, row 30 of item 1 of the data"),
                          ("id", "row 30 of the global batch, row 30 of item 1 of the data")):
            job, _ = build(None, bad, batches=True)
            with self.subTest(bad), self.assertRaisesRegex(ValueError, says):
                list(job.run("train", steps=5))


if __name__ == "__main__":
    unittest.main()
