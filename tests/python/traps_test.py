"""What new users fall over is one line that names the place in their script and what would be right. Values: value_test.py;
rows of one's own: rows_test.py; here what is asked of data, models and jobs."""

import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hetu as ht


class Setting:
    """A model of one layer, as a script would have it."""

    def __init__(self):
        ht.new_graph()
        self.data = ht.data.Arrays(x=np.ones((8, 2)), y=np.ones(8), batch_size=4)
        self.scores = ht.ops.linear(self.data.x, ht.parameter("w", [1, 2], ht.graph.constant(1.0)), name="scores")
        self.loss = ht.step_mean((self.scores[:, 0] - self.data.y) ** 2, name="loss")

    def minimized(self):
        return ht.optim.SGD(0.0).minimize(self.loss)

    def job(self, **lists):
        train = self.minimized()
        named = {name: [train if isinstance(one, str) and one == "train" else one for one in items]
                 for name, items in lists.items()}
        return ht.Executor(named or {"train": [self.loss, train]}, threads=1)

    def step(self):
        (step,) = self.job().run()
        return step


def other_graph():
    value = Setting().loss
    ht.new_graph()
    return value


TRAPS = (
    # A number that is no Value, an array where a shape is meant.
    (ValueError, "minimize: the Value of a loss is wanted, got a float", lambda s: ht.optim.SGD(0.1).minimize(0.5)),
    (ValueError, "linear: input 1 must be a hetu Value, got ndarray", lambda s: ht.ops.linear(s.data.x, np.ones((1, 2)))),
    (ValueError, "parameter 'u': a shape is wanted, a list of integers such as [2, 3], got an array of shape [2]",
     lambda s: ht.parameter("u", np.array([2, 3]), ht.graph.constant(0.0))),
    (ValueError, "differentiate: 'scores' is float32[B, 1]; a loss is a float32 scalar",
     lambda s: ht.optim.SGD(0.1).minimize(s.scores)),
    # Asking for what is not there.
    (AttributeError, "Arrays has no field or attribute 'z'; its fields: x, y", lambda s: s.data.z),
    (ValueError, "fetches 'train': 'loss' is neither a value nor what minimize() returns",
     lambda s: s.job(train=["loss", "train"])),
    (ValueError, "fetches 'train': a list of values is wanted, got 'train'", lambda s: ht.Executor({"train": "train"})),
    (ValueError, "exactly one minimize() handle is needed among the fetches, got 0",
     lambda s: ht.Executor({"train": [s.loss]})),
    (ValueError, "fetches 'look': a value of another graph than the one that is trained",
     lambda s: s.job(train=["train"], look=[other_graph()])),
    (ValueError, "no fetches called 'test'; there are: train", lambda s: s.job().run("test")),
    (KeyError, "this step reports no 'hits'; its list has: loss", lambda s: s.step().scalars["hits"]),
    (ValueError, "weights: the model has no 'v'; it has: w", lambda s: s.job().weights(["v"])),
    # A name twice.
    (ValueError, "parameter 'w': the name is taken", lambda s: ht.parameter("w", [2], ht.graph.constant(0.0))),
    (ValueError, "fetch 'loss': the name is taken by 'loss'",
     lambda s: [ht.graph.current().fetch("loss", value) for value in (s.loss, s.scores.sum())]),
    (ValueError, "differentiate: ", lambda s: [s.minimized(), s.minimized()]),
    # A dataset whose length does not fit.
    (ValueError, "Arrays: fields of one length are wanted, got x of 3 rows, y of 2 rows",
     lambda s: ht.data.Arrays(x=np.ones(3), y=np.ones(2), batch_size=1)),
    (ValueError, "a global batch of 9 rows is not so many for each of 2 pipelines",
     lambda s: __import__("dataclasses").replace(ht.job_info(), pipelines=2).batch_size(9)),
)


class Traps(unittest.TestCase):
    def test_one_line_that_names_the_place(self):
        for kind, says, make in TRAPS:
            setting = Setting()
            with self.subTest(says), self.assertRaises(kind) as caught:
                make(setting)
            text = str(caught.exception)
            self.assertIn(says, text)
            self.assertNotIn("\n", text)
            if kind is not KeyError:  # of a dict, with Python's own traceback
                self.assertRegex(text, r"^traps_test\.py:\d+: ")

    def test_rows_that_are_too_few_for_a_batch(self):
        ht.new_graph()
        data = ht.data.Arrays(x=np.ones((3, 2)), batch_size=4)
        loss = ht.step_mean(ht.ops.linear(data.x, ht.parameter("w", [1, 2], ht.graph.constant(1.0))))
        says = r"^traps_test\.py:\d+: Arrays: 3 rows are fewer than one global batch, 1 pipelines x 4"
        with self.assertRaisesRegex(ValueError, says):
            ht.Executor({"train": [ht.optim.SGD(0.1).minimize(loss)]}, threads=1)

    def test_a_script_ends_in_its_line(self):
        script = ("import numpy as np\nimport hetu as ht\n"
                  "with ht.one_line_errors('mine.py'):\n"
                  "    data = ht.data.Arrays(x=np.ones(3), y=np.ones(2), batch_size=1)\n")
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/mine.py"
            with open(path, "w") as file:
                file.write(script)
            done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr),
                         (2, "mine.py: mine.py:4: Arrays: fields of one length are wanted, got x of 3 rows, y of 2 rows\n"))


if __name__ == "__main__":
    unittest.main()
