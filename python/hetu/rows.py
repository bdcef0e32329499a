"""Sources of your own rows for hetu.data, the order in which rows are read, and their conversion to fields of a batch."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

from hetu import _hetu, files, keywords
from hetu.arrays import converted, meant_as_rows, text_in
from hetu.place import check_takes, is_whole, of_script, path_of, place, refuse

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import numpy

Fields = list[tuple[str, str, list[int]]]  # name, dtype, shape of one row
Arrays = dict[str, "numpy.ndarray"]  # by field, a row along axis 0
Augment = Callable[[Arrays, "numpy.random.Generator"], Mapping[str, Any]]


class Source(Protocol):
    """Rows accessible by their numbers."""

    rows: int

    def take(self, numbers: numpy.ndarray) -> Mapping[str, Any]: ...


def as_array(called: str, name: str, values: Any) -> numpy.ndarray:
    """Returns numpy.asarray(values). Throws ValueError, with the line of the user's script, if that is not possible."""
    import numpy as np

    try:
        return np.asarray(values)
    except ValueError as error:  # for example rows of different lengths
        refuse(f"{called}: field '{name}': {str(error).split('. ')[0]}; all rows must have one shape")


def as_field(called: str, name: str, values: Any) -> numpy.ndarray:
    """Returns values as a field of a batch, in the dtype for such rows (hetu.arrays). Throws ValueError, with the line of
    the user's script, if they are not an array of numbers, or if an element does not fit."""
    array = as_array(called, name, values)
    dtype = meant_as_rows(array)
    _refuse_text(called, name, array)
    if not dtype:
        refuse(f"{called}: field '{name}' is {array.dtype}{list(array.shape)}; expected numbers, in rows of one shape")
    try:
        return converted(array, dtype)
    except ValueError as error:
        refuse(f"{called}: field '{name}': {error}")


def _refuse_text(called: str, name: str, array: numpy.ndarray) -> None:
    """Throws ValueError, with the line of the user's script, for an array that holds text."""
    if text := text_in(array):
        refuse(f"{called}: field '{name}' holds {text}; give it numbers, such as a whole number for each word")


def spread(rows: int) -> numpy.ndarray:
    """Returns the numbers of up to 8 rows: the first four, and four more, evenly spread up to the last."""
    import numpy as np

    return np.unique(np.concatenate([np.arange(min(rows, 4)), np.linspace(rows - 1, 0, 4, endpoint=False).astype(np.int64)]))


def checksum(fields: Mapping[str, Any]) -> list[Any]:
    """Returns a checksum of rows by field. Fields of Python objects are left out, because their bytes differ between
    processes."""
    import numpy as np

    arrays = {name: np.asarray(values) for name, values in fields.items()}
    return [[name, _hetu.crc32c(array.tobytes())] for name, array in arrays.items() if array.dtype.kind != "O"]


def check_named(called: str, given: Sequence[Any], named: Sequence[str]) -> None:
    """Throws ValueError for arrays without a name, and TypeError without batch_size. Only batch_size may be given by
    position."""
    if len(given) > 1 or any(not isinstance(value, (int, float)) and hasattr(value, "__len__") for value in given):
        refuse(f"{called}: name each array that the model reads: x=…, y=…; got {len(given)} without a name")
    if named and not given and "batch_size" not in named:  # copy() gives neither
        meant = next((name for name in named if "batch_size" in keywords.SPELLINGS.get(name, ())), "")
        raise of_script(TypeError(f"{place()}{called}: batch_size is missing" + (f"; use it instead of {meant}" if meant else
                                                                                 "; give batch_size=32, for example")))


def signature_of(kind: type) -> inspect.Signature:
    """Returns the signature of a class, that of its constructor."""
    taken = inspect.signature(vars(kind)["__init__"])
    return taken.replace(parameters=list(taken.parameters.values())[1:], return_annotation=inspect.Signature.empty)


class InMemory:
    """Arrays by field, each with a row along axis 0."""

    def __init__(self, called: str, given: Mapping[str, Any]) -> None:
        self.arrays = {name: as_array(called, name, values) for name, values in given.items()}
        if not self.arrays:
            refuse(f"{called}: no arrays were given; name them: x=…, y=…")
        for name, array in self.arrays.items():
            if array.ndim == 0:
                refuse(f"{called}: field '{name}' is the single value {array}; expected an array of rows")
            _refuse_text(called, name, array)  # while row numbers are those of the data
        lengths = {name: len(array) for name, array in self.arrays.items()}
        if len(set(lengths.values())) > 1:
            refuse(f"{called}: all fields must have the same length, got "
                   + ", ".join(f"{name} of {length} rows" for name, length in lengths.items()))
        self.rows = next(iter(lengths.values()))

    def take(self, numbers: numpy.ndarray) -> Mapping[str, Any]:
        return {name: array[numbers] for name, array in self.arrays.items()}


