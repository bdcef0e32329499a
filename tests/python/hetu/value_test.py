"""Expressions of Values: every operator with numbers and values, and means over a step. Common mistakes give one line that
names the place in the script."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hetu as ht
from hetu import _hetu

SEED = 7


def gradients(loss, given, batch):
    graph = ht.graph.current()
    graph.builder.differentiate(loss.number)
    graph.fetch("loss", loss)
    given = {name: np.asarray(array, np.float64).ravel() for name, array in given.items()}
    found = _hetu.evaluate(graph.builder.finish(), batch, given)
    return found["fetches"]["loss"], found["gradients"]


class Batches(unittest.TestCase):
    """The batch, whose size is unknown while the graph is built."""

    def test_a_bias_sums_over_the_batch(self):
        random = np.random.default_rng(SEED)
        for batch in (1, 4):
            x, w, b = random.standard_normal((batch, 3, 2)), random.standard_normal(2), random.standard_normal((3, 1))
            ht.new_graph()
            value = ht.placeholder("x", "float32", [ht.BATCH, 3, 2])
            weight = ht.parameter("w", [2], ht.graph.constant(0.0))
            bias = ht.parameter("b", [3, 1], ht.graph.constant(0.0))
            loss = ht.step_mean((value * weight + bias) ** 2)
            found, slopes = gradients(loss, {"x": x, "w": w, "b": b}, batch)
            y = x * w + b
            with self.subTest(batch=batch, seed=SEED):
                self.assertAlmostEqual(found, float((y**2).mean()), 12)
                np.testing.assert_allclose(slopes["w"], (2 * y * x).sum((0, 1)) / y.size, rtol=1e-12)
                np.testing.assert_allclose(slopes["b"], (2 * y).sum((0, 2)) / y.size, rtol=1e-12)

    def test_values_along_the_batch(self):
        random = np.random.default_rng(SEED)
        x, w = random.standard_normal((4, 6)), random.standard_normal((2, 3))
        ht.new_graph()
        value, weight = ht.placeholder("x", "float32", [ht.BATCH, 6]), ht.parameter("w", [2, 3], ht.graph.constant(0.0))
        left, right = value.split(2)
        both = ht.stack([left, right], axis=1) * weight  # [B, 2, 3]
        chosen = ht.where(both > 0, both, 0.5 * both)
        peak = chosen.max(axis=(1, 2), keepdims=True) - chosen[:, :1, -1:]
        self.assertEqual((both.shape, peak.shape), ([-1, 2, 3], [-1, 1, 1]))
        found, slopes = gradients(peak.sum(), {"x": x, "w": w}, 4)
        y = x.reshape(4, 2, 3) * w
        leak = np.where(y > 0, 1, 0.5)
        want = np.zeros((2, 3))
        for i in range(4):
            top = np.unravel_index((y * leak)[i].argmax(), (2, 3))
            want[top] += (leak * x.reshape(4, 2, 3))[i][top]
            want[0, 2] -= (leak * x.reshape(4, 2, 3))[i][0, 2]
        self.assertAlmostEqual(found, float(((y * leak).max((1, 2)) - (y * leak)[:, 0, 2]).sum()), 12)
        np.testing.assert_allclose(slopes["w"], want.ravel(), rtol=1e-12)

    def test_the_mean_over_a_step_is_the_same_however_it_is_cut(self):
        random = np.random.default_rng(SEED)
        rows = {"x": random.standard_normal((12, 5)).astype(np.float32), "y": random.standard_normal(12).astype(np.float32)}
        losses = {}
        for micro_batches in (1, 2, 3, 4):
            ht.new_graph()
            data = ht.data.Batches([rows], 12)
            weight = ht.parameter("w", [1, 5], ht.graph.constant(0.25))
            loss = ht.step_mean((ht.ops.linear(data.x, weight)[:, 0] - data.y) ** 2, name="mse")
            train = ht.optim.SGD(0.1).minimize(loss)
            job = ht.Executor({"train": [loss, train]}, micro_batches=micro_batches, threads=1)
            losses[micro_batches] = [step.loss for step in job.run("train", steps=3)]
        w = np.full(5, 0.25)
        for found in losses[1]:
            error = rows["x"] @ w - rows["y"]
            self.assertAlmostEqual(found, float((error**2).mean()), 5)
            w -= 0.1 * 2 * (error[:, None] * rows["x"]).mean(0)
        for micro_batches in (2, 3, 4):
            np.testing.assert_allclose(losses[micro_batches], losses[1], rtol=1e-6)


    def test_weights_of_classes_count_over_the_whole_step(self):
        """The mean is over all labels, although the micro-batches have different labels, and some have none that count."""
        random = np.random.default_rng(SEED)
        x, labels = random.standard_normal((12, 4)).astype(np.float32), np.array([0, 3, -1, -1, 2, 2, 1, 3, -1, 0, 2, 1])
        by_class, smoothing = np.array([0.5, 2.0, 1.0, 4.0]), 0.2
        counts = labels >= 0
        log_p = x - np.log(np.exp(x).sum(1, keepdims=True))
        weights = by_class[labels] * counts
        want = -((1 - smoothing) * weights * log_p[np.arange(12), labels]
                 + smoothing / 4 * counts * (log_p * by_class).sum(1)).sum() / weights.sum()
        for micro_batches in (1, 3, 6):
            ht.new_graph()
            data = ht.data.Batches([{"x": x, "labels": labels}], 12)
            logits = ht.ops.linear(data.x, ht.parameter("w", np.eye(4)))
            loss = ht.models.mean_cross_entropy(logits, data.labels, smoothing=smoothing, weight=by_class, ignore=-1)
            job = ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)]}, micro_batches=micro_batches, threads=1)
            (step,) = job.run("train", steps=1)
            self.assertAlmostEqual(step.loss, want, 5, f"{micro_batches} micro-batches, seed {SEED}")


    def test_a_label_outside_the_classes_is_an_error(self):
        """No label is ignored by default. Otherwise labels of -1 and 1 would train on one class."""
        def entropy(scores, y):
            return ht.models.mean_cross_entropy(scores, y, "seen")

        def weighted(scores, y):
            return ht.models.mean_cross_entropy(scores, y, "seen", weight=[1.0, 2.0])

        def sigmoid(scores, y):
            return ht.ops.sigmoid_cross_entropy(scores[:, 0], y, name="seen")

        def hits(scores, y):
            return ht.ops.top_k_hits(scores, y, k=1, name="seen")

        for labels, bad in (([1, -1, 1, -1], -1), ([0, 2, 1, 1], 2)):
            for of in (entropy, weighted, sigmoid, hits):
                with self.subTest(of=of.__name__, labels=labels):
                    ht.new_graph()
                    data = ht.data.Batches([{"x": np.ones((4, 2)), "y": np.array(labels)}], 4)
                    scores = ht.ops.linear(data.x, ht.parameter("w", np.eye(2)))
                    seen, total = of(scores, data.y), scores.sum()
                    job = ht.Executor({"see": [seen], "train": [ht.optim.SGD(0.1).minimize(total)]}, threads=1)
                    says = rf"'seen.*': label {bad} of field 'y' is outside \[0, 2\): row 1 of the batch"
                    with self.assertRaisesRegex(ValueError, says):
                        list(job.run("see"))


class LikeNumPy(unittest.TestCase):
    """Values in expressions with numbers, with arrays that become constants, and with vectors behave like NumPy."""

    def found(self, made, **given):
        """Returns each value that `made` makes of placeholders by name, and NumPy's result of the same function."""
        ht.new_graph()
        data = ht.data.Batches([given], len(next(iter(given.values()))))
        values = made(**{name: getattr(data, name) for name in given})
        loss = ht.step_mean(ht.nn.Linear(1, 1)(data.x.flatten(1)[:, :1]))
        job = ht.Executor({"train": [ht.optim.SGD(0.0).minimize(loss)], "predict": list(values.values())}, threads=1)
        return dict(zip(values, job.predict().values(), strict=True)), made(**given)

    def test_numpy_s_numbers_stand_on_either_side(self):
        x = np.random.default_rng(SEED).uniform(0.5, 2.0, (4, 3)).astype(np.float32)
        two = np.float32(2)
        found, wanted = self.found(lambda x: {
            "+": two + x, "-": two - x, "*": np.float64(2) * x, "/": two / x, "**": two ** x, "<": two < x, "<=": two <= x,
            ">": two > x, ">=": two >= x, "==": np.int64(1) == x, "!=": np.int64(1) != x, "behind": x - two,
            "by name": np.subtract(x, two)}, x=x)
        for name, want in wanted.items():
            np.testing.assert_allclose(found[name], want, rtol=1e-6, err_msg=f"{name} seed {SEED}")

    def test_vectors_are_multiplied_as_rows_and_columns(self):
        draw = np.random.default_rng(SEED)
        x, v, w = (draw.standard_normal(shape).astype(np.float32) for shape in ((4, 3, 5), (5,), (3,)))

        def made(x):
            ours = not isinstance(x, np.ndarray)
            left, right = (ht.constant(w), ht.constant(v)) if ours else (w, v)
            return {"x v": x @ right, "w x": left @ x, "(w x) v": (left @ x) @ right, "x (v v)": x * (right @ right)}

        found, wanted = self.found(made, x=x)
        for name, want in wanted.items():
            np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5, err_msg=f"{name} seed {SEED}")

    def test_the_standard_deviation(self):
        x = np.random.default_rng(SEED).standard_normal((4, 3, 5)).astype(np.float32)

        def made(x):
            ours = not isinstance(x, np.ndarray)
            return {(axis, less): x.std(axis, **{"correction" if ours else "ddof": less})
                    for axis in (1, (1, 2)) for less in (0, 1)}

        found, wanted = self.found(made, x=x)
        for name, want in wanted.items():
            np.testing.assert_allclose(found[name], want, rtol=1e-5, err_msg=f"{name} seed {SEED}")


