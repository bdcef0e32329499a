"""Trains a pre-trained BERT to name the package of Python's library that a sentence of documentation is about, and tests it
on held-out sentences: python3 docs/examples/finetune.py BERT.safetensors CONFIG.json VOCAB.txt STEPS"""

import random
import sys
import sysconfig
from pathlib import Path

import numpy as np

import hetu as ht
from hetu.sample import prose

KINDS, LENGTH, BATCH = ("asyncio", "email", "logging", "unittest"), 48, 32
if len(sys.argv) != 5:
    sys.exit("usage: finetune.py BERT.safetensors CONFIG.json VOCAB.txt STEPS")
weights, config, vocabulary, steps = sys.argv[1:5]
ids = {word: number for number, word in enumerate(Path(vocabulary).read_text().splitlines())}
library = Path(sysconfig.get_paths()["stdlib"])
sentences = [(kind, sentence) for kind, package in enumerate(KINDS) for sentence in sorted({
    sentence for file in sorted((library / package).rglob("*.py")) for text in prose.docstrings(file)
    for sentence in prose.sentences(text)})]
random.Random(0).shuffle(sentences)


def batch(part):
    """Returns rows of LENGTH word pieces: [CLS] first, [SEP] last, padded with [PAD]."""
    rows = np.full((len(part), LENGTH), prose.PAD, np.int32)
    for row, (_, sentence) in zip(rows, part, strict=True):
        pieces = [piece for word in prose.words(sentence) for piece in prose.pieces_of(word, ids)][:LENGTH - 2]
        row[:len(pieces) + 2] = [prose.CLS, *pieces, prose.SEP]
    return {"input_ids": rows, "input_mask": (rows != prose.PAD).astype(np.int32), "segment_ids": np.zeros_like(rows),
            "label": np.array([kind for kind, _ in part], np.int32)}


batches = [batch(sentences[i:i + BATCH]) for i in range(0, len(sentences) - BATCH, BATCH)]
held_out, learnt = batches[::5], [item for i, item in enumerate(batches) if i % 5]
data = ht.data.Batches(learnt, BATCH)
loss = ht.models.Bert.from_config(config, vocab_size=len(ids)).classification_loss(data, classes=len(KINDS))
ht.load_weights(weights, missing="classifier.*", extra="cls.*")  # prints the loaded weights
train = ht.optim.AdamW(ht.lr.warmup(5e-4, 20), weight_decay=0.01).minimize(loss)
job = ht.Executor({"train": [loss, train], "evaluate": [loss]}, micro_batches=2)
for step in job.run("train", steps=int(steps)):
    if job.is_chief and step.index % 20 == 19:
        print(step.index + 1, f"{step.loss:.4f}", flush=True)
found = job.evaluate(ht.data.Batches(held_out, BATCH), metrics={"accuracy": "hits1"})
labels = np.concatenate([item["label"] for item in held_out])
if job.is_chief:
    print(f"accuracy {found['accuracy']:.3f} on {len(labels)} held-out sentences; the largest class is "
          f"{np.bincount(labels).max() / len(labels):.3f}")