class Samples:
    """A dataset with length and items like PyTorch's. Each item is a dict, or a tuple whose parts `names` names. `threads`
    threads fetch items; with 0, the calling thread does."""

    def __init__(self, called: str, dataset: Any, names: Sequence[str] | None, threads: int) -> None:
        for method, what in (("__len__", "its length"), ("__getitem__", "an item by its number")):
            if not hasattr(dataset, method):
                refuse(f"{called}: a {type(dataset).__name__} has no {method}, which gives {what}")
        if not is_whole(threads, 0):
            refuse(f"{called}: threads must be a whole number >= 0, got {threads!r}")
        self.called, self.dataset, self.names = called, dataset, list(names or [])
        self.rows = len(dataset)
        self.pool: ThreadPoolExecutor | None = None
        if threads:
            # Imported late: it imports logging, which would slow down each start.
            from concurrent.futures import ThreadPoolExecutor

            self.pool = ThreadPoolExecutor(threads, "hetu-samples")

    def _item(self, number: Any) -> Mapping[str, Any]:
        item = self.dataset[int(number)]
        if isinstance(item, Mapping):
            return item
        values = item if isinstance(item, (tuple, list)) else (item,)
        if len(values) != len(self.names):
            wrong = (f"has {len(values)} parts, names= has {len(self.names)}" if self.names else
                     f"is a {type(item).__name__} of {len(values)}; name its parts: names=('x', 'y')")
            refuse(f"{self.called}: item {number} {wrong}")
        return dict(zip(self.names, values, strict=True))

    def take(self, numbers: numpy.ndarray) -> Mapping[str, Any]:
        import numpy as np

        items = list(self.pool.map(self._item, numbers) if self.pool else map(self._item, numbers))
        out = {}
        for name in items[0]:
            if missing := [n for n, item in zip(numbers, items, strict=True) if name not in item]:
                refuse(f"{self.called}: item {missing[0]} has no '{name}', which item {numbers[0]} has")
            rows = [np.asarray(item[name]) for item in items]
            shapes = {row.shape for row in rows}
            if len(shapes) > 1:
                other = next(n for n, row in zip(numbers, rows, strict=True) if row.shape != rows[0].shape)
                refuse(f"{self.called}: '{name}' of item {numbers[0]} is {list(rows[0].shape)}, of item {other} "
                       f"{list(next(r for r in rows if r.shape != rows[0].shape).shape)}; all rows must have one shape")
            out[name] = stacked(self.called, name, rows, [f"item {n}" for n in numbers], axis=0)
        return out


