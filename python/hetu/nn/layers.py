"""Layers with weights: constructors, names of parameters and starting weights as in torch.nn.

Biases and what norms multiply by and add do not decay. B batch, C channels, H height, W width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hetu import ops
from hetu.functions import rms_norm
from hetu.graph import Value, current
from hetu.init import Init, kaiming_uniform, normal, ones, uniform, zeros
from hetu.nn.module import Buffer, Module, Parameter


def linear_weight() -> Init:
    """How weights of torch.nn.Linear and Conv2d start."""
    return kaiming_uniform(math.sqrt(5))


def linear_bias(fan_in: int) -> Init:
    """How their biases do."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return uniform(-bound, bound)


def check_sizes(layer: str, **sizes: int) -> None:
    """Refuses what is no whole number of 1 or more."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            current().refuse(f"nn.{layer}: {name} must be a whole number >= 1, got {size!r}")


def check_last(layer: str, x: Value, width: int, of: str) -> None:
    """Refuses an input whose last axis is not what the layer was made for."""
    if isinstance(x, Value) and (not x.shape or x.shape[-1] != width):
        current().refuse(f"nn.{layer}: the last axis of x must be {of} = {width}, got {x!r}")


class Linear(Module):
    """x [..., in_features] -> [..., out_features]: x weight^T + bias."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        check_sizes("Linear", in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter([out_features, in_features], linear_weight())
        self.bias = Parameter([out_features], linear_bias(in_features), decay=False) if bias else None

    def forward(self, x: Value) -> Value:
        check_last("Linear", x, self.in_features, "in_features")
        return ops.linear(x, self.weight, *([self.bias] if self.bias is not None else []))

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """ids [...] -> [..., embedding_dim]: rows of weight [num_embeddings, embedding_dim]."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        check_sizes("Embedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter([num_embeddings, embedding_dim], normal(1.0))

    def forward(self, ids: Value) -> Value:
        return ops.embedding(self.weight, ids)

    def describe(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


def _width(layer: str, shape: int | Sequence[int]) -> int:
    """Norms here are of one axis, the last."""
    sizes = [shape] if isinstance(shape, int) else list(shape)
    if len(sizes) != 1:
        current().refuse(f"nn.{layer}: normalized_shape is one number, the length of the last axis; got {shape!r}")
    check_sizes(layer, normalized_shape=sizes[0])
    return sizes[0]


class LayerNorm(Module):
    """Along the last axis: weight * (x - mean) / sqrt(variance + eps) + bias."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
                 bias: bool = True) -> None:
        self.width, self.eps = _width("LayerNorm", normalized_shape), eps
        self.weight = Parameter([self.width], ones(), decay=False) if elementwise_affine else None
        self.bias = Parameter([self.width], zeros(), decay=False) if elementwise_affine and bias else None

    def forward(self, x: Value) -> Value:
        check_last("LayerNorm", x, self.width, "normalized_shape")
        gamma, beta = (ops.fill(shape=[self.width], value=value) if given is None else given
                       for given, value in ((self.weight, 1.0), (self.bias, 0.0)))
        return ops.layer_norm(x, gamma, beta, eps=self.eps)[0]

    def describe(self) -> str:
        return f"{self.width}, eps={self.eps}"


class RMSNorm(Module):
    """weight * x over the root of the mean square of its last axis. eps=None: that of float32, as in PyTorch.
    Source: Zhang and Sennrich 2019."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None = None) -> None:
        self.width, self.eps = _width("RMSNorm", normalized_shape), 2.0**-23 if eps is None else eps
        self.weight = Parameter([self.width], ones(), decay=False)

    def forward(self, x: Value) -> Value:
        check_last("RMSNorm", x, self.width, "normalized_shape")
        return rms_norm(x, self.weight, self.eps)

    def describe(self) -> str:
        return f"{self.width}, eps={self.eps}"


class Dropout(Module):
    """x / (1 - p) with probability 1 - p, else 0, in training; x in validation. The same under every schedule."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p < 1:
            current().refuse(f"nn.Dropout: p must be in [0, 1), got {p!r}")
        self.p = p

    def forward(self, x: Value) -> Value:
        return ops.dropout(x, p=self.p) if self.p > 0 else x

    def describe(self) -> str:
        return f"p={self.p}"


def _check_images(layer: str, x: Value, channels: int, of: str) -> None:
    if isinstance(x, Value) and (len(x.shape) != 4 or x.shape[1] != channels):
        current().refuse(f"nn.{layer}: x must be [B, {of} = {channels}, H, W], got {x!r}")


