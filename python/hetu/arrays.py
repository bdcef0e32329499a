"""Conversion of NumPy arrays to the dtypes of values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy

_MEANT = {"f": "float32", "i": "int32", "u": "int32", "b": "bool"}
TAKEN = tuple(dict.fromkeys(_MEANT.values()))
_EXACT = 2**24  # integers up to this magnitude are exact in float32


def meant(array: numpy.ndarray) -> str:
    """Returns the dtype of a value for this array: float32 for floats, int32 for integers, bool for bools, "" for others."""
    return _MEANT.get(array.dtype.kind, "")


def meant_as_rows(array: numpy.ndarray) -> str:
    """Returns meant() for rows of samples, except that uint8 rows with two axes or more are pixels and become float32."""
    return "float32" if array.dtype == "uint8" and array.ndim > 2 else meant(array)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def text_in(array: numpy.ndarray) -> str:
    """Describes text in an array, such as "text ('n/a' in row 3, column 1)": the first that is no number, or else the first.
    Returns "" if the array holds none. Rows count from 0."""
    import numpy as np

    if array.dtype.kind not in "USO":
        return ""
    found = [(place, value if isinstance(value, str) else value.decode(errors="replace"))
             for place, value in np.ndenumerate(array) if isinstance(value, (str, bytes))]
    if not found:
        return ""
    place, value = next((each for each in found if not _is_number(each[1])), found[0])
    row, *inner = place or (0,)
    where = f", column {inner[0]}" if len(inner) == 1 else f", at {inner}" if inner else ""
    return f"text ('{value[:40]}' in row {row}{where})"


def converted(array: numpy.ndarray, dtype: str) -> numpy.ndarray:
    """Returns the array in one of the dtypes TAKEN, row-major and little-endian. Floats may lose digits; integers lose
    none. Throws ValueError, which names the element, if an element does not fit."""
    import numpy as np

    kind = array.dtype.kind
    if text := text_in(array):
        raise ValueError(f"it holds {text}; give numbers")
    if kind not in _MEANT or (kind == "f" and dtype != "float32"):
        raise ValueError(f"{array.dtype} can't be converted to {dtype}")
    if array.size and kind in "iu":
        low, high = int(array.min()), int(array.max())
        least, most = {"int32": (-(2**31), 2**31 - 1), "float32": (-_EXACT, _EXACT), "bool": (0, 1)}[dtype]
        if low < least or high > most:
            raise ValueError(f"{low if low < least else high} is out of range for {dtype}, {least} to {most}")
    with np.errstate(over="ignore"):
        out = np.asarray(array, np.dtype(dtype).newbyteorder("<"), order="C")
    if array.dtype == np.float64 and array.size:
        lost = np.isinf(out) & np.isfinite(array)
        if lost.any():
            raise ValueError(f"{array[lost][0]} is out of range for float32, -3.4e38 to 3.4e38")
    return out
