"""Text generation with a trained model of the next token, in one process: the prompt at once, then token by token, with
cached keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetu import _hetu, ops
from hetu.arithmetic import kind_of
from hetu.arrays import converted
from hetu.graph import BATCH, current, new_graph, placeholder
from hetu.models.language import Cache, LanguageModel
from hetu.place import path_of, placed
from hetu.predictor import finished, save_together

if TYPE_CHECKING:
    import numpy


PROMPT = "prompt"  # name of a generator's second graph, which takes several tokens of a row at once


def save_generator(folder: str, model: LanguageModel, checkpoint: str, length: int = 0, rows: int = 1,
                   prompt: int = 32) -> None:
    """Saves a model for a Generator, with the weights of the newest checkpoint in the folder `checkpoint`. The checkpoint
    comes from a training or from `hetu checkpoint import`.

    length: the most tokens of a row, including the prompt. 0: the model's number of positions.
    rows: rows that are computed at once.
    prompt: prompt tokens that are computed at once. 1: one by one. With larger values, the weights are in memory twice (on
    disk once).
    Starts a new graph. Replaces the model in the folder, like hetu.save.
    """
    if not isinstance(model, LanguageModel):
        current().refuse(f"save_generator: expected a model of the next token, such as Gpt, got {kind_of(model)}")
    length = length or model.positions
    if length < 2 or (model.positions and length > model.positions):
        current().refuse(f"save_generator: length must be from 2 to the model's {model.positions} positions, got {length}")
    if prompt < 1:
        current().refuse(f"save_generator: prompt must be >= 1, got {prompt}")
    several = {PROMPT: _steps(model, length, prompt)} if 1 < prompt < length else {}
    save_together(folder, _steps(model, length, 1), checkpoint, rows, several)


def _steps(model: LanguageModel, length: int, tokens: int) -> tuple[Any, list[str]]:
    """Builds the graph that takes `tokens` tokens of a row after the cached ones. Returns the graph and the names of its
    outputs."""
    new_graph()
    ids, place = placeholder("ids", "int32", [BATCH, tokens]), placeholder("place", "int32", [BATCH, tokens])
    seen, shape = placeholder("seen", "int32", [BATCH, length + tokens]), [BATCH, length, model.cached()]
    caches = [Cache(place, seen, placeholder(f"keys.{i}", "float32", shape), placeholder(f"values.{i}", "float32", shape))
              for i in range(len(model.layers()))]
    outputs = [ops.scale(model.step(ids, caches), factor=1.0, name="logits")]
    for i, cache in enumerate(caches):
        assert cache.new is not None
        outputs += [ops.scale(new, factor=1.0, name=f"new_{name}.{i}")
                    for name, new in zip(("keys", "values"), cache.new, strict=True)]
    return finished(outputs)


class Generator:
    """A model that save_generator saved. `generator(ids, tokens=64)` continues rows of tokens; no Python runs between
    tokens.

    length: the most tokens of a row.
    prompt: prompt tokens that are computed at once. 1: one by one.
    Like a Predictor, it may be shared by threads and called in forked children.
    """

    def __init__(self, folder: str, threads: int = 0) -> None:
        with placed(lambda text: f"Generator: {text}"):
            self.model = _hetu.Generator(path_of(folder), threads)
        self.length, self.prompt = int(self.model.length), int(self.model.prompt)

    def __call__(self, ids: Any, tokens: int, temperature: float = 0.0, seed: int = 0) -> numpy.ndarray:
        """Returns int32 [B, T + tokens] for ids int32 [B, T]. Each next token is the most likely one (temperature 0), or
        sampled from softmax(logits / temperature)."""
        import numpy as np

        try:
            given = np.asarray(ids)
        except ValueError:
            current().refuse("Generator: ids must be whole numbers [B, T], in rows of one length")
        if given.ndim != 2 or given.dtype.kind not in "iu" or 0 in given.shape:
            current().refuse(f"Generator: ids must be whole numbers [B, T], got {given.dtype}{list(given.shape)}")
        for name, number in (("tokens", tokens), ("seed", seed)):
            if not isinstance(number, (int, np.integer)) or number < 0:
                current().refuse(f"Generator: {name} must be a whole number >= 0, got {number!r}")
        try:
            return np.asarray(self.model.generate(converted(given, "int32"), int(tokens), float(temperature), int(seed)))
        except ValueError as error:
            current().refuse(f"Generator: {error}")


__all__ = ["Generator", "save_generator"]