class Integers(unittest.TestCase):
    def test_they_stay_integers(self):
        """A job's kernels give NumPy's integers, including overflow."""
        random = np.random.default_rng(SEED)
        a = random.integers(-2**31, 2**31, (8, 1, 3), np.int32)
        b = random.integers(-9, 9, (8, 4, 1), np.int32)
        ht.new_graph()
        data = ht.data.Batches([{"a": a, "b": b, "x": np.ones((8, 1), np.float32)}], 8)
        x, y = data.a, data.b
        made = {"x + y": x + y, "x - y": x - y, "x * y": x * y, "3 - y": 3 - y, "y * 2": y * 2, "-y": -y,
                "larger": ht.ops.maximum(x, y), "smaller": ht.ops.minimum(y, 3), "seen": x - y >= 0}
        with np.errstate(over="ignore"):
            wanted = {"x + y": a + b, "x - y": a - b, "x * y": a * b, "3 - y": 3 - b, "y * 2": b * 2, "-y": -b,
                      "larger": np.maximum(a, b), "smaller": np.minimum(b, 3), "seen": a - b >= 0}
        loss = ht.step_mean(ht.nn.Linear(1, 1)(data.x))
        job = ht.Executor({"train": [ht.optim.SGD(0.0).minimize(loss)], "predict": list(made.values())}, threads=1)
        found = job.predict()
        for (name, want), got in zip(wanted.items(), found.values(), strict=True):
            with self.subTest(name, seed=SEED):
                self.assertEqual(got.dtype, want.dtype)
                np.testing.assert_array_equal(got, want)

    def test_losses_take_them_as_targets(self):
        x, y = np.random.default_rng(SEED).standard_normal(6), np.array([0, 1, 1, 0, 1, 0])
        for loss, kinds in ((ht.models.mean_squared_error, 3), (ht.models.mean_absolute_error, 3), (ht.models.mean_huber, 3),
                            (ht.models.mean_binary_cross_entropy, 3), (ht.models.mean_cross_entropy, 2)):
            found = []
            for kind in (np.int64, bool, np.float64)[:kinds]:
                ht.new_graph()
                data = ht.data.Arrays(x=x, y=y.astype(kind), batch_size=6)
                w = ht.parameter("w", np.array([0.5, -1.0]))
                scores = data.x[:, None] * w
                value = loss(scores if kinds == 2 else scores[:, 0] + w.sum(), data.y)
                (step,) = ht.Executor({"train": [ht.optim.SGD(0.0).minimize(value)]}, threads=1).run()
                found.append(step.loss)
            self.assertEqual(len(set(found)), 1, loss.__name__)


