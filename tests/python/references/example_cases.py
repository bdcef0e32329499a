"""The models of docs/examples as their scripts build them: a script is run up to its Executor."""

from __future__ import annotations

import contextlib
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import hetu as ht
import nn_cases
from bert_cases import worst
from hetu import _hetu

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples"
LINES = {"mlp": 14, "cnn": 25, "gpt": 36}  # limit of lines that are not empty
TEXT = "".join(f"{n} and {n + 1} make {2 * n + 1}; " for n in range(300))


class _Made(Exception):
    pass


@contextlib.contextmanager
def text() -> Any:
    """Yields the path of a file with TEXT."""
    with tempfile.TemporaryDirectory(prefix="hetu-text-") as folder:
        path = Path(folder) / "text.txt"
        path.write_text(TEXT)
        yield str(path)


def arguments(name: str, file: str, pipeline: str = "1f1b", steps: int = 5) -> list[str]:
    """Returns the command line of the script."""
    return [str(FOLDER / f"{name}.py"), pipeline, str(steps), *([file] if name == "gpt" else [])]


def made(name: str) -> dict[str, list[Any]]:
    """Returns the lists that the script passes to its Executor, in a new graph."""
    def stop(fetches: dict[str, list[Any]], **_: Any) -> None:
        raise _Made(fetches)

    ht.new_graph()
    with text() as file, mock.patch.object(ht, "Executor", stop), mock.patch.object(sys, "argv", arguments(name, file)):
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except _Made as stopped:
            return dict(stopped.args[0])
    raise AssertionError(f"{name}.py makes no Executor")


def weights(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Returns weights by name, a quarter as large as those of nn_cases, because the layers are wide."""
    return {n: np.asarray(w / 4 if w.ndim > 1 else w, np.float32) for n, w in nn_cases.weights(shapes).items()}


def run(name: str) -> dict[str, Any]:
    """Returns the loss and gradients of the first whole batch, and the batch. A job computes them in float32, and the
    reference in float64."""
    job = ht.Executor(made(name), threads=1)
    names = {n for n, _ in job.graph.parameters}
    state = {n: array for n, kind, array, _ in job.job.state() if kind == ""}
    for n, w in weights({n: tuple(array.shape) for n, array in state.items() if n in names}).items():
        state[n][...] = w
    batch = {n: np.array(array) for n, array in job.data.items[0].items()}
    leaves = {n: np.array(x, np.float64).ravel() for n, x in {**state, **batch}.items()}
    exact = _hetu.evaluate(job.graph, len(next(iter(batch.values()))), leaves, "float64")["gradients"]
    (step,) = job.run("train", steps=1)
    slopes = {n: np.array(array) for n, _, array, _ in job.job.gradients()}
    return {"loss": step.loss, "slopes": nn_cases.digests(slopes), "exact": nn_cases.digests(exact), "batch": batch}


def check(test, name, theirs):
    """Compares a model with PyTorch's results in float64. Returns the largest error of float32 gradients relative to their
    norms."""
    ours = run(name)
    exact, where = worst(ours["exact"], theirs["slopes"])
    test.assertLess(exact, 1e-7, where)
    test.assertLess(abs(ours["loss"] - theirs["loss"]), 1e-5 * abs(theirs["loss"]))
    test.assertEqual(set(ours["slopes"]), set(theirs["slopes"]))
    error, where = worst(ours["slopes"], theirs["slopes"])
    test.assertLess(error, 1e-5, where)
    return error
