"""K-FAC of linear layers, convolutions and transposed convolutions, compared with a dense reference in float64.

Factors, inverses, gradients and updates are equal for any number of micro-batches. Results also equal those of a public
implementation, kfac-jax (make_kfac_fixture.py)."""
import json
import pathlib
import unittest

import numpy as np

import hetu as ht

SAMPLES, RATE, DAMPING, STEPS = 16, 0.05, 0.03, 3
IMAGE = (3, 8, 7)


class Windows:
    """Windows over images [N, channels, height, width] as rows [N, windows, elements], and rows added back to images."""

    def __init__(self, image, kernel, stride=1, padding=0, dilation=1):
        channels, height, width = image
        self.image, self.padding = image, padding
        self.padded = (channels, height + 2 * padding, width + 2 * padding)
        self.out = tuple((size + 2 * padding - dilation * (k - 1) - 1) // stride + 1
                         for size, k in zip((height, width), kernel, strict=True))
        places = np.arange(np.prod(self.padded)).reshape(self.padded)
        self.places = np.array([
            places[:, i * stride:i * stride + dilation * (kernel[0] - 1) + 1:dilation,
                   j * stride:j * stride + dilation * (kernel[1] - 1) + 1:dilation].ravel()
            for i in range(self.out[0]) for j in range(self.out[1])])

    def rows(self, x):
        p = self.padding
        return np.pad(x, ((0, 0), (0, 0), (p, p), (p, p))).reshape(len(x), -1)[:, self.places]

    def images(self, rows):
        flat = np.zeros((len(rows), int(np.prod(self.padded))))
        for row, places in enumerate(self.places):
            flat[:, places] += rows[:, row]
        p, (_, height, width) = self.padding, self.image
        return flat.reshape(len(rows), *self.padded)[:, :, p:p + height, p:p + width]


def to_images(rows, height, width):
    return rows.transpose(0, 2, 1).reshape(len(rows), -1, height, width)


def to_rows(images):
    return images.reshape(*images.shape[:2], -1).transpose(0, 2, 1)


FIRST = Windows(IMAGE, (3, 3), stride=2, padding=1)  # to [4, 4, 4]
SECOND = Windows((4, *FIRST.out), (3, 2), padding=2, dilation=2)  # to [5, 4, 6]
BACK = Windows((2, 8, 12), (2, 2), stride=2)  # a transposed convolution, to [2, 8, 12]
SHAPES = {"first": (4, 3, 3, 3), "second": (5, 4, 3, 2), "back": (5, 2, 2, 2), "end": (3, 192)}
BIASES = {"first": 4, "back": 2, "end": 3}


