"""A worker of real_methods.py, run by heturun: BERT-base in two workers of one core, one job per method, in turn.

Before the measured steps, a job runs one that doesn't count: its memory was unused while the others ran, and the system may
have taken it. Prints a line per round, {"round": N, "trace": file, "seconds": {method: […]}}; the traced run comes first."""

import argparse
import json
import os

import bert_step
import hetu as ht
from hetu import _hetu


def job_of(method: str, rows: int, micro_batches: int) -> ht.Executor:
    data = ht.data.Batches([bert_step.drawn_batch(rows, 128)], batch_size=rows)
    loss = ht.models.Bert(ht.models.BertConfig(**bert_step.BASE)).pretraining_loss(data)
    train = ht.optim.SGD(1e-3).minimize(loss)  # no optimizer tensors: the weights of all jobs are in memory at once
    return ht.Executor({"train": [loss, train]}, "pipe_1_2", method, micro_batches, threads=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", help="divided by commas; the first is traced")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--micro-batches", type=int, required=True)
    parser.add_argument("--traces", required=True, help="a folder")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[_hetu.env()["worker"] % len(cores)]})
    methods = args.methods.split(",")
    jobs = {method: job_of(method, args.rows, args.micro_batches) for method in methods}

    def seconds(method: str, trace: str | None = None) -> list[float]:
        job = jobs[method]
        for _ in job.run("train", steps=1):
            pass
        return [step.seconds for step in job.run("train", steps=args.steps, trace=trace)]

    for number in range(args.rounds):
        trace = os.path.join(args.traces, f"round-{number}.json")
        found = {"traced": seconds(methods[0], trace)}
        turn = number % len(methods)
        for method in [*methods[turn:], *methods[:turn]]:
            found[method] = seconds(method)
        if jobs[methods[0]].is_chief:
            print(json.dumps({"round": number, "trace": trace, "seconds": found}), flush=True)
    ht.close()


main()
