"""Data for training. A data object provides the values that a model reads, as attributes, and each worker's slice.

Every step takes the next global batch of one order, which depends only on seed and epoch. Pipeline d takes the d-th
`batch_size` rows of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING, Any

from hetu import _hetu, keywords, rows
from hetu.arrays import TAKEN, converted, meant_as_rows, text_in
from hetu.graph import BATCH, Value, current, placeholder
from hetu.names import missing_from
from hetu.place import is_whole, of_script, path_of, place, placed, refuse
from hetu.read_once import ReadOnce

if TYPE_CHECKING:
    import numpy


MOST_ROWS = 1 << 28  # of a batch; the same limit as for --batch-size


class Data(ReadOnce):
    """The base class of data objects: fields of rows as (name, dtype, shape of one row). Subclasses implement loader()."""

    fields: list[tuple[str, str, list[int]]]
    batch_size: int
    _once = False  # True: its loaders return one epoch with every row
    _shares: Sequence[int] = ()  # rows of each pipeline per step, if they differ
    _order_names_rows = True  # True: a loader's position identifies rows of files and a seed; False: the user's own rows

    def __init__(self, fields: list[tuple[str, str, list[int]]], batch_size: int) -> None:
        if not is_whole(batch_size, 1) or batch_size > MOST_ROWS:
            refuse(f"{type(self).__name__}: batch_size must be a whole number >= 1 and <= {MOST_ROWS}, got {batch_size!r}")
        self.fields = fields
        self.batch_size = int(batch_size)

    def __init_subclass__(cls) -> None:
        if "__init__" in vars(cls):
            cls.__init__ = placed()(cls.__init__)  # type: ignore[method-assign]

    def __getattr__(self, name: str) -> Value:
        """Returns the value of a field in the current graph."""
        for field, dtype, shape in self.__dict__.get("fields", []):
            if field == name:
                current().sources[name] = self
                return placeholder(name, dtype, [BATCH, *shape])
        found = ", ".join(field for field, _, _ in self.__dict__.get("fields", []))
        says = f"{type(self).__name__} has no field or attribute '{name}'; its fields: {found}"
        raise of_script(AttributeError(place() + says))

    def loader(self, pipelines: int, pipeline: int, fields: list[str], together: Any = None) -> Any:
        """Returns this worker's loader, which reads only `fields`.

        together: the workers of the job that read, or None. Needed for rows that may differ between processes. Rows of
        files, whose order depends on seed and epoch, don't need it.
        """
        raise NotImplementedError

    def _options(self, pipelines: int, pipeline: int, fields: list[str], ahead: int) -> Any:
        """Returns the options of a loader that reads `ahead` batches ahead."""
        shares = list(self._shares)
        return _hetu.LoaderOptions(pipelines, pipeline, self.batch_size, fields, ahead, self._once, shares)

    def _divided(self, shares: Sequence[int]) -> Data:
        """Returns the same data, of which pipeline d takes shares[d] rows per step; without shares, batch_size. It is this
        object if its rows are divided like that already: loaders note in it what they learn about the data."""
        if list(self._shares) == list(shares):
            return self
        other = copy(self)
        other._shares = shares
        return other

    def _global_batch(self, pipelines: int) -> int:
        """Returns the rows per step of all pipelines together."""
        return sum(self._shares) or pipelines * self.batch_size

    def once(self) -> Data:
        """Returns data with the same rows in the same order, whose loaders return every row of an epoch once. The last
        batch may be short."""
        other = copy(self)
        other._once = True
        return other

    def steps_per_epoch(self, pipelines: int) -> int | None:
        """Returns the number of whole global batches in an epoch, or None if the length is unknown."""
        return len(self) // self._global_batch(pipelines) if isinstance(self, Sized) else None

    def alone(self, pipelines: int) -> Data:
        """Returns data with the same rows in the same order, for a worker that reads the rows of all `pipelines` itself.
        Its loader(1, 0) returns a batch of each pipeline in turn."""
        return self

    def next_batch(self, epoch: int, index: int, batch: int) -> tuple[int, int]:
        """Returns epoch and index of the global batch of `batch` rows that is read from a position. `index` counts rows of
        the epoch."""
        rows = len(self) if isinstance(self, Sized) else None
        return (epoch + 1, 0) if rows is not None and index + batch > rows and not self._once else (epoch, index)

    def row_text(self, epoch: int, index: int, row: int, batch: int) -> str:
        """Returns text for errors, such as "row 700 of the data", for row `row` of the global batch of `batch` rows that
        begins at `index`. Returns "" if rows have no numbers that the user knows."""
        return ""

    def read_again(self, epoch: int, index: int, batch: int) -> Mapping[str, numpy.ndarray] | None:
        """Returns the fields of a global batch for an error message, or None if they can't be read again."""
        return None

    def known_rows(self) -> int | None:
        """Returns the number of rows if it is known before the data are read, else None."""
        return len(self) if isinstance(self, Sized) else None

    def meaning(self) -> dict[str, tuple[str, Any]]:
        """Returns the meaning of the numbers of each field: (name of the meaning, its value), such as the names of classes
        or a vocabulary's checksum. Fields whose numbers mean themselves are left out."""
        return {}

    def check_meaning(self, other: Data, fields: Iterable[str] | None = None) -> None:
        """Throws ValueError, with the first difference, if the numbers of a field have another meaning in `other`, the data
        for evaluating a model that was trained on these data.

        fields: the fields that are read. None: all.
        """
        own, theirs = self.meaning(), other.meaning()
        for field in own if fields is None else fields:
            if field in own and field in theirs and own[field] != theirs[field]:
                raise ValueError(f"{_difference(field, own[field], theirs[field])}. A model trained on the one can't be "
                                 "evaluated on the other: give data with the same " + own[field][0])

    def row_checksums(self, again: bool = False) -> Any:
        """Returns checksums of some rows, by which workers compare their data. They are computed once and cached; `again`
        computes them again."""
        if again or "_checksums" not in self.__dict__:
            self.__dict__["_checksums"] = self._read_checksums()
        return self.__dict__["_checksums"]

    def _read_checksums(self) -> Any:
        return None


