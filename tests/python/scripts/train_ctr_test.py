"""train_ctr.py on generated click logs: output lines, AUC between chance and the true model's, the same bits under every
cut, equal samples for one process and four, resuming after a stop, and wrong options and data."""
import pathlib
import re
import subprocess
import sys
import unittest

from train_cases import HETURUN, MANY_S, ROOT, TrainCase, checksums

WHOLE = "--whole" in sys.argv
ROWS, VAL, BATCH = 2048, 1024, 64
EVALUATED = re.compile(r"^(?:\[0\] )?(\d+) EVAL  loss (\d+\.\d{4}) auc ([01]\.\d{4})$", re.M)


class CtrCase(TrainCase):
    """Like TrainCase, with click logs and train_ctr.py."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.clicks = pathlib.Path(cls.shared.name) / "clicks"
        words = ["hetu", "data", "sample", "--kind", "criteo", str(cls.clicks), "--train", str(ROWS), "--val", str(VAL)]
        said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=MANY_S).stdout
        cls.best = float(re.search(r"validation rows (0\.\d+)$", said)[1])

    def command(self, grid, *options, before=()):
        self.jobs += 1
        log = self.folder / f"log{self.jobs}.jsonl"
        pipelines, stages = grid
        workers = pipelines * stages
        words = [*before, *(HETURUN + ["-w", str(workers)] if workers > 1 else []), sys.executable,
                 str(ROOT / "python" / "train_ctr.py"), "--data", str(self.clicks), "--hash-size", "100", "--threads", "1",
                 "--batch-size", str(BATCH), "--micro-batches", "4", "--embedding-width", "8", "--hidden", "32,16,8",
                 "--seed", "5", "--log", str(log), "--name", "test", "--pipeline", "gpipe"]
        words += ["--devices", f"pipe_{pipelines}_{stages}"] if workers > 1 else []
        return [*words, *map(str, options)], log


class Alone(CtrCase):
    def test_learns_and_says_so(self):
        for model in ("wide-deep", "dlrm"):
            with self.subTest(model):
                done = self.train((1, 1), "--epochs", 4, "--model", model)
                self.assertEqual(len(re.findall(r"^\d TRAIN loss \d\.\d{4} lr 2\.00e-02, time ", done.out, re.M)), 4)
                seen = EVALUATED.findall(done.out)
                self.assertEqual([number for number, _, _ in seen], ["0", "1", "2", "3"])
                areas = [float(area) for _, _, area in seen]
                self.assertGreater(areas[-1], 0.65)
                self.assertLess(max(areas), self.best)
                self.assertEqual(len(done.losses), 4 * ROWS // BATCH)
                half = len(done.losses) // 2
                self.assertLess(sum(done.losses[half:]), sum(done.losses[:half]))

    def test_goes_on_where_it_was_stopped(self):
        whole, parts = self.folder / "whole", self.folder / "parts"
        self.train((1, 1), "--steps", 40, "--checkpoint", whole)
        self.train((1, 1), "--steps", 33, "--checkpoint", parts)
        self.train((1, 1), "--steps", 40, "--checkpoint", parts, "--resume")
        self.assertEqual(checksums(parts), checksums(whole))


class Cut(CtrCase):
    def compare(self, one, other):
        found = subprocess.run(["hetu", "checkpoint", "diff", one, other], capture_output=True, text=True, timeout=MANY_S)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        self.assertEqual(checksums(one), checksums(other))

    def test_the_same_bits(self):
        """Any plan of one pipeline gives the bits of one process. So do two pipelines with one micro-batch each, which one
        process adds in the same order."""
        small = [("wide-deep", 1, 4, "gpipe"), ("dlrm", 1, 4, "1f1b"), ("wide-deep", 2, 2, "gpipe"), ("dlrm", 4, 1, "dp")]
        whole = [(model, *grid) for model in ("wide-deep", "dlrm")
                 for grid in ((1, 2, "gpipe"), (1, 4, "1f1b"), (1, 2, "zb-h1"), (2, 2, "gpipe"), (2, 2, "1f1b"),
                              (2, 1, "dp"))]
        alone = {}
        for model, pipelines, stages, method in whole if WHOLE else small:
            with self.subTest(model=model, pipelines=pipelines, stages=stages, method=method):
                micros = 4 if pipelines == 1 else 1
                rows = BATCH // pipelines
                options = ("--model", model, "--steps", ROWS // BATCH, "--optimizer", "adagrad")
                at_once = micros * pipelines
                if (model, at_once) not in alone:
                    folder = self.folder / f"alone-{model}-{at_once}"
                    done = self.train((1, 1), *options, "--micro-batches", at_once, "--checkpoint", folder)
                    alone[model, at_once] = folder, EVALUATED.findall(done.out)
                folder = self.folder / f"{model}-{pipelines}-{stages}-{method}"
                done = self.train((pipelines, stages), *options, "--batch-size", rows, "--micro-batches", micros,
                                  "--pipeline", method, "--checkpoint", folder)
                same, seen = alone[model, at_once]
                if pipelines <= 2:
                    self.compare(folder, same)
                    self.assertEqual(EVALUATED.findall(done.out), seen)
                else:  # the order of adding four sums of pipelines differs from that of four micro-batches
                    (_, loss, area), (_, other_loss, other_area) = EVALUATED.findall(done.out)[0], seen[0]
                    self.assertAlmostEqual(float(loss), float(other_loss), delta=1e-3)
                    self.assertAlmostEqual(float(area), float(other_area), delta=2e-3)


class Tables(CtrCase):
    """Gradients by rows give the bits of dense gradients. Lazy rows follow another rule, which is the same under every cut.
    """

    def test_the_bits_of_dense_gradients(self):
        cases = [("wide-deep", "sgd", (1, 1)), ("dlrm", "adam", (1, 2)), ("wide-deep", "adagrad", (2, 1))]
        for model, optimizer, grid in cases:
            with self.subTest(model=model, optimizer=optimizer, grid=grid):
                left = []
                for options in ((), ("--dense-tables",)):
                    folder = self.folder / f"{model}-{optimizer}-{len(left)}"
                    self.train(grid, "--model", model, "--optimizer", optimizer, "--clip-norm", 0.5, "--steps", 12,
                               "--checkpoint", folder, *options)
                    left.append(checksums(folder))
                self.assertEqual(*left)

    def test_lazy_rows(self):
        left = {}
        lazy = ("--lazy-rows",)
        for name, grid, options in (("eager", (1, 1), ()), ("lazy", (1, 1), lazy), ("cut", (1, 4), lazy)):
            folder = self.folder / name
            self.train(grid, "--optimizer", "adam", "--learning-rate", 0.01, "--steps", 12, "--checkpoint", folder, *options)
            left[name] = checksums(folder)
        self.assertEqual(left["lazy"], left["cut"])
        differing = {name for (name, _), crc in left["eager"].items() if left["lazy"][name, _] != crc}
        self.assertIn("embedding.weight", differing)
        self.refused((1, 1), "--optimizer", "lamb", "--lazy-rows", says="LAMB: lazy_rows is not supported")
        self.refused((1, 1), "--optimizer", "adam", "--lazy-rows", "--dense-tables",
                     says="lazy_rows goes by the rows of a table's gradient, and dense_tables wants it whole")
        self.refused((2, 1), "--optimizer", "adam", "--lazy-rows", "--pipeline", "dp", "--sync-method", "ps",
                     says="--sync-method ps needs updates of whole tables, but lazy_rows updates only rows that were read")


class Options(CtrCase):
    def test_refused(self):
        for options, says, status in (
            (("--model", "deepfm"), "invalid choice: 'deepfm'", 2),
            (("--hash-size", 0), "--hash-size must be >= 1, got 0", 2),
            (("--embedding-width", -1), "--embedding-width must be >= 1, got -1", 2),
            (("--hash-size", 1 << 28), "hash size 268435456 is out of range; use 1 to 82595524 rows", 2),
            (("--hidden", "32,x"), "argument --hidden: '32,x' is not a list of layer sizes; write 256,128,64", 2),
            (("--hidden", "32,0"), "'32,0' is not a list of layer sizes", 2),
            (("--max-rows", -1), "--max-rows must be >= 0, got -1", 2),
            (("--warmup-steps", -1), "--warmup-steps must be >= 0, got -1", 2),
            (("--batch-size", 4096), "the training data has 2048 rows, fewer than one global batch of 4096;", 2),
            (("--batch-size", 2048), "the evaluation data has 1024 rows, fewer than one global batch of 2048;", 2),
            (("--data", self.folder / "nowhere"), "nowhere: no such file or folder", 4),
            (("--data", self.folder), "has no click logs; expected day_0, day_1, …, or *.tsv or *.txt", 4),
            (("--eval-data", self.folder / "x.tsv"), "x.tsv: no such file or folder", 4),
        ):
            with self.subTest(options):
                self.refused((1, 1), *options, says=re.escape(says), status=status)
        words, _ = self.command((1, 1))
        at = words.index("--data")
        del words[at:at + 2]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=MANY_S, cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertIn("the following arguments are required: --data", done.stderr)

    def test_a_bad_row_ends_the_job_in_one_line(self):
        lines = (self.clicks / "train" / "day_0").read_text().splitlines()[:200]
        lines[149] += "0"
        path = self.folder / "day_0"
        path.write_text("\n".join(lines) + "\n")
        says = rf"{path}:150: column 40 \(C26\) is '[0-9a-f]+', expected 1 to 8 hexadecimal digits"
        for grid in ((1, 1), (1, 2)):
            with self.subTest(grid):
                done = self.run_job(grid, "--data", path, "--steps", 3)
                self.assertEqual(done.code, 4, str(done))
                self.assertRegex(done.err, says)

    def test_one_kind_of_label_has_no_auc(self):
        rows = (self.clicks / "val" / "day_0").read_text().splitlines(keepends=True)
        path = self.folder / "ones.tsv"
        path.write_text("".join(row for row in rows if row[0] == "1"))
        self.refused((1, 1), "--eval-data", path, "--steps", 1,
                     says=r"AUC needs rows of both labels, found \d+ of 1 and 0 of 0")


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main(verbosity=2)
