"""One worker of resnet_pipeline.py and resnet_methods.py, as a single process or run by heturun.

Arguments: method, stages, steps, rows, micro-batches, size. Prints seconds per step of `rows` images. For pipedream, a step
is one micro-batch, so it runs an equal number of images with one fill and one drain."""

import json
import sys
import time

import hetu as ht
import resnet_step


def main() -> None:
    method, *numbers = sys.argv[1:]
    stages, steps, rows, micros, size = map(int, numbers)
    through = method == "pipedream"
    if through:
        rows, steps, micros = rows // micros, steps * micros, 1
    data = ht.data.Batches([resnet_step.drawn_batch(rows, size)], batch_size=rows)
    model = ht.models.ResNet("resnet50", resnet_step.CLASSES)
    loss = model.loss(data)
    train = ht.optim.Momentum(1e-3, l2=1e-4).minimize(loss)
    job = ht.Executor(
        {"train": [loss, train]}, f"pipe_1_{stages}", method, micros, threads=1, first_blocks=model.first_blocks
    )
    warm = 2 * stages if through else 1
    list(job.run("train", steps=warm))
    start = time.perf_counter()
    seconds = [step.seconds for step in job.run("train", steps=steps)]
    if through:
        micros = int(numbers[3])
        seconds = [(time.perf_counter() - start) * micros / steps]
    if job.is_chief:
        print(json.dumps({"steps": seconds}), flush=True)
    ht.close()


main()
