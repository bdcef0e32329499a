"""A BERT trained on shards in a few lines. Alone: one process; `heturun -w 4 python3 docs/examples/train.py SHARDS`: a grid.
"""

import sys

import hetu as ht

if len(sys.argv) != 2:
    sys.exit("usage: train.py SHARDS, a folder that `hetu data sample bert` or `hetu data prepare` writes")
batch = ht.data.BertHdf5(sys.argv[1], batch_size=8, seed=0)
model = ht.models.Bert.from_config("tiny", vocab_size=batch.vocabulary_size)  # cut-points after each layer
loss = model.pretraining_loss(batch)
train = ht.optim.AdamW(ht.lr.warmup_linear(1e-3, 5, 100), weight_decay=0.01).minimize(loss)

job = ht.Executor({"train": [loss, train], "validate": [loss]}, pipeline="1f1b", micro_batches=4)
for step in job.run("train", steps=10):
    if job.is_chief:
        print(step.index, f"{step.loss:.4f}")
for step in job.run("validate", steps=2):
    if job.is_chief:
        print("validation", f"{step.loss:.4f}")
ht.close()
