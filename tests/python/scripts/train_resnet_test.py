"""train_resnet.py on generated images: SD-PIPE's lines and counts, TensorBoard, the same bits under every cut, resuming
after a stop, weights read and written under torchvision's names, and wrong options."""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import hetu as ht
from event_files import scalars_of
from hetu import _hetu
from train_cases import HETURUN, MANY_S, ROOT, TrainCase, checksums

WHOLE = "--whole" in sys.argv
CLASSES, TRAIN, VAL, SIZE, BATCH = 4, 4, 2, 32, 4
ITERATIONS = CLASSES * TRAIN // BATCH
TRAINED = re.compile(r"^(?:\[0\] )?(\d+) TRAIN loss \d+\.\d{4} acc [01]\.\d{4} lr (\d\.\d\de[+-]\d\d), time \d+\.\d{4}$",
                     re.M)
EVALUATED = re.compile(r"^(?:\[0\] )?(\d+) EVAL  loss \d+\.\d{4} acc [01]\.\d{4}", re.M)


class ResNetCase(TrainCase):
    """Like TrainCase, with images and train_resnet.py."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not _hetu.reads_images():
            raise unittest.SkipTest("a build without libjpeg")
        cls.images = pathlib.Path(cls.shared.name) / "images"
        draw = ["hetu", "data", "sample", "--kind", "images", str(cls.images), "--classes", CLASSES, "--train", TRAIN,
                "--val", VAL, "--size", SIZE]
        subprocess.run([str(word) for word in draw], check=True, capture_output=True, timeout=MANY_S)

    def command(self, grid, *options, before=()):
        self.jobs += 1
        log = self.folder / f"log{self.jobs}.jsonl"
        pipelines, stages = grid
        workers = pipelines * stages
        words = [*before, *(HETURUN + ["-w", str(workers)] if workers > 1 else []), sys.executable,
                 str(ROOT / "python" / "train_resnet.py"), "--dataset", "imagenet", "--data", str(self.images), "--size",
                 str(SIZE), "--threads", "1", "--batch-size", str(BATCH), "--micro-batches", "2", "--learning-rate", "0.01",
                 "--seed", "5", "--log", str(log), "--name", "test", "--pipeline", "1f1b"]
        words += ["--devices", f"pipe_{pipelines}_{stages}"] if workers > 1 else []
        return [*words, *map(str, options)], log


class Alone(ResNetCase):
    def test_lines_and_scalars(self):
        done = self.train((1, 1), "--epochs", 2, "--points-every", 3)
        self.assertTrue(done.out.startswith(
            f"global batch: {BATCH} samples per step in 2 micro-batches of {BATCH // 2}\n"
            "learning rate: 0.0025 to 0.01 over 8 steps (warm-up of 4 to 0.01, then x 0.2 every 120)\n1f1b, "), done.out)
        self.assertIn(f"Training 2 epoch, each epoch runs {ITERATIONS} iteration\n", done.out)
        self.assertEqual(TRAINED.findall(done.out), [("0", "1.00e-02"), ("1", "1.00e-02")])
        self.assertEqual(EVALUATED.findall(done.out), ["0", "1"])
        self.assertEqual(done.steps, list(range(2 * ITERATIONS)))
        (events,) = (self.folder / "runs" / "test").iterdir()
        points = scalars_of(events)
        for tag in ("Train/loss", "Train/acc", "Validation/loss", "Validation/acc"):
            self.assertEqual([step for step, name, _ in points if name == tag], [0, 1], tag)
        for tag in ("loss", "learning_rate", "gradient_norm", "samples_per_s"):
            course = [(step, value) for step, name, value in points if name == f"Step/{tag}"]
            self.assertEqual([step for step, _ in course], [3, 6, 8])
            self.assertTrue(all(value > 0 for _, value in course))
            if tag == "loss":
                for step, value in course:
                    self.assertAlmostEqual(value, done.losses[step - 1], delta=1e-5)

    def test_a_momentum_of_zero_is_plain_descent(self):
        plain, none = (self.train((1, 1), "--steps", 3, "--weight-decay", 0, *how).losses
                       for how in (("--optimizer", "sgd"), ("--momentum", 0)))
        usual = self.train((1, 1), "--steps", 3, "--weight-decay", 0).losses
        self.assertEqual(plain, none)
        self.assertNotEqual(plain, usual)

    def test_a_plateau_follows_the_evaluation(self):
        """The printed rates follow from the printed losses of evaluations. A high rate makes these differ widely."""
        done = self.train((1, 1), "--epochs", 16, "--schedule", "plateau", "--learning-rate", 3, "--batch-size", 8,
                          "--warmup-epochs", 0)
        plateau, expected = ht.lr.ReduceOnPlateau(3.0), []
        for loss in re.findall(r"EVAL  loss (\S+) acc", done.out):
            expected.append(f"{3 * plateau.state['multiplier']:.2e}")
            plateau.report(float(loss))
        self.assertEqual([rate for _, rate in TRAINED.findall(done.out)], expected)

    def test_goes_on_in_the_middle_of_an_epoch(self):
        whole, parts = self.folder / "whole", self.folder / "parts"
        self.train((1, 1), "--steps", 5, "--checkpoint", whole)
        first = self.train((1, 1), "--steps", 2, "--checkpoint", parts, "--name", "parts", "--points-every", 1)
        self.assertIn("warning: this run ends during the warm-up: 2 of 4 updates reach a rate of 0.005, 50 % of 0.01; ",
                      first.out)
        self.assertIn(" (--warmup-epochs)\n", first.out)
        self.assertIn("Training 2 steps; an epoch is 4 steps\n", first.out)
        shutil.copytree(parts, self.folder / "two")
        again = self.train((1, 1), "--steps", 5, "--checkpoint", parts, "--resume", "--name", "parts", "--points-every", 1)
        self.assertIn("Continuing to step 5; an epoch is 4 steps\n", again.out)
        self.assertNotIn("warning", again.out)
        self.assertEqual(checksums(parts), checksums(whole))
        # As after a kill at step 5, where the checkpoint of step 2 is the newest: no point is in the files twice.
        shutil.rmtree(parts)
        shutil.copytree(self.folder / "two", parts)
        self.train((1, 1), "--steps", 5, "--checkpoint", parts, "--resume", "--name", "parts", "--points-every", 1)
        points = [p for path in sorted((self.folder / "runs" / "parts").iterdir()) for p in scalars_of(path)]
        self.assertEqual(sorted(step for step, tag, _ in points if tag == "Step/loss"), [1, 2, 3, 4, 5])
        self.assertEqual(sorted(step for step, tag, _ in points if tag == "Train/loss"), [0, 1])

    def test_weights_go_out_and_in_bitwise(self):
        saved, again, file = self.folder / "saved", self.folder / "again", self.folder / "resnet18.safetensors"
        self.train((1, 1), "--steps", 1, "--checkpoint", saved)
        for words in (("export", saved, "-o", file), ("import", file, "-o", again)):
            subprocess.run(["hetu", "checkpoint", *map(str, words)], check=True, capture_output=True, timeout=MANY_S)
        weights = {name: crc for (name, state), crc in checksums(saved).items() if not state}
        self.assertEqual({name: crc for (name, _), crc in checksums(again).items()}, weights)
        self.assertIn("layer1.0.bn1.num_batches_tracked", weights)
        self.assertIn("with imported weights", self.train((1, 1), "--steps", 1, "--checkpoint", again, "--resume").out)


class Cut(ResNetCase):
    def test_the_same_bits(self):
        grid = [(s, m) for s in (2, 4) for m in ("gpipe", "1f1b")] if WHOLE else [(2, "1f1b"), (4, "gpipe")]
        alone = self.folder / "alone"
        losses = self.train((1, 1), "--steps", 2, "--checkpoint", alone).losses
        for stages, method in grid:
            with self.subTest(stages=stages, method=method):
                folder = self.folder / f"{stages}-{method}"
                done = self.train((1, stages), "--steps", 2, "--checkpoint", folder, "--pipeline", method)
                self.assertEqual(done.losses, losses)
                self.assertEqual(checksums(folder), checksums(alone))

    def test_two_pipelines_count_half_the_iterations(self):
        done = self.train((2, 1), "--epochs", 1)
        self.assertIn(f"each epoch runs {ITERATIONS // 2} iteration\n", done.out)
        self.assertEqual(len(EVALUATED.findall(done.out)), 1)
        self.assertIn(", top-5 1.0000\n", done.out)  # one of four classes, over the samples of both pipelines


class WithoutAFlush(ResNetCase):
    """pipedream, the scripts' default: a batch is one micro-batch, and the pipeline is drained at the end of an epoch."""

    def test_evaluates_where_it_drains(self):
        for options, evaluations in ((), ["0", "1"]), (("--no-drain",), ["1"]):
            with self.subTest(options):
                words, log = self.command((1, 2), "--epochs", 2, *options)
                for flag in ("--pipeline", "--micro-batches"):
                    at = words.index(flag)
                    del words[at:at + 2]
                done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=MANY_S, cwd=self.folder)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("pipedream, ", done.stdout)
                self.assertEqual(EVALUATED.findall(done.stdout), evaluations)
                self.assertEqual(len(TRAINED.findall(done.stdout)), 2)
                self.assertEqual(log.read_text().count("\n"), 2 * ITERATIONS)

    def test_recompute_changes_no_bit(self):
        grid = [(m, s) for m in ("pipedream", "pipedream-2bw") for s in (2, 3, 4)]
        for method, stages in grid if WHOLE else grid[:1]:
            with self.subTest(method=method, stages=stages):
                left = []
                for options in ((), ("--with-recompute",)):
                    folder = self.folder / f"{method}-{stages}-{len(left)}"
                    micros = 1 if method == "pipedream" else 4
                    done = self.train((1, stages), "--steps", 6, "--checkpoint", folder, "--pipeline", method,
                                      "--batch-size", 8, "--micro-batches", micros, *options)
                    left.append((done.losses, checksums(folder)))
                self.assertEqual(*left)


