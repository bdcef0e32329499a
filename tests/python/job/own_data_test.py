"""The user's own data under heturun.

One worker draws everything that would differ between processes. A script that shuffles without a seed therefore learns the
same on any number of workers. Errors name workers whose data don't match."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hetu as ht
from hetu import _hetu
from hetu.job.row_comparison import difference, differing_items
from train_cases import HETURUN, MANY_S

ROWS, BATCH = 256, 32
# SCRIPT trains a linear model of four blocks on data that are shuffled without a seed, as scripts for other systems do it.
AT_ITS_OWN_PACE = 400  # steps of all pipelines together; one pipeline does few of them on a busy machine
SCRIPT = f"""
import json, sys
import numpy as np
import hetu as ht

pipelines, stages, method, steps = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
more = json.loads(sys.argv[5])
if more.pop("preduce", False):
    more["averaging"] = ht.averaging.Averaging()
drawn = np.random.default_rng(0)
X = drawn.standard_normal(({ROWS}, 4)).astype(np.float32)
Y = (X @ drawn.standard_normal((4, 1))).astype(np.float32)

class Own:
    def __iter__(self):
        order = np.random.permutation(len(X))
        for i in range(0, len(X), {BATCH}):
            yield dict(x=X[order[i:i + {BATCH}]], y=Y[order[i:i + {BATCH}]])

