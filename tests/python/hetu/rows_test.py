"""The user's own rows in hetu.data: arrays, datasets with items, tables, lines of text. Covers the rows and order of an
epoch, and hooks that change batches alike on any grid. Refused input gives one line that names the place in the script."""

import importlib.util
import inspect
import pathlib
import random
import sys
import tempfile
import types
import unittest

import numpy as np

import hetu as ht

SEED = 11


def batches(data, count, pipelines=1, pipeline=0, seek=None):
    loader = data.loader(pipelines, pipeline, [name for name, _, _ in data.fields])
    if seek:
        loader.seek(seek)
    return [loader.next() for _ in range(count)], loader.position()


class Epochs(unittest.TestCase):
    def test_each_row_once_and_the_rest_left_out(self):
        for draw in range(30):
            chance = random.Random(SEED + draw)
            rows, size, pipelines = chance.randint(1, 40), chance.randint(1, 5), chance.randint(1, 3)
            whole = rows // (size * pipelines)
            if not whole:
                continue
            with self.subTest(rows=rows, size=size, pipelines=pipelines, seed=SEED + draw):
                data = ht.data.Arrays(x=np.arange(rows), batch_size=size, seed=draw)
                self.assertEqual((len(data), data.steps_per_epoch(pipelines)), (rows, whole))
                shares = [size + d for d in range(pipelines)]
                self.assertEqual(data._divided(shares).steps_per_epoch(pipelines), rows // sum(shares))
                seen = []
                for pipeline in range(pipelines):
                    got, _ = batches(data, 2 * whole, pipelines, pipeline)
                    seen.append(np.array([b["x"] for b in got]))
                steps = np.concatenate(seen, axis=1)  # [steps, rows of all pipelines]
                first, second = steps[:whole].ravel(), steps[whole:].ravel()
                self.assertEqual(len(set(first)), whole * size * pipelines)
                self.assertEqual(len(set(second)), whole * size * pipelines)
                if rows > 6:
                    self.assertNotEqual(first.tolist(), second.tolist())  # another order
                plain = ht.data.Arrays(x=np.arange(rows), batch_size=size, shuffle=False)
                (got, *_), _ = batches(plain, 1, pipelines, pipelines - 1)
                self.assertEqual(got["x"].tolist(), list(range((pipelines - 1) * size, pipelines * size)))

    def test_goes_on_from_any_place(self):
        data = ht.data.Arrays(x=np.arange(23), y=np.arange(23) * 2.0, batch_size=4, seed=3)
        whole, _ = batches(data, 12)
        for at in range(12):
            _, place = batches(data, at)
            rest, _ = batches(data, 12 - at, seek=place)
            self.assertEqual([b["x"].tolist() for b in rest], [b["x"].tolist() for b in whole[at:]], at)
            for b in rest:
                self.assertEqual((2.0 * b["x"]).tolist(), b["y"].tolist())

    def test_dtypes(self):
        given = {"a": np.ones((3, 2), np.float64), "b": np.arange(3, dtype=np.uint8), "c": np.arange(3),
                 "d": np.array([True, False, True]), "e": np.ones((3, 1, 2), np.float16),
                 "g": np.ones((3, 1, 2), np.uint8), "f": [[1, 2], [3, 4], [5, 6]]}
        data = ht.data.Arrays(batch_size=1, **given)
        self.assertEqual(data.fields, [("a", "float32", [2]), ("b", "int32", []), ("c", "int32", []), ("d", "bool", []),
                                       ("e", "float32", [1, 2]), ("g", "float32", [1, 2]), ("f", "int32", [2])])


class Hooked(unittest.TestCase):
    def test_a_batch_is_changed_alike_whoever_draws_it(self):
        """One pipeline and three draw the same global batches, in the first run and after a resume. Batches differ by epoch.
        """
        def noisy(batch, draw):
            return {"x": batch["x"] + draw.standard_normal(batch["x"].shape), "y": batch["y"]}

        def data(size):
            return ht.data.Arrays(x=np.zeros((24, 2)), y=np.arange(24), batch_size=size, seed=5, augment=noisy)

        alone, _ = batches(data(6), 8)
        parts = [batches(data(2), 8, 3, d)[0] for d in range(3)]
        for step in range(8):
            for name in ("x", "y"):
                joined = np.concatenate([part[step][name] for part in parts])
                np.testing.assert_array_equal(joined, alone[step][name])
        self.assertEqual(len({b["x"].tobytes() for b in alone}), 8)
        _, place = batches(data(6), 5)
        rest, _ = batches(data(6), 3, seek=place)
        self.assertEqual([b["x"].tobytes() for b in rest], [b["x"].tobytes() for b in alone[5:]])

    def test_it_may_change_shape_and_type(self):
        images = np.full((4, 3, 8, 8), 255, np.uint8)
        data = ht.data.Arrays(image=images, batch_size=2, augment=lambda b, _: {"image": b["image"][:, :, :4, :4] / 255.0})
        self.assertEqual(data.fields, [("image", "float32", [3, 4, 4])])
        (got,), _ = batches(data, 1)
        self.assertEqual((got["image"].shape, got["image"].max()), ((2, 3, 4, 4), 1.0))


class Squares:
    def __len__(self):
        return 10

    def __getitem__(self, number):
        if not isinstance(number, int) or not 0 <= number < 10:
            raise IndexError(number)
        return np.array([number, number**2], np.float64), number % 3


class Datasets(unittest.TestCase):
    def test_items_by_number(self):
        for threads in (0, 3):
            data = ht.data.Dataset(Squares(), 4, names=("x", "label"), threads=threads, seed=2)
            self.assertEqual(data.fields, [("x", "float32", [2]), ("label", "int32", [])])
            for batch in batches(data, 6)[0]:
                numbers = batch["x"][:, 0].astype(int)
                self.assertEqual(batch["x"][:, 1].tolist(), (numbers**2).tolist())
                self.assertEqual(batch["label"].tolist(), (numbers % 3).tolist())

    def test_items_that_are_dicts(self):
        data = ht.data.Dataset([{"x": [1.0, 2.0]}, {"x": [3.0, 4.0]}], 2, shuffle=False)
        self.assertEqual(batches(data, 1)[0][0]["x"].tolist(), [[1, 2], [3, 4]])

    def test_it_trains(self):
        ht.new_graph()
        data = ht.data.Dataset(Squares(), 5, names=("x", "label"), seed=SEED)
        w = ht.parameter("w", [1, 2], ht.graph.constant(0.0))
        loss = ht.step_mean((ht.ops.linear(data.x / 100, w)[:, 0] - data.x[:, 0] / 10) ** 2)
        job = ht.Executor({"train": [loss, ht.optim.Adam(0.5).minimize(loss)]}, threads=1)
        losses = [step.loss for step in job.run(steps=80)]
        self.assertLess(losses[-1], 0.1 * losses[0])

    def test_predictions_are_in_the_order_of_the_rows(self):
        """Predictions don't depend on the order of training or on the grid, also with a short last batch."""
        x = np.arange(22, dtype=np.float64).reshape(11, 2)
        for devices in (None, "threads:1x2", "threads:2x1"):
            ht.new_graph()
            data = ht.data.Arrays(x=x, y=x[:, 0], batch_size=4 if devices != "threads:2x1" else 2, seed=SEED)
            hidden = ht.ops.linear(data.x, ht.parameter("w", np.eye(2)))
            ht.cut()
            total = (hidden * 2).sum(-1)
            loss = ht.step_mean((total - data.y) ** 2)
            job = ht.Executor({"train": [ht.optim.SGD(0.0).minimize(loss)], "predict": [total], "validate": [loss]}, devices,
                              micro_batches=2, threads=1)
            list(job.run(steps=3))
            np.testing.assert_array_equal(job.predict(), 2 * x.sum(1), str(devices))
            (found,) = job.evaluate(run="validate").values()
            self.assertAlmostEqual(found, float(((2 * x.sum(1) - x[:, 0]) ** 2).mean()), 3)
            np.testing.assert_array_equal(job.predict(ht.data.Arrays(x=x[:3], batch_size=data.batch_size)), 2 * x[:3].sum(1))


class Asked:
    """Global batches that record when they are requested."""

    def __init__(self, notes, bad=-1):
        self.notes, self.bad = notes, bad

    def __len__(self):
        return 6

    def __getitem__(self, number):
        self.notes.append(number)
        x = np.random.default_rng(number).standard_normal((4, 3))
        return {"x": x.astype(np.complex64) if number == self.bad else x}


class Ahead(unittest.TestCase):
    """Where a device has separate memory, the next batch is drawn and copied while a step is computed."""

    def train(self, device, data, steps, **told):
        """Yields the loss of each step, in two runs."""
        ht.new_graph()
        opened = data()
        loss = ht.step_mean(ht.ops.linear(opened.x, ht.parameter("w", np.ones((2, 3)))).sum(-1) ** 2)
        train = ht.optim.SGD(0.01).minimize(loss)
        job = ht.Executor({"train": [loss, train], "validate": [loss]}, device=device, threads=1, **told)
        yield from (step.loss for step in job.run(steps=steps))
        job.evaluate(run="validate")
        yield from (step.loss for step in job.run(steps=2))

    def test_the_same_losses(self):
        x = np.arange(60.0).reshape(20, 3) / 60
        for data in (lambda: ht.data.Batches(Asked([]), 4), lambda: ht.data.Batches(Asked([]), 4, ahead=False),
                     lambda: ht.data.Arrays(x=x, batch_size=4, seed=SEED)):
            wanted = list(self.train("cpu", data, 8))
            self.assertEqual(list(self.train("far", data, 8)), wanted)
            self.assertEqual(len(set(wanted)), 10)

    def test_when_items_are_asked_for(self):
        for device, ahead, early in (("cpu", True, 0), ("far", True, 1), ("far", False, 0)):
            with self.subTest(device=device, ahead=ahead):
                notes = []
                steps = self.train(device, lambda notes=notes, ahead=ahead: ht.data.Batches(Asked(notes), 4, ahead=ahead), 3)
                next(steps)
                notes.remove(0)  # its fields define the graph
                self.assertEqual(notes, list(range(1 + early)))
                next(steps)
                self.assertEqual(notes, list(range(2 + early)))

    def test_a_bad_item_is_told_in_its_own_step(self):
        for device in ("cpu", "far"):
            steps = self.train(device, lambda: ht.data.Batches(Asked([], bad=2), 4), 3)
            next(steps)
            next(steps)
            with self.assertRaisesRegex(ValueError, "item 2, field 'x' is complex64"):
                next(steps)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_lines(self):
        path = self.folder / "a.txt"
        path.write_text("hé\n\nabcdef\n")
        data = ht.data.Lines(str(path), 2, 4, pad=-1, shuffle=False)
        (got,), _ = batches(data, 1)
        self.assertEqual(got["tokens"].tolist(), [[*"hé".encode(), -1], [*b"abcd"]])
        self.assertEqual(got["count"].tolist(), [3, 4])
        data = ht.data.Lines([str(path), path], 4, 2, encode=lambda line: [len(line)], shuffle=False)
        self.assertEqual(batches(data, 1)[0][0]["tokens"].tolist(), [[2, 0], [6, 0]] * 2)

    def test_lines_end_at_line_ends_only(self):
        """Lines don't end at other characters that str.splitlines splits at: U+2028, U+2029, NEL, VT, FF, FS to US. A byte
        order mark isn't text."""
        inside = ["first\u2028line", "second\x0cline", "third\x85line", "\u2029\x0b\x1c\x1d\x1e\x1f", "last"]
        for mark in ("", "\ufeff"):
            for end in ("\n", "\r\n", "\r"):
                path = self.folder / "ends.txt"
                path.write_bytes((mark + end.join(inside) + end).encode())
                data = ht.data.Lines(path, len(inside), 32, shuffle=False)
                (got,), _ = batches(data, 1)
                lines = [bytes(row[:count].tolist()).decode()
                         for row, count in zip(got["tokens"], got["count"], strict=True)]
                self.assertEqual(lines, inside)

    def test_a_text_has_no_hidden_files(self):
        """Hidden files aren't read: copies by editors and notebooks, and the ._ files that macOS writes."""
        for name, text in (("a.txt", b"aaaa"), ("sub/b.txt", b"bbbbb"), (".ipynb_checkpoints/a-checkpoint.txt", b"xxxx"),
                           ("._a.txt", b"\0\5\x16\7"), ("sub/.b.txt", b"xxxx"), (".hidden/deep/c.txt", b"xxxx")):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(text)
        (self.folder / "folder.txt").mkdir()
        data = ht.text.Text(str(self.folder), 1, 8, train=False)
        self.assertEqual(batches(data, 1)[0][0]["ids"].tolist(), [[*b"aaaabbbbb"]])
        # A path that the user names is read even if it is hidden.
        data = ht.text.Text(str(self.folder / ".hidden/deep"), 1, 3, train=False)
        self.assertEqual(batches(data, 1)[0][0]["ids"].tolist(), [[*b"xxxx"]])

    def test_integers_beside_floats_are_not_rounded(self):
        class Mixed(list):
            pass

        big = 2**24 + 1
        items = Mixed({"x": np.array([value])} for value in (1.5, big))
        data = ht.data.Dataset(items, 2, shuffle=False)
        with self.assertRaisesRegex(ValueError, "Dataset: field 'x' is float32 because .* 'item 1' doesn't fit: 16777217"):
            data.drawn.batch(0, 0, 2)
        items[1] = {"x": np.array([2**24])}
        self.assertEqual(data.drawn.batch(0, 0, 2)["x"].tolist(), [[1.5], [2**24]])

    @unittest.skipUnless(importlib.util.find_spec("pyarrow"), "pyarrow is not installed")
    def test_tables_of_nulls_and_mixed_numbers(self):
        import pyarrow
        import pyarrow.parquet

        two = pyarrow.list_(pyarrow.float32(), 2)
        path = str(self.folder / "t.parquet")
        for columns, fields, says in (
            ({"x": [[1, None, 3], [4, 5, 6]]}, None, "lists in column 'x' have 1 empty elements"),
            ({"x": pyarrow.array([[1.0, None], [None, 2.0]], two)}, None, "lists in column 'x' have 2 empty elements"),
            ({"x": [[[1], [None]]]}, None, "lists in column 'x' have 1 empty elements"),
            ({"u": [16777217], "a": [1.5]}, {"x": ["u", "a"]}, "field 'x' is float32 because .*'u' doesn't fit: 16777217"),
            ({"u": pyarrow.array([2**40], pyarrow.uint64()), "a": [7]}, {"x": ["a", "u"]},
             "field 'x' is int32 because .*'u' doesn't fit: 1099511627776 is out of range for int32"),
        ):
            pyarrow.parquet.write_table(pyarrow.table(columns), path)
            with self.subTest(says), self.assertRaisesRegex(ValueError, rf"Table .*t.parquet: {says}"):
                ht.data.Table(path, 1, fields)
        for columns, fields, wanted in (
            ({"x": [[1, 2], [3, 4]]}, None, [[1, 2]]),
            ({"u": [16777216], "a": [1.5]}, {"x": ["u", "a"]}, [[16777216, 1.5]]),
            ({"u": pyarrow.array([5], pyarrow.uint64()), "a": [7]}, {"x": ["u", "a"]}, [[5, 7]]),
        ):
            pyarrow.parquet.write_table(pyarrow.table(columns), path)
            data = ht.data.Table(path, 1, fields, shuffle=False)
            self.assertEqual(batches(data, 1)[0][0]["x"].tolist(), wanted)

    @unittest.skipUnless(importlib.util.find_spec("pyarrow"), "pyarrow is not installed")
    def test_tables(self):
        import pyarrow
        import pyarrow.csv
        import pyarrow.feather
        import pyarrow.parquet

        table = pyarrow.table({"a": [1.5, 2.5, 3.5], "b": [1, 2, 3], "city": ["x", "y", "z"],
                               "v": [[1, 2], [3, 4], [5, 6]], "uneven": [[1], [1, 2], [1, 2, 3]],
                               "right": [True, False, True], "half": np.ones(3, np.float16)})
        pyarrow.csv.write_csv(table.drop(["v", "uneven", "half"]), str(self.folder / "t.csv"))
        pyarrow.parquet.write_table(table, str(self.folder / "t.parquet"))
        pyarrow.feather.write_feather(table, str(self.folder / "t.feather"))
        for name in ("t.arrows", "stream.arrow"):  # names that Arrow's tools and Hugging Face's datasets use for streams
            with pyarrow.OSFile(str(self.folder / name), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
                for batch in table.to_batches(max_chunksize=2):
                    stream.write_batch(batch)
        (self.folder / "cut.arrow").write_bytes((self.folder / "t.arrows").read_bytes()[:-400])
        for name in ("t.csv", "t.parquet", "t.feather", "t.arrows", "stream.arrow"):
            data = ht.data.Table(str(self.folder / name), 3, fields={"x": ["a", "b"], "y": "b"}, shuffle=False)
            (got,), _ = batches(data, 1)
            self.assertEqual(got["x"].tolist(), [[1.5, 1], [2.5, 2], [3.5, 3]], name)
            self.assertEqual((got["y"].tolist(), got["y"].dtype), ([1, 2, 3], np.int32))
        data = ht.data.Table(str(self.folder / "t.parquet"), 1, fields={"v": "v"}, shuffle=False)
        self.assertEqual(batches(data, 2)[0][1]["v"].tolist(), [[3, 4]])
        data = ht.data.Table(str(self.folder / "t.parquet"), 1, fields={"r": "right", "h": "half"}, shuffle=False)
        self.assertEqual(data.fields, [("r", "bool", []), ("h", "float32", [])])
        (self.folder / "junk.parquet").write_text("hello")
        (self.folder / "short.csv").write_text("a,b\n1,2\n3\n")
        for name, fields, says in (
            ("t.parquet", None, r"column 'city' holds text \('x' in row 0\); expected numbers in all 3"),
            ("t.parquet", {"x": "c"}, "there is no column 'c'"),
            ("t.parquet", {"x": "uneven"}, "column 'uneven' has lists of 1 to 3 elements"),
            ("t.parquet", {"x": ["a", "v"]}, r"field 'x' is made of \['a', 'v'\]; expected one column, or"),
            ("t.parquet", {"x": []}, r"field 'x' is made of \[\]"),
            ("t.parquet", ["a", "b"], "fields= must be a dict of columns by field, such as"),
            ("none.parquet", None, "there is no such file"),
            ("junk.parquet", None, "Could not open Parquet input source"),
            ("none.arrow", None, "there is no such file"),
            ("cut.arrow", None, "Expected to (be able to )?read"),
            ("short.csv", None, "CSV parse error: Expected 2 columns, got 1"),
        ):
            with self.subTest(says), self.assertRaisesRegex(ValueError, rf"^rows_test\.py:\d+: Table .*{name}: .*{says}.*$"):
                ht.data.Table(str(self.folder / name), 1, fields=fields)

    def test_columns_as_a_reader_gives_them(self):
        """Columns of a reader are converted, also where pyarrow isn't installed."""
        class Column:
            def __init__(self, values):
                self.values, self.null_count, self.type = values, values.count(None), "double"

            def __len__(self):
                return len(self.values)

            def to_numpy(self):
                return np.array(self.values)

            def to_pylist(self):
                return self.values

        class Read:
            columns = {"a": Column([1.0, 2.0]), "b": Column([3, 4]), "gaps": Column([1, None]),
                       "bad": Column(np.array(["7", "n/a?"], object).tolist()), "shop": Column(["s1", "s2"])}
            column_names = list(columns)

            def column(self, name):
                return self.columns[name]

        reader = types.ModuleType("pyarrow.csv")
        reader.read_csv = lambda path: Read()
        before = {name: sys.modules.get(name) for name in ("pyarrow", "pyarrow.csv")}
        sys.modules.update({"pyarrow": types.ModuleType("pyarrow"), "pyarrow.csv": reader})
        self.addCleanup(lambda: [sys.modules.pop(n) if m is None else sys.modules.update({n: m}) for n, m in before.items()])
        data = ht.data.Table("mine.csv", 2, fields={"x": ["a", "b"]}, shuffle=False)
        self.assertEqual(batches(data, 1)[0][0]["x"].tolist(), [[1, 3], [2, 4]])
        with self.assertRaisesRegex(ValueError, r"^rows_test\.py:\d+: Table mine.csv: column 'gaps' has 1 empty cells of 2 "
                                    r"\(a CSV file's NA, nan and null count as empty\), the first in row 1 of the data"):
            ht.data.Table("mine.csv", 2)
        for column, says in (("bad", r"'n/a\?' in row 1"), ("shop", "'s1' in row 0")):
            with self.assertRaisesRegex(ValueError, rf"column '{column}' holds text \({says}\); expected numbers in all 2"):
                ht.data.Table("mine.csv", 2, fields={"x": column})

    def test_the_signature_is_that_of_the_constructor(self):
        self.assertRegex(str(inspect.signature(ht.data.Arrays)), r"^\(batch_size: 'int', \*, seed: 'int' = 0, shuffle")

    def test_without_pyarrow(self):
        before = sys.modules.get("pyarrow.parquet")
        sys.modules["pyarrow.parquet"] = None  # as if it weren't installed
        self.addCleanup(lambda: sys.modules.pop("pyarrow.parquet") if before is None
                        else sys.modules.update({"pyarrow.parquet": before}))
        with tempfile.NamedTemporaryFile(suffix=".parquet") as file, self.assertRaisesRegex(
                NotImplementedError, "parquet files are read by pyarrow, which is not installed: pip install pyarrow"):
            ht.data.Table(file.name, 1)
        with self.assertRaisesRegex(ValueError, "Table t.parquet: there is no such file"):
            ht.data.Table("t.parquet", 1)


class Refused(unittest.TestCase):
    def test_one_line_that_names_the_place(self):
        x, y = np.ones((5, 2)), np.ones(4)
        arrays, dataset = ht.data.Arrays, ht.data.Dataset
        for says, make in (
            ("Arrays: all fields must have the same length, got x of 5 rows, y of 4",
             lambda: arrays(x=x, y=y, batch_size=1)),
            ("Arrays: no arrays were given", lambda: arrays(batch_size=1)),
            ("Arrays: field 'x' is the single value 3", lambda: arrays(x=3, batch_size=1)),
            ("Arrays: field 'x' holds text ('b' in row 1); give it numbers, such as a whole number for each word",
             lambda: arrays(x=["1", "b"], batch_size=1)),
            ("Arrays: field 'x' holds text ('c' in row 1, column 0); give it numbers",
             lambda: arrays(x=[["1", "2"], ["c", "d"]], batch_size=1)),
            ("Arrays: field 'x' holds text ('1' in row 0)", lambda: arrays(x=["1", "2"], batch_size=1)),
            ("batches: item 0, field 'x' holds text ('a' in row 0); give it numbers",
             lambda: ht.data.Batches([{"x": np.array(["a"])}], 1)),
            ("Arrays.seed can't be changed, because it is read only once; make new data with this seed",
             lambda: setattr(arrays(x=x, batch_size=1), "seed", 3)),
            ("Arrays: field 'x': 4294967296 is out of range for int32, -2147483648 to 2147483647",
             lambda: arrays(x=np.array([0, 2**32]), batch_size=1, shuffle=False, augment=lambda b, _: {"x": [0, 2**32]})),
            ("Arrays: there are no rows", lambda: arrays(x=np.ones((0, 2)), batch_size=1)),
            ("Arrays: a field cannot be named 'fields'", lambda: arrays(fields=x, batch_size=1)),
            ("Arrays: augment must return a dict of arrays by field, got a NoneType",
             lambda: arrays(x=x, batch_size=1, augment=lambda b, _: None)),
            ("Arrays: 5 rows are fewer than one global batch of 6; choose a smaller batch_size",
             lambda: arrays(x=x, batch_size=3).loader(2, 0, ["x"])),
            ("Dataset: a generator has no __len__", lambda: dataset((i for i in "a"), 1)),
            ("Dataset: a set has no __getitem__", lambda: dataset({1}, 1)),
            ("is a tuple of 2; name its parts: names=('x', 'y')", lambda: dataset(Squares(), 1)),
            ("has 2 parts, names= has 1", lambda: dataset(Squares(), 1, names=["x"])),
            ("Table t.txt: its name must end in one of .csv, .parquet", lambda: ht.data.Table("t.txt", 1)),
            ("Lines: length must be >= 1, got 0", lambda: ht.data.Lines("t.txt", 1, 0)),
        ):
            with self.subTest(says), self.assertRaises(ValueError) as caught:
                make()
            text = str(caught.exception)
            self.assertRegex(text, r"^rows_test\.py:\d+: ")
            self.assertIn(says, text)
            self.assertNotIn("\n", text)

    def test_a_placeholder_of_another_type(self):
        """A placeholder of another type is refused. Otherwise the bytes of int32 rows would be read as floats."""
        ht.new_graph()
        data = ht.data.Arrays(x=np.arange(8).reshape(4, 2), y=np.ones(4), batch_size=2)
        x = ht.placeholder("x", "float32", [-1, 2])
        loss = ht.step_mean((ht.ops.linear(x, ht.parameter("w", np.ones((1, 2))))[:, 0] - data.y) ** 2)
        job = ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)], "validate": [loss]}, threads=1)
        for run in ("train", "validate"):
            with self.assertRaisesRegex(ValueError, r"field 'x': the data have rows of int32 \[2\], the model's placeholder "
                                                    r"takes float32 \[2\]"):
                list(job.run(run))

    def test_items_that_do_not_fit(self):
        ragged = [{"x": [1.0]}, {"x": [1.0, 2.0]}]
        for items, says in ((ragged, r"'x' of item 0 is \[1\], of item 1 \[2\]"),
                            ([{"x": 1.0}, {"y": 1.0}], "item 1 has no 'x'")):
            data = ht.data.Dataset(items, 2, shuffle=False)
            with self.assertRaisesRegex(Exception, says):
                batches(data, 1)


class Info(unittest.TestCase):
    def test_alone(self):
        info = ht.job_info()
        self.assertEqual((info.workers, info.pipelines, info.stages, info.worker, info.pipeline, info.stage, info.is_chief),
                         (1, 1, 1, 0, 0, 0, True))
        self.assertEqual(info.batch_size(12), 12)
        with self.assertRaisesRegex(ValueError, r"^rows_test\.py:\d+: device list pipe_2_2: .* need 4 workers, 1 started"):
            ht.job_info("pipe_2_2")
        with self.assertRaisesRegex(ValueError, r"^rows_test\.py:\d+: a global batch of 0 rows"):
            info.batch_size(0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
