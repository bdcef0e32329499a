"""Access to a job's state: weights, gradients and norms by name on every worker, setting weights, and summaries."""

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
from hetu import _hetu
from train_cases import HETURUN, MANY_S

SEED = 9
WIDTH, ROWS, BLOCKS = 3, 32, 4
CASES = (("1f1b", 4), ("zb-h1", 4), ("zb-v", 4), ("chimera", 4), ("gpipe", 2), ("pipedream", 1), ("pipedream-2bw", 2))


def model(pipelines, tied=False):
    """Returns a model of blocks with a linear layer, and a buffer. With `tied`, the last weight is the first one again."""
    ht.new_graph()
    x = np.random.default_rng(SEED).standard_normal((ROWS, WIDTH)).astype(np.float32)
    data = ht.data.Arrays(x=x, y=x.sum(1), batch_size=16 // pipelines, seed=SEED)
    value, first = data.x, None
    for i in range(BLOCKS):
        with ht.scope(f"block{i}"):
            shared = tied and i == BLOCKS - 1
            w = first if shared else ht.parameter("w", [WIDTH, WIDTH], ht.graph.normal(0.6))
            first = w if first is None else first
            value = ht.ops.linear(value, w, ht.parameter("b", [WIDTH], ht.graph.constant(0.1)))
            if i == 1:
                value = value + 0 * ht.ops.count_up(ht.graph.buffer("seen", [], ht.graph.constant(0.0)))
        ht.cut()
    return data, ht.step_mean((value.sum(-1) - data.y) ** 2, name="loss")


def build(devices=None, pipeline="1f1b", micro_batches=4, optimizer=None, tied=False, **more):
    _, loss = model(int(devices[8:].split("x")[0]) if devices else 1, tied)
    train = (optimizer or ht.optim.Momentum(0.05, momentum=0.9)).minimize(loss)
    return ht.Executor({"train": [loss, train], "validate": [loss]}, devices, pipeline, micro_batches, threads=1, **more)


class Weights(unittest.TestCase):
    def assert_same(self, found, wanted, where=None):
        self.assertEqual(list(found), list(wanted), where)
        for name in wanted:
            np.testing.assert_array_equal(found[name], wanted[name], f"{name} {where}")

    def test_of_all_stages_as_one_process_has_them(self):
        for tied in (False, True):
            alone = build(tied=tied)
            first = alone.weights()
            self.assertEqual(len(first), 2 * BLOCKS - tied + 1)  # plus a buffer
            list(alone.run(steps=3))
            wanted, slopes, norms = alone.weights(), alone.gradients(), alone.gradient_norms()
            for devices, case in (("threads:1x2", CASES[0]), ("threads:1x4", CASES[1]), ("threads:1x2", CASES[2])):
                pipeline, micro_batches = case
                job = build(devices, pipeline, micro_batches, tied=tied)
                where = (devices, pipeline, tied)
                self.assert_same(job.weights(), first, where)
                list(job.run(steps=3))
                self.assert_same(job.weights(), wanted, where)
                self.assert_same(job.gradients(), slopes, where)
                self.assertEqual(job.gradient_norms(), norms, where)
                some = ("block3/b", "block0/w")
                self.assert_same(job.weights(some), {name: wanted[name] for name in some}, where)
                self.assert_same(job.gradients(["block2/w"]), {"block2/w": slopes["block2/w"]}, where)

    def test_every_method_and_several_pipelines(self):
        """Gathered weights equal those of a checkpoint of the same step, bit for bit."""
        for devices in ("threads:1x2", "threads:2x2"):
            for pipeline, micro_batches in CASES:
                with self.subTest(devices=devices, pipeline=pipeline), tempfile.TemporaryDirectory() as folder:
                    job = build(devices, pipeline, micro_batches)
                    list(job.run(steps=4, checkpoint=folder))
                    found = job.weights()
                    after = build()
                    list(after.run(until=4, checkpoint=folder, resume=True))
                    self.assert_same(found, after.weights(), (devices, pipeline))
                    norms = job.gradient_norms()
                    for name, slope in job.gradients().items():
                        self.assertAlmostEqual(norms[name], float(np.linalg.norm(slope.astype(np.float64))), 12)

    def test_looking_changes_nothing(self):
        for devices in (None, "threads:2x2"):
            plain = [step.loss for step in build(devices).run(steps=5)]
            job, found = build(devices), []
            for step in job.run(steps=5):
                found.append(step.loss)
                for array in {**job.weights(), **job.weights(own=True)}.values():
                    array[...] = 7  # changes copies only
            self.assertEqual(found, plain)

    def test_gradients_are_the_slopes_of_the_loss(self):
        """Gradients equal finite differences of the loss, with every weight changed separately."""
        job = build("threads:1x2", optimizer=ht.optim.SGD(0.0))
        list(job.run(steps=2))  # an epoch: all rows in two steps
        (before,) = job.run("validate", steps=1)
        start = job.weights()

        def loss_with(name, at, by):
            moved = start[name].copy()
            moved.flat[at] += by
            job.set_weights({name: moved})
            (step,) = job.run("validate", steps=1)
            return step.loss

        list(job.run(steps=1))  # validation begins with the rows of the next epoch
        (seen,) = job.run("validate", steps=1)
        self.assertEqual(seen.loss, before.loss)
        fresh = build("threads:1x2", optimizer=ht.optim.SGD(0.0))
        list(fresh.run(steps=1))
        slopes = fresh.gradients()
        for name in ("block0/w", "block1/b", "block3/w"):
            for at in range(3):
                slope = (loss_with(name, at, 1e-2) - loss_with(name, at, -1e-2)) / 2e-2
                self.assertAlmostEqual(slope, slopes[name].flat[at], delta=2e-3 + 2e-3 * abs(slope), msg=(name, at, SEED))
            job.set_weights({name: start[name]})

    def test_float16_gradients_are_not_scaled(self):
        """Gradients are stored multiplied by the loss scale, and returned without it."""
        wide, narrow = build(), build(dtype="fp16-emulated", loss_scale="4096")
        for job in (wide, narrow):
            list(job.run(steps=1))
        own, norms = narrow.gradients(own=True), narrow.gradient_norms()
        self.assert_same(narrow.gradients(), own, "own")
        for name, slope in wide.gradients().items():
            self.assertLess(np.linalg.norm(own[name] - slope), 0.02 * np.linalg.norm(slope) + 1e-6, name)
            self.assertAlmostEqual(norms[name], float(np.linalg.norm(own[name].astype(np.float64))), 6)

    def test_weights_put_in_are_trained_on(self):
        """A job with the weights of another job continues as that one does, if the optimizer has no state."""
        for pipeline, micro_batches in CASES:
            for devices in (None, "threads:1x2") if pipeline not in ("zb-v", "chimera") else ("threads:1x2",):
                with self.subTest(devices=devices, pipeline=pipeline):
                    first = build(devices, pipeline, micro_batches, ht.optim.SGD(0.05))
                    list(first.run(steps=3))
                    second = build(devices, pipeline, micro_batches, ht.optim.SGD(0.05))
                    list(second.run(steps=3))
                    second.set_weights({name: np.zeros_like(a) for name, a in second.weights().items()})
                    self.assertTrue(all((a == 0).all() for a in second.weights().values()))
                    second.set_weights(first.weights())
                    self.assertEqual([s.loss for s in second.run(steps=3)], [s.loss for s in first.run(steps=3)])
                    self.assert_same(second.weights(), first.weights())

    def test_states_of_the_optimizer_stay(self):
        for devices in (None, "threads:1x2"):
            for tied in (False, True):
                plain = [step.loss for step in build(devices, tied=tied).run(steps=6)]
                job = build(devices, tied=tied)
                found = [step.loss for step in job.run(steps=3)]
                job.set_weights(job.weights())
                self.assertEqual(found + [step.loss for step in job.run(steps=3)], plain)

    def test_beside_one_process(self):
        """--compare-single also takes the new weights."""
        job = build("threads:1x2", compare_single=True)
        list(job.run(steps=2))
        job.set_weights({"block0/w": np.eye(WIDTH), "block2/b": [1, 2, 3]})
        list(job.run(steps=2))
        self.assertEqual(job.weights(["block2/b"])["block2/b"].shape, (WIDTH,))

    def test_what_is_refused(self):
        for devices in (None, "threads:1x2"):
            job = build(devices)
            for says, method, asked in (
                ("gradients: no step has been run yet", "gradients", None),
                ("weights: the model has no 'w'; it has: block0/w, block0/b", "weights", ["w"]),
                ("expected a list of names, got the string 'w'", "weights", "w"),
                ("set_weights: the model has no 'w'", "set_weights", {"w": 1}),
                ("set_weights: 'block0/w' has shape [3, 3], got [3]", "set_weights", {"block0/w": [1, 2, 3]}),
                ("set_weights: 'block0/b': expected an array of numbers", "set_weights", {"block0/b": "abc"}),
            ):
                with self.subTest(says, devices=devices), self.assertRaises(ValueError) as caught:
                    getattr(job, method)(asked)
                text = str(caught.exception)
                self.assertRegex(text, r"^weights_access_test\.py:\d+: ")
                self.assertIn(says, text)
                self.assertNotIn("\n", text)
            list(job.run(steps=1))  # the job still works
        job = build("threads:1x2", "pipedream", 1)
        for step in job.run(steps=4):
            if step.index == 0:
                with self.assertRaisesRegex(ValueError, "reading weights needs a drained pipeline, but 3 steps"):
                    _hetu.weights(job.job, [])  # this worker refuses before it contacts any other


class Processes(unittest.TestCase):
    def test_on_every_worker(self):
        """Under heturun, all processes get all weights. Requests that differ between workers are refused on all."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "look.py"
            script.write_text(
                "import json\nimport numpy as np\nimport hetu as ht\nimport weights_access_test\n"
                "def main():\n"
                "    info = ht.job_info('pipe_2_2')\n"
                "    _, loss = weights_access_test.model(info.pipelines)\n"
                "    train = ht.optim.Momentum(0.05, momentum=0.9).minimize(loss)\n"
                "    job = ht.Executor({'train': [loss, train]}, 'pipe_2_2', micro_batches=2, threads=1)\n"
                "    looks = []\n"
                "    for step in job.run(steps=3, hooks=[lambda job, step: looks.append(job.gradient_norms())]):\n"
                "        pass\n"
                "    job.set_weights({'block3/b': [1.0, 2.0, 3.0]})\n"
                "    found = job.weights()\n"
                "    own = sorted(job.weights(own=True))\n"
                "    try:\n"
                "        job.set_weights({'block0/b': np.full(3, float(info.worker))})\n"
                "    except ValueError as error:\n"
                "        said = str(error)\n"
                "    print(json.dumps([info.worker, info.pipeline, info.stage, own, said, looks,\n"
                "                      {n: a.tolist() for n, a in found.items()}]))\n"
                "with ht.one_line_errors('look.py'):\n    main()\n")
            done = subprocess.run([*HETURUN, "-w", "4", "--output", "raw", sys.executable, str(script)], capture_output=True,
                                  text=True, timeout=MANY_S, env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        seen = sorted(json.loads(line) for line in done.stdout.splitlines() if re.match(r"\[\d", line))
        self.assertEqual([row[:3] for row in seen], [[0, 0, 0], [1, 0, 1], [2, 1, 0], [3, 1, 1]])
        self.assertEqual(seen[0][6]["block3/b"], [1, 2, 3])
        for row in seen:
            self.assertEqual(row[5:], seen[0][5:])
            self.assertRegex(row[4], r"^look\.py:\d+: set_weights: every worker must pass the same arguments; worker 0 "
                                     r"passed 'block0/b' \(.*\), worker 1 passed 'block0/b' \(")
        self.assertEqual(sorted(set(seen[0][3]) | set(seen[1][3])), sorted(seen[0][6]))
        self.assertEqual((seen[0][3], seen[1][3]), (seen[2][3], seen[3][3]))
        self.assertEqual([list(look) for look in seen[0][5]], [[f"block{i}/{n}" for i in range(4) for n in ("w", "b")]] * 3)


    def test_a_worker_that_asks_alone(self):
        """One worker requests weights alone while the other ends. The waiting worker's error states the correct use."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "alone.py"
            script.write_text("import hetu as ht\nimport weights_access_test\n"
                              "with ht.one_line_errors('alone.py'):\n"
                              "    job = weights_access_test.build()\n"
                              "    if job.is_chief:\n"
                              "        job.weights()\n")
            done = subprocess.run([*HETURUN, "-w", "2", sys.executable, str(script)], capture_output=True, text=True,
                                  timeout=MANY_S, env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)
        self.assertRegex(done.stderr,
                         r"alone\.py:6: .*has left the job; all workers must make this call, after the same step\n")


class Summaries(unittest.TestCase):
    def test_counts(self):
        _, loss = model(1)
        found = ht.summary(loss, stages=2)
        self.assertEqual((found.parameters, found.buffers, found.backward), (BLOCKS * (WIDTH + 1) * WIDTH, 1, 0))
        self.assertEqual([layer.name for layer in found.layers if layer.parameters], [f"block{i}" for i in range(BLOCKS)])
        self.assertEqual([layer.parameters for layer in found.layers if layer.parameters], [12] * BLOCKS)
        self.assertEqual([s.parameters for s in found.stages], [24, 24])
        self.assertEqual([s.weight_bytes for s in found.stages], [96, 96])
        self.assertEqual([s.blocks for s in found.stages], [2, 3])  # the part after the last cut is a block
        self.assertGreaterEqual(found.operations, BLOCKS * 2 * WIDTH * WIDTH)
        self.assertEqual(found.operations, sum(layer.operations for layer in found.layers))
        text = str(found)
        self.assertIn("48 parameters, 192 bytes", text)
        self.assertRegex(text, r"(?m)^block0 +\[B, 3\] +12 +\S+ +0$")
        self.assertRegex(text, r"(?m)^block3 +\[B\] +12 +\S+ +1$")

    def test_published_counts(self):
        """Parameter counts equal those of transformers for bert-base-uncased (BertForPreTraining), and of torchvision for
        resnet50."""
        ht.new_graph()
        names = ("input_ids", "input_mask", "segment_ids", "masked_lm_labels")
        fields = {name: np.zeros((2, 8), np.int32) for name in names}
        data = ht.data.Batches([fields | {"next_sentence_labels": np.zeros(2, np.int32)}], 2)
        bert = ht.models.Bert.from_config("base", vocab_size=30522, max_position_embeddings=512, tie_word_embeddings=True)
        self.assertEqual(ht.summary(bert.pretraining_loss(data), stages=4).parameters, 110_106_428)
        ht.new_graph()
        data = ht.data.Batches([{"image": np.zeros((2, 3, 64, 64), np.float32), "label": np.zeros(2, np.int32)}], 2)
        self.assertEqual(ht.summary(ht.models.ResNet("resnet50", 1000).loss(data)).parameters, 25_557_032)

    def test_bytes_are_those_of_the_job(self):
        for pipeline, stages, micro_batches in (("1f1b", 1, 4), ("1f1b", 2, 4), ("gpipe", 2, 2), ("pipedream", 2, 1)):
            _, loss = model(1)
            train = ht.optim.Adam(0.1).minimize(loss)
            found = ht.summary(train, stages, batch_size=16, micro_batches=micro_batches, pipeline=pipeline)
            job = ht.Executor({"train": [loss, train]}, f"threads:1x{stages}", pipeline, micro_batches, threads=1)
            peaks = [member.worker.job.memory_peak for member in job._members.members]
            self.assertEqual([s.peak for s in found.stages], peaks, pipeline)
            self.assertTrue(all(sum(s.memory.values()) == s.peak for s in found.stages))
            self.assertGreater(found.backward, found.operations)
            self.assertIn("optimizer", str(found))
            self.assertEqual(ht.summary(job).parameters, 48)

    def test_a_tied_weight_counts_once(self):
        _, loss = model(1, tied=True)
        found = ht.summary(loss, stages=2)
        self.assertEqual((found.parameters, [s.parameters for s in found.stages]), (39, [24, 24]))

    def test_depth(self):
        ht.new_graph()
        x = ht.placeholder("x", "float32", [ht.BATCH, 2])
        for outer in ("a", "b"):
            for inner in ("c", "d"):
                with ht.scope(outer), ht.scope(inner):
                    x = ht.ops.linear(x, ht.parameter("weight", [2, 2], ht.graph.normal(1.0)), name="fc")
        layers = ht.summary(x, depth=1).layers
        self.assertEqual([(layer.name, layer.parameters) for layer in layers], [("a", 8), ("b", 8)])
        self.assertEqual([layer.name for layer in ht.summary(x, depth=2).layers], ["a/c", "a/d", "b/c", "b/d"])

    def test_what_is_refused(self):
        _, loss = model(1)
        for says, ask in (("the result of minimize() or an Executor, got int", lambda: ht.summary(3)),
                          ("the bytes of a job depend on the optimizer", lambda: ht.summary(loss, batch_size=4)),
                          ("9 stages", lambda: ht.summary(loss, stages=9))):
            with self.assertRaises(ValueError) as caught:
                ask()
            self.assertRegex(str(caught.exception), r"^weights_access_test\.py:\d+: ")
            self.assertIn(says, str(caught.exception))


class Shown(unittest.TestCase):
    def test_values(self):
        ht.new_graph()
        x = ht.placeholder("x", "float32", [ht.BATCH, 2])
        self.assertEqual((str(x), repr(x), x.name), ("x: float32[B, 2] = placeholder", "Value(float32[B, 2])", "x"))
        with ht.scope("fc"):
            y = ht.ops.relu(x, name="act")
        self.assertEqual(str(y), "fc/act: float32[B, 2] = relu")

    def test_plans_and_jobs(self):
        plan = ht.schedule.generate("1f1b", stages=2, micro_batches=4)
        self.assertEqual(repr(plan), "<hetu plan 1f1b: 2 stages, 4 micro-batches, 2 workers>")
        self.assertIn("<svg", plan._repr_svg_()[:100])
        wrong = ht.schedule.from_rows([["0F0", "0B0"], ["1B0", "1F0"]], stages=2, micro_batches=1)
        self.assertIsNone(wrong._repr_svg_())
        job = build("threads:1x2")
        self.assertRegex(repr(job), r"^<hetu.Executor: 1f1b, threads:1x2: 1 pipeline x 2 stages, blocks .*; step 0>$")
        self.assertEqual(repr(job), str(job))

    def test_traces(self):
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "run.json")
            list(build("threads:1x2").run(steps=3, trace=path))
            trace = ht.Trace(path)
            self.assertIn("<svg", trace._repr_svg_())
            self.assertIn("measured", str(trace))
            self.assertIn(path, repr(trace))
        with self.assertRaisesRegex(ValueError, r"^weights_access_test\.py:\d+: Trace none.json: there is no such file"):
            ht.Trace("none.json")

    def test_the_same_graph_again(self):
        """The same graph can be used twice, as when a notebook cell is run again."""
        _, loss = model(1)
        train = ht.optim.SGD(0.1).minimize(loss)
        found = [[step.loss for step in ht.Executor({"train": [loss, train]}, threads=1).run(steps=3)] for _ in range(2)]
        self.assertEqual(found[0], found[1])
        self.assertIn("loss", str(loss))

    def test_versions(self):
        root = pathlib.Path(__file__).resolve().parents[3]
        wanted = re.search(r"project\(hetu VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text())[1]
        self.assertEqual(ht.__version__, wanted)
        said = [subprocess.run([*words, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
                for words in (HETURUN, [str(pathlib.Path(_hetu.__file__).parents[2] / "bin" / "hetu")])]
        self.assertEqual(said, [f"heturun {wanted}\n", f"hetu {wanted}\n"])


if __name__ == "__main__":
    unittest.main()