def main():
    data = ht.data.Batches(Own(), batch_size={BATCH} // pipelines)
    x = data.x
    for block in range(4):
        rows = 1 if block == 3 else 4
        x = ht.ops.linear(x, ht.graph.parameter(f"w{{block}}", [rows, 4], ht.graph.normal(0.5)))
        ht.cut()
    error = x - data.y
    loss = ht.ops.sum(error * error) * (1 / {BATCH})
    train = ht.optim.SGD(0.01).minimize(loss)
    job = ht.Executor({{"train": [loss, train], "validate": [loss]}}, f"pipe_{{pipelines}}_{{stages}}", method,
                      1 if method == "pipedream" else 4, threads=1, **more)
    losses = [step.loss for step in job.run("train", steps=steps)]
    seen = [step.loss for step in job.run("validate", steps=3)]
    if job.is_chief:
        print(json.dumps([losses, seen]))

with ht.one_line_errors("own.py"):
    main()
"""


class OwnData(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.script = pathlib.Path(folder.name) / "own.py"
        cls.script.write_text(SCRIPT)

    def train(self, pipelines, stages, method="1f1b", steps=150, before=(), **more):
        workers = pipelines * stages
        words = [sys.executable, self.script, pipelines, stages, method, steps, json.dumps(more)]
        words = [str(w) for w in ([*HETURUN, *before, "-w", workers, *words] if workers > 1 else words)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=MANY_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [line.partition("[[")[2] for line in done.stdout.splitlines() if "[[" in line]
        self.assertEqual(len(lines), 1, done.stdout)
        return (*json.loads("[[" + lines[0]), done.stdout + done.stderr)

    def test_learns_the_same_on_any_number_of_workers(self):
        """A field whose rows come from a different draw would keep the loss at its initial value, which is 2.8 on
        average, and no batch of 32 rows in 200,000 draws was below 0.78."""
        for pipelines, stages, method, more in [
            (1, 1, "1f1b", {}), (1, 2, "1f1b", {}), (1, 4, "pipedream", {}), (2, 2, "chimera", {"compare_single": True}),
        ]:
            with self.subTest(grid=(pipelines, stages), method=method):
                losses, seen, said = self.train(pipelines, stages, method, **more)
                self.assertGreater(losses[0], 0.3)
                self.assertLess(max(losses[-10:]), 0.01)
                self.assertLess(max(seen), 0.01)
                self.assertNotIn("read different items", said)

    def test_pipelines_that_average_draw_for_themselves(self):
        losses, seen, said = self.train(2, 2, "pipedream", AT_ITS_OWN_PACE, preduce=True)
        self.assertLess(max(losses[-10:] + seen), 0.01)
        says = "batches: pipelines 0 and 1 read different items, but each takes only its slice of an item"
        self.assertEqual(said.count(says), 1, said)

    def test_validation_where_a_pipeline_may_die(self):
        """Each pipeline validates all rows of an item, one pipeline's rows after the other's."""
        losses, seen, _ = self.train(2, 1, "pipedream", AT_ITS_OWN_PACE, preduce=True,
                                     before=("--on-failure", "shrink", "--pipelines", "2"))
        self.assertEqual(len(seen), 6)
        self.assertLess(max(losses[-10:] + seen), 0.01)


class Alone(unittest.TestCase):
    def job(self, items):
        ht.graph.new_graph()
        data = ht.data.Batches(items, batch_size=2)
        loss = ht.ops.sum(ht.ops.linear(data.x, ht.graph.parameter("w", [1, 1], ht.graph.constant(1.0))))
        return ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)], "validate": [loss]}, threads=1)

    def test_a_validation_does_not_move_the_training(self):
        begun = []

        class Counted:
            def __iter__(self):
                begun.append(0)
                at = len(begun) - 1
                for i in range(4):
                    begun[at] += 1
                    yield {"x": np.full((2, 1), i, np.float32)}

        job = self.job(Counted())
        losses = [step.loss for step in job.run("train", steps=2)]
        self.assertEqual([step.loss for step in job.run("validate", steps=3)], [0, 2, 4])
        losses += [step.loss for step in job.run("train", steps=4)]
        self.assertEqual(losses, [0, 2, 4, 6, 0, 2])
        self.assertEqual(begun[:3], [1, 4, 3])  # the first look, training's first epoch, validation

    def test_items_of_all_pipelines_for_one(self):
        item = {"x": np.arange(6, dtype=np.float32).reshape(6, 1)}
        for items in ([item, item], type("Own", (), {"__iter__": lambda self: iter([item, item])})()):
            loader = ht.data.Batches(items, batch_size=2).alone(3).loader(1, 0, ["x"])
            self.assertEqual([loader.next()["x"].ravel().tolist() for _ in range(7)],
                             [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3], [4, 5], [0, 1]])
        short = {"x": item["x"][:5]}
        loader = ht.data.Batches([item, short], batch_size=2).alone(3).loader(1, 0, ["x"])
        self.assertEqual([loader.next()["x"].ravel().tolist() for _ in range(4)], [[0, 1], [2, 3], [4, 5], [0, 1]])
        loader = ht.data.Batches([item], batch_size=2).alone(2).loader(1, 0, ["x"])
        with self.assertRaisesRegex(Exception, "batches: item 0 of epoch 0 has 6 rows, but the global batch is 4"):
            loader.next()

    def test_numpy_is_loaded_where_it_is_used(self):
        """NumPy takes half of a worker's start, and training from files doesn't need it."""
        script = ("import sys\nimport hetu as ht\nfrom hetu import training\nht.models, ht.Executor, ht.data.BertHdf5\n"
                  "print('numpy' in sys.modules)\n"
                  "class Ones:\n    __len__ = lambda self: 1\n    __getitem__ = lambda self, i: {'x': [[1.0]]}\n"
                  "ht.data.Batches(Ones(), 1)\nprint('numpy' in sys.modules)\n")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=MANY_S)
        self.assertEqual(done.stdout.split(), ["False", "True"], done.stderr)

    def test_arrays_are_made_what_values_are(self):
        pixels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
        given = {"pixels": pixels + 200, "letters": pixels[:, 0], "labels": np.array([2**31 - 1, -(2**31)], np.int64),
                 "half": np.array([0.5, -1.5], np.float16), "wide": np.array([1e-3, np.inf]),
                 "flags": np.array([True, False]),
                 "seen": np.array([1, 0], np.uint8), "few": pixels.astype(np.int16)}
        data = ht.data.Batches([given], 2, dtypes={"seen": "bool", "few": "float32"})
        wanted = {"pixels": "float32", "letters": "int32", "labels": "int32", "half": "float32", "wide": "float32",
                  "flags": "bool", "seen": "bool", "few": "float32"}
        self.assertEqual({name: dtype for name, dtype, _ in data.fields}, wanted)
        batch = data.loader(1, 0, list(given)).next()
        for name, array in given.items():
            self.assertEqual(str(batch[name].dtype), wanted[name])
            np.testing.assert_array_equal(batch[name], array.astype(wanted[name]), name)

    def test_arrays_may_lie_in_memory_in_any_way(self):
        """Arrays may have any order of axes, strides and byte order, and may be read-only."""
        base = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
        locked = base.copy()
        locked.setflags(write=False)
        for array in (np.asfortranarray(base), base[::-1][::-1], np.repeat(base, 2, axis=1)[:, ::2], base.astype(">f4"),
                      base.astype(">i2"), base.astype(">f8"), locked,
                      np.frombuffer(base.tobytes(), np.float32).reshape(4, 3, 2)):
            for data in (ht.data.Batches([{"x": array}], 4), ht.data.Arrays(x=array, batch_size=4, shuffle=False),
                         ht.data.Dataset([{"x": row} for row in array], 4, shuffle=False)):
                np.testing.assert_array_equal(data.loader(1, 0, ["x"]).next()["x"], base)

    def test_a_model_reads_pixels_and_labels_as_they_are_stored(self):
        ht.graph.new_graph()
        random = np.random.default_rng(5)
        item = {"image": random.integers(0, 256, (4, 2, 3, 3), np.uint8), "label": random.integers(0, 3, 4)}
        data = ht.data.Batches([item], 4)
        w = random.standard_normal((3, 18))
        logits = ht.ops.linear(data.image.flatten(1) / 255, ht.parameter("w", w))
        loss = ht.models.mean_cross_entropy(logits, data.label)
        job = ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)]}, micro_batches=2, threads=1)
        (step,) = job.run("train", steps=1)
        want = item["image"].reshape(4, 18) / 255 @ w.T
        want -= np.log(np.exp(want).sum(1, keepdims=True))
        self.assertAlmostEqual(step.loss, -want[np.arange(4), item["label"]].mean(), 5, "seed 5")

    def test_elements_that_do_not_fit_are_refused(self):
        for first, then, dtypes, why in [
            ([0, 2**31], None, {}, "item 0, field 'x': 2147483648 is out of range for int32, -2147483648 to 2147483647"),
            ([0, 1], [0, -(2**40)], {}, "item 1, field 'x': -1099511627776 is out of range for int32"),
            ([0, 1], [0.5, 1], {}, r"item 1, field 'x' is float32\[2\], the first item has int32"),
            ([0.5, 1], None, {"x": "int32"}, "item 0, field 'x': float64 can't be converted to int32"),
            ([0.5, 1e300], None, {}, "item 0, field 'x': 1e\\+300 is out of range for float32"),
            ([2**24 + 1, 0], None, {"x": "float32"}, "item 0, field 'x': 16777217 is out of range for float32"),
            ([0, 2], None, {"x": "bool"}, "item 0, field 'x': 2 is out of range for bool, 0 to 1"),
            (["a", "b"], None, {}, r"item 0, field 'x' holds text \('a' in row 0\); give it numbers"),
            ([1j, 0], None, {}, "complex128"),
            ([0, 1], None, {"y": "int32"}, r"dtypes names \['y'\]; the fields are x"),
            ([0, 1], None, {"x": "int64"}, "dtypes has 'int64' for 'x'; supported: float32, int32, bool"),
            (3, None, {}, "item 0 has a field without an axis of rows"),
        ]:
            with self.subTest(why=why), self.assertRaisesRegex(ValueError, why):
                items = [{"x": np.array(x)} for x in (first, then) if x is not None]
                loader = ht.data.Batches(items, 2, dtypes=dtypes).loader(1, 0, ["x"])
                loader.next(), loader.next()

    def test_what_cannot_be_items_is_refused(self):
        row = {"x": np.zeros((2, 1), np.float32)}
        for items, why in [
            ((row for _ in range(3)), "batches: a generator can be read only once"),
            (iter([row]), "batches: a list_iterator can be read only once"),
            ([(row["x"], row["x"])], "batches: item 0 is a tuple; give a dict"),
            ([], "batches: there are no items"),
            ([{"length": row["x"]}], "batches: a field cannot be named 'length'"),
            ([{"loader": row["x"]}], "batches: a field cannot be named 'loader'"),
        ]:
            with self.subTest(why=why), self.assertRaisesRegex(ValueError, why):
                ht.data.Batches(items, batch_size=2)


# Data that each worker makes for itself from x [12, 2]. `rank` is available.
SHARDED = """
import json, sys
import numpy as np
import hetu as ht
rank = ht.job_info().worker
x = np.arange(24, dtype=np.float32).reshape(12, 2)
stages, more = int(sys.argv[2]), json.loads(sys.argv[3])
if more.pop("preduce", False):
    more["averaging"] = ht.averaging.Averaging()
class Items:
    def __init__(self, read):
        self.read = read
    def __iter__(self):
        yield from self.read()
data = eval(sys.argv[1])
read = getattr(data, next(name for name, _, shape in data.fields if shape)).cast("float32").flatten(1)[:, :2]
half = ht.ops.linear(read, ht.parameter("w", [2, 2], ht.graph.constant(0.0)))
ht.cut()
loss = ht.step_mean((half - read) ** 2)
job = ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)], "predict": [half]}, f"pipe_{2 // stages}_{stages}",
                  more.pop("method", "1f1b"), threads=1, **more)
