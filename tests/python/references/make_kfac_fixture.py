#!/usr/bin/env python3
"""Writes tests/fixtures/kfac_jax.json: Kronecker factors and preconditioned gradients of a small network in float64.

They come from kfac-jax, DeepMind's K-FAC (https://github.com/google-deepmind/kfac-jax). tests/python/job/kfac_layers_test.py
compares Hetu's with them.

usage: make_kfac_fixture.py   (needs `pip install kfac-jax`; written with 0.0.8 and jax 0.8.2; with jax 0.10 it does not run)

The conventions differ, and this script converts them: - Empirical Fisher: kfac-jax divides B by the number of samples once
more, because it takes the covariance of a batch's mean   gradient. Hetu takes the covariance of a sample's gradient. The
loss is therefore registered with a weight of sqrt(samples). - Convolutions: both factors of kfac-jax are means over samples
and positions, and it scales their product by the positions.   Hetu's A is the same, and its B includes the factor of the
positions. - Biases: kfac-jax treats a bias as one more column of A, and Hetu doesn't. The network therefore has no biases. -
Weights of kfac-jax are in the order [in, out] and [height, width, in, out]."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import kfac_jax
import numpy as np

jax.config.update("jax_enable_x64", True)

SAMPLES, DAMPING, KEPT = 16, 0.03, 6
SHAPES = {"first": (4, 3, 3, 3), "second": (5, 4, 3, 2), "third": (6, 60), "end": (3, 6)}
WINDOWS: dict[str, dict[str, Any]] = {
    "first": {"window_strides": (2, 2), "padding": ((1, 1), (1, 1))},
    "second": {"window_strides": (1, 1), "padding": ((0, 0), (0, 0))},
}


def numbers() -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    drawn = np.random.default_rng(11)
    x, y = drawn.standard_normal((SAMPLES, 3, 9, 9)), drawn.standard_normal((SAMPLES, 3))
    return x.astype(np.float32), y.astype(np.float32), {
        name: (drawn.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in SHAPES.items()}


def loss(w: dict[str, Any], batch: tuple[Any, Any]) -> Any:
    h, y = batch
    for name, windows in WINDOWS.items():
        h = jnp.tanh(jax.lax.conv_general_dilated(h, w[name], **windows, dimension_numbers=("NCHW", "HWIO", "NCHW")))
    h = jnp.tanh(h.reshape(SAMPLES, -1) @ w["third"]) @ w["end"]
    kfac_jax.register_squared_error_loss(h, y, weight=float(np.sqrt(SAMPLES)))
    return jnp.sum((h - y) ** 2) / SAMPLES


def ours(value: np.ndarray) -> np.ndarray:
    """Converts [in, out] or [height, width, in, out] to [out, in, …]."""
    return value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T


def theirs(value: np.ndarray) -> np.ndarray:
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def digest(value: np.ndarray) -> dict[str, Any]:
    flat = np.asarray(value, float).ravel()
    return {"shape": list(value.shape), "norm": float(np.linalg.norm(flat)), "sum": float(flat.sum()),
            "some": [float(flat[i]) for i in np.linspace(0, flat.size - 1, KEPT).astype(int)]}


def main() -> None:
    x, y, weights = numbers()
    w = {name: jnp.asarray(theirs(value), jnp.float64) for name, value in weights.items()}
    batch = (jnp.asarray(x, jnp.float64), jnp.asarray(y, jnp.float64))
    estimator = kfac_jax.BlockDiagonalCurvature(loss, params_index=0, default_estimation_mode="fisher_empirical")
    rng = jax.random.PRNGKey(0)
    state = estimator.init(rng, (w, batch), exact_powers_to_cache=None, approx_powers_to_cache=None)
    state = estimator.update_curvature_matrix_estimate(state, 0.0, 1.0, 0.0, SAMPLES, rng, (w, batch))
    gradients = jax.grad(loss)(w, batch)
    changed = estimator.multiply_inverse(state, gradients, identity_weight=DAMPING, exact_power=False, use_cached=False,
                                         pmap_axis_name=None)
    out: dict[str, Any] = {}
    for block, of_block in zip(estimator.blocks, state.blocks_states, strict=True):
        shape = block.parameters_shapes[0]
        name = next(n for n, value in w.items() if value.shape == tuple(shape))
        a, b = (np.asarray(f.value) for f in of_block.factors)
        if len(shape) == 4:  # patches of kfac-jax are [height, width, in]
            order = np.arange(len(a)).reshape(shape[:3]).transpose(2, 0, 1).ravel()
            a, b = a[np.ix_(order, order)], b * block.num_locations
        factors = {which: {**digest(f), "mean": float(np.trace(f)) / len(f)} for which, f in (("a", a), ("b", b))}
        out[name] = {**factors, "gradient": digest(ours(np.asarray(changed[name])))}
    made = {"library": f"kfac-jax {kfac_jax.__version__}", "damping": DAMPING, "layers": {n: out[n] for n in SHAPES}}
    (Path(__file__).parents[2] / "fixtures" / "kfac_jax.json").write_text(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