class Options(ResNetCase):
    def test_refused(self):
        for options, says in (
            (("--dataset", "cifar100", "--data", ""), "needs --data PATH"),
            (("--dataset", "mnist"), "invalid choice: 'mnist'"),
            (("--model", "resnet20"), "invalid choice: 'resnet20'"),
            (("--batch-size", 64), "has 16 rows, fewer than one global batch of 64"),
            (("--data", self.folder / "nowhere"), "nowhere"),
            (("--optimizer", "adam", "--momentum", 0.5),
             "--momentum belongs to momentum and nesterov, and the optimizer is adam"),
            (("--momentum", 1), "--momentum must be in [0, 1), got 1"),
            (("--beta1", 0.5), "--beta1 belongs to adam, amsgrad, adamw, lamb and bertadam, and the optimizer is momentum"),
            (("--preduce", "--pipeline", "pipedream", "--micro-batches", 1),
             "needs at least 2 pipelines, but the job has 1"),
            (("--adpsgd", "--pipeline", "pipedream", "--micro-batches", 1),
             "needs at least 2 pipelines, but the job has 1"),
        ):
            with self.subTest(options):
                status = 4 if "nowhere" in says else 2
                self.refused((1, 1), *options, says=re.escape(says), status=status)

    def test_one_file_to_train_and_evaluate_on_is_said(self):
        cifar = self.folder / "cifar"
        cifar.mkdir()
        _hetu.write_drawn_cifar100(str(cifar), 100, 1, 1, 32, 1)
        for data, is_said in ((cifar / "train.bin", True), (cifar, False)):
            words, _ = self.command((1, 1), "--steps", 1, "--dataset", "cifar100", "--data", data)
            done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=MANY_S, cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual("is one file: each epoch is evaluated on the rows that it trains on" in done.stderr, is_said)

    def test_other_classes_to_evaluate_on_are_refused(self):
        """Labels are the numbers of sorted class folders. Folders with other names mean other classes."""
        classes = sorted(folder.name for folder in (self.images / "train").iterdir())
        for change, says in ((lambda val: (val / classes[0]).rename(val / "zebra"),
                              f"the classes differ: number 0 is '{classes[0]}' in the training data and '{classes[1]}' in"),
                             (lambda val: shutil.rmtree(val / classes[1]),
                              f"the training data have 4 classes, the evaluation data 3; '{classes[1]}' is in the training "
                              "data only")):
            other = self.folder / "other"
            shutil.rmtree(other, ignore_errors=True)
            shutil.copytree(self.images, other)
            change(other / "val")
            with self.subTest(says):
                self.refused((1, 1), "--steps", 1, "--data", other, says=re.escape(says))

    def test_a_full_disk_is_named(self):
        self.refused((1, 1), "--steps", 1, "--log", "/dev/full", status=4, says="train_resnet.py: /dev/full: No space left")
        # A limit on the size of files, without a log: the first point of TensorBoard's file exceeds it.
        self.refused((1, 1), "--steps", 1, "--log", "", status=4, before=("prlimit", "--fsize=100"),
                     says=r"train_resnet.py: runs/test/events.out.tfevents\.\S+: File too large")

    def test_folders_come_from_the_environment(self):
        words, _ = self.command((1, 1), "--steps", 1)
        at = words.index("--data")
        del words[at:at + 2]
        run = {"env": self.env, "capture_output": True, "text": True, "timeout": MANY_S, "cwd": self.folder}
        done = subprocess.run(words, **run)
        self.assertEqual(done.returncode, 2)
        self.assertIn("IMAGENET_TRAIN_ROOT and IMAGENET_VAL_ROOT", done.stderr)
        self.env.update(IMAGENET_TRAIN_ROOT=str(self.images / "train"), IMAGENET_VAL_ROOT=str(self.images / "val"))
        self.assertEqual(subprocess.run(words, **run).returncode, 0)


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main(verbosity=2)