for _ in job.run(steps=2):
    pass
if len(sys.argv) > 4:
    job.predict(eval(sys.argv[4]))
if job.is_chief:
    print("trained")
"""
SHARED_OUT = "Hetu expects the same rows on every worker and shares them out itself"


class Sharded(unittest.TestCase):
    """Rows that a script has sharded by rank, as scripts for DDP do, end the job before its first step."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.script = pathlib.Path(folder.name) / "sharded.py"
        cls.script.write_text(SHARDED)
        at = pathlib.Path(folder.name)
        for rank in (0, 1):  # files with different content, but equal names and numbers of rows
            (at / f"{rank}.txt").write_text("ab\n" * 4 + str(rank))
            (at / f"logs{rank}").mkdir()
            (at / f"logs{rank}" / "day_0").write_text((f"0\t{rank}" + "\t" * 38 + "\n") * 9)
            if _hetu.reads_images():
                (at / f"cifar{rank}").mkdir()
                _hetu.write_drawn_folder(str(at / f"images{rank}"), 2, 3, 2, 16, rank)
                _hetu.write_drawn_cifar100(str(at / f"cifar{rank}"), 100, 3, 2, 32, rank)
            subprocess.run(["hetu", "data", "sample", str(at / f"bert{rank}"), "--rows", "16", "--shards", "2", "--seed",
                            str(rank), "--vocab-size", "300"], check=True, capture_output=True, timeout=MANY_S)
        cls.folder = folder.name

    def run_two(self, data, stages=1, predicted=(), **more):
        words = [*HETURUN, "-w", "2", sys.executable, self.script, data, stages, json.dumps(more), *predicted]
        return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=MANY_S, cwd=self.folder)

    def test_is_refused_for_every_source(self):
        for data, stages, more, says in [
            ("ht.data.Arrays(x=x[rank::2], batch_size=2)", 1, {}, "Arrays: worker 0 and worker 1 were given different rows"),
            ("ht.data.Arrays(x=x[rank::2], batch_size=2)", 2, {}, "were given different rows"),
            ("ht.data.Arrays(x=x[rank:], batch_size=2)", 1, {},
             "Arrays: worker 0 was given 12 rows, worker 1 11 rows"),
            ("ht.data.Dataset([{'x': row} for row in x[rank::2]], 2)", 1, {}, "Dataset: worker 0 and worker 1 were given"),
            ("ht.data.Batches([{'x': x[rank::2][:4]}] * 3, 2)", 1, {}, "batches: worker 0 and worker 1 were given"),
            ("ht.data.Batches([{'x': x[:4]}] * (3 + rank), 2)", 1, {},
             "batches: worker 0 was given 3 items, worker 1 4 items"),
            ("ht.data.Batches(Items(lambda: [{'x': x[rank::2][:4]}] * 3), 2)", 1, {}, "batches: worker 0 and worker 1 were"),
            ("ht.data.Batches([{'x': x[rank::2][:4]}] * 300, 2)", 1, {"preduce": True, "method": "pipedream"},
             "batches: worker 0 and worker 1 were given different rows"),
        ]:
            with self.subTest(data=data, stages=stages, **more):
                done = self.run_two(data, stages, **more)
                self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn(says, done.stdout + done.stderr)
                self.assertIn(SHARED_OUT, done.stdout + done.stderr)
                self.assertNotIn("trained", done.stdout)

    def test_is_refused_for_files(self):
        """Each rank reads its own folder. Names, sizes and numbers of rows are equal, and the files' contents differ."""
        images = ("ht.data.ImageFolder('images{}/train', 2, size=8)", "ht.data.Cifar100('cifar{}', 2)")
        for data in ("ht.text.Text('{}.txt', 2, 3)", "ht.data.Criteo('logs{}', 2)", "ht.data.BertHdf5('bert{}', 2)",
                     *(images if _hetu.reads_images() else ())):
            with self.subTest(data=data):  # the tests of the training scripts cover equal files on every worker
                done = self.run_two(data.replace("{}", "' + str(rank) + '"))
                self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertNotIn("trained", done.stdout)
                self.assertIn("worker 0 and worker 1 were given different rows. " + SHARED_OUT, done.stdout + done.stderr)

    def test_other_seeds_and_predictions_are_refused(self):
        same = "ht.data.Arrays(x=x, batch_size=2)"
        for data, predicted, says in [
            ("ht.data.Arrays(x=x, batch_size=2, seed=rank)", (), "Arrays: worker 0 has the seed 0, worker 1 1. Give every"),
            (same, ("{'x': x[rank::2]}",), "arrays: worker 0 and worker 1 were given different rows"),
            (same, ("{'x': x[rank:]}",), "arrays: worker 0 and worker 1 were given different rows"),
            (same, ("ht.data.Arrays(x=x[rank::2], batch_size=2)",), "Arrays: worker 0 and worker 1 were given different"),
        ]:
            with self.subTest(data=data, predicted=predicted):
                done = self.run_two(data, 1, predicted)
                self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn(says, done.stdout + done.stderr)

    def test_rows_drawn_at_random_are_not(self):
        noise = "np.random.standard_normal((4, 2)).astype(np.float32)"
        for data in ("ht.data.Arrays(x=x, batch_size=2)",
                     f"ht.data.Batches(Items(lambda: [{{'x': {noise}}}] * 3), 2)",
                     "ht.data.Dataset(type('Noisy', (), {'__len__': lambda s: 12, '__getitem__': lambda s, i: "
                     "{'x': x[i] + np.random.standard_normal(2).astype(np.float32)}})(), 2)"):
            with self.subTest(data=data):
                done = self.run_two(data)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("trained", done.stdout)


