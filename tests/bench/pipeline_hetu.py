"""Hetu's side of pipeline_step.py: BERT-base in two workers; run by heturun.

Runs in turn a traced step of the serial plan, if there is one, and a traced step of the method, ending with the serial plan.
Logits are of the masked positions. Prints {"steps": […], "first_block": […]}: seconds of the method's steps, and the first
block of each stage. The traces are serial-N.json and run-N.json. With --cut-only it runs no step, and prints the cut of a
model whose logits are of all positions."""

import argparse
import json
import os

import bert_step
import hetu as ht
from bert_cases import masked_alone


def job_of(pipeline: str, rows: int, micro_batches: int, all_positions: bool = False) -> ht.Executor:
    ht.new_graph()
    batch = bert_step.drawn_batch(rows, 128)
    if not all_positions:
        batch = masked_alone(batch, int((batch["masked_lm_labels"] >= 0).sum(1).max()))
    data = ht.data.Batches([batch], batch_size=rows)
    loss = ht.models.Bert(ht.models.BertConfig(**bert_step.BASE)).pretraining_loss(data)
    train = ht.optim.AdamW(1e-5).minimize(loss)
    return ht.Executor({"train": [loss, train]}, "pipe_1_2", pipeline, micro_batches, threads=1)


def step(job: ht.Executor, trace: str | None = None) -> float:
    """Returns the seconds of one more step."""
    (seconds,) = [done.seconds for done in job.run("train", steps=1, trace=trace)]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method")
    parser.add_argument("--serial", help="the serial plan's file")
    parser.add_argument("--serial-micro-batches", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--micro-batches", type=int, required=True)
    parser.add_argument("--traces", help="a folder")
    parser.add_argument("--cut-only", action="store_true")
    args = parser.parse_args()
    job = job_of(args.method, args.rows, args.micro_batches, args.cut_only)
    serial = None
    if args.serial:
        serial = job_of(args.serial, args.rows // args.micro_batches * args.serial_micro_batches, args.serial_micro_batches)
        step(serial)
    seconds: list[float] = []
    if not args.cut_only:
        step(job)  # both warm up
    for turn in range(0 if args.cut_only else args.steps + 1):
        if serial is not None:
            step(serial, os.path.join(args.traces, f"serial-{turn}.json"))
        if turn < args.steps:
            seconds.append(step(job, os.path.join(args.traces, f"run-{turn}.json")))
    if job.is_chief:
        print(json.dumps({"steps": seconds, "first_block": list(job.job.first_block)}), flush=True)
    ht.close()


main()
