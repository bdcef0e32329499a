"""Optimizers and learning rates on a small network, for comparison with PyTorch: settings by the names of both sides, seeded
weights and batches."""

from __future__ import annotations

from typing import Any

import numpy

ROWS, INPUTS, HIDDEN, CLASSES, STEPS = 16, 12, 8, 5, 50
EVERY = 7  # the fixture keeps the losses of every seventh step
SHAPES = {"fc1.weight": (HIDDEN, INPUTS), "fc1.bias": (HIDDEN,), "fc2.weight": (CLASSES, HIDDEN), "fc2.bias": (CLASSES,)}

# optimizer: (class of hetu.optim, its settings, learning rate). Biases have no weight decay.
OPTIMIZERS: dict[str, tuple[str, dict[str, Any], float]] = {
    "sgd": ("SGD", {"l2": 0.01}, 0.3),
    "momentum": ("Momentum", {"l2": 0.01, "momentum": 0.9}, 0.1),
    "nesterov": ("Momentum", {"l2": 0.01, "momentum": 0.9, "nesterov": True}, 0.1),
    "adagrad": ("AdaGrad", {"l2": 0.01}, 0.1),
    "adam": ("Adam", {"l2": 0.01}, 0.02),
    "amsgrad": ("Adam", {"l2": 0.01, "amsgrad": True, "betas": (0.9, 0.9)}, 0.02),
    "adamw": ("AdamW", {"weight_decay": 0.1}, 0.02),
    "lamb": ("LAMB", {"weight_decay": 0.1}, 0.02),
}
# rate: (function of hetu.lr, its settings)
RATES: dict[str, tuple[str, dict[str, Any]]] = {
    "fixed": ("constant", {}),
    "step": ("step", {"every": 7, "gamma": 0.5}),
    "multi_step": ("multi_step", {"milestones": [5, 11, 30], "gamma": 0.3}),
    "exponential": ("exponential", {"gamma": 0.97}),
    "polynomial": ("polynomial", {"total": 40, "power": 2.0}),
    "cosine": ("cosine", {"total": 50, "floor": 0.01}),
    "step_warm": ("step", {"every": 7, "gamma": 0.5, "warmup": 10}),
    "multi_step_warm": ("multi_step", {"milestones": [5, 11, 30], "gamma": 0.3, "warmup": 10}),
    "exponential_warm": ("exponential", {"gamma": 0.97, "warmup": 10}),
    "polynomial_warm": ("polynomial", {"total": 40, "power": 2.0, "warmup": 10}),
    "cosine_warm": ("cosine", {"total": 50, "floor": 0.01, "warmup": 10}),
    "plateau": ("ReduceOnPlateau", {"factor": 0.5, "patience": 2, "threshold": 0.02, "cooldown": 1}),
}
# Every optimizer with a fixed rate, and every rate with momentum.
CASES: dict[str, tuple[str, str]] = {
    **{name: (name, "fixed") for name in OPTIMIZERS}, **{f"rate_{name}": ("momentum", name) for name in RATES},
}


def weights() -> dict[str, numpy.ndarray]:
    """Returns initial weights by name."""
    random = numpy.random.default_rng(7)
    return {name: (0.4 * random.standard_normal(shape)).astype(numpy.float32) for name, shape in SHAPES.items()}


def batches() -> list[dict[str, numpy.ndarray]]:
    """Returns one batch per step. The label is the position of the input's largest number, so losses fall and then stay."""
    random = numpy.random.default_rng(11)
    out = []
    for _ in range(STEPS):
        x = random.standard_normal((ROWS, INPUTS)).astype(numpy.float32)
        out.append({"x": x, "label": (x[:, :CLASSES].argmax(axis=1)).astype(numpy.int32)})
    return out


def distance(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Returns the largest difference from the entries of `theirs`: losses, rates (relative), last weights (over 1 + their
    size)."""
    losses = ours["losses"][:: 1 if len(theirs["losses"]) == STEPS else EVERY]
    found = [abs(a - b) for a, b in zip(losses, theirs["losses"], strict=True)]
    if "rates" in theirs:
        found += [abs(a - b) / b if b else abs(a) for a, b in zip(ours["rates"], theirs["rates"], strict=True)]
    for name, weights in theirs.get("weights", {}).items():
        found += [abs(a - b) / (1 + abs(b)) for a, b in zip(ours["weights"][name], weights, strict=True)]
    return max(found)