def numbers():
    drawn = np.random.default_rng(5)
    x, y = (drawn.standard_normal((SAMPLES, *shape)).astype(np.float32) for shape in (IMAGE, (3,)))
    weights = {name: (drawn.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
               for name, shape in SHAPES.items()}
    return x, y, weights


def job_of(micro_batches=1, every=1):
    ht.graph.new_graph()
    x, y, weights = numbers()
    data = ht.data.Batches([{"x": x, "y": y}], batch_size=SAMPLES)
    w = {name: ht.graph.parameter(name, list(shape), ht.graph.constant(0.0)) for name, shape in SHAPES.items()}
    b = {name: ht.graph.parameter(f"{name}.bias", [size], ht.graph.constant(0.1)) for name, size in BIASES.items()}
    h = ht.ops.tanh(ht.ops.conv2d(data.x, w["first"], b["first"], stride=2, padding=1))
    h = ht.ops.tanh(ht.ops.conv2d(h, w["second"], padding=2, dilation=2))
    h = ht.ops.tanh(ht.ops.conv_transpose2d(h, w["back"], b["back"], stride=2))
    error = ht.ops.linear(ht.ops.reshape(h, shape=[-1, 192]), w["end"], b["end"]) - data.y
    loss = ht.ops.sum(error * error) * (1 / SAMPLES)
    train = ht.optim.KFAC(ht.optim.SGD(RATE), damping=DAMPING, every=every).minimize(loss)
    job = ht.Executor({"train": [loss, train]}, "pipe_1_1", "1f1b", micro_batches)
    job.set_weights(weights)
    return job


def slopes(x, y, w, b):
    """Returns, for each layer, the rows of its factors [samples, rows, columns] and the gradients of its weight and bias."""
    rows, out = {}, {}
    rows["first"] = FIRST.rows(x)
    a = np.tanh(rows["first"] @ w["first"].reshape(4, -1).T + b["first"])
    rows["second"] = SECOND.rows(to_images(a, *FIRST.out))
    c = np.tanh(rows["second"] @ w["second"].reshape(5, -1).T)
    d = np.tanh(BACK.images(c @ w["back"].reshape(5, -1)) + b["back"].reshape(1, 2, 1, 1))
    flat = d.reshape(len(x), 1, -1)
    error = flat @ w["end"].T + b["end"] - y[:, None]
    dy = 2 * error / SAMPLES
    out["end"] = (flat, dy)
    dd = (dy @ w["end"]).reshape(d.shape) * (1 - d * d)
    of_windows = BACK.rows(dd)
    out["back"] = (of_windows, c)  # exchanged, as the weight is [in, out, …]
    dc = of_windows @ w["back"].reshape(5, -1).T * (1 - c * c)
    out["second"] = (rows["second"], dc)
    da = to_rows(SECOND.images(dc @ w["second"].reshape(5, -1))) * (1 - a * a)
    out["first"] = (rows["first"], da)
    of_bias = {"first": da.sum((0, 1)), "back": dd.sum((0, 2, 3)), "end": dy.sum((0, 1))}
    return out, of_bias


def reference(steps, every=1):
    """Returns the weights, and the factors, inverses and gradients of the last step as the inner optimizer gets them."""
    x, y, w = (np.asarray(v, float) if isinstance(v, np.ndarray) else v for v in numbers())
    w = {name: value.astype(float) for name, value in w.items()}
    b = {name: np.full(size, 0.1) for name, size in BIASES.items()}
    factors, inverses, gradients = {}, {}, {}
    for step in range(steps):
        layers, of_bias = slopes(x, y, w, b)
        for name, (inputs, outputs) in layers.items():
            gradient = np.einsum("nto,nti->oi", outputs, inputs)
            if step % every == 0:
                factor_a = np.einsum("nti,ntj->ij", inputs, inputs) / SAMPLES / inputs.shape[1]
                factor_b = np.einsum("nti,ntj->ij", outputs, outputs) * SAMPLES
                pi = np.sqrt(np.trace(factor_a) / len(factor_a) / (np.trace(factor_b) / len(factor_b)))
                added = np.sqrt(DAMPING) * pi, np.sqrt(DAMPING) / pi
                factors[name] = factor_a, factor_b, added
                inverses[name] = tuple(np.linalg.inv(f + add * np.eye(len(f)))
                                       for f, add in zip((factor_a, factor_b), added, strict=True))
            of_a, of_b = inverses[name]
            gradients[name] = (of_b @ gradient @ of_a).reshape(SHAPES[name])
            if name in BIASES:  # the bias of a transposed convolution isn't preconditioned
                gradients[f"{name}.bias"] = of_bias[name] if name == "back" else of_b @ of_bias[name]
        for name in w:
            w[name] -= RATE * gradients[name]
            if name in b:
                b[name] -= RATE * gradients[f"{name}.bias"]
    return {**w, **{f"{name}.bias": value for name, value in b.items()}}, factors, inverses, gradients


def run(job, steps):
    for _ in job.run("train", steps=steps):
        pass
    kinds = {"input_inverse": 0, "gradient_inverse": 1}
    states = {(name, kinds[kind]): np.array(values, float) for name, kind, values, *_ in job.job.state() if kind in kinds}
    return job.weights(), states, job.gradients()


class Layers(unittest.TestCase):
    def near(self, found, expected, what, apart=1e-5):
        self.assertEqual(found.shape, expected.shape, what)
        self.assertLess(np.abs(found - expected).max() / np.abs(expected).max(), apart, what)

    def test_factors_inverses_and_gradients_are_those_of_a_dense_reference(self):
        _, factors, inverses, expected = reference(1)
        _, states, gradients = run(job_of(), 1)
        self.assertEqual(set(states), {(name, which) for name in SHAPES for which in (0, 1)})
        for (name, which), found in states.items():
            self.near(found, inverses[name][which], f"inverse {which} of {name}")
            added = factors[name][2][which]
            self.near(np.linalg.inv(found) - added * np.eye(len(found)), factors[name][which], f"factor {which} of {name}")
        for name, value in expected.items():
            self.near(gradients[name], value, f"gradient of {name}")

    def test_updates_too_whatever_the_micro_batches(self):
        for every in (1, 2):
            expected = reference(STEPS, every)[0]
            for count in (1, 2, 8):
                with self.subTest(every=every, micro_batches=count):
                    found = run(job_of(count, every), STEPS)[0]
                    self.assertEqual(set(found), set(expected))
                    for name, value in expected.items():
                        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-6, err_msg=name)

    def test_one_micro_batch_and_eight_give_the_same_inverses(self):
        one, eight = (run(job_of(count), 1)[1] for count in (1, 8))
        for key, value in one.items():
            self.near(eight[key], value, key, 1e-6)


