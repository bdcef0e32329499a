"""Names rows of the data in errors about a step: the row behind "row 34 of the global batch", and the first input that is
not finite."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hetu.data import Data

if TYPE_CHECKING:
    import numpy

_ROW = re.compile(r"row (\d+) of the (?:global )?batch")
_NOT_FINITE = "look at the data of this step"  # in the error of a loss that is not finite (executor/stage/stage.cpp)


def words_for(data: Data, batch: int, epoch: int, index: int) -> Callable[[str], str]:
    """Returns a function that adds rows of the data to the error of a step.

    batch: rows of a global batch.
    epoch, index: the position in the data before the step, as a loader counts it.
    """

    def words(text: str) -> str:
        at = data.next_batch(epoch, index, batch)
        if found := _ROW.search(text):
            row = data.row_text(*at, int(found[1]), batch)
            return f"{text}, {row}" if row else text
        return text + _inputs_text(data, batch, *at) if _NOT_FINITE in text else text

    return words


def _inputs_text(data: Data, batch: int, epoch: int, index: int) -> str:
    """Describes the first number that is not finite in the fields of a step. Returns "" if the data can't be read again."""
    fields = data.read_again(epoch, index, batch)
    if fields is None:
        return ""
    found = _first_not_finite(fields)
    if found is None:
        return "; all numbers that it reads are finite"
    name, value, row = found
    return f"; field '{name}' has {value} in row {row} of the global batch, {data.row_text(epoch, index, row, batch)}"


def _first_not_finite(fields: Mapping[str, numpy.ndarray]) -> tuple[str, float, int] | None:
    """Returns the name, value and row of the first number that is not finite."""
    import numpy as np

    for name, values in fields.items():
        if values.dtype.kind != "f":
            continue
        wrong = np.argwhere(~np.isfinite(values))
        if len(wrong):
            return name, float(values[tuple(wrong[0])]), int(wrong[0][0])
    return None
