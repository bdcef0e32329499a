"""A GPT on the bytes of a file. Alone: python3 docs/examples/gpt.py [METHOD [STEPS [FILE]]]; stages: heturun -w 2 …."""
import sys

import numpy as np

import hetu as ht
from hetu import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), nn.MultiheadAttention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, is_causal=True)[0]
        return x + self.mlp(self.ln_2(x))

class Gpt(nn.Module):
    def __init__(self, words, length, width, heads, layers):
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.lm_head.weight = self.wte.weight
        self.wte.weight.init = self.wpe.weight.init = ht.init.normal(0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(ht.ops.positions(ids))
        for block in self.h:
            ht.cut()
            x = block(x)
        ht.cut()
        return self.lm_head(self.ln_f(x))

pipeline = sys.argv[1] if len(sys.argv) > 1 else "1f1b"
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
text = np.fromfile(sys.argv[3] if len(sys.argv) > 3 else __file__, np.uint8).astype(np.int32)
rows = text[:len(text) // 264 * 264].reshape(-1, 8, 33)
data = ht.data.Batches([{"ids": ids} for ids in rows], batch_size=8)
loss = ht.models.mean_cross_entropy(Gpt(256, 32, 64, 4, 6)(data.ids[:, :-1]), data.ids[:, 1:], "loss")
job = ht.Executor({"train": [loss, ht.optim.AdamW(0.001).minimize(loss)]}, pipeline=pipeline, micro_batches=None)
for step in job.run("train", steps=steps):
    print(step.index, step.loss) if job.is_chief else None
