"""K-FAC: updates compared with a dense reference in float64 for any pipelines, stale inverses, checkpoints, and exceptions.

`--train FOLDER PIPELINES STAGES METHOD MICRO_BATCHES INVERSES DEVICE` is a worker of the jobs that the test starts;
`--whole`: every method."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hetu as ht
from train_cases import HETURUN, ROOT

SAMPLES, STEPS, RATE, DAMPING = 16, 4, 0.1, 0.03
SIZES = [5, 7, 6, 4, 3]  # sizes of layers; the second one has no bias
LAYERS = range(len(SIZES) - 1)

# Pipelines, stages, method and micro-batches of the cases that always run, and of all cases. One pipeline with each stage on
# one worker adds in the same order as one process.
SAMPLE = [(1, 4, "1f1b", 4), (1, 2, "zb-h1", 4), (2, 2, "1f1b", 2), (1, 2, "chimera", 4), (1, 2, "zb-v", 4), (2, 1, "dp", 2)]
ONE_CHUNK = ("gpipe", "1f1b", "zb-h1", "zb-h2", "chimera", "gems", "varuna")
TWO_CHUNKS = ("zb-v", "v-half", "v-min", "interleaved-1f1b", "hanayo", "dualpipe", "dualpipev")  # the model has 5 blocks
WHOLE = [*SAMPLE, *((1, stages, method, 4) for stages in (2, 4) for method in ONE_CHUNK),
         *((1, 2, method, 4) for method in TWO_CHUNKS), (1, 4, "dualpipe", 8),
         *((2, 2, method, 2) for method in ("gpipe", "zb-h1", "chimera", "varuna")), (4, 1, "dp", 1)]
ADD_OTHERWISE = ("chimera", "gems", "dualpipe")  # two copies of each stage


def numbers():
    drawn = np.random.default_rng(3)
    x, y = (drawn.standard_normal((SAMPLES, n)).astype(np.float32) for n in (SIZES[0], SIZES[-1]))
    weights = [0.6 * drawn.standard_normal((b, a)).astype(np.float32) for a, b in zip(SIZES, SIZES[1:], strict=False)]
    return x, y, weights, [np.full(7, 0.1, np.float32), None, np.full(4, 0.2, np.float32), np.full(3, -0.1, np.float32)]


def job_of(optimizer, pipelines=1, stages=1, method="1f1b", micro_batches=1, **options):
    ht.graph.new_graph()
    x, y, weights, biases = numbers()
    data = ht.data.Batches([{"x": x, "y": y}], batch_size=SAMPLES // pipelines)
    h = data.x
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        w = ht.graph.parameter(f"w{i}", list(weight.shape), ht.graph.constant(0.0))
        b = () if bias is None else (ht.graph.parameter(f"b{i}", [len(bias)], ht.graph.constant(float(bias[0]))),)
        h = ht.ops.linear(h, w, *b)
        h = ht.ops.tanh(h) if i < LAYERS[-1] else h
        ht.cut()
    error = h - data.y
    loss = ht.ops.sum(error * error) * (1 / SAMPLES)
    job = ht.Executor({"train": [loss, optimizer.minimize(loss)]}, f"pipe_{pipelines}_{stages}", method, micro_batches,
                      **options)
    job.set_weights({f"w{i}": weight for i, weight in enumerate(weights)})
    return job


def weights_after(job, steps=STEPS):
    for _ in job.run("train", steps=steps):
        pass
    return {name: np.array(value) for name, value in job.weights().items()}


def reference(every=1, but=(), steps=STEPS, makes=None, uses=None, late=(), whole=lambda step: step == 0):
    """Returns the same training in float64, by numpy.linalg. `makes` returns true for steps whose batch gives new inverses.
    `uses` returns true for the step from which the new inverses of a layer multiply. Where both are the same step, a layer
    in `late` uses the inverses made before, except in a step for which `whole` returns true."""
    makes = makes or (lambda step: step % every == 0)
    uses = uses or (lambda step, layer: makes(step))
    x, y, weights, biases = (np.asarray(v, float) if isinstance(v, np.ndarray) else v for v in numbers())
    weights = [w.astype(float) for w in weights]
    biases = [None if b is None else b.astype(float) for b in biases]
    made, inverses = {}, {}
    for step in range(steps):
        inputs = [x]
        for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
            z = inputs[-1] @ w.T + (0 if b is None else b)
            inputs.append(np.tanh(z) if i < LAYERS[-1] else z)
        d = 2 * (inputs[-1] - y) / SAMPLES
        changes = []
        for i in reversed(LAYERS):
            a, w = inputs[i], weights[i]
            before = made.get(i)
            if makes(step):
                factor_a, factor_b = a.T @ a / SAMPLES, d.T @ d * SAMPLES
                pi = np.sqrt(np.trace(factor_a) / len(factor_a) / (np.trace(factor_b) / len(factor_b)))
                made[i] = (np.linalg.inv(factor_b + np.sqrt(DAMPING) / pi * np.eye(len(factor_b))),
                           np.linalg.inv(factor_a + np.sqrt(DAMPING) * pi * np.eye(len(factor_a))))
            if uses(step, i):
                inverses[i] = before if i in late and not whole(step) else made[i]
            of_b, of_a = (np.eye(len(w)), np.eye(w.shape[1])) if f"w{i}" in but else inverses[i]
            changes.append((i, of_b @ (d.T @ a) @ of_a, of_b @ d.sum(0)))
            if i:
                d = (d @ w) * (1 - a * a)
        for i, change, of_bias in changes:
            weights[i] -= RATE * change
            if biases[i] is not None:
                biases[i] -= RATE * of_bias
    return {**{f"w{i}": w for i, w in enumerate(weights)}, **{f"b{i}": b for i, b in enumerate(biases) if b is not None}}


def kfac(**more):
    return ht.optim.KFAC(ht.optim.SGD(RATE), damping=DAMPING, **more)


class Updates(unittest.TestCase):
    def near(self, found, expected, apart=1e-6):
        self.assertEqual(set(found), set(expected))
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=apart, err_msg=name)

    def test_are_those_of_a_dense_reference(self):
        self.near(weights_after(job_of(kfac())), reference())

    def test_by_micro_batches_too(self):
        for count in (2, 4, 8):
            self.near(weights_after(job_of(kfac(), micro_batches=count)), reference())

    def test_with_inverses_that_are_not_made_each_time(self):
        for every in (2, 3):
            self.near(weights_after(job_of(kfac(every=every))), reference(every))
        one, two = reference(1), reference(3)
        self.assertGreater(max(abs(one[name] - two[name]).max() for name in one), 1e-4)

    def test_of_weights_that_are_left_out_are_plain(self):
        found = weights_after(job_of(kfac(but=("w1",))))
        self.near(found, reference(but=("w1",)))
        with self.assertRaisesRegex(ValueError, "KFAC: the model has no suitable layer: .* with dimensions of at most 3"):
            job_of(kfac(largest=3))

    def test_after_a_checkpoint_go_on_with_its_inverses(self):
        whole = weights_after(job_of(kfac(every=3)))
        with tempfile.TemporaryDirectory() as folder:
            for _ in job_of(kfac(every=3)).run("train", steps=2, checkpoint=folder):
                pass
            job = job_of(kfac(every=3))
            for _ in job.run("train", until=STEPS, checkpoint=folder, resume=True):
                pass
        for name, value in whole.items():
            np.testing.assert_array_equal(np.array(job.weights()[name]), value)

    def test_of_a_bias_that_two_layers_share_are_plain(self):
        def gradients(optimizer):
            ht.graph.new_graph()
            x, y, weights, _ = numbers()
            data = ht.data.Batches([{"x": x, "y": y}], batch_size=SAMPLES)
            w = [ht.graph.parameter(f"w{i}", [size, 5], ht.graph.constant(0.1 * i + 0.1))
                 for i, size in enumerate((5, 5, 3))]
            shared = ht.graph.parameter("shared", [5], ht.graph.constant(0.2))
            h = ht.ops.linear(ht.ops.tanh(ht.ops.linear(data.x, w[0], shared)), w[1], shared)
            error = ht.ops.linear(ht.ops.tanh(h), w[2]) - data.y
            job = ht.Executor({"train": [loss := ht.ops.sum(error * error) * (1 / SAMPLES), optimizer.minimize(loss)]})
            job.set_weights({"w0": weights[0][:5], "w1": weights[1][:5, :5]})
            next(iter(job.run("train", steps=1)))
            return job.gradients()
        plain, found = gradients(ht.optim.SGD(RATE)), gradients(kfac())
        self.assertEqual(set(plain), set(found))
        np.testing.assert_array_equal(found["shared"], plain["shared"])
        self.assertGreater(abs(found["w1"] - plain["w1"]).max(), 1e-3)

    def test_have_their_bytes_in_the_plan(self):
        """The plan's memory counts the input and output gradient of each layer for four micro-batches, and 16 bytes of
        scratch per element of the largest inverse."""
        job = job_of(kfac(), micro_batches=4)
        found = ht.summary(job.train_handle, batch_size=SAMPLES, micro_batches=4).stages[0]
        kept = 4 * SAMPLES * sum(a + b for a, b in zip(SIZES, SIZES[1:], strict=False))
        self.assertGreaterEqual(found.memory["kfac"], kept + 16 * max(SIZES) ** 2)
        self.assertEqual(sum(found.memory.values()), found.peak)
        self.assertEqual(found.peak, job.job.memory_peak)
        self.assertRegex(job.job.memory, r"scratch [\d.]+ \(K-FAC [\d.]+\); peak")
        plain = ht.summary(job_of(ht.optim.SGD(RATE), micro_batches=4).train_handle, batch_size=SAMPLES, micro_batches=4)
        self.assertNotIn("kfac", plain.stages[0].memory)

    def test_go_without_factors_among_weights(self):
        job, plain = job_of(kfac()), job_of(ht.optim.SGD(RATE))
        self.assertEqual(ht.summary(job).parameters, ht.summary(plain).parameters)
        with self.assertRaisesRegex(ValueError, "set_weights: the model has no 'w0.input_factor'; it has: w0, b0, w1"):
            job.set_weights({"w0.input_factor": np.eye(5)})
        with self.assertRaisesRegex(ValueError, "gradients: the model has no 'w0.input_factor'"):
            job.gradients(["w0.input_factor"])

    def test_after_a_checkpoint_without_inverses_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for _ in job_of(ht.optim.SGD(RATE)).run("train", steps=2, checkpoint=folder):
                pass
            with self.assertRaisesRegex(OSError, "has no 'w0#input_inverse' .*; the checkpoint belongs to another model or "
                                                 "optimizer"):
                for _ in job_of(kfac(every=3)).run("train", until=STEPS, checkpoint=folder, resume=True):
                    pass

    def test_of_wrong_settings_are_refused(self):
        for make, said in [(lambda: ht.optim.KFAC(kfac()), "KFAC: inner must be an optimizer .*, got a hetu.optim.KFAC"),
                           (lambda: ht.optim.KFAC("lamb"), "KFAC: inner must be an optimizer .*, got a str"),
                           (lambda: job_of(kfac(every=0)), "curvature_every"),
                           (lambda: job_of(ht.optim.KFAC(ht.optim.SGD(RATE), damping=-1)),
                            "damping must be above 0, got -1")]:
            with self.assertRaisesRegex(ValueError, said):
                make()

    def test_go_with_every_inner_optimizer(self):
        for inner in (ht.optim.Adam(0.01), ht.optim.LAMB(0.01), ht.optim.BertAdam(0.01), ht.optim.Momentum(0.01)):
            losses = [step.loss for step in job_of(ht.optim.KFAC(inner, damping=DAMPING)).run("train", steps=20)]
            self.assertLess(losses[-1], losses[0])

    def test_the_norm_that_clips_is_that_of_what_is_applied(self):
        plain = job_of(ht.optim.SGD(RATE, clip_norm=0.5))
        clipped = job_of(ht.optim.KFAC(ht.optim.SGD(RATE, clip_norm=0.5), damping=DAMPING))
        before = {name: np.array(value) for name, value in clipped.weights().items()}
        norms = [next(iter(job.run("train", steps=1))).gradient_norm for job in (plain, clipped)]
        after = clipped.weights()
        moved = np.sqrt(sum(np.square(np.array(after[name]) - value).sum() for name, value in before.items()))
        self.assertNotAlmostEqual(norms[0], norms[1])
        self.assertAlmostEqual(moved, RATE * min(0.5, norms[1]), delta=1e-5)


class Pipelines(unittest.TestCase):
    def test_have_the_same_bits_whoever_makes_the_inverses(self):
        """Weights are the same whether owners or all copies compute the inverses. The wire format rounds gradients but never
        inverses."""
        more = [((2, 2, "chimera", 2), "cpu", "float32")] if "--whole" in sys.argv else []
        for grid, device, wire in [((2, 2, "1f1b", 2), "far", "float32"), ((1, 2, "chimera", 4), "cpu", "float32"),
                                   ((2, 2, "1f1b", 2), "cpu", "bf16"), *more]:
            with self.subTest(grid, device=device, wire=wire):
                owners = trained_by(*grid, "owners", device, wire)
                every_copy = trained_by(*grid, "all", wire=wire)
                self.assertEqual(set(owners), set(every_copy))
                for name, value in every_copy.items():
                    np.testing.assert_array_equal(owners[name], value, err_msg=name)

    def test_have_the_updates_of_one_process(self):
        expected = weights_after(job_of(kfac(), micro_batches=4))
        for pipelines, stages, method, count in WHOLE if "--whole" in sys.argv else SAMPLE:
            with self.subTest(grid=(pipelines, stages), method=method):
                found = trained_by(pipelines, stages, method, count)
                self.assertEqual(set(found), set(expected))
                for name, value in expected.items():
                    if pipelines == 1 and method not in ADD_OTHERWISE:
                        np.testing.assert_array_equal(found[name], value, err_msg=name)
                    np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-6, err_msg=name)

    def test_that_update_stage_by_stage_are_refused(self):
        with self.assertRaisesRegex(ValueError, "K-FAC needs a method in which all stages update once per step, but "
                                                "'pipedream' updates stage by stage"):
            job_of(kfac(), method="pipedream")


class Script(unittest.TestCase):
    def test_flags(self):
        script = [sys.executable, str(ROOT / "python" / "train_gpt.py"), "--family", "llama"]
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text.txt"
            text.write_text("What is to be said is said again. " * 200)
            words = [*script, "--data", text, "--model", "tiny", "--steps", "3", "--pipeline", "1f1b", "--batch-size", "4"]
            fine = ["--optimizer", "kfac", "--inner", "adamw", "--damping", "0.1", "--curvature-every", "2"]
            for more, said in [(fine, None),
                               (["--optimizer", "kfac", "--damping", "0"], "--damping must be above 0, got 0"),
                               (["--optimizer", "adamw", "--damping", "0.1"], "belong to --optimizer kfac"),
                               (["--optimizer", "kfac", "--pipeline", "pipedream"],
                                "K-FAC needs a method in which all stages update once per step")]:
                with self.subTest(more):
                    done = subprocess.run([str(w) for w in [*words, *more]], capture_output=True, text=True, cwd=folder)
                    if said is None:
                        self.assertEqual(done.returncode, 0, done.stderr)
                        continue
                    self.assertNotEqual(done.returncode, 0)
                    told = [line for line in done.stderr.splitlines() if not line.startswith("hetu: computing on")]
                    self.assertEqual(len(told), 1, done.stderr)
                    self.assertIn(said, told[0])


def trained_by(pipelines, stages, method, count, inverses="owners", device="cpu", wire="float32"):
    """Returns the weights of the workers of a separate job. All copies agree on them."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*HETURUN, "-w", pipelines * stages, sys.executable, __file__, "--train", folder, pipelines, stages, method,
                 count, inverses, device, wire]
        return weights_of(words, folder)


def weights_of(words, folder):
    """Returns the weights that the workers of a job leave in the folder (save_weights). All copies agree on them."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return weights_in(folder)


def weights_in(folder):
    """Returns the weights that workers have left in a folder. All copies agree on them."""
    found = {}
    for file in pathlib.Path(folder).glob("*.npz"):
        for name, value in np.load(file).items():
            if name in found:
                np.testing.assert_array_equal(found[name], value, err_msg=f"copies of {name}")
            found[name] = value
    return found


def train(arguments):
    folder, pipelines, stages, method, count, inverses, device, wire = arguments
    job = job_of(kfac(inverses=inverses), int(pipelines), int(stages), method, int(count), device=device, wire=wire,
                 compare_single=wire == "float32")
    for _ in job.run("train", steps=STEPS):
        pass
    save_weights(job, folder)


def save_weights(job, folder):
    found = {name: np.array(value) for name, value in job.weights().items()}
    np.savez(pathlib.Path(folder) / f"worker{ht.job_info().worker}.npz", **found)


if __name__ == "__main__":
    if "--train" in sys.argv:
        train(sys.argv[2:])
    else:
        unittest.main(argv=[word for word in sys.argv if word != "--whole"])
