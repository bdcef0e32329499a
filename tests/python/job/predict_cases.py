"""A small model with images, batch norm, dropout and a value of every kind, for tests of prediction. As a module it builds
the model; as a script it is one worker of a job that predicts."""

import pathlib
import sys

import numpy as np

import hetu as ht

ROWS, BATCH, MICRO = 37, 8, 2  # the last batch has 5 rows, and its last micro-batch has 1
FEW = 34  # the last batch has 2
TRAINED = 2  # steps
SHAPES = {"maps": (8, 5, 4), "hidden": (8, 5, 4), "logits": (3,), "best": (), "positive": (3,), "row": ()}
DTYPES = {"best": "int32", "positive": "bool", "row": "int32"}


def arrays(rows=ROWS, seed=3):
    random = np.random.default_rng(seed)
    return {"x": random.standard_normal((rows, 2, 5, 4)).astype(np.float32),
            "y": random.integers(0, 3, rows).astype(np.int32), "row": np.arange(rows, dtype=np.int32)}


def data_of(fields, each):
    """Returns all rows in batches. The last batch is short."""
    rows = len(fields["x"])
    return ht.data.Batches([{k: a[i:i + BATCH] for k, a in fields.items()} for i in range(0, rows, BATCH)], each)


def weight(name, *shape):
    return ht.parameter(name, list(shape), ht.graph.normal(0.3))


def norm(x, name):
    scale, shift = (ht.parameter(f"{name}.{kind}", [8], ht.graph.constant(start))
                    for kind, start in (("w", 1.0), ("b", 0.0)))
    mean, var = (ht.buffer(f"{name}.{kind}", [8], ht.graph.constant(start)) for kind, start in (("mean", 0.0), ("var", 1.0)))
    return ht.graph.current().apply_all("batch_norm", [x, scale, shift, mean, var], name)[0]


def build(devices=None, pipelines=1, pipeline="gpipe", micro_batches=None, **more):
    ht.new_graph()
    data = data_of(arrays(32, seed=1), BATCH // pipelines)
    maps = norm(ht.ops.conv2d(data.x, weight("conv", 8, 2, 3, 3), padding=1, name="conv"), "maps")
    hidden = ht.ops.relu(maps, name="hidden")
    ht.cut()
    flat = ht.ops.dropout(hidden.flatten(1), p=0.5, name="dropout")
    ht.cut()
    deep = ht.ops.gelu(ht.ops.linear(flat, weight("deep", 16, 160)), name="deep")
    ht.cut()
    logits = ht.ops.linear(deep, weight("out", 3, 16), name="logits")
    values = {
        "maps": maps, "hidden": hidden, "logits": logits, "parts": ht.ops.reshape(deep, shape=[-4, 4], name="parts"),
        "best": ht.ops.argmax(logits, name="best"),
        "positive": ht.ops.greater(logits, ht.constant(np.float32(0)), name="positive"),
        "row": data.row, "y": data.y, "deep": deep, "hits": ht.ops.top_k_hits(logits, data.y, k=1, name="hits"),
        "total": deep.sum(axis=0), "loss": ht.models.mean_cross_entropy(logits, data.y, "mean"),
    }
    train = ht.optim.SGD(0.05).minimize(values["loss"])
    names = {"predict": [*SHAPES, "parts"], "plain": ["logits"], "evaluate": ["loss", "hits", "logits", "y", "total"]}
    lists = {"train": [values["loss"], train], **{run: [values[name] for name in of] for run, of in names.items()}}
    return ht.Executor(lists, devices, pipeline, micro_batches or BATCH // pipelines // MICRO, threads=1, **more), values


def accuracy(logits, labels):
    return (logits.argmax(1) == labels).mean()


def results(job):
    found = dict(job.predict(data_of(arrays(), job.data.batch_size)))
    whole = job.evaluate(data_of(arrays(), job.data.batch_size), metrics={"accuracy": accuracy, "share": "hits"})
    # A second pipeline has no row of the last of these batches.
    few = {f"few/{name}": array for name, array in job.predict(data_of(arrays(FEW), job.data.batch_size)).items()}
    return {**found, **few, **{f"evaluate/{name}": np.float64(value) for name, value in whole.items()}}


def main(folder, devices, pipelines, pipeline):
    """Resumes from the checkpoint of a single-process job, and predicts. Every worker writes its results."""
    more = {"micro_batches": 1} if pipeline == "pipedream" else {}
    job, _ = build(devices, int(pipelines), pipeline, **more)
    list(job.run("train", until=TRAINED, checkpoint=f"{folder}/checkpoint", resume=True))
    np.savez(f"{folder}/{devices}-{pipeline}-{job.transport.worker}.npz", **results(job))
    job.save(f"{folder}/{devices}-{pipeline}", fetches=["logits", "maps", "best", "positive", "parts"])


if __name__ == "__main__":
    with ht.one_line_errors(pathlib.Path(__file__).name):
        main(*sys.argv[1:])
