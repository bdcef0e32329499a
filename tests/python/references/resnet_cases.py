"""ResNets for comparisons with torchvision: models, sizes, weights and images from seeded NumPy, and digests of results."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy

from bert_cases import digest, distance

Case = tuple[str, str, int, int, int]  # model, stem, classes, images, height and width
Arrays = dict[str, numpy.ndarray]
MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
# Large enough that every batch norm has 32 numbers per channel or more. With fewer, the precision of float32 is too low.
CASES: dict[str, Case] = {
    "resnet18_cifar": ("resnet18", "cifar", 100, 8, 16),
    "resnet18_imagenet": ("resnet18", "imagenet", 1000, 8, 64),
    "resnet50_imagenet": ("resnet50", "imagenet", 1000, 8, 64),
}
PROBES = 32  # logits that are compared individually


def weights(shapes: dict[str, tuple[int, ...]], seed: int = 3) -> Arrays:
    """Returns weights by name, distributed as torchvision initializes them. Scales and shifts of norms are perturbed, so
    that each one matters."""
    random = numpy.random.default_rng(seed)
    out = {}
    for name in sorted(shapes):
        shape = shapes[name]
        drawn = random.standard_normal(shape)
        if len(shape) == 4:
            drawn *= math.sqrt(2.0 / (shape[0] * shape[2] * shape[3]))
        elif len(shape) == 2:
            drawn *= 1 / math.sqrt(3 * shape[1])
        else:
            drawn = 0.05 * drawn + (1.0 if name.endswith("weight") else 0.0)
        out[name] = drawn.astype(numpy.float32)
    return out


def batch(case: Case, seed: int = 17) -> Arrays:
    """Returns images and labels, and for each of PROBES logits a mask that is 1 at that logit only."""
    _, _, classes, rows, size = case
    random = numpy.random.default_rng(seed)
    masks = numpy.zeros((rows, PROBES, classes), numpy.float32)
    for k, (row, column) in enumerate(probes(case)):
        masks[row, k, column] = 1
    return {
        "image": random.standard_normal((rows, 3, size, size)).astype(numpy.float32),
        "label": random.integers(0, classes, rows, dtype=numpy.int32), "masks": masks,
    }


def probes(case: Case) -> list[tuple[int, int]]:
    """Returns (row, column) of the logits that are compared."""
    random = numpy.random.default_rng(23)
    return [(int(random.integers(case[3])), int(random.integers(case[2]))) for _ in range(PROBES)]


def table(shapes: dict[str, tuple[int, ...]]) -> str:
    """Returns one hash of all names and shapes."""
    text = "\n".join(f"{name} {tuple(shape)}" for name, shape in sorted(shapes.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def digests(tensors: Arrays) -> dict[str, Any]:
    return {name: digest(name, tensor) for name, tensor in sorted(tensors.items())}


def relative(found: numpy.ndarray, exact: numpy.ndarray) -> float:
    """Returns the distance of two tensors, divided by the norm of the second."""
    wide = exact.astype(numpy.float64)
    return float(numpy.linalg.norm(found.astype(numpy.float64) - wide) / numpy.linalg.norm(wide))


def furthest(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[float, str]:
    """Returns the largest distance of two tensors, divided by the norm of the second, and its name."""
    assert set(ours) == set(theirs)
    return max((distance(ours[n], theirs[n]) / max(theirs[n]["norm"], 1e-6), n) for n in theirs)
