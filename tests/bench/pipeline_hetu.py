"""Hetu's side of pipeline_step.py; run by heturun in two workers. Arguments: steps, rows, micro-batches."""

import json
import sys
import time

import bert_step
import hetu as ht


def main() -> None:
    steps, rows, micros = map(int, sys.argv[1:4])
    data = ht.data.Batches([bert_step.drawn_batch(rows, 128)], batch_size=rows)
    loss = ht.models.Bert(ht.models.BertConfig(**bert_step.BASE)).pretraining_loss(data)
    train = ht.optim.AdamW(1e-5).minimize(loss)
    job = ht.Executor({"train": [loss, train]}, "pipe_1_2", "1f1b", micros, threads=1)
    times = []
    for _ in range(steps + 1):  # one to warm up
        start = time.perf_counter()
        job.job.train(job.loader)
        times.append(time.perf_counter() - start)
    if job.is_chief:
        print(json.dumps({"steps": times[1:]}), flush=True)
    ht.close()


main()
