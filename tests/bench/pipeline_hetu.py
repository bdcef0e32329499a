"""Hetu's side of pipeline_step.py: BERT-base in two workers; run by heturun. Prints
{"steps": […], "first_block": […]}: seconds of each step after one to warm up, the block that each stage begins with.
"""

import argparse
import json

import bert_step
import hetu as ht


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--micro-batches", type=int, required=True)
    parser.add_argument("--trace")
    args = parser.parse_args()
    data = ht.data.Batches([bert_step.drawn_batch(args.rows, 128)], batch_size=args.rows)
    loss = ht.models.Bert(ht.models.BertConfig(**bert_step.BASE)).pretraining_loss(data)
    train = ht.optim.AdamW(1e-5).minimize(loss)
    job = ht.Executor({"train": [loss, train]}, "pipe_1_2", args.method, args.micro_batches, threads=1)
    seconds = [step.seconds for step in job.run("train", steps=args.steps + 1, trace=args.trace)]
    if job.is_chief:
        print(json.dumps({"steps": seconds[1:], "first_block": list(job.job.first_block)}), flush=True)
    ht.close()


main()