class Unlike(unittest.TestCase):
    def test_draws_of_pipelines_that_average(self):
        for slices, lengths, wanted in [
            ([[1, 2], [1, 2]], [5, 5], []),
            ([[1, 2], [3, 4]], [5, 5], ["read different items"]),
            ([[1, 1], [1, 1]], [5, 5], ["get the same samples"]),
            ([[1, 2], [3, 1]], [5, 4], ["read different", "get the same samples", "has 5 items, an epoch of pipeline 1 4"]),
            ([[1, 2], [1, 2]], [None, 4], []),
            ([[], []], [None, None], []),
        ]:
            with self.subTest(slices=slices, lengths=lengths):
                draws = {d: {"slices": s, "length": n} for d, (s, n) in enumerate(zip(slices, lengths, strict=True))}
                lines = differing_items("own", draws)
                self.assertEqual(len(lines), len(wanted), lines)
                for line, part in zip(lines, wanted, strict=True):
                    self.assertRegex(line, f"^own: .*{part}")

    def test_facts_that_differ(self):
        same = {"source": "Arrays", "rows": 5, "seed": 0, "order": None, "checksums": [1]}
        for change, says in [({}, ""), ({"rows": 4}, "worker 0 was given 5 rows, worker 2 4 rows. Hetu expects"),
                             ({"checksums": [2]}, "worker 0 and worker 2 were given different rows. Hetu expects"),
                             ({"source": "Batches", "rows": None}, "worker 0 has the source 'Arrays', worker 2 'Batches'"),
                             ({"order": "images 3"}, "worker 0 has the order None, worker 2 'images 3'. Give every worker")]:
            with self.subTest(change=change):
                _, found = difference("own", "worker", {0: same, 1: same, 2: same | change})
                self.assertRegex(found, f"^own: {says}" if says else "^$")


if __name__ == "__main__":
    unittest.main()