class Page(unittest.TestCase):
    def test_its_lines_run(self):
        page = pathlib.Path(__file__).resolve().parents[3] / "docs" / "values.md"
        (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        ht.new_graph()
        names = {}
        exec(compile(code, str(page), "exec"), names)
        shapes = {"scores": [-1, 4, 4], "mask": [-1, 4, 4], "first": [-1, 6], "rest": [-1, 3, 3], "both": [-1, 8, 3],
                  "pairs": [-1, 4, 3, 2], "flat": [-1, 12, 2], "wide": [-1, 7, 6], "spread": [-1, 4], "top": [-1],
                  "total": [4, 6], "best": [-1, 4], "loss": []}
        self.assertEqual({name: names[name].shape for name in shapes}, shapes)
        self.assertEqual((names["mask"].dtype, names["best"].dtype), ("bool", "int32"))
        refused = re.sub(r"\s+", " ", re.search(r"`mine\.py:12: (.*?)`", page.read_text(), re.DOTALL)[1])
        with self.assertRaisesRegex(ValueError, re.escape(refused)):
            names["x"] + ht.parameter("five", [5], ht.graph.constant(0.0))


class Constants(unittest.TestCase):
    def test_they_hold_what_they_were_given(self):
        given = {"a": np.array([[1.5, -0.0, np.inf], [1e-40, 3.25, -2]]), "b": np.array([7, -9, 2**31 - 1]),
                 "c": [True, False]}
        for name, array in given.items():
            ht.new_graph()
            value = ht.constant(array)
            r = ht.parameter("r", value.shape, ht.graph.constant(0.0))
            _, slopes = gradients((value.cast("float32") * r).sum(), {"r": np.ones(np.shape(array))}, 1)
            want = np.asarray(array, np.float32 if name == "a" else np.int64)
            np.testing.assert_array_equal(slopes["r"], want.ravel(), name)

    def test_beside_values(self):
        ht.new_graph()
        x = ht.parameter("x", [2, 3], ht.graph.constant(0.0))
        y = ht.constant(np.arange(3.0)) * x
        found, slopes = gradients(y.sum(), {"x": np.ones((2, 3))}, 1)
        self.assertEqual((found, slopes["x"].tolist()), (6.0, [0, 1, 2, 0, 1, 2]))


class Parameters(unittest.TestCase):
    def test_one_starts_from_an_array(self):
        given = np.random.default_rng(SEED).standard_normal((3, 4))
        ht.new_graph()
        data = ht.data.Batches([{"x": np.ones((2, 4), np.float32)}], 2)
        loss = (ht.ops.linear(data.x, ht.parameter("w", given)) * ht.parameter("b", [3], ht.graph.constant(2.0))).sum()
        job = ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)]}, threads=1, compare_single=True)
        found = {name: array.copy() for name, state, array, _ in job.job.state() if not state}
        np.testing.assert_array_equal(found["w"], given.astype(np.float32).reshape(found["w"].shape), f"seed {SEED}")
        (step,) = job.run("train", steps=1)
        self.assertAlmostEqual(step.loss, 2 * 2 * float(given.sum()), 4)


