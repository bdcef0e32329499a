"""Text from a trained model of the next token, token by token in one process: keys and values of those before are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetu import ops
from hetu.graph import BATCH, current, new_graph, placeholder
from hetu.models.language import Cache, LanguageModel
from hetu.predictor import load, save

if TYPE_CHECKING:
    import numpy


def save_generator(folder: str, model: LanguageModel, checkpoint: str, length: int = 0, rows: int = 1) -> None:
    """Saves a model for a Generator, with the weights of the newest checkpoint of a folder (of a training, or of
    `hetu checkpoint import`). length: the most tokens of a row, those that are given included; 0: the model's positions.
    rows: that are computed at once. Starts a new graph.
    """
    length = length or model.positions
    if length < 2 or (model.positions and length > model.positions):
        current().refuse(f"save_generator: length must be from 2 to the model's {model.positions} positions, got {length}")
    new_graph()
    ids, place = placeholder("ids", "int32", [BATCH, 1]), placeholder("place", "int32", [BATCH, 1])
    seen, shape = placeholder("seen", "int32", [BATCH, length + 1]), [BATCH, length, model.cached()]
    caches = [Cache(place, seen, placeholder(f"keys.{i}", "float32", shape), placeholder(f"values.{i}", "float32", shape))
              for i in range(len(model.layers()))]
    outputs = [ops.scale(model.step(ids, caches), factor=1.0, name="logits")]
    for i, cache in enumerate(caches):
        assert cache.new is not None
        outputs += [ops.scale(new, factor=1.0, name=f"new_{name}.{i}")
                    for name, new in zip(("keys", "values"), cache.new, strict=True)]
    save(folder, outputs, checkpoint, rows)


class Generator:
    """What save_generator saved. `generator(ids, tokens=64)` goes on with rows of tokens."""

    def __init__(self, folder: str, threads: int = 0) -> None:
        self.model = load(folder, threads=threads)
        shapes = {name: shape for name, (_, shape) in self.model.fields.items() if name.startswith(("keys.", "values."))}
        if not shapes or "logits" not in self.model.outputs:
            current().refuse(f"Generator: {folder} holds another model, no one that save_generator saved")
        self.shapes: dict[str, list[int]] = shapes
        self.length = shapes["keys.0"][1]

    def __call__(self, ids: Any, tokens: int, temperature: float = 0.0, seed: int = 0) -> numpy.ndarray:
        """int32 [B, T + tokens] of int32 [B, T]: each next token is the likeliest (temperature 0), or drawn from
        softmax(logits / temperature)."""
        import numpy as np

        given = np.asarray(ids)
        if given.ndim != 2 or given.dtype.kind not in "iu" or 0 in given.shape:
            current().refuse(f"Generator: ids are whole numbers [B, T], got {given.dtype}{list(given.shape)}")
        if tokens < 1 or given.shape[1] + tokens > self.length:
            current().refuse(f"Generator: {given.shape[1]} tokens and {tokens} more do not fit in {self.length} (length= of "
                             "save_generator)")
        rows, start = given.shape
        out = np.zeros((rows, start + tokens), np.int32)
        out[:, :start] = given
        caches = {name: np.zeros((rows, *shape[1:]), np.float32) for name, shape in self.shapes.items()}
        seen = np.zeros((rows, self.length + 1), np.int32)
        seen[:, -1] = 1
        random = np.random.default_rng(seed)
        for at in range(start + tokens - 1):
            found: Any = self.model(ids=out[:, at:at + 1], place=np.full((rows, 1), at, np.int32), seen=seen, **caches)
            for name, cache in caches.items():
                cache[:, at] = found[f"new_{name}"][:, 0]
            seen[:, at] = 1
            if at + 1 >= start:
                out[:, at + 1] = _next(found["logits"][:, 0], temperature, random)
        return out


def _next(logits: numpy.ndarray, temperature: float, random: Any) -> numpy.ndarray:
    """The likeliest, or one that is drawn: by Gumbel's noise, the largest of which is a draw of the softmax."""
    if temperature <= 0:
        return logits.argmax(-1)
    return (logits / temperature + random.gumbel(size=logits.shape)).argmax(-1)


__all__ = ["Generator", "save_generator"]
