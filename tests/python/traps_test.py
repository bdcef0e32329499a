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
        self.told = {}
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
        return ht.Executor(named or {"train": [self.loss, train]}, **{"threads": 1, **self.told})

    def with_options(self, **told):
        self.told = told
        return self

    def labelled(self, label):
        """A run whose second row has this label, of two classes."""
        ht.new_graph()
        data = ht.data.Arrays(x=np.ones((4, 2)), y=np.array([0, label, 1, 1]), batch_size=4, shuffle=False)
        loss = ht.models.mean_cross_entropy(ht.nn.Linear(2, 2)(data.x), data.y, "entropy")
        return list(ht.Executor({"train": [loss, ht.optim.SGD(0.1).minimize(loss)]}, threads=1).run())

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
    (ValueError, "parameter 'u': init is one of hetu.init, such as hetu.init.normal(0.02), got 0.1",
     lambda s: ht.parameter("u", [2, 3], 0.1)),
    (ValueError, "numpy.mean takes arrays, and a Value is computed when the graph runs", lambda s: np.mean(s.data.x)),
    # Asking for what is not there.
    (AttributeError, "a Value has no 'view'; here it is .reshape", lambda s: s.data.x.view(4)),
    (AttributeError, "a Value has no 'sigmoid'; hetu.ops.sigmoid is a function of values", lambda s: s.data.x.sigmoid()),
    (AttributeError, "a Value has no 'unsqeeze'; did you mean .unsqueeze?", lambda s: s.data.x.unsqeeze(1)),
    (AttributeError, "hetu.ops has no 'rellu'; did you mean relu", lambda s: ht.ops.rellu(s.data.x)),
    (ValueError, "model 'gpt3' is neither one of gpt2, ", lambda s: ht.models.Gpt.from_config("gpt3")),
    (ValueError, "GptConfig has no layers; it has vocab_size, ", lambda s: ht.models.Gpt.from_config("tiny", layers=3)),
    (OSError, "none.safetensors: cannot be read: No such file", lambda s: ht.load_weights("none.safetensors")),
    (OSError, "none: holds no checkpoint", lambda s: ht.load("none")),
    (ValueError, "Executor: lists of values by name are wanted, such as {'train': [loss, train]}, got [",
     lambda s: ht.Executor([s.loss])),
    # Options, in the words of Python.
    (ValueError, "unknown method '1f1'; known here: gpipe, 1f1b", lambda s: s.with_options(pipeline="1f1").job()),
    (ValueError, "batch_size 4 is not divided by micro_batches 3; choose a multiple of 3",
     lambda s: s.with_options(micro_batches=3).job()),
    (ValueError, "unknown option microbatches; did you mean 'micro_batches'?; help(hetu.Executor) lists them",
     lambda s: s.with_options(microbatches=2).job()),
    (ValueError, "devices none: no such list; the file defines ", lambda s: s.with_options(devices="none").job()),
    (ValueError, "learning_rate must be >= 0, got -1", lambda s: ht.Executor([*map(lambda t: {"train": [t]}, [
        ht.optim.SGD(-1.0).minimize(s.loss)])][0])),
    (ValueError, "Arrays: batch_size must be a whole number >= 1, got 2.0", lambda s: ht.data.Arrays(2.0, x=np.ones(3))),
    (ValueError, "batches: item 0 is a tuple; give a dict", lambda s: ht.data.Batches([(np.ones(3),)], 3)),
    (ValueError, "the graph must read from one data object, it reads from 2",
     lambda s: ht.Executor({"train": [ht.optim.SGD(0.1).minimize(
         s.loss + ht.step_mean(ht.data.Arrays(z=np.ones(4), batch_size=4).z))]})),
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
    (KeyError, "this step reports no 'hits'; its list has: loss", lambda s: s.step()["hits"]),
    (KeyError, "this step reports no 'hits'; its list has: nothing of this kind", lambda s: s.step().samples_of["hits"]),
    (ValueError, "arrays by field are wanted, such as {'x': rows}, or a data object of hetu.data; got an array",
     lambda s: s.job(train=["train"], predict=[s.scores]).predict(np.ones((3, 2)))),
    # What a run meets.
    (ValueError, "'entropy.cross_entropy': index 2 at position 1 is outside [0, 2)", lambda s: s.labelled(2)),
    (FileNotFoundError, "none/log.csv", lambda s: list(s.job().run(hooks=[ht.hooks.Log("none/log.csv")]))),
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
            text = str(caught.exception) if kind is not KeyError else caught.exception.args[0]
            with self.subTest(says):
                self.assertIn(says, text)
                self.assertNotIn("\n", text)
                if kind is not FileNotFoundError:  # Python's own, which names the file
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
