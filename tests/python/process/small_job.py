"""A typical user script in which everything is global, including the class of the rows. Worker WHO ends as HOW says, after a
dozen steps.

Arguments: METHOD HOW WHO STEPS [CHECKPOINT]."""
import os
import sys
import threading
import time

import numpy

import hetu as ht

METHOD, HOW, WHO, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
CHECKPOINT = sys.argv[5] if len(sys.argv) > 5 else None
ME = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0")) == WHO
WIDTH, ROWS, BLOCKS = 8, 8, 8


class Rows:
    """Batches that are made on request."""

    def __len__(self):
        return 16

    def __getitem__(self, number):
        x = numpy.random.default_rng(number).standard_normal((ROWS, WIDTH)).astype(numpy.float32)
        return {"x": x, "y": (x.sum(1) > 0).astype(numpy.int32)}


def fail(at):
    """Raises an error in worker WHO if HOW names this place."""
    if ME and HOW == at:
        raise KeyError(f"died {at}")


def leave():
    """Ends this worker's script in one of many ways. Returns True if the worker is to break out of its loop."""
    fail("in the loop")
    if HOW == "exit":
        sys.exit(0)
    if HOW == "exit 3":
        sys.exit(3)
    if HOW == "interrupt":
        raise KeyboardInterrupt
    if HOW == "exit without a word":
        os._exit(0)
    if HOW == "beside a thread":
        threading.Thread(target=time.sleep, args=(1000,)).start()
        raise KeyError(f"died {HOW}")
    return HOW == "break"


def train():
    every = 5 if CHECKPOINT else 0
    for step in job.run("train", until=STEPS, checkpoint=CHECKPOINT, every=every, resume=bool(CHECKPOINT)):
        if job.is_chief:
            print("step", step.index, f"{step.loss:.3f}", flush=True)
        if ME and step.index == 12 and leave():
            return


fail("before the job")
batch = ht.data.Batches(Rows(), ROWS)
value = batch.x
for i in range(BLOCKS):
    value = ht.ops.relu(ht.ops.linear(value, ht.parameter(f"w{i}", [WIDTH, WIDTH], ht.graph.normal(0.3)),
                                      ht.parameter(f"b{i}", [WIDTH], ht.graph.constant(0.0))))
    ht.cut()
loss = ht.models.losses.mean_cross_entropy(value, batch.y, "loss")
optimizer = ht.optim.SGD(0.1).minimize(loss)
job = ht.Executor({"train": [loss, optimizer], "validate": [loss]}, pipeline=METHOD, micro_batches=None, threads=1)
print("up", os.getpid(), flush=True)
fail("before the first step")
if HOW == "in a thread" and ME:
    HOW = "in the loop"
    trainer = threading.Thread(target=train)
    trainer.start()
    trainer.join()
else:
    train()
fail("after the last step")
