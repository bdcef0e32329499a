"""An MLP on generated vectors. Alone: python3 docs/examples/mlp.py [METHOD [STEPS]]; stages: heturun -w 2 before it."""
import sys

import numpy as np

import hetu as ht
from hetu import nn

pipeline = sys.argv[1] if len(sys.argv) > 1 else "1f1b"
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
x = np.random.default_rng(0).standard_normal((20, 32, 16), np.float32)
data = ht.data.Batches([{"x": rows, "label": rows[:, :4].argmax(1).astype(np.int32)} for rows in x], batch_size=32)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4), cuts=True)
loss = ht.models.mean_cross_entropy(model(data.x), data.label, "loss")
job = ht.Executor({"train": [loss, ht.optim.Adam(0.01).minimize(loss)]}, pipeline=pipeline, micro_batches=None)
for step in job.run("train", steps=steps):
    print(step.index, step.loss) if job.is_chief else None