class Drawn:
    """Batches of a source by epoch and number. The order depends only on seed and epoch. Rows after the last whole batch
    are skipped in that epoch."""

    def __init__(self, called: str, source: Source, seed: int, shuffle: bool, augment: Augment | None) -> None:
        self.called, self.source, self.seed, self.shuffle, self.augment = called, source, seed, shuffle, augment
        self._order: tuple[int, Any] = (-1, None)  # epoch, and its order
        if not is_whole(seed, 0):
            refuse(f"{called}: seed must be a whole number >= 0, got {seed!r}")
        if source.rows == 0:
            refuse(f"{called}: there are no rows")
        if augment is not None:
            check_takes(f"{called}: augment", augment, "batch", "generator")
        first = self._fields(0, 0, self.numbers(0)[:1])
        self.fields: Fields = [(name, str(array.dtype), list(array.shape[1:])) for name, array in first.items()]

    def in_order(self) -> Drawn:
        """Returns a copy that reads rows in their order."""
        other = copy(self)
        other.shuffle, other._order = False, (-1, None)
        return other

    def numbers(self, epoch: int) -> Any:
        """Returns the numbers of all rows in the order of an epoch."""
        import numpy as np

        if self._order[0] != epoch:
            order = np.arange(self.source.rows)
            if self.shuffle:
                np.random.Generator(np.random.Philox(key=[self.seed, epoch])).shuffle(order)
            self._order = epoch, order
        return self._order[1]

    def _fields(self, epoch: int, number: int, rows: Any) -> Arrays:
        import numpy as np

        batch = dict(self.source.take(rows))
        if self.augment:
            draw = np.random.Generator(np.random.Philox(key=[self.seed, epoch], counter=[0, 0, 1, number]))
            made = self.augment(batch, draw)
            if not isinstance(made, Mapping):
                refuse(f"{self.called}: augment must return a dict of arrays by field, got a {type(made).__name__}")
            batch = dict(made)
        return {name: as_field(self.called, name, values) for name, values in batch.items()}

    def batch(self, epoch: int, number: int, rows: int, short: bool = False) -> Arrays | None:
        """Returns batch `number` of `rows` rows, or None after the last whole batch. With `short`, the remaining rows form
        a last, shorter batch. Throws ValueError for a field whose dtype or shape differs from the first row's."""
        begin = number * rows
        rows = min(rows, self.source.rows - begin) if short else rows
        if rows <= 0 or begin + rows > self.source.rows:
            return None
        found = self._fields(epoch, number, self.numbers(epoch)[begin:begin + rows])
        for name, dtype, shape in self.fields:
            if name not in found:
                refuse(f"{self.called}: batch {number} has no field '{name}'")
            got = found[name]
            if (str(got.dtype), list(got.shape)) != (dtype, [rows, *shape]):
                refuse(f"{self.called}: field '{name}' of batch {number} is {got.dtype}{list(got.shape)}, expected "
                       f"{dtype}{[rows, *shape]}")
        return found


def _nulls_inside(column: Any) -> int:
    """Returns the number of nulls in the lists of a pyarrow column, at any depth. NumPy would turn them into NaN."""
    count = 0
    while hasattr(column, "chunks") and hasattr(column.type, "value_type") and hasattr(column.type, "value_field"):
        chunks = [chunk.flatten() for chunk in column.chunks]
        count += sum(chunk.null_count for chunk in chunks)
        if not chunks:
            break
        import pyarrow

        column = pyarrow.chunked_array(chunks)
    return count


def stacked(called: str, field: str, arrays: Sequence[numpy.ndarray], names: Sequence[Any], axis: int) -> numpy.ndarray:
    """Stacks arrays of numbers along a new axis. If some are floats and some integers, the integers become float32. Throws
    ValueError, which names the array, if float32 would round an integer."""
    import numpy as np

    kinds = {array.dtype.kind for array in arrays}
    if len({array.dtype for array in arrays}) > 1 and kinds <= set("fiub") and kinds & set("iu"):
        wanted = "float32" if "f" in kinds else "int32"
        arrays = list(arrays)
        for number, array in enumerate(arrays):
            if array.dtype.kind == "f":
                continue
            try:
                arrays[number] = converted(array, wanted)
            except ValueError as error:
                refuse(f"{called}: field '{field}' is {wanted} because of its other parts, '{names[number]}' doesn't fit: "
                       f"{error}")
    return np.stack(arrays, axis=axis)


def _read_arrow(reader: Any, path: str) -> Any:
    """Returns the table of an Arrow file: a file with an index, which begins with its own signature, or a stream."""
    with files.open_regular(path) as file:
        indexed = file.read(6) == b"ARROW1" or (file.seek(0) == 0 and file.read(4) == b"FEA1")
        file.seek(0)
        return reader.feather.read_table(path) if indexed else reader.ipc.open_stream(file).read_all()


def _pyarrow(path: str, part: str) -> Any:
    """Returns the module of pyarrow that reads a file. Throws NotImplementedError if pyarrow isn't installed."""
    import importlib

    try:
        reader = importlib.import_module(f"pyarrow.{part}")
        if part == "feather":
            importlib.import_module("pyarrow.ipc")
            reader = importlib.import_module("pyarrow")
        return reader
    except ImportError:
        if not os.path.exists(path):
            refuse(f"Table {path}: there is no such file")
        raise NotImplementedError(f"Table {path}: {os.path.splitext(path)[1][1:]} files are read by pyarrow, which is not "
                                  "installed: pip install pyarrow") from None


