#!/usr/bin/env python3
"""Tests that --sums tree trains to the same bits under every layout: draws models, optimizers, methods, numbers of pipelines
and stages, dtypes, devices and threads, and compares all weights, optimizer states, losses and norms with one process.

usage: layouts_test.py [--whole]   (else a sample; LAYOUTS_SEED repeats a run)"""

from __future__ import annotations

import functools
import os
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import hetu as ht
from hetu import _hetu, schedule
from hetu.graph import new_graph

SAMPLES, TOKENS, VOCABULARY, CLASSES, IMAGE = 2, 8, 60, 10, 16
STEPS = 20 if "--whole" in sys.argv else 4
DRAWS = 150 if "--whole" in sys.argv else 10
ASYNCHRONOUS = ("pipedream", "pipedream-2bw", "hetpipe")
SINGLE_STAGE = ("dp",)
OPTIMIZERS = {
    "sgd": lambda: ht.optim.SGD(0.1, clip_norm=1.0),
    "momentum": lambda: ht.optim.Momentum(0.05),
    "adamw": lambda: ht.optim.AdamW(ht.lr.warmup(1e-3, 2), weight_decay=0.01, clip_norm=1.0),
    "lamb": lambda: ht.optim.LAMB(1e-3),
    "kfac": lambda: ht.optim.KFAC(ht.optim.SGD(0.05, clip_norm=1.0), every=2, fill="after"),
}


def tokens(rng: np.random.Generator, rows: int) -> np.ndarray:
    return rng.integers(5, VOCABULARY, (rows, TOKENS), np.int32)


def bert(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    ids = tokens(rng, rows)
    masked = rng.random(ids.shape) < 0.3
    masked[:, 0] = True
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids),
            "masked_lm_labels": np.where(masked, ids, -1).astype(np.int32),
            "next_sentence_labels": rng.integers(0, 2, rows, np.int32)}


