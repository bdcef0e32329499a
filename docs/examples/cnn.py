"""A CNN with skips on generated images. Alone: python3 docs/examples/cnn.py [METHOD [STEPS]]; stages: heturun -w 2 …."""
import sys

import numpy as np

import hetu as ht
from hetu import nn


class Block(nn.Module):
    def __init__(self, channels, out, stride=1):
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.skip = nn.Identity() if stride == 1 else nn.Conv2d(channels, out, 1, stride)

    def forward(self, x):
        y = ht.ops.relu(self.bn1(self.conv1(x)))
        return ht.ops.relu(self.bn2(self.conv2(y)) + self.skip(x))

pipeline = sys.argv[1] if len(sys.argv) > 1 else "1f1b"
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
drawn = np.random.default_rng(0).standard_normal((20, 32, 3, 12, 12), np.float32)
data = ht.data.Batches([{"image": rows, "label": rows.mean((2, 3)).argmax(1).astype(np.int32)} for rows in drawn], 32)
model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), Block(16, 16), Block(16, 32, 2), Block(32, 32),
                      nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3)), cuts=True)
loss = ht.models.mean_cross_entropy(model(data.image), data.label, "loss")
job = ht.Executor({"train": [loss, ht.optim.AdamW(0.01).minimize(loss)]}, pipeline=pipeline, micro_batches=None)
for step in job.run("train", steps=steps):
    print(step.index, step.loss) if job.is_chief else None
