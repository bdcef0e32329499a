"""Layers for comparing hetu.nn with torch.nn. Both build them by the same expressions, from `nn`. Weights and inputs come
from seeded NumPy, and results are stored as digests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bert_cases import digest

SEED = 20261124
BATCH = 3


@dataclass
class Case:
    """A layer to compare. `make` builds a module from `nn`, `inputs` are arrays of BATCH samples, and `call` applies the
    module to the inputs."""

    make: Callable[[Any], Any]
    inputs: list[np.ndarray]
    call: Callable[..., Any] = field(default=lambda module, *inputs: module(*inputs))
    slopes: bool = True  # False: compare the value only, because it has no gradient


def draw(*shape: int) -> np.ndarray:
    """Returns samples of this shape."""
    return np.random.default_rng([SEED, *shape]).standard_normal((BATCH, *shape)).astype(np.float32)


def padding(keys: int) -> np.ndarray:
    """Returns bools [BATCH, keys], true at the end of some rows."""
    return np.arange(keys) >= np.array([keys, keys - 2, 1])[:, None]


def _mlp(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8, bias=False), nn.Sigmoid(), nn.Linear(8, 2))


def _tied(nn: Any) -> Any:
    model = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 5), nn.SiLU(), nn.Linear(5, 7, bias=False))
    model[3].weight = model[0].weight
    return model


def _batch_first(state: Any, layers: int) -> Any:
    """Moves the batch to the front of a state of this many layers and directions. PyTorch has the layers first."""
    return state.permute(1, 0, 2) if state.shape[0] == layers else state


def _of_lists(nn: Any) -> Any:
    return nn.ModuleList([nn.Linear(4, 4), nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.LeakyReLU(0.2)})])


IDS = np.random.default_rng(SEED).integers(0, 7, (BATCH, 4), np.int32)
LAYERS = {"batch_first": True, "dropout": 0.0, "dim_feedforward": 12}
HIDDEN = np.triu(np.ones((5, 5), dtype=bool), 2)  # a query sees one later key

CASES: dict[str, Case] = {
    "linear": Case(lambda nn: nn.Linear(6, 4), [draw(6)]),
    "linear of rows": Case(lambda nn: nn.Linear(6, 4, bias=False), [draw(2, 5, 6)]),
    "embedding": Case(lambda nn: nn.Embedding(7, 5), [IDS]),
    "layer norm": Case(lambda nn: nn.LayerNorm(6), [draw(4, 6)]),
    "layer norm without bias": Case(lambda nn: nn.LayerNorm([6], eps=1e-3, bias=False), [draw(6)]),
    "layer norm without weights": Case(lambda nn: nn.Sequential(nn.LayerNorm(6, elementwise_affine=False), nn.Linear(6, 2)),
                                       [draw(6)]),
    "layer norm of images": Case(lambda nn: nn.LayerNorm([4, 2, 3]), [draw(4, 2, 3)]),
    "layer norm of rows": Case(lambda nn: nn.LayerNorm((2, 3), bias=False), [draw(4, 2, 3)]),
    "rms norm": Case(lambda nn: nn.RMSNorm(6), [draw(4, 6)]),
    "rms norm with eps": Case(lambda nn: nn.RMSNorm(6, eps=0.1), [draw(6)]),
    "conv": Case(lambda nn: nn.Conv2d(3, 4, 3, stride=2, padding=1), [draw(3, 7, 6)]),
    "conv of two sides": Case(lambda nn: nn.Conv2d(2, 3, (3, 2), bias=False), [draw(2, 5, 6)]),
    "conv padded on two sides": Case(lambda nn: nn.Conv2d(2, 3, (1, 5), stride=(2, 2), padding=(0, 2)), [draw(2, 5, 6)]),
    "conv of uneven padding": Case(lambda nn: nn.Conv2d(2, 3, (5, 3), padding="same", dilation=2), [draw(2, 6, 5)]),
    "conv of signals": Case(lambda nn: nn.Conv1d(3, 4, 3, stride=2, padding=1), [draw(3, 7)]),
    "conv of signals' groups": Case(lambda nn: nn.Conv1d(4, 6, 3, groups=2, dilation=2, padding="same", bias=False),
                                    [draw(4, 8)]),
    "conv same": Case(lambda nn: nn.Conv2d(2, 2, 5, padding="same"), [draw(2, 6, 6)]),
    "conv of groups": Case(lambda nn: nn.Conv2d(4, 6, 3, groups=2, dilation=2, padding=2), [draw(4, 6, 6)]),
    "conv transposed": Case(lambda nn: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
                            [draw(4, 3, 4)]),
    "group norm": Case(lambda nn: nn.GroupNorm(2, 6), [draw(6, 3, 2)]),
    "instance norm": Case(lambda nn: nn.Sequential(nn.InstanceNorm2d(3), nn.Conv2d(3, 2, 1, bias=False),
                                                   nn.InstanceNorm2d(2, affine=True)), [draw(3, 4, 4)]),
    "up and down": Case(lambda nn: nn.Sequential(nn.Conv2d(1, 2, 1), nn.Upsample(scale_factor=2), nn.Conv2d(2, 2, 1),
                                                 nn.Upsample(scale_factor=2, mode="bilinear"), nn.AvgPool2d(3, 2, 1)),
                        [draw(1, 3, 2)]),
    "batch norm": Case(lambda nn: nn.BatchNorm2d(3), [draw(3, 4, 4)]),
    "batch norm of vectors": Case(lambda nn: nn.Sequential(nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5)), [draw(4)]),
    "batch norm of signals": Case(lambda nn: nn.BatchNorm1d(3, momentum=0.3), [draw(3, 4)]),
    "images": Case(lambda nn: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4, momentum=0.3),
                                            nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                            nn.Linear(4, 5)), [draw(3, 6, 6)]),
    "pool": Case(lambda nn: nn.Sequential(nn.Conv2d(1, 1, 1), nn.MaxPool2d(3, stride=1, padding=1), nn.Flatten()),
                 [draw(1, 4, 5)]),
    "mlp": Case(_mlp, [draw(6)]),
    "tied": Case(_tied, [IDS]),
    "lists": Case(_of_lists, [draw(4)], lambda m, x: m[1].b(m[1]["a"](m[0](x)))),
    "activations": Case(lambda nn: nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.GELU(approximate="tanh"),
                                                 nn.Linear(4, 4), nn.Softplus(), nn.Linear(4, 4), nn.Softmax(dim=-1),
                                                 nn.Identity()), [draw(4)]),
    "softmax of an axis": Case(lambda nn: nn.Sequential(nn.Linear(4, 4, bias=False), nn.Softmax(dim=1),
                                                        nn.Linear(4, 3), nn.Softmax(2)),
                               [draw(5, 4)]),
    "attention": Case(lambda nn: nn.MultiheadAttention(8, 2, batch_first=True), [draw(5, 8)],
                      lambda m, x: m(x, x, x)[0]),
    "attention's weights": Case(lambda nn: nn.MultiheadAttention(8, 2, batch_first=True), [draw(5, 8)],
                                lambda m, x: m(x, x, x)[1], slopes=False),
    "cross attention": Case(lambda nn: nn.MultiheadAttention(8, 4, batch_first=True), [draw(3, 8), draw(6, 8)],
                            lambda m, x, y: m(x, y, y, need_weights=False)[0]),
    "padded attention": Case(lambda nn: nn.MultiheadAttention(8, 2, bias=False, batch_first=True),
                             [draw(3, 8), draw(6, 8), padding(6)],
                             lambda m, x, y, p: m(x, y, y, key_padding_mask=p)[0]),
    "masked attention": Case(lambda nn: nn.MultiheadAttention(8, 1, batch_first=True),  # torch has a mask per head
                             [draw(5, 8), padding(5), np.stack([HIDDEN] * BATCH)],
                             lambda m, x, p, h: m(x, x, x, key_padding_mask=p, attn_mask=h)[0]),
    "attention with scores added": Case(lambda nn: nn.MultiheadAttention(8, 1, batch_first=True),
                                        [draw(5, 8), draw(5, 5)], lambda m, x, h: m(x, x, x, attn_mask=h)[0]),
    "padded, with scores added": Case(lambda nn: nn.MultiheadAttention(8, 1, batch_first=True),
                                      [draw(5, 8), padding(5), draw(5, 5)],
                                      lambda m, x, p, h: m(x, x, x, key_padding_mask=p, attn_mask=h)[0]),
    "encoder": Case(lambda nn: nn.TransformerEncoderLayer(8, 2, **LAYERS), [draw(5, 8)]),
    "encoder, norms first": Case(lambda nn: nn.TransformerEncoderLayer(8, 2, activation="gelu", norm_first=True, **LAYERS),
                                 [draw(5, 8), padding(5)], lambda m, x, p: m(x, src_key_padding_mask=p)),
    "decoder": Case(lambda nn: nn.TransformerDecoderLayer(8, 2, **LAYERS), [draw(3, 8), draw(6, 8), padding(6)],
                    lambda m, x, y, p: m(x, y, memory_key_padding_mask=p)),
    "decoder, norms first": Case(lambda nn: nn.TransformerDecoderLayer(8, 2, norm_first=True, **LAYERS),
                                 [draw(3, 8), draw(6, 8)]),
    "lstm": Case(lambda nn: nn.LSTM(6, 5, batch_first=True), [draw(4, 6)], lambda m, x: m(x)[0]),
    "lstm's state": Case(lambda nn: nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True), [draw(4, 6)],
                         lambda m, x: _batch_first(m(x)[1][0] * m(x)[1][1], 4)),
    "lstm without bias": Case(lambda nn: nn.LSTM(6, 5, 2, bias=False, batch_first=True), [draw(4, 6)], lambda m, x: m(x)[0]),
    "gru of both directions": Case(lambda nn: nn.GRU(6, 5, 3, bidirectional=True, batch_first=True), [draw(4, 6)],
                                   lambda m, x: m(x)[0]),
    "lstm that goes on": Case(lambda nn: nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True), [draw(4, 6)],
                              lambda m, x: m(x[:, 1:], m(x[:, :1])[1])[0]),
    "gru that goes on": Case(lambda nn: nn.GRU(6, 5, batch_first=True), [draw(4, 6)],
                             lambda m, x: m(x[:, 1:], m(x[:, :1])[1])[0]),
    "gru's state": Case(lambda nn: nn.GRU(6, 5, 2, batch_first=True), [draw(4, 6)], lambda m, x: _batch_first(m(x)[1], 2)),
    "stacks": Case(lambda nn: nn.ModuleDict({
        "encoder": nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, **LAYERS), 2, nn.LayerNorm(8)),
        "decoder": nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, **LAYERS), 2),
    }), [draw(3, 8), draw(5, 8)], lambda m, x, y: m.decoder(x, m.encoder(y))),
}
# Layers whose initial weights are compared. They are large, so that chance has little effect.
STARTS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda nn: nn.Linear(300, 200), "embedding": lambda nn: nn.Embedding(300, 100),
    "conv": lambda nn: nn.Conv2d(20, 300, 3), "conv of signals": lambda nn: nn.Conv1d(20, 300, 9),
    "conv transposed": lambda nn: nn.ConvTranspose2d(40, 100, 3), "batch norm": lambda nn: nn.BatchNorm2d(30),
    "lstm": lambda nn: nn.LSTM(100, 90, bidirectional=True), "gru": lambda nn: nn.GRU(100, 90, 2),
    "layer norm": lambda nn: nn.LayerNorm(30), "rms norm": lambda nn: nn.RMSNorm(30),
    "attention": lambda nn: nn.MultiheadAttention(200, 2, batch_first=True),
    "encoder": lambda nn: nn.TransformerEncoderLayer(200, 2, 300, batch_first=True),
}


def weights(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Returns weights by name. Scales of norms are near 1, and running variances are above 0."""
    out = {}
    for name, shape in shapes.items():
        drawn = np.random.default_rng([SEED, *map(ord, name)]).standard_normal(shape)
        if name.endswith("running_var"):
            drawn = np.abs(drawn) + 0.5
        elif name.endswith("num_batches_tracked"):
            drawn = drawn * 0 + 4
        else:
            drawn = 0.3 * drawn + (len(shape) == 1 and name.endswith("weight"))
        out[name] = np.asarray(drawn, np.float32)
    return out


def factors(shape: tuple[int, ...]) -> np.ndarray:
    """Returns the factors of a result. The gradients of the sum of the products are compared."""
    return np.random.default_rng([SEED + 1, *shape]).standard_normal(shape).astype(np.float32)


def spread(array: np.ndarray) -> dict[str, float]:
    """Returns statistics of a tensor's initial values."""
    wide = array.astype(np.float64)
    return {"mean": float(wide.mean()), "std": float(wide.std()), "most": float(np.abs(wide).max())}


def digests(tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: digest(name, np.asarray(tensor)) for name, tensor in tensors.items()}
