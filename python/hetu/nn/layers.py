"""Layers with weights. Constructors, names of parameters and initial weights are those of torch.nn. Biases, and the weights
and biases of norms, have no weight decay. Layers for images are in images.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hetu import ops
from hetu.functions import group_norm, rms_norm
from hetu.graph import Value, current
from hetu.init import Init, kaiming_uniform, normal, ones, uniform, zeros
from hetu.nn.module import Module, Parameter
from hetu.place import is_whole


def linear_weight() -> Init:
    """Returns the initializer of weights in torch.nn.Linear and Conv2d."""
    return kaiming_uniform(math.sqrt(5))


def linear_bias(fan_in: int) -> Init:
    """Returns the initializer of biases in torch.nn.Linear and Conv2d."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return uniform(-bound, bound)


def check_sizes(layer: str, **sizes: int) -> None:
    """Throws ValueError unless every size is an integer of at least 1."""
    for name, size in sizes.items():
        if not is_whole(size, 1):
            current().refuse(f"nn.{layer}: {name} must be a whole number >= 1, got {size!r}")


def check_last(layer: str, x: Value, width: int, of: str) -> None:
    """Throws ValueError if the last axis of an input does not have the layer's width."""
    if isinstance(x, Value) and (not x.shape or x.shape[-1] != width):
        current().refuse(f"nn.{layer}: the last axis of x must be {of} = {width}, got {x!r}")


class Linear(Module):
    """A linear layer: x [..., in_features] -> [..., out_features], x weight^T + bias."""

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
    """An embedding: ids [...] -> [..., embedding_dim], rows of weight [num_embeddings, embedding_dim]."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        check_sizes("Embedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter([num_embeddings, embedding_dim], normal(1.0))

    def forward(self, ids: Value) -> Value:
        return ops.embedding(self.weight, ids)

    def describe(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


def _last_axes(layer: str, shape: int | Sequence[int]) -> list[int]:
    """Returns the lengths of the last axes that a norm covers."""
    sizes: list[int] = list(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else [shape]
    many = len(sizes) > 1
    check_sizes(layer, **{f"normalized_shape[{i}]" if many else "normalized_shape": n for i, n in enumerate(sizes)})
    if not sizes:
        current().refuse(f"nn.{layer}: normalized_shape must name at least one axis, got {shape!r}")
    return sizes


class LayerNorm(Module):
    """Layer norm along the last axes, those of normalized_shape: weight * (x - mean) / sqrt(variance + eps) + bias."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
                 bias: bool = True) -> None:
        self.shape, self.eps = _last_axes("LayerNorm", normalized_shape), eps
        self.weight = Parameter(self.shape, ones(), decay=False) if elementwise_affine else None
        self.bias = Parameter(self.shape, zeros(), decay=False) if elementwise_affine and bias else None

    def forward(self, x: Value) -> Value:
        axes, width = len(self.shape), math.prod(self.shape)
        if axes == 1:
            check_last("LayerNorm", x, width, "normalized_shape")
        elif isinstance(x, Value) and x.shape[-axes:] != self.shape:
            current().refuse(f"nn.LayerNorm: the last axes of x must be normalized_shape = {self.shape}, got {x!r}")
        gamma, beta = (ops.fill(shape=[width], value=value) if given is None else given if axes == 1 else given.flatten(0)
                       for given, value in ((self.weight, 1.0), (self.bias, 0.0)))
        rows = x if axes == 1 else x.flatten(x.ndim - axes)
        y: Any = ops.layer_norm(rows, gamma, beta, eps=self.eps)[0]
        return y if axes == 1 else y.reshape(x.shape)  # type: ignore[no-any-return]

    def describe(self) -> str:
        return f"{self.shape[0] if len(self.shape) == 1 else self.shape}, eps={self.eps}"


class RMSNorm(Module):
    """RMS norm: weight * x divided by the root of the mean square over its last axis. eps=None means float32's epsilon, as
    in PyTorch. Source: Zhang and Sennrich 2019."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None = None) -> None:
        sizes = _last_axes("RMSNorm", normalized_shape)
        if len(sizes) != 1:
            current().refuse(f"nn.RMSNorm: normalized_shape must be one number, the length of the last axis; got "
                             f"{normalized_shape!r}")
        self.width, self.eps = sizes[0], 2.0**-23 if eps is None else eps
        self.weight = Parameter([self.width], ones(), decay=False)

    def forward(self, x: Value) -> Value:
        check_last("RMSNorm", x, self.width, "normalized_shape")
        return rms_norm(x, self.weight, self.eps)

    def describe(self) -> str:
        return f"{self.width}, eps={self.eps}"


class Dropout(Module):
    """Dropout: in training x / (1 - p) with probability 1 - p, else 0; in validation x. The random numbers are the same
    under every schedule."""

    def __init__(self, p: float = 0.5) -> None:
        if isinstance(p, str) or not 0 <= p < 1:
            current().refuse(f"nn.Dropout: p must be in [0, 1), got {p!r}")
        self.p = p

    def forward(self, x: Value) -> Value:
        return ops.dropout(x, p=self.p) if self.p > 0 else x

    def describe(self) -> str:
        return f"p={self.p}"


class GroupNorm(Module):
    """Group norm per sample and group of channels of x [B, num_channels, ...]: weight * (x - mean) / sqrt(variance + eps) +
    bias. Source: Wu and He 2018."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        check_sizes("GroupNorm", num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            current().refuse(f"nn.GroupNorm: num_groups {num_groups} must divide num_channels {num_channels}")
        self.groups, self.channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter([num_channels], ones(), decay=False) if affine else None
        self.bias = Parameter([num_channels], zeros(), decay=False) if affine else None

    def forward(self, x: Value) -> Value:
        if isinstance(x, Value) and (len(x.shape) < 2 or x.shape[1] != self.channels):
            current().refuse(f"nn.GroupNorm: x must be [B, num_channels = {self.channels}, ...], got {x!r}")
        return group_norm(x, self.groups, self.weight, self.bias, self.eps)

    def describe(self) -> str:
        return f"{self.groups}, {self.channels}, eps={self.eps}"


class Flatten(Module):
    """Merges all axes from start_dim on into one. The batch axis stays."""

    def __init__(self, start_dim: int = 1) -> None:
        check_sizes("Flatten", start_dim=start_dim)
        self.start_dim = start_dim

    def forward(self, x: Value) -> Value:
        return x.flatten(self.start_dim)


class Identity(Module):
    """Returns x, and accepts and ignores all constructor arguments."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def forward(self, x: Value) -> Value:
        return x