def _difference(field: str, own: tuple[str, Any], theirs: tuple[str, Any]) -> str:
    """Describes the difference between two meanings of a field."""
    (what, value), (_, other) = own, theirs
    if not isinstance(value, list) or not isinstance(other, list):
        return f"field '{field}': the {what} of the training data and of the evaluation data differ"
    if len(value) != len(other):
        only = sorted(set(value) ^ set(other))
        where = "training" if only and only[0] in value else "evaluation"
        more = f"; '{only[0]}' is in the {where} data only" if only else ""
        return f"field '{field}': the training data have {len(value)} {what}, the evaluation data {len(other)}{more}"
    number = next(i for i, (one, two) in enumerate(zip(value, other, strict=True)) if one != two)
    return (f"field '{field}': the {what} differ: number {number} is '{value[number]}' in the training data and "
            f"'{other[number]}' in the evaluation data")


def checksum_of_file(path: str, most: int = -1) -> int:
    """Returns the CRC-32C of a file, or of its first `most` bytes. Throws OSError."""
    with open(path, "rb") as file:
        return int(_hetu.crc32c(file.read(most)))


FIRST_ROWS = 8  # rows of a file in the checksum that workers compare


class BertHdf5(Data):
    """A folder of BERT HDF5 shards (files named *training*).

    Fields, all int32: input_ids, input_mask, segment_ids, masked_lm_labels [S], next_sentence_labels [],
    masked_lm_positions, masked_lm_ids [P]. The last two hold only the masked tokens; rows with fewer than P end with
    positions 0 and ids -1.
    vocabulary_size: 0 means the number of lines of vocab.txt next to the shards, or 30522 without that file.
    """

    def __init__(self, folder: str, batch_size: int, seed: int = 0, vocabulary_size: int = 0, max_rows: int = 0) -> None:
        self.folder = path_of(folder)
        self.seed = seed
        self.max_rows = max_rows
        self.vocabulary_size = vocabulary_size or _hetu.bert_vocabulary_size(self.folder)
        fields, self.rows = _hetu.bert_fields(self.folder)
        super().__init__(list(fields), batch_size)
        self.sequence_length = fields[0][2][0]

    def __len__(self) -> int:
        return min(self.rows, self.max_rows or self.rows)

    def loader(self, pipelines: int, pipeline: int, fields: list[str], together: Any = None) -> Any:
        options = self._options(pipelines, pipeline, fields, 4)
        return _hetu.bert_loader(self.folder, self.seed, self.vocabulary_size, self.max_rows, options)

    def _read_checksums(self) -> Any:
        rows = min(FIRST_ROWS, self.rows)
        options = _hetu.LoaderOptions(1, 0, rows, [], 0)
        return _hetu.bert_loader(self.folder, 0, self.vocabulary_size, rows, options).next_checksum()

    def meaning(self) -> dict[str, tuple[str, Any]]:
        vocabulary = os.path.join(self.folder, "vocab.txt")
        return {"input_ids": ("vocabulary", checksum_of_file(vocabulary))} if os.path.isfile(vocabulary) else {}

    def target_entropy(self) -> float:
        """Returns the unigram entropy of the masked targets in nats: the loss of a model that knows only how often each
        token occurs."""
        return float(_hetu.bert_target_entropy(self.folder))