class Public(unittest.TestCase):
    """Factors and gradients equal those of kfac-jax, to 5e-6 of their norms."""

    def near(self, found, wanted, what):
        self.assertEqual(list(found.shape), wanted["shape"], what)
        flat, norm = found.ravel(), wanted["norm"]
        some = flat[np.linspace(0, flat.size - 1, len(wanted["some"])).astype(int)]
        self.assertLess(abs(np.linalg.norm(flat) - norm) / norm, 5e-6, what)
        self.assertLess(abs(flat.sum() - wanted["sum"]) / norm, 5e-6 * np.sqrt(flat.size), what)
        self.assertLess(np.abs(some - wanted["some"]).max() / norm, 5e-6, what)

    def test_factors_and_gradients_are_those_of_kfac_jax(self):
        fixture = json.loads((pathlib.Path(__file__).parents[2] / "fixtures" / "kfac_jax.json").read_text())
        drawn = np.random.default_rng(11)
        x, y = (drawn.standard_normal((SAMPLES, *shape)).astype(np.float32) for shape in ((3, 9, 9), (3,)))
        shapes = {"first": (4, 3, 3, 3), "second": (5, 4, 3, 2), "third": (6, 60), "end": (3, 6)}
        self.assertEqual(set(shapes), set(fixture["layers"]))
        ht.graph.new_graph()
        data = ht.data.Batches([{"x": x, "y": y}], batch_size=SAMPLES)
        w = {name: ht.graph.parameter(name, list(shape), ht.graph.constant(0.0)) for name, shape in shapes.items()}
        h = ht.ops.tanh(ht.ops.conv2d(data.x, w["first"], stride=2, padding=1))
        h = ht.ops.reshape(ht.ops.tanh(ht.ops.conv2d(h, w["second"])), shape=[-1, 60])
        error = ht.ops.linear(ht.ops.tanh(ht.ops.linear(h, w["third"])), w["end"]) - data.y
        loss = ht.ops.sum(error * error) * (1 / SAMPLES)
        train = ht.optim.KFAC(ht.optim.SGD(RATE), damping=fixture["damping"]).minimize(loss)
        job = ht.Executor({"train": [loss, train]}, "pipe_1_1", "1f1b")
        job.set_weights({name: (drawn.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
                         for name, shape in shapes.items()})
        _, states, gradients = run(job, 1)
        for name, wanted in fixture["layers"].items():
            self.near(gradients[name], wanted["gradient"], f"gradient of {name}")
            means = [np.array([wanted[which]["mean"]]) for which in ("a", "b")]
            pi = np.sqrt(means[0] / means[1])
            for which, (factor, added) in enumerate((("a", pi), ("b", 1 / pi))):
                inverse = np.linalg.inv(states[name, which])
                found = inverse - added * np.sqrt(fixture["damping"]) * np.eye(len(inverse))
                self.near(found, wanted[factor], f"factor {factor} of {name}")


if __name__ == "__main__":
    unittest.main()
