"""ResNet 18, 34, 50, 101 and 152 for images.

Source: He et al. 2015. Names, shapes, strides (a bottleneck's stride is on its 3x3 convolution), initial weights and places
of ReLU are those of torchvision's `resnet*`, so its files fit. The stem for small images is a 3x3 convolution without
pooling. N batch, C channels, H height, W width.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from hetu import ops
from hetu.graph import Value, buffer, constant, current, cut, normal, parameter, uniform
from hetu.models.losses import mean_cross_entropy


@dataclass(frozen=True)
class ResNetConfig:
    """`blocks` per each of the four widths, and `rows`, the number of blocks on each of SD-PIPE's four rows."""

    blocks: tuple[int, int, int, int]
    rows: tuple[int, int, int, int]
    bottleneck: bool


CONFIGS: dict[str, ResNetConfig] = {
    "resnet18": ResNetConfig((2, 2, 2, 2), (2, 2, 2, 2), False),
    "resnet34": ResNetConfig((3, 4, 6, 3), (4, 4, 4, 4), False),
    "resnet50": ResNetConfig((3, 4, 6, 3), (4, 4, 4, 4), True),
    "resnet101": ResNetConfig((3, 4, 23, 3), (8, 9, 8, 8), True),
    "resnet152": ResNetConfig((3, 8, 36, 3), (12, 13, 13, 12), True),
}


class ResNet:
    """A ResNet with cut-points after the stem and after each block: blocks + 2 pieces.

    stem: "imagenet" (7x7 / 2, then max-pool 3x3 / 2) or "cifar" (3x3 / 1).
    All parameters have weight decay, as in torchvision's recipe. Batch norms use the statistics of one micro-batch.
    Validation and checkpoints use the mean of running statistics over pipelines (see hetu.buffer).
    """

    def __init__(self, name: str = "resnet18", num_classes: int = 1000, stem: str = "imagenet") -> None:
        if name not in CONFIGS:
            raise ValueError(f"model '{name}' is not known; known: {', '.join(CONFIGS)}")
        if stem not in ("imagenet", "cifar"):
            raise ValueError(f"stem '{stem}' is not known; known: imagenet, cifar")
        if num_classes < 1:
            raise ValueError(f"num_classes must be >= 1, got {num_classes}")
        self.config, self.num_classes, self.stem = CONFIGS[name], num_classes, stem

    def first_blocks(self, stages: int) -> list[int] | None:
        """Returns the first block of each stage on 4, 2 or 1 rows, as in SD-PIPE, or None for other numbers, which means a
        cut by cost."""
        if stages not in (1, 2, 4):
            return None
        starts = [0, *(1 + n for n in itertools.accumulate(self.config.rows[:3]))]
        return starts[:: 4 // stages]

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _conv(self, x: Value, out: int, kernel: int, stride: int, name: str) -> Value:
        """Adds a convolution with padding kernel // 2. Its weight starts as Kaiming's normal by fan_out."""
        init = normal(math.sqrt(2.0 / (out * kernel * kernel)))
        weight = parameter(f"{name}.weight", [out, x.shape[1], kernel, kernel], init)
        return ops.conv2d(x, weight, stride=stride, padding=kernel // 2, name=name)

    def _norm(self, x: Value, name: str) -> Value:
        def of(kind: str, start: float, make: Any = parameter) -> Value:
            return make(f"{name}.{kind}", [x.shape[1]], constant(start))

        gamma, beta = of("weight", 1.0), of("bias", 0.0)
        mean, variance = of("running_mean", 0.0, buffer), of("running_var", 1.0, buffer)
        ops.count_up(buffer(f"{name}.num_batches_tracked", [], constant(0.0)), name=f"{name}.count")
        return ops.batch_norm(x, gamma, beta, mean, variance, momentum=0.1, epsilon=1e-5, name=name)[0]

    def _block(self, x: Value, width: int, stride: int, name: str) -> Value:
        out = width * (4 if self.config.bottleneck else 1)
        if self.config.bottleneck:
            h = ops.relu(self._norm(self._conv(x, width, 1, 1, f"{name}.conv1"), f"{name}.bn1"), name=f"{name}.relu1")
            h = ops.relu(self._norm(self._conv(h, width, 3, stride, f"{name}.conv2"), f"{name}.bn2"), name=f"{name}.relu2")
            h = self._norm(self._conv(h, out, 1, 1, f"{name}.conv3"), f"{name}.bn3")
        else:
            h = ops.relu(self._norm(self._conv(x, width, 3, stride, f"{name}.conv1"), f"{name}.bn1"), name=f"{name}.relu1")
            h = self._norm(self._conv(h, out, 3, 1, f"{name}.conv2"), f"{name}.bn2")
        if stride != 1 or x.shape[1] != out:
            x = self._norm(self._conv(x, out, 1, stride, f"{name}.downsample.0"), f"{name}.downsample.1")
        return ops.relu(ops.add(h, x, name=f"{name}.add"), name=f"{name}.relu")

    # -- heads -------------------------------------------------------------------------------------------------------

    def logits(self, image: Value) -> Value:
        """Returns logits [N, num_classes] of images [N, 3, H, W]."""
        small = self.stem == "cifar"
        x = self._conv(image, 64, 3 if small else 7, 1 if small else 2, "conv1")
        x = ops.relu(self._norm(x, "bn1"), name="relu")
        if not small:
            x = ops.max_pool2d(x, kernel=3, stride=2, padding=1, name="maxpool")[0]
        for layer, blocks in enumerate(self.config.blocks):
            for i in range(blocks):
                cut()
                stride = 2 if layer > 0 and i == 0 else 1
                x = self._block(x, 64 << layer, stride, f"layer{layer + 1}.{i}")
        cut()
        features = ops.global_avg_pool(x, name="avgpool")
        bound = 1.0 / math.sqrt(features.shape[1])
        weight = parameter("fc.weight", [self.num_classes, features.shape[1]], uniform(-bound, bound))
        bias = parameter("fc.bias", [self.num_classes], uniform(-bound, bound))
        return ops.linear(features, weight, bias, name="fc")

    def loss(self, batch: Any) -> Value:
        """Returns the mean softmax cross-entropy over the samples of the step, a scalar.

        batch: a data object of `hetu.data`, or any object with the attributes image float32 [N, 3, H, W] and label int32
        [N].
        Also reports `hits1` and `hits5`: the number of samples whose label is among the one or five highest logits.
        """
        logits = self.logits(batch.image)
        loss = mean_cross_entropy(logits, batch.label, "label")
        current().fetch("loss", loss)
        for k in (1, 5):
            current().fetch(f"hits{k}", ops.top_k_hits(logits, batch.label, k=k, name=f"hits{k}"))
        return loss


__all__ = ["CONFIGS", "ResNet", "ResNetConfig"]