class Conv2d(Module):
    """x [B, in_channels, H, W] -> [B, out_channels, H', W']. kernel_size: a number, or (height, width); padding: a number,
    or "same" with stride 1 and an odd kernel."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int | Sequence[int], stride: int = 1,
                 padding: int | str = 0, dilation: int = 1, groups: int = 1, bias: bool = True) -> None:
        kernel = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
        check_sizes("Conv2d", in_channels=in_channels, out_channels=out_channels, stride=stride, dilation=dilation,
                    groups=groups, **{f"kernel_size[{i}]": size for i, size in enumerate(kernel)})
        if in_channels % groups or out_channels % groups:
            current().refuse(f"nn.Conv2d: groups {groups} do not divide {in_channels} and {out_channels} channels")
        if padding == "same" and stride == 1 and kernel[0] == kernel[1] and kernel[0] % 2:
            padding = dilation * (kernel[0] // 2)
        if not isinstance(padding, int) or padding < 0:
            current().refuse(f"nn.Conv2d: padding must be a whole number >= 0, or \"same\" with stride 1 and a square odd "
                             f"kernel, got {padding!r}")
        self.channels, self.attrs = in_channels, {"stride": stride, "padding": padding, "dilation": dilation,
                                                  "groups": groups}
        self.weight = Parameter([out_channels, in_channels // groups, *kernel], linear_weight())
        fan_in = in_channels // groups * math.prod(kernel)
        self.bias = Parameter([out_channels], linear_bias(fan_in), decay=False) if bias else None

    def forward(self, x: Value) -> Value:
        _check_images("Conv2d", x, self.channels, "in_channels")
        return ops.conv2d(x, self.weight, *([self.bias] if self.bias is not None else []), **self.attrs)

    def describe(self) -> str:
        told = ", ".join(f"{name}={value}" for name, value in self.attrs.items())
        return f"{self.channels}, {self.weight.shape[0]}, kernel_size={self.weight.shape[2:]}, {told}"


class BatchNorm2d(Module):
    """Per channel of x [B, num_features, H, W]: weight * (x - mean) / sqrt(variance + eps) + bias; in training with the
    statistics of the micro-batch, by which running_mean and running_var move; in validation with these (see hetu.buffer).
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        check_sizes("BatchNorm2d", num_features=num_features)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = Parameter([num_features], ones(), decay=False)
        self.bias = Parameter([num_features], zeros(), decay=False)
        self.running_mean, self.running_var = Buffer([num_features], zeros()), Buffer([num_features], ones())
        self.num_batches_tracked = Buffer([], zeros())

    def forward(self, x: Value) -> Value:
        _check_images("BatchNorm2d", x, self.num_features, "num_features")
        ops.count_up(self.num_batches_tracked)
        return ops.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, momentum=self.momentum,
                              epsilon=self.eps)[0]

    def describe(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


class MaxPool2d(Module):
    """The largest of each window of x [B, C, H, W]; stride None: the kernel's size."""

    def __init__(self, kernel_size: int, stride: int | None = None, padding: int = 0) -> None:
        check_sizes("MaxPool2d", kernel_size=kernel_size, stride=stride or kernel_size)
        self.kernel, self.stride, self.padding = kernel_size, stride or kernel_size, padding

    def forward(self, x: Value) -> Value:
        return ops.max_pool2d(x, kernel=self.kernel, stride=self.stride, padding=self.padding)[0]

    def describe(self) -> str:
        return f"{self.kernel}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """[B, C, H, W] -> [B, C, 1, 1], the mean of each plane: output_size 1 alone."""

    def __init__(self, output_size: int | Sequence[int] = 1) -> None:
        if output_size not in (1, (1, 1), [1, 1]):
            current().refuse(f"nn.AdaptiveAvgPool2d: output_size is 1, the mean of the whole plane; got {output_size!r}")

    def forward(self, x: Value) -> Value:
        mean = ops.global_avg_pool(x)
        return mean.reshape([*mean.shape, 1, 1])


class Flatten(Module):
    """All axes from start_dim on as one; the batch stays."""

    def __init__(self, start_dim: int = 1) -> None:
        check_sizes("Flatten", start_dim=start_dim)
        self.start_dim = start_dim

    def forward(self, x: Value) -> Value:
        return x.flatten(self.start_dim)


class Identity(Module):
    """x itself, whatever else it is told."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def forward(self, x: Value) -> Value:
        return x