def gpt(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    return {"ids": rng.integers(5, VOCABULARY, (rows, TOKENS + 1), np.int32)}


def images(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    return {"image": rng.random((rows, 3, IMAGE, IMAGE), np.float32), "label": rng.integers(0, CLASSES, rows, np.int32)}


def mlp_loss(data: Any) -> Any:
    width, hidden = 3 * IMAGE * IMAGE, 24
    blocks = [ht.nn.Sequential(ht.nn.Linear(hidden, hidden), ht.nn.ReLU()) for _ in range(8)]
    net = ht.nn.Sequential(ht.nn.Linear(width, hidden), *blocks, ht.nn.Linear(hidden, CLASSES), cuts=True)
    loss = ht.models.losses.mean_cross_entropy(net(ht.ops.reshape(data.image, shape=[-1, width])), data.label, "label")
    ht.graph.current().fetch("loss", loss)
    return loss


MODELS = {
    "bert": (bert, lambda data: ht.models.Bert.from_config(
        "deep", vocab_size=VOCABULARY, max_position_embeddings=TOKENS).pretraining_loss(data)),
    "gpt": (gpt, lambda data: ht.models.Gpt.from_config(
        "tiny", vocab_size=VOCABULARY, n_positions=TOKENS, n_embd=32, n_head=2, n_layer=8).loss(data)),
    "mlp": (images, mlp_loss),
    "resnet18": (images, lambda data: ht.models.ResNet("resnet18", CLASSES, "cifar").loss(data)),
}


@dataclass(frozen=True)
class Layout:
    """A division of a training."""
    method: str = "gpipe"
    pipelines: int = 1
    stages: int = 1
    micros: int = 1  # per pipeline
    recompute: bool = False
    device: str = "cpu"
    threads: int = 1
    shares: tuple[int, ...] = ()  # micro-batches of each pipeline, if they differ

    @property
    def all_micros(self) -> int:
        return sum(self.shares) or self.pipelines * self.micros


@dataclass(frozen=True)
class Training:
    """A training, however it is divided."""
    model: str
    optimizer: str
    dtype: str
    micros: int  # of all pipelines


@dataclass
class Outcome:
    tensors: dict[tuple[str, str], bytes] = field(default_factory=dict)
    numbers: list[tuple[float, ...]] = field(default_factory=list)


def train(what: Training, layout: Layout, sums: str = "tree", steps: range = range(STEPS), folder: str = "") -> Outcome:
    """Trains on workers that are threads. A part of the STEPS steps begins and ends with the checkpoint in `folder`."""
    batch, loss = MODELS[what.model]
    rng = np.random.default_rng(7)
    rows = layout.micros * SAMPLES
    data = ht.data.Batches([batch(rng, layout.all_micros * SAMPLES) for _ in range(STEPS)][steps.start:steps.stop], rows)
    new_graph()
    handle = OPTIMIZERS[what.optimizer]().minimize(loss(data))
    graph = handle.graph.builder.finish()
    options = {"method": layout.method, "pipelines": layout.pipelines, "stages": layout.stages, "seed": 3, "sums": sums,
               "micro_batches": layout.micros, "batch_size": rows, "threads": layout.threads, "device": layout.device,
               "dtype": what.dtype, "with_recompute": layout.recompute, "shares": list(layout.shares)}
    divided = data._divided([SAMPLES * micros for micros in layout.shares])
    outcome, errors, lock = Outcome(), [], threading.Lock()

    def work(links: Any) -> None:
        try:
            job = _hetu.Job(graph, handle.optimizer.settings(), _hetu.TrainingOptions(options), links)
            fields = list(job.fields)
            loader = divided.loader(layout.pipelines, job.pipeline, fields) if fields else None
            if steps.start > 0:
                job.load(folder)
            results = [job.train(loader) for _ in steps]
            if steps.stop < STEPS:
                job.save(folder, lambda: "{}", 1)
            with lock:
                outcome.numbers = [(r["gradient_norm"], *r["scalars"].values()) for r in results]
                outcome.tensors.update({(name, str(state)): array.tobytes() for name, state, array, _ in job.state()})
        except BaseException as error:  # the other workers wait for this one
            errors.append(error)
            links.abort(1, str(error))

    threads = [threading.Thread(target=work, args=(links,))
               for links in _hetu.thread_links(layout.pipelines * layout.stages)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return outcome


@functools.cache
def alone(what: Training, sums: str = "tree") -> Outcome:
    return train(what, Layout(micros=what.micros), sums)


def differences(one: Outcome, other: Outcome) -> list[str]:
    wrong = [f"{name} {state}".strip() for (name, state), value in one.tensors.items()
             if other.tensors.get((name, state)) != value]
    wrong += [f"{name} {state} (not in one process)" for name, state in other.tensors.keys() - one.tensors.keys()]
    return wrong + [f"step {i}: {b} instead of {a}" for i, (a, b) in enumerate(zip(one.numbers, other.numbers, strict=True))
                    if a != b]


def changed(what: Training, first: Layout, then: Layout) -> list[str]:
    """Returns the differences of a training whose layout changes at a checkpoint from one process without a stop."""
    with tempfile.TemporaryDirectory() as folder:
        half = STEPS // 2
        begin = train(what, first, steps=range(half), folder=folder)
        end = train(what, then, steps=range(half, STEPS), folder=folder)
    return differences(alone(what), Outcome(end.tensors, begin.numbers + end.numbers))


def evaluated(layout: Layout) -> str:
    """Trains an MLP for a few steps, and returns its loss on data whose last batch has 13 of 16 rows."""
    rng = np.random.default_rng(5)
    new_graph()
    data = ht.data.Arrays(**images(rng, 48), batch_size=16 // layout.pipelines)
    held_out = ht.data.Arrays(**images(rng, 45), batch_size=16 // layout.pipelines)
    loss = mlp_loss(data)
    job = ht.Executor({"train": [loss, ht.optim.SGD(0.1).minimize(loss)], "evaluate": [loss]}, pipeline=layout.method,
                      micro_batches=layout.micros, devices=f"threads:{layout.pipelines}x{layout.stages}", sums="tree")
    for _ in job.run("train", steps=4):
        pass
    return float(job.evaluate(held_out)["loss"]).hex()


def has_plan(layout: Layout) -> bool:
    try:
        for micros in {layout.micros, *layout.shares}:
            schedule.generate(layout.method, stages=layout.stages, micro_batches=micros)
    except ValueError:
        return False
    return True


def draw(rng: random.Random, methods: list[str]) -> tuple[Training, Layout]:
    while True:
        pipelines, micros = rng.randint(1, 4), rng.randint(1, 8)
        layout = Layout(rng.choice(methods), pipelines, rng.randint(1, 4), micros, rng.random() < 0.3,
                        rng.choice(["cpu", "cpu", "far"]), rng.randint(1, 3))
        if rng.random() < 0.3 and pipelines > 1:
            layout = replace(layout, shares=tuple(rng.randint(1, 6) for _ in range(pipelines)))
        if layout.all_micros <= 16 and has_plan(layout):
            model = rng.choice(["bert", "bert", "gpt", "gpt", "mlp", "mlp", "resnet18"])  # the last takes seconds per step
            optimizer = rng.choice([name for name in OPTIMIZERS if name != "kfac" or not layout.shares])
            if optimizer == "kfac" and model == "gpt":  # none of its layers is one of K-FAC's
                model = "bert"
            dtype = "float32" if optimizer == "kfac" else rng.choice(["float32", "float32", "bf16-emulated"])
            return Training(model, optimizer, dtype, layout.all_micros), layout


def main() -> int:
    seed = int(os.environ.get("LAYOUTS_SEED", time.time_ns() % 100000))
    print(f"LAYOUTS_SEED={seed}")
    rng = random.Random(seed)
    methods = [m["name"] for m in schedule.methods() if m["name"] not in (*ASYNCHRONOUS, *SINGLE_STAGE)]
    wrong, refused = 0, 0
    for _ in range(DRAWS):
        what, layout = draw(rng, methods)
        begin = time.monotonic()
        try:
            found = differences(alone(what), train(what, layout))
        except ValueError as error:
            refused += 1
            print(f"{what} {layout}: refused: {error}")
            continue
        wrong += bool(found)
        print(f"{what} {layout}: {'differs: ' + ', '.join(found[:3]) if found else 'bitwise'} "
              f"({time.monotonic() - begin:.1f} s)", flush=True)
    # An odd number of workers: the middle one has both copies of its stage, and their sum no other worker. Then pipelines
    # of unequal shares.
    for what, layout in ((Training("bert", "adamw", "float32", 4), Layout("gems", 1, 1, 4)),
                         (Training("bert", "sgd", "float32", 6), Layout("gems", 1, 3, 6)),
                         (Training("mlp", "momentum", "float32", 6), Layout("gems", 1, 3, 6, device="far")),
                         (Training("bert", "sgd", "float32", 8), Layout("gems", 2, 3, 4)),
                         (Training("bert", "adamw", "float32", 8), Layout("1f1b", 3, 2, 4, shares=(3, 3, 2))),
                         (Training("gpt", "lamb", "float32", 7), Layout("zb-h1", 2, 2, 1, shares=(5, 2))),
                         (Training("resnet18", "sgd", "float32", 5), Layout("gpipe", 2, 1, 2, device="far", shares=(1, 4))),
                         (Training("bert", "momentum", "bf16-emulated", 8), Layout("chimera", 2, 2, 2, shares=(6, 2)))):
        found = differences(alone(what), train(what, layout))
        wrong += bool(found)
        print(f"{what} {layout}: {'differs: ' + ', '.join(found[:3]) if found else 'bitwise'}", flush=True)
    for first, then in ((Layout("chimera", 2, 4, 4), Layout("zb-v", 4, 2, 2)),
                        (Layout("1f1b", 3, 2, 4), Layout("gems", 2, 2, 6)),
                        (Layout("1f1b", 3, 1, 4, shares=(3, 3, 2)), Layout("chimera", 2, 2, 4))):
        what = Training("bert", "adamw", "float32", first.all_micros)
        found = changed(what, first, then)
        wrong += bool(found)
        print(f"{what} {first}, then {then}: {'differs: ' + ', '.join(found[:3]) if found else 'bitwise'}")
    whole = evaluated(Layout("gpipe", 1, 1, 8))
    for layout in (Layout("1f1b", 2, 1, 4), Layout("zb-h1", 2, 2, 4), Layout("chimera", 1, 4, 8), Layout("gpipe", 4, 1, 2)):
        found = evaluated(layout)
        wrong += found != whole
        print(f"evaluation of 45 rows, {layout}: {'bitwise' if found == whole else f'{found} instead of {whole}'}")
    # The comparison would show another order of additions.
    what = Training("bert", "sgd", "float32", 8)
    if not differences(alone(what), alone(what, "running")):
        print("--sums running has the bits of --sums tree: this test can't fail")
        wrong += 1
    if refused > DRAWS // 3:
        print(f"{refused} of {DRAWS} draws were refused")
        wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
