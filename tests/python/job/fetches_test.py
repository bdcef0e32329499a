"""The lists of an Executor.

Each run reports the scalars of its own list, summed over the step. A value that can't be reported, or that would be ignored,
is refused by name."""
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

import numpy as np

import hetu as ht
from train_cases import HETURUN, MANY_S

ROWS = 12


def labels(rows=ROWS):
    return (np.arange(rows) % 3).astype(np.int32)


def model(rows=ROWS):
    """Returns a model of three classes with one-hot inputs and a scalar in every block."""
    ht.graph.new_graph()
    data = ht.data.Batches([{"x": 3 * np.eye(3, dtype=np.float32)[labels(rows)], "y": labels(rows)}], rows)
    hidden = ht.ops.linear(data.x, ht.graph.parameter("a", [3, 3], ht.graph.normal(1.0)), name="hidden")
    size = ht.ops.sum(ht.ops.mul(hidden, hidden), name="size")
    ht.cut()
    weight = ht.graph.parameter("b", [3, 3], ht.graph.normal(1.0))
    logits = ht.ops.linear(hidden, weight, name="logits")
    hits = ht.ops.top_k_hits(logits, data.y, k=3, name="hits")
    total = ht.ops.softmax_cross_entropy(logits, data.y, name="entropy")[0]
    count = ht.ops.step_sum(ht.ops.count_labels(data.y, name="rows"), name="all_rows")
    loss = ht.ops.div_scalar(total, count, name="mean")
    odd = {"fixed": ht.ops.fill(shape=[2], value=1.0, name="fixed"), "any": ht.ops.greater(size, count, name="any"),
           "weight": weight}
    return data, odd | {"size": size, "logits": logits, "hits": hits, "entropy": total, "all_rows": count, "loss": loss}


def build(lists, micro_batches=1, **more):
    _, values = model()
    train = ht.optim.SGD(0.0).minimize(values["loss"])
    named = {run: [train if name == "train" else values.get(name, name) for name in names] for run, names in lists.items()}
    return ht.Executor(named, micro_batches=micro_batches, threads=1, **more)