def decoding_threads() -> int:
    """Returns half of this worker's cores, at least one."""
    return max(1, _hetu.machine_cores() // int(_hetu.started()[1]) // 2)


class ImageFolder(Data):
    """A folder of images with one sub-folder per class. Images in nested folders belong to the class of the sub-folder.

    Fields: image float32 [3, size, size], label int32 [].
    train: True reads in random order, with random resized crops, half of them mirrored. False reads in order, resized and
    cropped at the centre.
    threads: the number of decoding threads. 0: half of this worker's cores, at least one.
    """

    def __init__(
        self, path: str, batch_size: int, size: int = 224, train: bool = True, seed: int = 0, threads: int = 0
    ) -> None:
        if size < 1 or threads < 0:
            raise ValueError(f"size {size} must be >= 1 and threads {threads} >= 0")
        self.list = _hetu.ImageList(path_of(path))
        self.size, self.train, self.seed, self.threads = size, train, seed, threads or decoding_threads()
        self.rows: int = self.list.images
        self.num_classes: int = self.list.classes
        super().__init__([("image", "float32", [3, size, size]), ("label", "int32", [])], batch_size)

    def __len__(self) -> int:
        return self.rows

    @property
    def class_names(self) -> list[str]:
        """The names of the classes' folders, by label."""
        return [str(self.list.class_name(label)) for label in range(self.num_classes)]

    def meaning(self) -> dict[str, tuple[str, Any]]:
        return {"label": ("classes", self.class_names)}

    def _read_checksums(self) -> Any:
        """Returns checksums of four image files: the first, the last and two between them."""
        return [checksum_of_file(self.list.path((self.rows - 1) * part // 3)) for part in range(4)]

    def loader(self, pipelines: int, pipeline: int, fields: list[str], together: Any = None) -> Any:
        return _hetu.image_folder_loader(self.list, self.size, self.train, self.seed, self.threads,
                                         self._options(pipelines, pipeline, fields, 4))


def imagenet_roots(data: str | None = None) -> tuple[str, str]:
    """Returns the folders of training and validation images: `train` and `val` in `data`, or without it IMAGENET_TRAIN_ROOT
    and IMAGENET_VAL_ROOT. Throws ValueError if neither is given."""
    if data is not None:
        return os.path.join(path_of(data), "train"), os.path.join(path_of(data), "val")
    env = _hetu.env()
    roots = {name: str(env[name.lower()]) for name in ("IMAGENET_TRAIN_ROOT", "IMAGENET_VAL_ROOT")}
    missing = [name for name, root in roots.items() if not root]
    if missing:
        raise ValueError(f"no images: give --data FOLDER (with train and val in it), or set {' and '.join(missing)}")
    return path_of(roots["IMAGENET_TRAIN_ROOT"]), path_of(roots["IMAGENET_VAL_ROOT"])


class Cifar100(Data):
    """CIFAR-100, given by its file or by the folder of its files, binary or pickled.

    Fields: image float32 [3, 32, 32], label int32 [].
    train: True reads train.bin or train in random order, with random crops after 4 pixels of black padding, random
    mirroring, and rotations of up to 15 degrees. False reads test.bin or test unchanged.
    """

    num_classes = 100

    def __init__(self, path: str, batch_size: int, train: bool = True, seed: int = 0) -> None:
        self.set, self.train, self.seed = _hetu.read_cifar100(path_of(path), train), train, seed
        self.rows: int = self.set.rows
        super().__init__([("image", "float32", [3, 32, 32]), ("label", "int32", [])], batch_size)

    def __len__(self) -> int:
        return self.rows

    def _read_checksums(self) -> Any:
        options = _hetu.LoaderOptions(1, 0, min(FIRST_ROWS, self.rows), [], 0)
        return _hetu.cifar100_loader(self.set, False, 0, options).next_checksum()

    def loader(self, pipelines: int, pipeline: int, fields: list[str], together: Any = None) -> Any:
        return _hetu.cifar100_loader(self.set, self.train, self.seed, self._options(pipelines, pipeline, fields, 4))


class Criteo(Data):
    """Click logs in the format of Criteo's display-advertising sets: a file, or a folder of day files.

    Fields: label int32 [], dense float32 [13], ids int32 [26]. datasets/criteo.h defines the rules.
    hash_size: the rows of the embedding table that each of the 26 columns has. `table_rows` is the sum over all columns.
    train: True reads in random order, False in the order of the file.
    max_rows: reads only the first rows (0 = all).
    """

    INTEGERS, COLUMNS = 13, 26

    def __init__(
        self, path: str, batch_size: int, hash_size: int = 10_000, train: bool = True, seed: int = 0, max_rows: int = 0
    ) -> None:
        self.set = _hetu.open_criteo(path_of(path))
        self.how = {"hash_size": hash_size, "train": train, "seed": seed, "max_rows": max_rows}
        self.rows: int = self.set.rows
        self.table_rows = self.COLUMNS * hash_size
        _hetu.criteo_loader(self.set, self.how, _hetu.LoaderOptions(1, 0, 1, [], 0))  # throws for invalid options
        fields = [("label", "int32", []), ("dense", "float32", [self.INTEGERS]), ("ids", "int32", [self.COLUMNS])]
        super().__init__(fields, batch_size)

    def __len__(self) -> int:
        return min(self.rows, self.how["max_rows"] or self.rows)

    def meaning(self) -> dict[str, tuple[str, Any]]:
        return {"ids": ("hash size", self.how["hash_size"])}

    def _read_checksums(self) -> Any:
        rows = min(FIRST_ROWS, self.rows)
        options = _hetu.LoaderOptions(1, 0, rows, [], 0)
        return _hetu.criteo_loader(self.set, self.how | {"train": False, "max_rows": rows}, options).next_checksum()

    def loader(self, pipelines: int, pipeline: int, fields: list[str], together: Any = None) -> Any:
        return _hetu.criteo_loader(self.set, self.how, self._options(pipelines, pipeline, fields, 4))


class Batches(Data):
    """Your own data: a sequence, or an iterable that can be read repeatedly, of dicts of NumPy arrays.

    Each item is one global batch: pipelines * batch_size rows along axis 0. Step t takes item t. A resumed run continues a
    sequence by index, and another iterable by skipping items. An epoch ends with the items.
    dtypes: field name -> dtype, such as {"image": "int32"}. By default floats become float32, uint8 rows with two axes or
    more (pixels, 0 to 255) float32, other integers int32, and bools bool. An element that does not fit raises ValueError.
    ahead: False requests no item while a GPU computes the step before. Use it if items depend on that step.
    One worker of the job reads each item, with all its fields, and sends the other workers the fields that they need. So
    items may be random. Items that are the same in every reading must be the same on every worker, not sharded by rank
    (ValueError). If pipelines average weights, each pipeline reads for itself (docs/data.md).
    """

    _order_names_rows = False

    def __init__(self, items: Iterable[dict[str, numpy.ndarray]], batch_size: int, name: str = "batches",
                 dtypes: Mapping[str, str] | None = None, ahead: bool = True) -> None:
        self.items: Any = items  # a sequence is recognized by its methods, not by its type
        self.ahead = ahead
        self.name = name
        self.dtypes = dict(dtypes or {})
        self.length: int | None = len(items) if isinstance(items, Sized) else None
        self._steps = 1  # steps per item
        self.are_slices = False  # True: the items are slices of the user's arrays, whose rows errors name
        if not self._is_sequence() and iter(self.items) is self.items:
            raise ValueError(f"{name}: a {type(items).__name__} can be read only once, but each epoch reads it again; give "
                             "a list, or an object whose __iter__ returns a new iterator")
        for key, dtype in self.dtypes.items():
            if dtype not in TAKEN:
                raise ValueError(f"{name}: dtypes has {dtype!r} for '{key}'; supported: {', '.join(TAKEN)}")
        first = _Items(self)(0, 0)
        if first is None:
            raise ValueError(f"{name}: there are no items")
        if not set(self.dtypes) <= set(first):
            missing = sorted(set(self.dtypes) - set(first))
            raise ValueError(f"{name}: dtypes names {missing}; the fields are {', '.join(first)}")
        fields = [(key, str(array.dtype), list(array.shape[1:])) for key, array in first.items()]
        super().__init__(fields, batch_size)
        self.slices = self._slices_of(first)
        for key in first:
            if key in self.__dict__ or hasattr(type(self), key):
                raise ValueError(f"{name}: a field cannot be named '{key}': Batches has an attribute of that name. "
                                 f"Rename the field")

    def steps_per_epoch(self, pipelines: int) -> int | None:
        return self.length

    def known_rows(self) -> int | None:
        return len(self.items) if isinstance(self.items, Sized) else None

    def next_batch(self, epoch: int, index: int, batch: int) -> tuple[int, int]:
        items = self.length
        return (epoch + 1, 0) if items is not None and index + batch > items * batch and not self._once else (epoch, index)

    def row_text(self, epoch: int, index: int, row: int, batch: int) -> str:
        return f"row {index + row} of the data" if self.are_slices else f"row {row} of item {index // batch} of the data"

    def read_again(self, epoch: int, index: int, batch: int) -> Mapping[str, numpy.ndarray] | None:
        return _Items(self)(epoch, index // batch) if self._is_sequence() else None

    def _slices_of(self, item: Mapping[str, numpy.ndarray]) -> list[int]:
        """Returns the checksum of each batch_size rows of an item."""
        return [_hetu.crc32c(b"".join(array[row:row + self.batch_size].tobytes() for array in item.values()))
                for row in range(0, len(next(iter(item.values()))), self.batch_size)]

    def _read_checksums(self) -> Any:
        if "_checksums" not in self.__dict__:
            return self.slices
        item = _Items(self)(0, 0)
        return self._slices_of(item) if item else []

    def alone(self, pipelines: int) -> Batches:
        cut = copy(self)
        cut._steps = pipelines
        return cut

    def _is_sequence(self) -> bool:
        return hasattr(self.items, "__getitem__") and hasattr(self.items, "__len__")

    def loader(self, pipelines: int, pipeline: int, fields: list[str], together: Any = None) -> Any:
        rows = self._steps * self._global_batch(pipelines)
        return _hetu.stream_loader(self.name, [tuple(f) for f in self.fields], _Items(self), rows,
                                   self._options(pipelines, pipeline, fields, int(self.ahead)), together)


class _Items:
    """The checked items of one loader. It has its own iterator, so that a validation does not advance the training's
    iterator."""

    def __init__(self, data: Batches) -> None:
        self.data = data
        self.iterator: Any = None
        self.next = (0, 0)

    def __call__(self, epoch: int, number: int) -> dict[str, numpy.ndarray] | None:
        items = self.data.items
        if self.data._is_sequence():
            found = items[number] if number < len(items) else None
        else:
            if self.iterator is None or self.next != (epoch, number):
                self.iterator = islice(iter(items), number, None)
            self.next = (epoch, number + 1)
            found = next(self.iterator, None)
            if found is None:
                self.data.length = number
        return None if found is None else self._checked(found, number)

    def _checked(self, item: dict[str, numpy.ndarray], number: int) -> dict[str, numpy.ndarray]:
        import numpy  # imported late: NumPy takes half of a worker's start, and files are read without it

        name = self.data.name
        if not isinstance(item, Mapping):
            raise ValueError(f"{name}: item {number} is a {type(item).__name__}; give a dict: name of a field -> its array")
        arrays = {key: self._converted(key, numpy.asarray(value), number) for key, value in item.items()}
        fields = self.data.__dict__.get("fields", [])
        for key, dtype, shape in fields:
            if key not in arrays:
                raise ValueError(f"{name}: item {number} has no field '{key}', which the first item has")
            got = arrays[key]
            if str(got.dtype) != dtype or list(got.shape[1:]) != shape:
                raise ValueError(
                    f"{name}: item {number}, field '{key}' is {got.dtype}{list(got.shape)}, "
                    f"the first item has {dtype} rows of shape {shape}"
                )
        if not all(array.ndim for array in arrays.values()):
            raise ValueError(f"{name}: item {number} has a field without an axis of rows; expected arrays [rows, ...]")
        rows = {len(a) for a in arrays.values()}
        if len(rows) != 1:
            raise ValueError(f"{name}: the fields of item {number} have different numbers of rows: {sorted(rows)}")
        return arrays

    def _converted(self, key: str, array: numpy.ndarray, number: int) -> numpy.ndarray:
        dtype = self.data.dtypes.get(key) or meant_as_rows(array)
        place = f"{self.data.name}: item {number}, field '{key}'"
        if text := text_in(array):
            raise ValueError(f"{place} holds {text}; give it numbers, such as a whole number for each word")
        if not dtype:
            raise ValueError(f"{place} is {array.dtype}{list(array.shape)}; expected floats, integers or bools")
        try:
            return converted(array, dtype)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None


class Rows(Data):
    """The base class of data with numbered rows. Every worker receives the same rows, not a shard of them by rank
    (ValueError).

    An epoch takes whole global batches, in an order that depends on `seed` and epoch, or in the order of the rows with
    `shuffle` False. Remaining rows, fewer than a global batch, are skipped in that epoch. Prediction and evaluation take
    every row once, in order. dtypes are those of Batches.
    augment: a function of (batch, generator) that changes a whole global batch. It receives a dict of arrays and a
    numpy.random.Generator that depends only on seed, epoch and batch. It returns the dict.
    """

    _order_names_rows = False
    _unread = ("seed", "shuffle", "augment")

    def __init__(self, called: str, source: rows.Source, batch_size: int, seed: int, shuffle: bool,
                 augment: rows.Augment | None) -> None:
        self.called = called
        self.rows = source.rows
        self.drawn = rows.Drawn(called, source, seed, shuffle, augment)
        self._steps = 1  # number of batches per pipeline in one batch
        super().__init__(self.drawn.fields, batch_size)
        for name, _, _ in self.fields:
            if name in self.__dict__ or hasattr(type(self), name):
                refuse(f"{called}: a field cannot be named '{name}': {type(self).__name__} has an attribute of that name. "
                       f"Rename the field")

    def __len__(self) -> int:
        return self.rows

    def _read_checksums(self) -> Any:
        return rows.checksum(self.drawn.source.take(rows.spread(self.rows)))

    def once(self) -> Rows:
        """Returns the same data in the order of the rows, so that predictions are in this order too."""
        other = copy(self)
        other._once, other.drawn = True, self.drawn.in_order()
        return other

    def row_text(self, epoch: int, index: int, row: int, batch: int) -> str:
        # A copy, because the order is cached and the loader's thread may be in another epoch.
        return f"row {copy(self.drawn).numbers(epoch)[index + row]} of the data"

    def read_again(self, epoch: int, index: int, batch: int) -> Mapping[str, numpy.ndarray] | None:
        return copy(self.drawn).batch(epoch, index // batch, batch, self._once)

    def alone(self, pipelines: int) -> Rows:
        cut = copy(self)
        cut._steps = pipelines
        return cut

    def loader(self, pipelines: int, pipeline: int, fields: list[str], together: Any = None) -> Any:
        batch = self._steps * self._global_batch(pipelines)
        drawn, once = self.drawn, self._once
        if self.rows < batch and not once:
            refuse(f"{self.called}: {self.rows} rows are fewer than one global batch of {batch}; choose a smaller "
                   "batch_size")
        return _hetu.stream_loader(self.called, [tuple(f) for f in self.fields],
                                   lambda epoch, number: drawn.batch(epoch, number, batch, once), batch,
                                   self._options(pipelines, pipeline, fields, 1), together)


class Arrays(Rows):
    """NumPy arrays with a row for each sample: `Arrays(x=images, y=labels, batch_size=32)`. See Rows."""

    def __new__(cls, *given: Any, **named: Any) -> Arrays:
        rows.check_named("Arrays", given, list(named))
        return super().__new__(cls)

    def __init__(self, batch_size: int, *, seed: int = 0, shuffle: bool = True, augment: rows.Augment | None = None,
                 **arrays: Any) -> None:
        super().__init__("Arrays", rows.InMemory("Arrays", arrays), batch_size, seed, shuffle, augment)


# Without it, help() and tools would show the signature of __new__.
Arrays.__signature__ = rows.signature_of(Arrays)  # type: ignore[attr-defined]


class Dataset(Rows):
    """A dataset with __len__ and __getitem__, like PyTorch's. Items are dicts of arrays, or tuples, whose parts `names`
    names.

    threads: the number of threads that fetch items.
    One worker of the job fetches, and sends the other workers the fields that they need. See Rows.
    """

    def __init__(self, dataset: Any, batch_size: int, names: Sequence[str] | None = None, threads: int = 0, *, seed: int = 0,
                 shuffle: bool = True, augment: rows.Augment | None = None) -> None:
        samples = rows.Samples("Dataset", dataset, names, threads)
        super().__init__("Dataset", samples, batch_size, seed, shuffle, augment)


class Table(Rows):
    """Columns of a CSV, Parquet or Arrow file, which pyarrow reads as a whole: `Table("a.parquet", 32, fields={"x": ["age",
    "width"], "y": "label"})`. Without `fields`, each column is a field of the same name. See Rows."""

    def __init__(self, path: str, batch_size: int, fields: Mapping[str, str | Sequence[str]] | None = None, *, seed: int = 0,
                 shuffle: bool = True, augment: rows.Augment | None = None) -> None:
        called = f"Table {path}"
        read = rows.InMemory(called, rows.read_table(path_of(path), fields))
        super().__init__(called, read, batch_size, seed, shuffle, augment)


class Lines(Rows):
    """Lines of text files. See Rows.

    Fields: tokens int32 [length]: the UTF-8 bytes of a line, or the result of `encode`, truncated or padded with `pad`;
    count int32 []: the number of tokens that belong to the line.
    """

    def __init__(self, paths: str | Sequence[str], batch_size: int, length: int,
                 encode: Callable[[str], Sequence[int]] | None = None, pad: int = 0, *, seed: int = 0, shuffle: bool = True,
                 augment: rows.Augment | None = None) -> None:
        lines = rows.InMemory("Lines", rows.read_lines(paths, length, encode, pad))
        super().__init__("Lines", lines, batch_size, seed, shuffle, augment)


keywords.check_module(__name__)
globals()["__getattr__"] = missing_from(__name__)  # assigned, not defined: otherwise mypy would accept any name
