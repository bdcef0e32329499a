"""Training on several workers that are threads of one process, and on a single worker, for comparison by
docs/make_equality.py and tests."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np

import hetu as ht
from hetu import _hetu
from hetu.graph import new_graph

TOKENS, VOCABULARY, SAMPLES, STEPS = 8, 60, 2, 3  # SAMPLES per micro-batch
SEED = 5


@dataclasses.dataclass
class Outcome:
    """The weights after the last step, the losses of all steps, and whether the largest number of kept activations equals
    the plan's."""
    weights: dict[str, np.ndarray]
    losses: list[float]
    peaks_agree: bool


def batches(rows: int) -> list[dict[str, np.ndarray]]:
    """Returns one global batch per step: random tokens, padding at the end, about a third of the labels set."""
    random = np.random.default_rng(SEED)
    out = []
    for _ in range(STEPS):
        ids = random.integers(5, VOCABULARY, (rows, TOKENS), np.int32)
        lengths = random.integers(TOKENS // 2, TOKENS + 1, (rows, 1))
        inside = np.arange(TOKENS) < lengths
        masked = inside & (random.random((rows, TOKENS)) < 0.3)
        masked[:, 0] = True
        out.append({
            "input_ids": np.where(inside, ids, 0).astype(np.int32), "input_mask": inside.astype(np.int32),
            "segment_ids": (np.arange(TOKENS) >= lengths // 2).astype(np.int32),
            "masked_lm_labels": np.where(masked, ids, -1).astype(np.int32),
            "next_sentence_labels": random.integers(0, 2, rows, np.int32),
        })
    return out


def train(optimizer: Any, workers: int = 1, pipelines: int = 1, micro_batches: int = 8, **plan: Any) -> Outcome:
    """Trains BERT `deep` with dropout for STEPS steps. `plan` holds the method and options of a Job."""
    rows = micro_batches * SAMPLES
    data = ht.data.Batches(batches(rows * pipelines), rows)
    model = ht.models.Bert.from_config("deep", vocab_size=VOCABULARY, max_position_embeddings=TOKENS)
    new_graph()
    handle = optimizer.minimize(model.pretraining_loss(data))
    graph = handle.graph.builder.finish()
    options = {
        "method": "gpipe", "pipelines": pipelines, "stages": workers, "micro_batches": micro_batches, "batch_size": rows,
        "seed": SEED, "threads": 1, **plan,
    }
    outcome, errors, lock = Outcome({}, [], True), [], threading.Lock()

    def work(links: Any) -> None:
        try:
            job = _hetu.Job(graph, optimizer.settings(), _hetu.TrainingOptions(options), links)
            fields = list(job.fields)
            loader = data.loader(pipelines, job.pipeline, fields) if fields else None
            losses = [job.train(loader)["scalars"]["loss"] for _ in range(STEPS)]
            with lock:
                planned, measured = job.activation_peaks
                outcome.peaks_agree &= planned == measured
                outcome.losses = losses
                for name, state, array, _ in job.state():
                    if not state:
                        outcome.weights[name] = array.copy()
        except BaseException as error:  # the other workers wait for this one
            errors.append(error)
            links.abort(1, str(error))

    threads = [threading.Thread(target=work, args=(links,)) for links in _hetu.thread_links(workers * pipelines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return outcome


def difference(a: Outcome, b: Outcome) -> tuple[float, float]:
    """Returns (largest distance of a weight tensor over max(its norm, 1), largest relative distance of a loss). The result
    is (0, 0) only if all bits are equal."""
    if a.weights.keys() != b.weights.keys():
        raise ValueError("not the same parameters")
    weights = 0.0
    for name, mine in a.weights.items():
        other = b.weights[name]
        if mine.tobytes() == other.tobytes():
            continue
        distance = float(np.linalg.norm(mine.astype(np.float64) - other))
        weights = max(weights, distance / max(float(np.linalg.norm(mine.astype(np.float64))), 1.0), 1e-30)
    losses = max(abs(x - y) / abs(x) for x, y in zip(a.losses, b.losses, strict=True))
    return weights, losses