class Lists(unittest.TestCase):
    def test_each_run_reports_its_own(self):
        seen = {}
        for micro_batches in (1, 2, 4):
            job = build({"train": ["loss", "train"], "validate": ["loss"], "look": ["size", "hits", "entropy", "all_rows"]},
                        micro_batches)
            (trained,) = job.run("train", steps=1)
            (validated,) = job.run("validate", steps=1)
            (looked,) = job.run("look", steps=1)
            self.assertEqual(set(trained.scalars), {"loss", "mean"})  # the loss has a name of its own
            self.assertEqual(trained["mean"], trained.loss)
            self.assertEqual(trained.scalars, validated.scalars)
            self.assertEqual(set(looked.scalars), {"loss", "size", "hits", "entropy", "all_rows"})
            self.assertEqual((looked.scalars["hits"], looked.scalars["all_rows"]), (ROWS, ROWS))
            self.assertAlmostEqual(looked.scalars["entropy"], ROWS * looked.loss, 4)
            seen[micro_batches] = looked.scalars
        for micro_batches in (2, 4):  # sums over the step don't depend on the micro-batches
            for name, value in seen[1].items():
                self.assertAlmostEqual(seen[micro_batches][name], value, 4, name)

    def test_scalars_of_every_stage(self):
        """Scalars are equal under heturun, where each stage has some of them."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "look.py"
            script.write_text(
                "import sys; import hetu as ht; import fetches_test\n"
                "def main():\n"
                "    job = fetches_test.build({'train': ['train'], 'look': ['size', 'hits']}, 4, devices='pipe_1_2')\n"
                "    (step,) = job.run('look', steps=1)\n"
                "    if job.is_chief:\n"
                "        print('found', *(f'{k}={v:.4f}' for k, v in sorted(step.scalars.items())))\n"
                "main()\n")
            here = str(pathlib.Path(__file__).resolve().parent)
            path = here + os.pathsep + os.environ.get("PYTHONPATH", "")
            done = subprocess.run([*HETURUN, "-w", "2", sys.executable, script], capture_output=True, text=True,
                                  timeout=MANY_S, env={**os.environ, "PYTHONPATH": path})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (alone,) = build({"train": ["train"], "look": ["size", "hits"]}, 4).run("look", steps=1)
        words = " ".join(f"{k}={v:.4f}" for k, v in sorted(alone.scalars.items()))
        self.assertIn(f"found {words}", done.stdout)

    def test_numbers_per_sample(self):
        """Values of samples are in the order of the data for any number of pipelines and micro-batches. A row's number
        identifies it."""
        def look(pipelines, micro_batches, **more):
            ht.graph.new_graph()
            rows = 24
            data = ht.data.Batches([{"x": np.arange(rows * 2 * k, rows * 2 * (k + 1), dtype=np.float32).reshape(rows, 2),
                                     "y": labels(rows)} for k in range(2)], rows // pipelines)
            hidden = ht.ops.linear(data.x, ht.graph.parameter("a", [2, 2], ht.graph.constant(0.5)), name="hidden")
            ht.cut()
            logits = ht.ops.linear(hidden, ht.graph.parameter("b", [3, 2], ht.graph.constant(0.5)), name="logits")
            each, marks = ht.ops.sum_last(logits, name="each"), ht.ops.cast(data.y, dtype="float32", name="marks")
            loss = ht.models.mean_cross_entropy(logits, data.y, "mean")
            train = ht.optim.SGD(0.0).minimize(loss)
            lists = {"train": [loss, train], "look": [each, marks]}
            return ht.Executor(lists, micro_batches=micro_batches, threads=1, **more)

        wanted = [np.arange(24 * 2 * k, 24 * 2 * (k + 1)).reshape(24, 2).sum(axis=1) * 1.5 for k in range(2)]
        for micro_batches in (1, 2, 4):
            job = look(1, micro_batches)
            (trained,) = job.run("train", steps=1)
            self.assertEqual(trained.samples_of, {})
            for step, values in zip(job.run("look", steps=2), wanted, strict=True):
                self.assertEqual(set(step.samples_of), {"each", "marks"})
                np.testing.assert_array_equal(step.samples_of["each"], values)
                np.testing.assert_array_equal(step.samples_of["marks"], labels(24))
                self.assertEqual(set(step.scalars), {"loss"})
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "look.py"
            script.write_text(
                "import sys; import numpy as np; import hetu as ht\nfrom fetches_test import labels\n" +
                textwrap.dedent(inspect.getsource(look)) +
                "job = look(2, 3, devices='pipe_2_2', pipeline='gpipe')\n"
                "for step in job.run('look', steps=2):\n"
                "    print('found', [int(2 * x) for x in step.samples_of['each']], step.samples_of['marks'].sum())\n")
            here = str(pathlib.Path(__file__).resolve().parent)
            path = here + os.pathsep + os.environ.get("PYTHONPATH", "")
            done = subprocess.run([*HETURUN, "-w", "4", sys.executable, script], capture_output=True, text=True,
                                  timeout=MANY_S, env={**os.environ, "PYTHONPATH": path})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for values in wanted:
            self.assertEqual(done.stdout.count(f"found {[int(2 * x) for x in values]} {float(labels(24).sum())}"), 4)

    def test_what_cannot_be_reported_is_refused(self):
        for lists, kind, why in [
            ({"train": ["train"], "predict": ["any"]}, ValueError,
             r"^fetches_test.py:\d+: fetches 'predict': 'any' is bool\[\]; a value without a batch axis is "
             "summed .*: cast it"),
            ({"train": ["train"], "predict": ["fixed"]}, ValueError,
             r"^fetches_test.py:\d+: fetches 'predict': 'fixed' is float32\[2\], and does not depend on the data"),
            ({"train": ["train"], "predict": ["weight"]}, ValueError,
             r"^fetches_test.py:\d+: fetches 'predict': 'b' is a parameter; a run reports only values that "
             "operators compute"),
            ({"train": ["train", "logits"]}, NotImplementedError,
             r"fetches 'train': 'logits' is float32\[-1, 3\], but a run that trains reports only float32 scalars; "
             "put it in"),
            ({"train": ["train"], "predict": [3]}, ValueError,
             "fetches 'predict': 3 is neither a value nor the result of minimize"),
            ({"train": ["train"], "predict": []}, ValueError, r"fetches 'predict': expected a list of values, got \[\]"),
            ({"train": ["train"], "again": ["train"]}, ValueError, "exactly one minimize.. handle .* got 2"),
            ({"validate": ["loss"]}, ValueError, "exactly one minimize.. handle .* got 0"),
        ]:
            with self.subTest(why=why), self.assertRaisesRegex(kind, why):
                build(lists)

    def test_names_that_two_values_would_have(self):
        _, values = model()
        ht.graph.current().fetch("size", values["entropy"])
        train = ht.optim.SGD(0.0).minimize(values["loss"])
        with self.assertRaisesRegex(ValueError, "fetches 'look': another value, the result of 'entropy', is reported as "
                                    "'size'; give the operator 'size' of this list another name"):
            ht.Executor({"train": [train], "look": [values["size"]]})

    def test_names_of_losses(self):
        """The minimized value is `loss`. A listed value has the name that the script gave its operator, or else the name of
        the function that made it."""
        def names(listed, minimized):
            ht.new_graph()
            data = ht.data.Arrays(x=np.ones((4, 3)), y=np.ones(4), batch_size=4)
            p = ht.ops.linear(data.x, ht.parameter("w", [1, 3], ht.graph.constant(0.5)), name="out")[:, 0]
            values = {name: ht.models.mean_squared_error(p, data.y, name) for name in listed}
            train = ht.optim.SGD(0.0).minimize(minimized(values[listed[0]]))
            job = ht.Executor({"train": [*values.values(), train], "validate": [*values.values()]}, threads=1)
            (step,) = job.run("train", steps=1)
            found = job.evaluate(data, run="validate")
            self.assertEqual(found, step.scalars)
            return step.scalars

        for listed, minimized, wanted in (
            ([""], lambda loss: loss, {"loss": 0.25}),
            (["mse"], lambda loss: loss, {"loss": 0.25, "mse": 0.25}),
            ([""], lambda loss: loss * 4, {"loss": 1.0, "mean_squared_error": 0.25}),
            (["mse"], lambda loss: loss * 4, {"loss": 1.0, "mse": 0.25}),
            (["mse", ""], lambda loss: loss, {"loss": 0.25, "mse": 0.25, "mean_squared_error": 0.25}),
            (["loss"], lambda loss: loss, {"loss": 0.25}),
        ):
            with self.subTest(listed=listed):
                self.assertEqual(names(listed, minimized), wanted)
        with self.assertRaisesRegex(ValueError, "'loss' is the value given to minimize.., the result of 'scale'; give the "
                                    "operator 'loss' of this list another name"):
            names(["loss"], lambda loss: loss * 4)
        ht.new_graph()
        data = ht.data.Arrays(x=np.ones((4, 3)), y=np.zeros(4, np.int32), batch_size=4)
        named = ht.models.mean_cross_entropy(data.x, data.y, "xent")
        self.assertEqual((named.name, ht.models.mean_cross_entropy(data.x, data.y).name), ("xent", "mean_cross_entropy"))

    def test_values_that_nothing_computes(self):
        _, values = model()
        scalar = ht.graph.buffer("seen", [], ht.graph.constant(0.0))
        ht.ops.count_up(scalar)
        other = model()[1]
        train = ht.optim.SGD(0.0).minimize(values["loss"])
        for value, why in [(scalar, "'seen' is a buffer"),
                           (other["size"], r".* belongs to another graph than the trained one")]:
            with self.subTest(why=why), self.assertRaisesRegex(ValueError, f"fetches 'look': {why}"):
                ht.Executor({"train": [train], "look": [value]})

    def test_arguments_that_a_run_would_ignore(self):
        job = build({"train": ["loss", "train"], "validate": ["loss"]})
        for run, given, why in [
            ("validate", {"checkpoint": "c", "trace": "t"}, "'validate' validates, so checkpoint, trace would be ignored"),
            ("validate", {"every": 1, "resume": True, "drain": 2}, "validates, so every, resume, drain would be ignored"),
            ("train", {"data": job.data}, "run 'train' trains, so data would be ignored"),
            ("train", {"every": 2}, "every and resume need a checkpoint folder"),
            ("train", {"resume": True}, "every and resume need a checkpoint folder"),
        ]:
            with self.subTest(run=run, given=list(given)), self.assertRaisesRegex(ValueError, why):
                list(job.run(run, steps=1, **given))


if __name__ == "__main__":
    unittest.main()