class Traps(unittest.TestCase):
    def refused(self, says, make):
        x = ht.placeholder("x", "float32", [ht.BATCH, 3])
        ids = ht.placeholder("ids", "int32", [ht.BATCH, 4])
        with self.subTest(says), self.assertRaises(ValueError) as caught:
            make(x, ids)
        text = str(caught.exception)
        self.assertRegex(text, r"^value_test\.py:\d+: ")
        self.assertIn(says, text)
        self.assertNotIn("\n", text)

    def test_errors_of_operands_and_leaves_name_the_line(self):
        ht.new_graph()
        w = ht.parameter("w", [4], ht.graph.constant(0.0))
        for says, make in (
            ("add: the operand beside Value(float32[B, 3]) must be a Value or a number, got a str", lambda x, _: x + "1"),
            ("mul: the operand beside Value(float32[B, 3]) must be a Value or a number, got an array (numpy.ndarray)",
             lambda x, _: x * np.ones(3)),
            ("sub: the operand beside Value(float32[B, 3]) must be a Value or a number, got an array (numpy.ndarray)",
             lambda x, _: np.ones(3) - x),
            ("where: expected a Value or a number, got a list", lambda x, _: ht.where(x > 0, x, [1])),
            ("where 'where': condition is float32[B, 3], expected bool", lambda x, _: ht.where(x, x, 0)),
            ("relu: input 0 must be a Value, got an int", lambda *_: ht.ops.relu(3)),
            ("a float32[B, 3] and b float32[4] do not broadcast: 3 and 4 on axis 1 from the last", lambda x, _: x + w),
            ("a and b must have one dtype, float32 or int32, got float32[B, 3] and int32[B, 3]; use cast",
             lambda x, ids: x + ids[:, 1:]),
            ("x is int32[B, 4], expected float32", lambda _, ids: ids ** 2),
            ("less: Value(int32[B, 4]) can't be combined with the number 0.5; use .cast", lambda _, ids: ids < 0.5),
            ("the shape must be a list of integers, such as [2, 3], got an array of shape [2, 2]",
             lambda *_: ht.parameter("u", np.ones((2, 2)), ht.graph.constant(0.0))),
            ("parameter 'u': a shape needs init=", lambda *_: ht.parameter("u", [2, 2])),
            ("parameter 'u': expected an array of floats, got int64", lambda *_: ht.parameter("u", np.ones(3, np.int64))),
            ("the shape must be a list of integers, such as [2, 3], got 3",
             lambda *_: ht.parameter("u", 3, ht.graph.constant(0.0))),
            ("placeholder 'v': 'int64' is not supported; use float32, int32, bool (hetu.data.Batches converts arrays of",
             lambda *_: ht.placeholder("v", "int64", [ht.BATCH])),
            ("the shape must be a list of integers", lambda *_: ht.placeholder("v", "float32", [2.5])),
            ("parameter 'w': the name is taken", lambda *_: ht.parameter("w", [4], ht.graph.constant(0.0))),
        ):
            self.refused(says, make)

    def test_errors_of_indexing_and_functions_name_the_line(self):
        ht.new_graph()
        w = ht.parameter("w", [4], ht.graph.constant(0.0))
        for says, make in (
            ("it is neither true nor false while the graph is built", lambda x, _: x if x > 0 else -x),
            ("it is not a number while the graph is built", lambda x, _: float(x.sum())),
            ("has no length: its first axis is the batch", lambda x, _: list(x)),
            ("axis 0 of Value(float32[B, 3]) is the batch, which can't be divided: use x[:, ...]", lambda x, _: x[0]),
            ("index 3 is out of range for axis 1 of Value(float32[B, 3])", lambda x, _: x[:, 3]),
            ("has 2 axes; the key names 3", lambda x, _: x[:, 0, 0]),
            ("the step of slices of Value(float32[B, 3]) must be >= 1, got -1", lambda x, _: x[:, ::-1]),
            ("not by a Value (use hetu.ops.gather for a list of rows)", lambda x, ids: x[:, ids]),
            ("axis 0 of x float32[B, 3] is the batch, which is split into micro-batches", lambda x, _: x.mean()),
            ("x float32[B, 3] has 2 axes, there is no axis 2", lambda x, _: x.sum(axis=2)),
            ("split: [1, 1] add up to 2, but axis -1 of Value(float32[B, 3]) has length 3", lambda x, _: x.split([1, 1])),
            ("concat: expected a list of values", lambda x, _: ht.concat(x)),
            ("constant: expected floats, integers or bools, got <U1", lambda *_: ht.constant(["a"])),
            ("constant: 2147483648 is out of range for int32, -2147483648 to 2147483647",
             lambda *_: ht.constant([0, 2**31])),
            ("constant: the array has 33554432 bytes; a graph can hold at most 16777216",
             lambda *_: ht.constant(np.zeros(2**23))),
            ("constant: Value(float32[B, 3]) is already a Value", lambda x, _: ht.constant(x)),
            ("[B, 4] does not have as many elements as x float32[B, 3]", lambda x, _: x.reshape(-1, 4)),
            ("group_norm: groups must divide the channels, axis 1, of Value(float32[B, 3]), got 2",
             lambda x, _: ht.group_norm(x, 2)),
            ("group_norm: weight and bias of Value(float32[B, 3]) must be [3], got Value(float32[4])",
             lambda x, _: ht.group_norm(x, 1, w)),
            ("instance_norm: x must be [N, C, ...] with axes after the channels", lambda x, _: ht.instance_norm(x)),
            ("one_hot: ids must be int32, got Value(float32[B, 3])", lambda x, _: ht.one_hot(x, 3)),
            ("lstm: x must be [batch, steps, input], got Value(float32[B, 3])", lambda x, _: ht.lstm(x, w, w)),
            ("gru: w_hh must be [12, 4] for x Value(float32[B, 1, 3]) and a width of 4, got Value(float32[4])",
             lambda x, _: ht.gru(x[:, None], ht.constant(np.ones((12, 3))), w)),
            ("mean_cross_entropy: labels must be int32", lambda x, _: ht.models.mean_cross_entropy(x, x[:, 0])),
            ("mean_cross_entropy: weight must be float32[3], one per class, got Value(float32[2])",
             lambda x, ids: ht.models.mean_cross_entropy(x, ids[:, 0], weight=[1.0, 2.0])),
            ("mean_cross_entropy: smoothing must be in [0, 1], got 2",
             lambda x, ids: ht.models.mean_cross_entropy(x, ids[:, 0], smoothing=2)),
            ("mean_kl_divergence: expected values [batch, ...] of one shape",
             lambda x, _: ht.models.mean_kl_divergence(x, x[:, :2])),
            ("attention 'attention': kv_heads must divide the 2 heads, got 3",
             lambda x, ids: ht.ops.attention(*[ids.cast("float32").reshape(-1, 2, 2)] * 3, heads=2, kv_heads=3)),
            ("gather 'gather': the axes of ids int32[B, 3] must begin with [B, 4] to fit x int32[B, 4, 1]",
             lambda x, ids: ht.ops.gather(ids.reshape(-1, 4, 1), ids[:, :3], axis=2)),
            ("step_mean: Value(float32[4]) has no batch on its first axis; use .mean()", lambda *_: ht.step_mean(w)),
        ):
            self.refused(says, make)

    def test_a_value_of_another_graph(self):
        ht.new_graph()
        other = ht.placeholder("x", "float32", [2])
        ht.new_graph()
        self.refused("belongs to another graph (hetu.new_graph starts one)", lambda x, _: x[:, :2] + other)

    def test_a_script_ends_in_its_line(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "mine.py"
            script.write_text("import hetu as ht\nx = ht.placeholder('x', 'float32', [ht.BATCH, 3])\n"
                              "def model():\n    return ht.models.mean_cross_entropy(x, x + [1], 'm')\n"
                              "with ht.one_line_errors('mine.py'):\n    model()\n")
            done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertTrue(re.fullmatch(r"mine\.py:4: add: the operand beside Value\(float32\[B, 3\]\) must be "
                                     r"a Value or a number, got a list\n",
                                     done.stderr), done.stderr)


if __name__ == "__main__":
    unittest.main()
