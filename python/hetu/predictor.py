"""Saved models: written by job.save or hetu.save, and run by one process without the script that made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetu import _hetu, keywords
from hetu.arrays import converted
from hetu.graph import Value, check_values, current, shape_text
from hetu.place import path_of, placed

if TYPE_CHECKING:
    import numpy


class Predictor:
    """A saved model. `predictor(x=array, ...)` takes an array per field with a row per sample, and returns the model's
    value for each sample. The result is an array, or a dict from name to array if the model has several outputs. Dropout is
    off, and running statistics are fixed.

    folder: written by job.save.
    rows: samples computed at once. 0: the size of a micro-batch of the job, which gives the same bits as job.predict.
    threads: threads of kernels. 0: all cores that this process may use.
    Throws OSError if the folder holds no model.
    Threads may share one predictor: their calls run one after the other. A call that raises changes nothing. A process may
    load a model and fork; its children may call it (on device cpu).
    """

    def __init__(self, folder: str, rows: int = 0, threads: int = 0, device: str = "cpu") -> None:
        self.folder = path_of(folder)
        self.model = _hetu.Predictor(self.folder, rows, threads, device)
        self.fields = {name: (dtype, shape) for name, dtype, shape in self.model.fields}
        self.outputs = {name: (dtype, shape) for name, dtype, shape in self.model.outputs}

    @property
    def rows(self) -> int:
        """The number of samples that are computed at once."""
        return int(self.model.rows)

    def __call__(self, *of_one_field: Any, **fields: Any) -> numpy.ndarray | dict[str, numpy.ndarray]:
        if of_one_field and len(self.fields) == len(of_one_field) == 1 and not fields:
            fields = {next(iter(self.fields)): of_one_field[0]}
        elif of_one_field:
            current().refuse(f"predictor: give arrays by name: {', '.join(f'{name}=' for name in self.fields)}")
        given = {name: self._taken(name, value) for name, value in fields.items()}
        found = self._told(self.model.predict, given)
        return next(iter(found.values())) if len(found) == 1 else dict(found)

    def carry(self, outputs: Mapping[str, str]) -> None:
        """Connects outputs to fields, for models that continue from a state, such as the keys and values of the tokens so
        far.

        outputs: output -> field. The field then takes the output's value of the previous call (zeros at the first call),
        and must not be given. The output is no longer returned. All calls must have the same number of rows, at most
        `rows`.
        """
        for output, field in outputs.items():
            self._told(self.model.carry, output, field)

    def reset(self) -> None:
        """Resets carried fields to zeros."""
        self.model.reset()

    def _taken(self, name: str, value: Any) -> numpy.ndarray:
        """Converts an array to the field's dtype by the same rules as in training (hetu.arrays)."""
        import numpy

        array = numpy.ascontiguousarray(value)
        if name not in self.fields:
            return array
        try:
            return converted(array, self.fields[name][0])
        except ValueError as error:
            current().refuse(f"predictor: field '{name}': {error}")

    @staticmethod
    def _told(function: Callable[..., Any], *given: Any) -> Any:
        """Calls a function. Its errors are raised with the line of the user's script."""
        try:
            return function(*given)
        except ValueError as error:
            current().refuse(f"predictor: {error}")

    def __repr__(self) -> str:
        sides = (", ".join(f"{name} {dtype}{shape_text(shape)}" for name, (dtype, shape) in side.items())
                 for side in (self.fields, self.outputs))
        return f"Predictor({' -> '.join(sides)})"


@placed()
def load(folder: str, rows: int = 0, threads: int = 0, device: str = "cpu") -> Predictor:
    """Returns the model of a folder (see Predictor)."""
    return Predictor(folder, rows, threads, device)


def save(folder: str, values: Sequence[Value] | Mapping[str, Value], checkpoint: str, rows: int = 32) -> None:
    """Saves the model that computes these values of the current script, with the weights of the newest checkpoint in the
    folder `checkpoint`. hetu.load reads the result.

    values: a list, whose values the model returns under their names in the graph, or a dict that names them: name -> value.
    It replaces the model in `folder`, whatever its step. A kill at any moment leaves either the old or the new model.
    Throws OSError for a folder with checkpoints of a training. To save the model of a job, use job.save.
    rows: samples that the model computes at once.
    """
    outputs: list[str] = []
    if isinstance(values, Mapping):
        outputs, values = output_names("save: values", values), list(values.values())
    save_together(folder, finished(values), checkpoint, rows, outputs=outputs)


def finished(values: Sequence[Value]) -> tuple[Any, list[str]]:
    """Returns the finished graph of these values, and their names in it."""
    if isinstance(values, Value) or not values:
        current().refuse(f"save: expected a list of values, got {values!r}")
    check_values("save", **{f"values[{i}]": value for i, value in enumerate(values)})
    graph = values[0].graph
    for value in values:
        if value.graph is not graph:
            current().refuse(f"save: {value!r} belongs to another graph than the other values")
    named = [(graph.builder.producer_of(value.number)[0], value.number) for value in values]
    with placed(lambda text: f"save: {text}"):
        return graph.builder.finished_with(named), [name for name, _ in named]


def save_together(folder: str, model: tuple[Any, list[str]], checkpoint: str, rows: int,
                  variants: Mapping[str, tuple[Any, list[str]]] | None = None, outputs: Sequence[str] = ()) -> None:
    """Saves a finished graph as one model, together with further graphs of the same weights (`variants`, by name).
    `outputs` names its values; by default they have the names of the graph."""
    with placed(lambda text: f"save: {text}"):
        _hetu.save_model(path_of(folder), *model, rows, path_of(checkpoint), dict(variants or {}), list(outputs))


def output_names(what: str, values: Mapping[str, Any]) -> list[str]:
    """Returns the keys of a dict that names the outputs of a model. Throws ValueError unless they are text."""
    if wrong := [name for name in values if not isinstance(name, str) or not name]:
        current().refuse(f"{what}: a dict names the outputs, such as {{'logits': logits}}; {wrong[0]!r} is not a name")
    return list(values)


__all__ = ["Predictor", "load", "save"]


keywords.check_module(__name__, "hetu")
