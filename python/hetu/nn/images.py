"""Layers for images, whose values are [B, C, H, W], and for signals, [B, C, L]. Constructors, names of parameters and
initial weights are those of torch.nn. Biases, and the weights and biases of norms, have no weight decay. B batch, C
channels, H height, W width."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from hetu import ops
from hetu.functions import instance_norm
from hetu.graph import Value, current
from hetu.init import ones, zeros
from hetu.nn.layers import check_sizes, linear_bias, linear_weight
from hetu.nn.module import Buffer, Module, Parameter
from hetu.place import is_whole


def _check_images(layer: str, x: Value, channels: int, of: str) -> None:
    if isinstance(x, Value) and (len(x.shape) != 4 or x.shape[1] != channels):
        current().refuse(f"nn.{layer}: x must be [B, {of} = {channels}, H, W], got {x!r}")


def _pair(layer: str, name: str, given: int | Sequence[int]) -> list[int]:
    """Returns [height, width]. A single number counts for both."""
    pair: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given, given]
    if len(pair) != 2 or not all(is_whole(n, -sys.maxsize) for n in pair):
        current().refuse(f"nn.{layer}: {name} must be a whole number, or two (height, width), got {given!r}")
    return [int(n) for n in pair]


def _both(layer: str, name: str, given: int | Sequence[int]) -> int:
    """Returns the common value of height and width. Throws ValueError if they differ."""
    pair = _pair(layer, name, given)
    if pair[0] != pair[1]:
        current().refuse(f"nn.{layer}: {name} must be the same for height and width, got {given!r}")
    return pair[0]


def _check_groups(layer: str, groups: int, channels: int, out: int) -> None:
    if channels % groups or out % groups:
        current().refuse(f"nn.{layer}: groups {groups} must divide both {channels} and {out} channels")


def _padding(layer: str, given: int | str | Sequence[int], kernel: list[int], stride: int, dilation: int) -> list[int]:
    """Returns the padding along each axis of the kernel."""
    if isinstance(given, str):
        if given == "valid":
            return [0] * len(kernel)
        if given == "same" and stride == 1 and all(size % 2 for size in kernel):
            return [dilation * (size // 2) for size in kernel]
        current().refuse(f"nn.{layer}: padding must be whole numbers, \"valid\", or \"same\" with stride 1 and an odd "
                         f"kernel, got {given!r}")
    pads = _pair(layer, "padding", given)[:len(kernel)]
    if min(pads) < 0:
        current().refuse(f"nn.{layer}: padding must be >= 0, got {given!r}")
    return pads


def _attrs_text(attrs: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in attrs.items())


class Conv2d(Module):
    """A convolution: x [B, in_channels, H, W] -> [B, out_channels, H', W'].

    kernel_size, padding: a number, or (height, width). padding may be "same" with stride 1 and an odd kernel.
    stride, dilation: the same along both axes.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int | Sequence[int],
                 stride: int | Sequence[int] = 1, padding: int | str | Sequence[int] = 0,
                 dilation: int | Sequence[int] = 1, groups: int = 1, bias: bool = True) -> None:
        kernel = _pair("Conv2d", "kernel_size", kernel_size)
        stride, dilation = _both("Conv2d", "stride", stride), _both("Conv2d", "dilation", dilation)
        check_sizes("Conv2d", in_channels=in_channels, out_channels=out_channels, stride=stride, dilation=dilation,
                    groups=groups, **{f"kernel_size[{i}]": size for i, size in enumerate(kernel)})
        _check_groups("Conv2d", groups, in_channels, out_channels)
        self.padding = _padding("Conv2d", padding, kernel, stride, dilation)
        self.channels, self.attrs = in_channels, {"stride": stride, "padding": min(self.padding), "dilation": dilation,
                                                  "groups": groups}
        self.weight = Parameter([out_channels, in_channels // groups, *kernel], linear_weight())
        fan_in = in_channels // groups * math.prod(kernel)
        self.bias = Parameter([out_channels], linear_bias(fan_in), decay=False) if bias else None

    def forward(self, x: Value) -> Value:
        _check_images("Conv2d", x, self.channels, "in_channels")
        rest = [(n - min(self.padding),) * 2 for n in self.padding]  # the operator has a single number for both axes
        x = x.pad([(0, 0), (0, 0), *rest]) if max(rest) > (0, 0) else x
        return ops.conv2d(x, self.weight, *([self.bias] if self.bias is not None else []), **self.attrs)

    def describe(self) -> str:
        attrs = _attrs_text({**self.attrs, "padding": self.padding if len(set(self.padding)) > 1 else self.padding[0]})
        return f"{self.channels}, {self.weight.shape[0]}, kernel_size={self.weight.shape[2:]}, {attrs}"


class Conv1d(Module):
    """A convolution along one axis, like Conv2d: x [B, in_channels, L] -> [B, out_channels, L']."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int | str = 0,
                 dilation: int = 1, groups: int = 1, bias: bool = True) -> None:
        check_sizes("Conv1d", in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size, stride=stride,
                    dilation=dilation, groups=groups)
        _check_groups("Conv1d", groups, in_channels, out_channels)
        self.padding = _padding("Conv1d", padding, [kernel_size], stride, dilation)[0]
        self.channels, self.attrs = in_channels, {"stride": stride, "dilation": dilation, "groups": groups}
        self.weight = Parameter([out_channels, in_channels // groups, kernel_size], linear_weight())
        fan_in = in_channels // groups * kernel_size
        self.bias = Parameter([out_channels], linear_bias(fan_in), decay=False) if bias else None

    def forward(self, x: Value) -> Value:
        if isinstance(x, Value) and (len(x.shape) != 3 or x.shape[1] != self.channels):
            current().refuse(f"nn.Conv1d: x must be [B, in_channels = {self.channels}, L], got {x!r}")
        image = x.pad([(0, 0), (0, 0), (self.padding, self.padding)]).unsqueeze(2)
        y = ops.conv2d(image, self.weight.unsqueeze(2), *([self.bias] if self.bias is not None else []), **self.attrs)
        return y.squeeze(2)  # type: ignore[no-any-return]

    def describe(self) -> str:
        return (f"{self.channels}, {self.weight.shape[0]}, kernel_size={self.weight.shape[2]}, padding={self.padding}, "
                f"{_attrs_text(self.attrs)}")


class ConvTranspose2d(Module):
    """A transposed convolution, a trainable upsampling: x [B, in_channels, H, W] -> [B, out_channels, H', W']. Each element
    contributes its multiple of the kernel."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int | Sequence[int],
                 stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, output_padding: int | Sequence[int] = 0,
                 groups: int = 1, bias: bool = True, dilation: int | Sequence[int] = 1) -> None:
        kernel = _pair("ConvTranspose2d", "kernel_size", kernel_size)
        stride, padding, output_padding, dilation = (
            _both("ConvTranspose2d", name, given) for name, given in (
                ("stride", stride), ("padding", padding), ("output_padding", output_padding), ("dilation", dilation)))
        check_sizes("ConvTranspose2d", in_channels=in_channels, out_channels=out_channels, stride=stride, groups=groups,
                    dilation=dilation, **{f"kernel_size[{i}]": size for i, size in enumerate(kernel)})
        _check_groups("ConvTranspose2d", groups, in_channels, out_channels)
        self.channels, self.attrs = in_channels, {"stride": stride, "padding": padding, "output_padding": output_padding,
                                                  "groups": groups, "dilation": dilation}
        self.weight = Parameter([in_channels, out_channels // groups, *kernel], linear_weight())
        fan_in = out_channels // groups * math.prod(kernel)  # fan-in of the second axis, as in PyTorch
        self.bias = Parameter([out_channels], linear_bias(fan_in), decay=False) if bias else None

    def forward(self, x: Value) -> Value:
        _check_images("ConvTranspose2d", x, self.channels, "in_channels")
        return ops.conv_transpose2d(x, self.weight, *([self.bias] if self.bias is not None else []), **self.attrs)

    def describe(self) -> str:
        return f"{self.channels}, kernel_size={self.weight.shape[2:]}, {_attrs_text(self.attrs)}"


class _BatchNorm(Module):
    """Batch norm per channel of x: weight * (x - mean) / sqrt(variance + eps) + bias. Training uses the statistics of the
    micro-batch, and updates running_mean and running_var by them. Validation uses the running statistics (see hetu.buffer).
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        check_sizes(type(self).__name__, num_features=num_features)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = Parameter([num_features], ones(), decay=False)
        self.bias = Parameter([num_features], zeros(), decay=False)
        self.running_mean, self.running_var = Buffer([num_features], zeros()), Buffer([num_features], ones())
        self.num_batches_tracked = Buffer([], zeros())

    def _norm(self, x: Value) -> Value:
        ops.count_up(self.num_batches_tracked)
        return ops.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, momentum=self.momentum,
                              epsilon=self.eps)[0]

    def describe(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm2d(_BatchNorm):
    """Batch norm per channel of x [B, num_features, H, W]: weight * (x - mean) / sqrt(variance + eps) + bias. Training uses
    the statistics of the micro-batch, and updates running_mean and running_var by them. Validation uses the running
    statistics (see hetu.buffer)."""

    def forward(self, x: Value) -> Value:
        _check_images("BatchNorm2d", x, self.num_features, "num_features")
        return self._norm(x)


class BatchNorm1d(_BatchNorm):
    """Batch norm like BatchNorm2d, for x [B, num_features] or [B, num_features, L]."""

    def forward(self, x: Value) -> Value:
        if isinstance(x, Value) and (len(x.shape) not in (2, 3) or x.shape[1] != self.num_features):
            current().refuse(f"nn.BatchNorm1d: x must be [B, num_features = {self.num_features}] or "
                             f"[B, {self.num_features}, L], got {x!r}")
        return self._norm(x.reshape([*x.shape, *[1] * (4 - x.ndim)])).reshape(x.shape)


class InstanceNorm2d(Module):
    """Instance norm per sample and channel of x [B, num_features, H, W]: (x - mean) / sqrt(variance + eps), with `affine`
    times weight plus bias. Source: Ulyanov et al. 2016."""

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = False) -> None:
        check_sizes("InstanceNorm2d", num_features=num_features)
        self.num_features, self.eps = num_features, eps
        self.weight = Parameter([num_features], ones(), decay=False) if affine else None
        self.bias = Parameter([num_features], zeros(), decay=False) if affine else None

    def forward(self, x: Value) -> Value:
        _check_images("InstanceNorm2d", x, self.num_features, "num_features")
        return instance_norm(x, self.weight, self.bias, self.eps)

    def describe(self) -> str:
        return f"{self.num_features}, eps={self.eps}"


class _Pool2d(Module):
    """Pooling windows of x [B, C, H, W]. `stride` None means the kernel's size."""

    def __init__(self, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None,
                 padding: int | Sequence[int] = 0) -> None:
        layer = type(self).__name__
        kernel = _both(layer, "kernel_size", kernel_size)
        step = kernel if stride is None else _both(layer, "stride", stride)
        check_sizes(layer, kernel_size=kernel, stride=step)
        self.attrs = {"kernel": kernel, "stride": step, "padding": _both(layer, "padding", padding)}

    def describe(self) -> str:
        return _attrs_text(self.attrs)


class MaxPool2d(_Pool2d):
    """The maximum of each window of x [B, C, H, W]. `stride` None means the kernel's size."""

    def forward(self, x: Value) -> Value:
        return ops.max_pool2d(x, **self.attrs)[0]


class AvgPool2d(_Pool2d):
    """The mean of each window of x [B, C, H, W], with padding counted as zeros. `stride` None means the kernel's size."""

    def forward(self, x: Value) -> Value:
        return ops.avg_pool2d(x, **self.attrs)


class AdaptiveAvgPool2d(Module):
    """The mean of each plane: [B, C, H, W] -> [B, C, 1, 1]. Only output_size 1 is supported."""

    def __init__(self, output_size: int | Sequence[int] = 1) -> None:
        if output_size not in (1, (1, 1), [1, 1]):
            current().refuse(f"nn.AdaptiveAvgPool2d: output_size must be 1 (mean of the whole plane), got {output_size!r}")

    def forward(self, x: Value) -> Value:
        mean = ops.global_avg_pool(x)
        return mean.reshape([*mean.shape, 1, 1])


class Upsample(Module):
    """Resizes images: `scale_factor` times as high and wide, by the nearest pixel or bilinearly."""

    def __init__(self, scale_factor: int, mode: str = "nearest", align_corners: bool = False) -> None:
        check_sizes("Upsample", scale_factor=scale_factor)
        if mode not in ("nearest", "bilinear") or (align_corners and mode == "nearest"):
            current().refuse(f"nn.Upsample: mode is nearest or bilinear, align_corners only with bilinear; got {mode!r}")
        self.factor, self.attrs = scale_factor, {"linear": int(mode == "bilinear"), "align_corners": int(align_corners)}

    def forward(self, x: Value) -> Value:
        if isinstance(x, Value) and len(x.shape) != 4:
            current().refuse(f"nn.Upsample: x must be [B, C, H, W], got {x!r}")
        return ops.resize2d(x, height=x.shape[2] * self.factor, width=x.shape[3] * self.factor, **self.attrs)

    def describe(self) -> str:
        return f"scale_factor={self.factor}, {_attrs_text(self.attrs)}"