def read_table(path: str, fields: Mapping[str, str | Sequence[str]] | None) -> dict[str, Any]:
    """Reads the columns of a CSV, Parquet or Arrow (Feather, or stream) file with pyarrow. Returns arrays by field.

    fields: field -> a column, or several columns that are joined side by side. None: each column is a field.
    Throws NotImplementedError without pyarrow.
    """
    import numpy as np

    called, ending = f"Table {path}", os.path.splitext(path)[1].lower()
    known = {".csv": "csv", ".parquet": "parquet", ".arrow": "feather", ".arrows": "feather", ".feather": "feather"}
    if ending not in known:
        refuse(f"{called}: its name must end in one of {', '.join(known)}")
    reader = _pyarrow(path, known[ending])
    try:
        if os.path.exists(path):  # otherwise pyarrow reports the error
            files.check_regular(path)
        read = {"csv": "read_csv", "parquet": "read_table"}
        table = _read_arrow(reader, path) if known[ending] == "feather" else getattr(reader, read[known[ending]])(path)
    except (OSError, ValueError) as error:  # includes pyarrow's own errors
        why = "there is no such file" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        refuse(f"{called}: {why}")

    def column(name: str) -> Any:
        if name not in table.column_names:
            refuse(f"{called}: there is no column '{name}'; there are: {', '.join(table.column_names)}")
        found = table.column(name)
        if found.null_count:
            spelled = " (a CSV file's NA, nan and null count as empty)" if known[ending] == "csv" else ""
            refuse(f"{called}: column '{name}' has {found.null_count} empty cells of {len(found)}{spelled}, the first in "
                   f"row {found.to_pylist().index(None)} of the data; fill them, or leave these rows out")
        if inside := _nulls_inside(found):
            refuse(f"{called}: lists in column '{name}' have {inside} empty elements; fill them, or leave these rows out")
        values = found.to_numpy()
        if text := text_in(values):
            refuse(f"{called}: column '{name}' holds {text}; expected numbers in all {len(values)} rows: correct the cell, "
                   "replace text by whole numbers, or choose columns with fields=")
        if values.dtype.kind == "O" and len(values) and all(hasattr(row, "__len__") for row in values):  # a column of lists
            lengths = {len(row) for row in values}
            if len(lengths) > 1:
                refuse(f"{called}: column '{name}' has lists of {min(lengths)} to {max(lengths)} elements; all rows must "
                       "have one length")
            values = np.stack(values)
        if values.dtype.kind not in "fiub":
            refuse(f"{called}: column '{name}' is {found.type}; expected numbers: choose columns with fields=")
        return values

    def side_by_side(name: str, of: Any) -> Any:
        columns = [column(one) for one in of]
        if not columns or any(values.ndim > 1 for values in columns):
            refuse(f"{called}: field '{name}' is made of {list(of)}; expected one column, or several columns of numbers")
        return stacked(called, name, columns, list(of), axis=1)

    if fields is None:
        return {name: column(name) for name in table.column_names}
    if not isinstance(fields, Mapping):
        refuse(f"{called}: fields= must be a dict of columns by field, such as {{'x': ['age', 'height'], 'y': 'label'}}, "
               f"got {fields!r}")
    return {name: column(of) if isinstance(of, str) else side_by_side(name, of) for name, of in fields.items()}


def read_lines(paths: str | Sequence[str], length: int, encode: Callable[[str], Sequence[int]] | None, pad: int) -> Arrays:
    """Returns the lines of text files as `tokens` int32 [lines, length], truncated or padded with `pad`, and `count` int32
    [lines], the number of tokens of the line. Empty lines are left out.

    A line ends in \\n, \\r\\n or \\r, and at no other character. A byte order mark is not part of the text. Tokens are the
    result of `encode` for a line; without it, the line's UTF-8 bytes.
    """
    import numpy as np

    if length < 1:
        refuse(f"Lines: length must be >= 1, got {length}")
    tokens: list[Sequence[int]] = []
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        try:
            # Lines end in \n, \r\n or \r. str.splitlines would also split at other characters.
            text = files.read_bytes(path_of(path)).decode("utf-8-sig")
            lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        except UnicodeDecodeError as error:
            refuse(f"Lines: {path}: not UTF-8 text: {error.reason} at byte {error.start}")
        except OSError as error:
            raise OSError(f"Lines: {path}: {error.strerror}") from None
        tokens += [(encode(line) if encode else line.encode())[:length] for line in lines if line]
    out = np.full((len(tokens), length), pad, np.int32)
    for row, line in zip(out, tokens, strict=True):
        row[:len(line)] = list(line)
    return {"tokens": out, "count": np.array([len(line) for line in tokens], np.int32)}
