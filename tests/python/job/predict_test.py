"""Prediction.

Every value of every sample comes in the order of the data. Several pipelines and stages give the bits of one process, also
with a short last batch. Saved models give the same bits in one process, in Python and in C++."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hetu as ht
import predict_cases as cases
from train_cases import HETURUN, MANY_S

SCRIPT = pathlib.Path(cases.__file__)
PROGRAM = pathlib.Path(os.environ["HETU_BUILD_DIR"]) / "bin" / "example_predict"
JOBS = [("pipe_2_2", 2, "gpipe", 4), ("pipe_1_4", 1, "1f1b", 4), ("pipe_1_2", 1, "chimera", 2),
        ("pipe_1_4", 1, "pipedream", 4)]
PARTS = ["logits", "maps", "best", "positive", "parts"]  # fetches of the saved model


def one_process(folder):
    """Returns a trained job, and its values. The job has saved a checkpoint."""
    job, values = cases.build()
    list(job.run("train", steps=cases.TRAINED, checkpoint=f"{folder}/checkpoint"))
    return job, values


class Bits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.held.name)
        cls.job, _ = one_process(cls.folder)
        cls.one = cases.results(cls.job)
        cls.job.save(cls.folder / "one", fetches=PARTS)

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    def test_one_process(self):
        """Values agree with each other and with NumPy, and rows don't depend on the size of the batch."""
        rows, given = cases.ROWS, cases.arrays()
        for name, shape in cases.SHAPES.items():
            self.assertEqual((self.one[name].shape, str(self.one[name].dtype)),
                             ((rows, *shape), cases.DTYPES.get(name, "float32")), name)
        self.assertEqual((self.one["parts"].shape, self.one["few/parts"].shape), ((4 * rows, 4), (4 * cases.FEW, 4)))
        np.testing.assert_array_equal(self.one["row"], np.arange(rows))
        np.testing.assert_array_equal(self.one["few/logits"], self.one["logits"][:cases.FEW])
        np.testing.assert_array_equal(self.one["best"], self.one["logits"].argmax(1))
        np.testing.assert_array_equal(self.one["positive"], self.one["logits"] > 0)
        np.testing.assert_array_equal(self.one["hidden"], np.maximum(self.one["maps"], 0))
        hits = (self.one["best"] == given["y"]).sum()
        self.assertEqual((self.one["evaluate/hits"], self.one["evaluate/accuracy"], self.one["evaluate/share"]),
                         (hits, hits / rows, hits / rows))
        shifted = self.one["logits"] - self.one["logits"].max(1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(rows), given["y"]]
        self.assertAlmostEqual(self.one["evaluate/loss"], float(losses.mean()), 5)
        state = {name: np.array(array) for name, kind, array, _ in self.job.job.state() if not kind}
        padded, channels = np.pad(given["x"], [(0, 0), (0, 0), (1, 1), (1, 1)]), [8, 1, 1]
        maps = sum(np.einsum("nchw,oc->nohw", padded[:, :, i:i + 5, j:j + 4], state["conv"][:, :, i, j])
                   for i in range(3) for j in range(3)) - state["maps.mean"].reshape(channels)
        maps *= (state["maps.w"] / np.sqrt(state["maps.var"] + 1e-5)).reshape(channels)
        np.testing.assert_allclose(self.one["maps"], maps + state["maps.b"].reshape(channels), rtol=1e-4, atol=1e-5)
        # Arrays without labels, and fewer rows than a batch: predictions of a subset are the first ones of the full set.
        for count in (1, 2, 3, 8, 9, rows):
            found = self.job.predict({"x": given["x"][:count]}, run="plain")
            np.testing.assert_array_equal(found, self.one["logits"][:count], str(count))

    def test_training_goes_on_as_if_nothing_was_predicted(self):
        losses = []
        for predicts in (False, True):
            job, _ = cases.build()
            for _ in range(3):
                losses += [step.loss for step in job.run("train", steps=1)]
                if predicts:
                    job.predict({"x": cases.arrays()["x"]}, run="plain")
        self.assertEqual(losses[:3], losses[3:])

    def test_jobs_of_several_workers(self):
        path = os.pathsep.join([str(SCRIPT.parent), os.environ.get("PYTHONPATH", "")])
        for devices, pipelines, method, workers in JOBS:
            with self.subTest(devices=devices, method=method):
                done = subprocess.run([*HETURUN, "-w", str(workers), sys.executable, SCRIPT, self.folder, devices,
                                       str(pipelines), method], capture_output=True, text=True, timeout=MANY_S,
                                      env={**os.environ, "PYTHONPATH": path})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                for worker in range(workers):
                    found = np.load(self.folder / f"{devices}-{method}-{worker}.npz")
                    self.assertEqual(set(found), set(self.one))
                    for name, values in self.one.items():
                        # The loss under its two names; one micro-batch has another size.
                        if method == "pipedream" and name in ("evaluate/loss", "evaluate/mean"):
                            self.assertAlmostEqual(float(found[name]), float(values), 6)
                        else:
                            np.testing.assert_array_equal(found[name], values, name)
                model = ht.load(self.folder / f"{devices}-{method}")
                self.check(model(x=cases.arrays()["x"]), self.one)

    def check(self, found, wanted):
        self.assertEqual(set(found), set(PARTS))
        for name in PARTS:
            self.assertEqual(found[name].dtype, wanted[name].dtype)
            np.testing.assert_array_equal(found[name], wanted[name], name)

    def test_a_saved_model_in_python(self):
        model, x = ht.load(self.folder / "one"), cases.arrays()["x"]
        self.assertEqual((model.rows, model.fields), (cases.MICRO, {"x": ("float32", [-1, 2, 5, 4])}))
        self.assertEqual(model.outputs["parts"], ("float32", [-4, 4]))
        for rows in (cases.ROWS, 1, 2, 5):
            self.check(model(x[:rows]), {name: self.one[name][:rows * 4 if name == "parts" else rows] for name in PARTS})
        self.assertEqual({name: array.shape[0] for name, array in model(x=x[:0]).items()}, dict.fromkeys(PARTS, 0))
        for rows in (1, 3, 64):  # other batch sizes give the same result except for the last bits
            for name, values in ht.load(self.folder / "one", rows=rows)(x=x).items():
                np.testing.assert_allclose(values, self.one[name], rtol=1e-5, atol=1e-6, err_msg=name)
        for word in ("softmax_cross_entropy", "grad", "placeholder \"y\"", "start="):
            self.assertNotIn(word, str(model.model))

    def test_a_saved_model_in_cpp(self):
        with tempfile.TemporaryDirectory() as folder:
            cases.arrays()["x"].tofile(f"{folder}/x.bin")
            done = subprocess.run([PROGRAM, self.folder / "one", str(cases.ROWS), folder, folder], capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.check({name: np.fromfile(f"{folder}/{name}.bin", self.one[name].dtype).reshape(self.one[name].shape)
                        for name in PARTS}, self.one)
            self.assertIn(f"logits float32[{cases.ROWS}, 3]", done.stdout)
            linked = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
            self.assertNotIn("libmpi", linked)

    def test_a_model_of_a_checkpoint(self):
        _, values = cases.build()
        ht.new_graph()
        with tempfile.TemporaryDirectory() as folder:
            hidden = ht.placeholder("deep", "float32", [ht.BATCH, 16])
            logits = ht.ops.linear(hidden, cases.weight("out", 3, 16), name="logits")
            ht.save(folder, [logits], checkpoint=self.folder / "checkpoint", rows=4)
            x = np.ones((7, 16), np.float32)
            found = ht.load(folder)(x)
            self.assertEqual(found.shape, (7, 3))
            weight = ht.load(folder)(np.eye(16, dtype=np.float32)).T
            np.testing.assert_allclose(found, x @ weight.T, rtol=1e-5)
            other = ht.ops.linear(hidden, cases.weight("none", 3, 16))
            with self.assertRaisesRegex(OSError, "has no 'none'; the checkpoint belongs to another model"):
                ht.save(folder, [other], checkpoint=self.folder / "checkpoint")


class Replaced(unittest.TestCase):
    """A save replaces the previous model, whatever the steps of the two."""

    def trained(self, steps, sign, checkpoint=None):
        """Returns a job that has learnt y = sign * x, its output, and its prediction for 1."""
        ht.new_graph()
        x = np.random.default_rng(0).standard_normal((64, 1)).astype(np.float32)
        data = ht.data.Arrays(x=x, y=sign * x, batch_size=32, seed=0)
        out = ht.nn.Linear(1, 1)(data.x)
        loss = ht.models.mean_squared_error(out, data.y, "loss")
        job = ht.Executor({"train": [loss, ht.optim.Adam(0.1).minimize(loss)], "predict": [out]}, threads=1)
        list(job.run("train", steps=steps, checkpoint=checkpoint))
        return job, out, job.predict({"x": np.ones((1, 1), np.float32)})

    def test_by_a_job_and_from_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            model = f"{folder}/model"
            for number, (steps, sign) in enumerate(((20, 1), (10, -1), (10, 1), (30, -1))):
                with self.subTest(steps=steps, sign=sign):
                    checkpoint = f"{folder}/checkpoint-{number}"
                    job, out, wanted = self.trained(steps, sign, checkpoint)
                    job.save(model)
                    np.testing.assert_array_equal(ht.load(model)(x=np.ones((1, 1), np.float32)), wanted)
                    ht.save(f"{folder}/other", [out], checkpoint)
                    np.testing.assert_array_equal(ht.load(f"{folder}/other")(x=np.ones((1, 1), np.float32)), wanted)
                    self.assertEqual(len(os.listdir(model)), 1)

    def test_under_given_names(self):
        with tempfile.TemporaryDirectory() as folder:
            job, out, wanted = self.trained(3, 1, f"{folder}/checkpoint")
            job.save(f"{folder}/job", fetches={"answer": out})
            ht.save(f"{folder}/script", {"answer": out}, f"{folder}/checkpoint")
            for name in ("job", "script"):
                model = ht.load(f"{folder}/{name}")
                self.assertEqual(repr(model), "Predictor(x float32[B, 1] -> answer float32[B, 1])")
                np.testing.assert_array_equal(model(x=np.ones((1, 1), np.float32)), wanted)
            job.save(f"{folder}/two", fetches={"again": out, "answer": out.name})
            found = ht.load(f"{folder}/two")(x=np.ones((1, 1), np.float32))
            self.assertEqual(found, {"again": wanted, "answer": wanted})

    def test_a_file_is_no_folder(self):
        job, *_ = self.trained(1, 1)
        says = r"^predict_test\.py:\d+: .*Not a directory"
        with tempfile.NamedTemporaryFile() as file, self.assertRaisesRegex(OSError, says):
            job.save(file.name)

    def test_a_training_s_checkpoints_are_not_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            job, out, _ = self.trained(3, 1, folder)
            there = sorted(os.listdir(folder))
            for save in (lambda: job.save(folder), lambda: ht.save(folder, [out], folder)):
                with self.assertRaisesRegex(OSError, "holds a checkpoint, not a saved model .* choose another folder"):
                    save()
            self.assertEqual(sorted(os.listdir(folder)), there)

    def test_a_model_is_not_replaced_by_a_broken_one(self):
        """The weights of the checkpoint are compared with the graph before the old model is touched."""
        def output(width, name="net"):
            ht.new_graph()
            data = ht.data.Arrays(x=np.ones((32, 1)), y=np.ones((32, 1)), batch_size=32)
            net = ht.nn.Sequential(ht.nn.Linear(1, width), ht.nn.Linear(width, 1)).named(name)
            return data, net(data.x)

        with tempfile.TemporaryDirectory() as folder:
            data, out = output(4)
            loss = ht.models.mean_squared_error(out, data.y)
            job = ht.Executor({"train": [ht.optim.SGD(0.1).minimize(loss)]}, threads=1)
            list(job.run("train", steps=1, checkpoint=f"{folder}/checkpoint"))
            ht.save(f"{folder}/model", [out], f"{folder}/checkpoint")
            wanted = ht.load(f"{folder}/model")(x=np.ones((1, 1)))
            for width, name, says in ((5, "net", r"'net.0.bias' is \[4\], but the model expects \[5\]; nothing is saved"),
                                      (4, "other", "has no 'other.0.bias'; the checkpoint belongs to another model")):
                out = output(width, name)[1]
                with self.subTest(says), self.assertRaisesRegex(OSError, rf"^predict_test\.py:\d+: save: .*{says}"):
                    ht.save(f"{folder}/model", [out], f"{folder}/checkpoint")
                np.testing.assert_array_equal(ht.load(f"{folder}/model")(x=np.ones((1, 1))), wanted)

    def test_a_training_does_not_hide_a_model(self):
        """Checkpoints beside a model would have higher steps, and readers would take them for the model."""
        with tempfile.TemporaryDirectory() as folder:
            job, _, wanted = self.trained(3, 1)
            job.save(folder)
            there = sorted(os.listdir(folder))
            for resume in (False, True):
                job, *_ = self.trained(5, 1)
                with self.subTest(resume=resume), self.assertRaisesRegex(
                        OSError, r"^predict_test\.py:\d+: .* holds a saved model, which a training can't resume from or "
                                 r"save beside .*; choose another folder for the checkpoints"):
                    list(job.run("train", steps=3, checkpoint=folder, resume=resume))
                self.assertEqual(sorted(os.listdir(folder)), there)
            np.testing.assert_array_equal(ht.load(folder)(x=np.ones((1, 1), np.float32)), wanted)
            ht.new_graph()
            ht.nn.Linear(1, 1)(ht.data.Arrays(x=np.ones((4, 1)), batch_size=4).x)
            with self.assertRaisesRegex(OSError, "holds a saved model or checkpoints of Hetu .*, not a weight file; write "
                                        "one with `hetu checkpoint export .* -o weights.safetensors`"):
                ht.load_weights(folder)


class State(unittest.TestCase):
    def test_a_cache_of_keys_and_values(self):
        """Decoding one token at a time with a cache equals computing all tokens at once under a causal mask, with the same
        weights."""
        rows, length, width = 2, 6, 8
        random = np.random.default_rng(5)
        x = random.standard_normal((rows, length, width)).astype(np.float32)

        def keys_and_values(x):
            return [ht.ops.linear(x, cases.weight(name, width, width), name=name) for name in ("q", "k", "v")]

        def attended(q, k, v, mask):
            scores = ht.where(mask, q @ k.swapaxes(-1, -2) * width ** -0.5, -1e9)
            return (scores - scores.logsumexp(-1, keepdims=True)).exp() @ v

        with tempfile.TemporaryDirectory() as folder:
            ht.new_graph()
            data = ht.data.Batches([{"x": x}], rows)
            q, k, v = keys_and_values(data.x)
            whole = attended(q, k, v, ht.constant(np.tril(np.ones((length, length), dtype=bool)))) * 1.0
            train = ht.optim.SGD(0.1).minimize(ht.step_mean(whole ** 2))
            job = ht.Executor({"train": [train], "predict": [whole]}, threads=1)
            list(job.run("train", steps=1))
            wanted = job.predict()
            job.save(f"{folder}/model")

            ht.new_graph()
            q, k, v = keys_and_values(ht.placeholder("x", "float32", [ht.BATCH, 1, width]))
            here = ht.placeholder("here", "bool", [ht.BATCH, length, 1])  # the position of this token
            seen = ht.placeholder("seen", "bool", [ht.BATCH, 1, length])  # the positions so far
            past = [ht.placeholder(f"past_{name}", "float32", [ht.BATCH, length, width]) for name in "kv"]
            now = [ht.where(here, new, old) for new, old in zip((k, v), past, strict=True)]
            values = [attended(q, *now, seen) * 1.0, *(value * 1.0 for value in now)]
            names = [ht.graph.current().builder.producer_of(value.number)[0] for value in values]
            ht.save(f"{folder}/step", values, checkpoint=f"{folder}/model", rows=rows)
            model = ht.load(f"{folder}/step", threads=1)
            model.carry({names[1]: "past_k", names[2]: "past_v"})
            for _ in range(2):
                for t in range(length):
                    places = np.arange(length)
                    found = model(x=x[:, t:t + 1], here=np.tile((places == t)[:, None], (rows, 1, 1)),
                                  seen=np.tile(places <= t, (rows, 1, 1)))
                    np.testing.assert_allclose(found[:, 0], wanted[:, t], rtol=1e-5, atol=1e-6)
                model.reset()


class Page(unittest.TestCase):
    def test_its_lines_run(self):
        page = pathlib.Path(__file__).resolve().parents[3] / "docs" / "predict.md"
        (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        # Keeps the result of evaluate(), to check the sizes that the page states.
        code = code.replace("job.evaluate(", "measured = job.evaluate(")
        names, here = {}, os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                ht.new_graph()
                exec(compile(code, str(page), "exec"), names)
            finally:
                os.chdir(here)
        self.assertEqual({name: (array.shape, str(array.dtype)) for name, array in names["found"].items()},
                         {"logits": ((1003, 2), "float32"), "argmax": ((1003,), "int32"), "hidden": ((1003, 16), "float32")})
        measured = names["measured"]
        self.assertEqual(set(measured), {"loss", "entropy", "hits", "accuracy", "error"})
        self.assertAlmostEqual(measured["accuracy"] + measured["error"], 1, 12)
        self.assertGreater(measured["accuracy"], 0.95)
        self.assertEqual(repr(names["model"]), re.search(r"# (Predictor\(.*?\))\n", code)[1])


class Refusals(unittest.TestCase):
    """Errors of one line each, with the place in the script."""

    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.held.name)
        cls.job, cls.values = one_process(cls.folder)
        cls.job.save(cls.folder / "model", fetches=["logits"])

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    def refused(self, call, why, kind=ValueError):
        with self.assertRaisesRegex(kind, why) as seen:
            call()
        self.assertNotIn("\n", str(seen.exception))
        if kind is ValueError:
            self.assertRegex(str(seen.exception), r"^predict_test\.py:\d+: ")

    def test_predictions(self):
        job, x = self.job, cases.arrays()["x"]
        other = cases.build()[1]["logits"]
        for call, why in [
            (lambda: job.predict(run="nope"), "no fetches called 'nope'; there are: train, predict, plain, evaluate"),
            (lambda: job.predict(run="train"), "predict: run 'train' trains; choose a list without minimize"),
            (lambda: job.predict(fetches=["nope"]),
             r"predict: 'nope' is in no list of the Executor that predicts; add a list without minimize\(\), such as "
             r'"predict": \[nope\]'),
            (lambda: job.predict(fetches=[other]), r"predict: Value\(float32\[B, 3\]\) belongs to another graph"),
            (lambda: job.predict(fetches=[self.values["deep"]], run="plain"), "'deep_1' is in no list of the Executor"),
            (lambda: job.predict(fetches=["maps"], run="plain"),
             "predict: 'maps' is not in the list 'plain', but in 'predict'; leave run= out, or name that list"),
            (lambda: job.predict(fetches=["maps", "y"]), "predict: no list of the Executor has all of maps, y; add one"),
            (lambda: job.predict(fetches=["hits"]), "predict: 'hits' has no batch axis, so it has no value per sample"),
            (lambda: job.predict(fetches="maps"), r"fetches must be a list of values, such as \[logits\], got 'maps'"),
            (lambda: job.save(self.folder / "x", fetches={3: "logits"}), "fetches: a dict names the outputs, .*; 3 is not"),
            (lambda: job.predict({"z": x}, run="plain"), "run 'plain' reads field 'x', but the data have only z"),
            (lambda: job.predict({"x": x[:, :1]}, run="plain"),
             r"field 'x' is float32 rows of shape \[1, 5, 4\], the graph reads float32 rows of shape \[2, 5, 4\]"),
            (lambda: job.predict({"x": x.astype(np.complex64)}, run="plain"),
             "field 'x': complex64 can't be converted to float32"),
            (lambda: job.predict({"x": x, "y": x[:3]}),
             r"the same number of rows, at least one; they have \{'x': 37, 'y': 3\}"),
            (lambda: job.predict({"x": x[:0]}), "the same number of rows, at least one"),
            (lambda: job.predict(cases.data_of(cases.arrays(), 4)), "the data have batches of 4 samples, the job needs 8"),
            (lambda: job.evaluate(metrics={"a": "nope"}),
             "metric 'a' is made of 'nope', which is not a scalar of the list 'evaluate'; its scalars are mean, hits"),
            (lambda: job.evaluate(metrics={"a": ("hits", "nope")}), "metric 'a' is made of 'nope'"),
            (lambda: job.save(self.folder, fetches=["y"], run="evaluate2"), "no fetches called 'evaluate2'"),
        ]:
            with self.subTest(why=why):
                self.refused(call, why)

    def test_arrays_are_made_what_the_graph_reads(self):
        x, model = np.round(cases.arrays()["x"]), ht.load(self.folder / "model")
        want, saved = self.job.predict({"x": x}, run="plain"), model(x=x)
        for dtype in (np.float64, np.int64, np.int8):
            np.testing.assert_equal(self.job.predict({"x": x.astype(dtype)}, run="plain"), want)
            np.testing.assert_equal(model(x=x.astype(dtype)), saved)

    def test_what_a_predictor_is_given(self):
        model, x = ht.load(self.folder / "model"), cases.arrays()["x"]
        for call, why in [
            (lambda: model(z=x), r"the model reads no field 'z'; it reads 'x' float32\[B, 2, 5, 4\]"),
            (lambda: model(), r"field 'x' is missing; the model reads 'x' float32"),
            (lambda: model(x, x), "give arrays by name: x="),
            (lambda: model(x.astype(np.complex64)), "field 'x': complex64 can't be converted to float32"),
            (lambda: model(x=x[:, 0]), r"field 'x' is float32\[37, 5, 4\], but the model reads float32\[B, 2, 5, 4\]"),
            (lambda: model(x=np.array(["a"] * 37)), r"field 'x': it holds text \('a' in row 0\); give numbers"),
        ]:
            with self.subTest(why=why):
                self.refused(call, why)

    def test_folders_that_hold_no_model(self):
        good = self.folder / "model" / f"step-{cases.TRAINED:08}"
        with tempfile.TemporaryDirectory() as other:
            broken = pathlib.Path(other) / good.name
            for spoil, why in [
                (lambda: None, "holds no checkpoint"),
                (lambda: broken.mkdir() or (broken / "manifest.json").write_text("{}"), "not a manifest, or damaged"),
                (lambda: copy(good, broken, graph=lambda text: text.replace("gelu", "relu")),
                 "graph.txt: its checksum is .*, the manifest states .*; the file is damaged"),
                (lambda: copy(good, broken, version=2),
                 "the model has version 2, but this build reads version 1; save it again"),
                (lambda: copy(good, broken) or (broken / "graph.txt").unlink(), "graph.txt: cannot be opened"),
                (lambda: copy(good, broken) or (broken / "stage-0.safetensors").write_bytes(b"12"), "stage-0.safetensors"),
            ]:
                spoil()
                with self.subTest(why=why):
                    self.refused(lambda: ht.load(other), why, OSError)
        self.refused(lambda: ht.load(self.folder / "checkpoint"),
                     "this checkpoint has no graph; save the model with job.save", OSError)
        self.refused(lambda: ht.load("/nowhere/at/all"), "/nowhere/at/all: holds no checkpoint", OSError)
        done = subprocess.run([PROGRAM, self.folder / "checkpoint", "1", ".", "."], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (4, 1), done.stderr)


class FewRows(unittest.TestCase):
    """Fewer rows than the batch of one pipeline, so that other pipelines have none."""

    def build(self, devices=None, pipelines=1, method="gpipe"):
        ht.new_graph()
        given = cases.arrays(64)
        data = ht.data.Arrays(x=given["x"].reshape(64, 40)[:, :4], y=given["y"], batch_size=cases.BATCH // pipelines)
        value = data.x
        for i in range(4):
            value = ht.ops.tanh(ht.ops.linear(value, cases.weight(f"w{i}", 4, 4)))
            ht.cut()
        logits = ht.ops.linear(value, cases.weight("out", 3, 4), name="logits")
        loss = ht.models.mean_cross_entropy(logits, data.y, "mean")
        fetches = {"train": [loss, ht.optim.SGD(0.1).minimize(loss)], "predict": [logits], "evaluate": [loss]}
        return ht.Executor(fetches, devices, method, 4 // pipelines, threads=1), logits

    def test_several_pipelines(self):
        given = cases.arrays(20)
        x, y = given["x"].reshape(20, 40)[:, :4], given["y"]
        alone, logits = self.build()
        for devices, pipelines, method in (("threads:2x1", 2, "gpipe"), ("threads:2x2", 2, "1f1b"),
                                           ("threads:2x2", 2, "chimera"),
                                           ("threads:4x1", 4, "gpipe")):
            job, of_job = self.build(devices, pipelines, method)
            for rows in (1, 2, 3, 5, 7, 8, 9, 20):
                with self.subTest(devices=devices, method=method, rows=rows):
                    np.testing.assert_array_equal(job.predict({"x": x[:rows]}, fetches=[of_job]),
                                                  alone.predict({"x": x[:rows]}, fetches=[logits]))
                    np.testing.assert_array_equal(job.predict({"x": x[:rows], "y": y[:rows]}),
                                                  alone.predict({"x": x[:rows], "y": y[:rows]}))
                    self.assertAlmostEqual(job.evaluate({"x": x[:rows], "y": y[:rows]})["loss"],
                                           alone.evaluate({"x": x[:rows], "y": y[:rows]})["loss"], 6)


class Means(unittest.TestCase):
    """Batches in which no row counts for the mean."""

    def test_a_batch_of_ignored_labels(self):
        losses = []
        for each in (6, 3, 2, 1):
            ht.new_graph()
            x, y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, -1, -1, 1, 1, -1], np.int32)
            data = ht.data.Arrays(x=x, y=y, batch_size=each, shuffle=False)
            logits = ht.ops.linear(data.x, cases.weight("w", 2, 2), name="logits")
            loss = ht.models.mean_cross_entropy(logits, data.y, "loss", ignore=-1)
            job = ht.Executor({"train": [loss, ht.optim.SGD(0.1).minimize(loss)], "evaluate": [loss]}, threads=1)
            losses.append(job.evaluate(data)["loss"])
            none = job.evaluate({"x": x, "y": np.full(6, -1, np.int32)}, metrics={"share": ("loss", "loss")})
            self.assertTrue(np.isnan(none["loss"]) and np.isnan(none["share"]), none)
        np.testing.assert_allclose(losses, losses[0], rtol=1e-6)


def copy(good, to, graph=None, version=None):
    """Copies a model's folder with changes. The checksum of its manifest is updated."""
    to.mkdir(exist_ok=True)
    for file in good.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    if graph:
        (to / "graph.txt").write_text(graph((to / "graph.txt").read_text()))
    if version:
        manifest = json.loads((to / "manifest.json").read_text())
        manifest["checkpoint"]["run"]["model"]["version"] = version
        text = json.dumps(manifest["checkpoint"], separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        manifest["crc32c"] = re.sub("^0x", "", format(ht._hetu.crc32c(text.encode()), "08x"))
        (to / "manifest.json").write_text(json.dumps(manifest))


if __name__ == "__main__":
    unittest.main()
