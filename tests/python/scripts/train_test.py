"""Training through pipelines computes the results of one process. Stops, resumes and signals make no difference.

`train_test.py --whole` runs every grid; without it a sample of each. Random choices print their seed."""
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from hetu.launch import processes
from processes import StopsBefore, wait_until
from train_cases import END_S, HETURUN, MANY_S, ROOT, TrainCase, checksums, manifest_of, tensors

WHOLE = "--whole" in sys.argv
SEED = int(os.environ.get("TRAIN_TEST_SEED", time.time_ns() % 100000))
STEPS = 6
CLIP = ("--clip-norm", "0.5")


def norm(array):
    return float((array.astype("float64") ** 2).sum()) ** 0.5


class Bitwise(TrainCase):
    """One pipeline: tied GELU model, dropout 0.1, clipping; the same micro-batches and threads."""

    SAMPLE = [(2, "gpipe", "sgd"), (4, "1f1b", "adamw")]
    GRID = list(itertools.product((2, 4), ("gpipe", "1f1b"), ("sgd", "adamw")))

    def test_weights_and_states(self):
        alone = {}
        for stages, method, optimizer in self.GRID if WHOLE else self.SAMPLE:
            options = ("--optimizer", optimizer, "--steps", STEPS, *CLIP)
            if optimizer not in alone:
                alone[optimizer] = self.folder / f"alone-{optimizer}"
                self.train((1, 1), *options, "--checkpoint", alone[optimizer])
            with self.subTest(stages=stages, method=method, optimizer=optimizer):
                folder = self.folder / f"{stages}-{method}-{optimizer}"
                self.train((1, stages), *options, "--pipeline", method, "--checkpoint", folder)
                expected, got = checksums(alone[optimizer]), checksums(folder)
                self.assertGreater(len(expected), 70)
                self.assertEqual(expected.keys(), got.keys())
                self.assertEqual([name for name in expected if expected[name] != got[name]], [])


class TwoPipelines(TrainCase):
    """(2, 2) with batch b and M micro-batches equals one process with 2b and 2M, except for the order of sums."""

    STEPS = 20

    def pair(self, optimizer):
        options = ("--optimizer", optimizer, "--steps", self.STEPS, *CLIP)
        folders = self.folder / "alone", self.folder / "grid"
        alone = self.train((1, 1), *options, "--batch-size", 8, "--micro-batches", 4, "--checkpoint", folders[0])
        grid = self.train((2, 2), *options, "--batch-size", 4, "--micro-batches", 2, "--checkpoint", folders[1])
        return alone, grid, *map(tensors, folders)

    def test_sgd_weights(self):
        _, _, alone, grid = self.pair("sgd")
        self.assertEqual(alone.keys(), grid.keys())
        for key, expected in alone.items():
            self.assertLessEqual(norm(grid[key] - expected), max(1e-6 * norm(expected), 1e-6), key)

    def test_adamw_losses(self):
        alone, grid, _, _ = self.pair("adamw")
        self.assertEqual(alone.steps, list(range(self.STEPS)))
        self.assertEqual(grid.steps, alone.steps)
        self.assertLess(alone.losses[-1], alone.losses[0])
        for step, (expected, got) in enumerate(zip(alone.losses, grid.losses, strict=True)):
            self.assertAlmostEqual(got, expected, delta=1e-6 * max(1, expected), msg=f"step {step}")


class Resume(TrainCase):
    """A resumed training equals an uninterrupted one."""

    def test_under_other_stage_counts(self):
        draw = random.Random(SEED)
        whole = self.train((1, 1), "--steps", STEPS, *CLIP, "--checkpoint", self.folder / "whole")
        grids = [(a, b, stop) for a in (1, 2, 4) for b in (1, 2, 4) for stop in range(1, STEPS)]
        for before, after, stop in grids if WHOLE else [(2, 4, draw.randrange(1, STEPS)), (4, 1, draw.randrange(1, STEPS))]:
            with self.subTest(before=before, after=after, stop=stop, seed=SEED):
                folder = self.folder / f"{before}-{after}-{stop}"
                first = self.train((1, before), "--steps", stop, *CLIP, "--checkpoint", folder)
                second = self.train((1, after), "--steps", STEPS, *CLIP, "--pipeline", "gpipe", "--checkpoint", folder,
                                    "--resume")
                self.assertIn(f"at step {stop}\n", second.out)
                self.assertEqual(first.losses + second.losses, whole.losses)
                self.assertEqual(second.steps, list(range(stop, STEPS)))
                self.assertEqual(checksums(folder), checksums(self.folder / "whole"))

    def test_the_log_has_every_step_once(self):
        """A resumed run repeats the steps after the last save, and replaces their records."""
        folder, log = self.folder / "saved", self.folder / "log.jsonl"
        options = ("--save-every", 3, "--checkpoint", folder, "--log", log)
        self.train((1, 1), "--steps", 8, *options)
        shutil.rmtree(manifest_of(folder)[0])  # this checkpoint is of step 8; the newest is then of step 6
        done = self.train((1, 1), "--steps", 9, *options, "--resume")
        self.assertIn("at step 6\n", done.out)
        self.assertEqual([json.loads(line)["step"] for line in log.read_text().splitlines()], list(range(9)))

    def test_under_other_pipelines(self):
        whole = self.train((1, 2), "--steps", STEPS)
        folder = self.folder / "saved"
        self.train((1, 2), "--steps", 3, "--checkpoint", folder)
        self.refused((2, 1), "--steps", STEPS, "--checkpoint", folder, "--resume",
                     says=r"global batch of 8 \(1 pipelines x 8\), this run has 16 \(2 x 8\)")
        done = self.train((2, 1), "--steps", STEPS, "--batch-size", 4, "--micro-batches", 2, "--checkpoint", folder,
                          "--resume")
        for expected, got in zip(whole.losses[3:], done.losses, strict=True):
            self.assertAlmostEqual(got, expected, delta=1e-5)

    def test_what_else_must_be_the_same(self):
        folder = self.folder / "saved"
        self.train((1, 1), "--steps", 1, "--checkpoint", folder)
        before = checksums(folder)
        self.refused((1, 1), "--steps", 2, "--checkpoint", folder, "--resume", "--seed", 6,
                     says="seed 5, this run has seed 6")
        self.refused((1, 1), "--steps", 2, "--checkpoint", folder, "--resume", "--optimizer", "sgd",
                     says="optimizer adamw, this run has optimizer sgd")
        self.assertEqual(checksums(folder), before)

    def test_folders(self):
        folder = self.folder / "saved"
        done = self.train((1, 2), "--steps", 6, "--save-every", 1, "--keep", 2, "--checkpoint", folder, "--resume")
        self.assertIn("holds no checkpoint: starting at step 0", done.out)
        self.assertEqual(sorted(os.listdir(folder)), ["step-00000005", "step-00000006"])
        self.refused((1, 2), "--steps", 7, "--checkpoint", folder, says="holds a checkpoint already .*--resume")
        self.refused((1, 1), "--steps", 7, "--checkpoint", folder / "step-00000006", "--resume",
                     says="is the checkpoint of one step")
        self.assertEqual(sorted(os.listdir(folder)), ["step-00000005", "step-00000006"])
        again = self.train((1, 2), "--steps", 6, "--checkpoint", folder, "--resume")
        self.assertEqual(again.losses, [])


class Asked(TrainCase):
    """Signals in the middle of a training."""

    def stop(self, grid, number, folder):
        process, log = self.start(grid, "--steps", 1000000, *(["--checkpoint", folder] if folder else []))
        wait_until(lambda: process.poll() is not None or log.exists() and log.read_text().count("\n") >= 3)
        if process.poll() is not None:
            self.fail(f"ended by itself, status {process.returncode}: {process.communicate()}")
        self.assertGreaterEqual(log.read_text().count("\n"), 3)
        since = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=MANY_S)
        self.assertLess(time.monotonic() - since, END_S, out + err)
        return process.returncode, out, err, log.read_text().count("\n")

    def test_usr1_saves_and_ends_in_order(self):
        for grid in [(1, 1), (1, 2), (2, 2)] if WHOLE else [(1, 1), (1, 2)]:
            with self.subTest(grid=grid):
                folder = self.folder / f"saved-{grid[0]}-{grid[1]}"
                code, out, err, steps = self.stop(grid, signal.SIGUSR1, folder)
                self.assertEqual(code, 0, out + err)
                self.assertIn(f"Stopped as asked after {steps} steps; saved in {folder}", out)
                self.assertEqual(manifest_of(folder)[1]["step"], steps)

    def test_the_first_control_c_saves(self):
        for grid in [(1, 1), (1, 2)]:
            with self.subTest(grid=grid):
                folder = self.folder / f"saved-{grid[0]}-{grid[1]}"
                code, out, err, steps = self.stop(grid, signal.SIGINT, folder)
                self.assertEqual(code, 0, out + err)
                self.assertIn(f"Stopped as asked after {steps} steps; saved in {folder}", out)
                self.assertEqual(manifest_of(folder)[1]["step"], steps)
                self.assertIn("a second SIGINT ends", err)

    def test_control_c_where_nothing_is_saved(self):
        for grid in [(1, 1), (1, 2)]:
            with self.subTest(grid=grid):
                code, out, err, _ = self.stop(grid, signal.SIGINT, None)
                self.assertEqual(code, 128 + signal.SIGINT, out + err)
                self.assertRegex(err, "SIGINT: .*no checkpoint folder was given")
                self.assertNotIn("Traceback", err)

    def test_usr1_before_the_script_takes_it(self):
        """In a single process that is still importing, the signal is held. The first step is done and saved."""
        stop = StopsBefore(pathlib.Path(tempfile.mkdtemp(dir=self.folder)), "hetu._hetu", self.env)
        self.env = stop.environment
        process, _ = self.start((1, 1), "--steps", 1000000, "--checkpoint", self.folder / "saved")
        self.assertTrue(wait_until(lambda: stop.is_there() or process.poll() is not None))
        process.send_signal(signal.SIGUSR1)
        self.assertTrue(any(processes.ways_of(process.pid, signal.SIGUSR1)), process.poll())
        stop.go()
        out, err = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertIn("Stopped as asked after 1 steps; saved in ", out)

    SCRIPT = ("import sys\n"
              "import hetu as ht\n"
              "batch = ht.data.BertHdf5(sys.argv[1], batch_size=8, seed=0)\n"
              "model = ht.models.Bert.from_config(sys.argv[2], vocab_size=batch.vocabulary_size)\n"
              "loss = model.pretraining_loss(batch)\n"
              "job = ht.Executor({'train': [loss, ht.optim.AdamW(1e-3).minimize(loss)]}, pipeline='1f1b', micro_batches=4)\n"
              "for step in job.run('train', steps=1000000, checkpoint=sys.argv[3]):\n"
              "    if job.is_chief and step.index == 2: print('going', flush=True)\n"
              "print('the rest of the script', flush=True)\n"
              "ht.close()\n")

    def test_a_script_of_ones_own(self):
        """A user's script without options and without ht.one_line_errors handles both signals."""
        script = self.folder / "own.py"
        script.write_text(self.SCRIPT)
        for workers, number in ((1, signal.SIGINT), (2, signal.SIGINT), (1, signal.SIGUSR1), (2, signal.SIGUSR1)):
            with self.subTest(workers=workers, signal=number):
                saved = self.folder / f"saved-{workers}-{number}"
                words = [*(HETURUN + ["-w", "2"] if workers > 1 else []), sys.executable, str(script), str(self.data),
                         str(self.model), str(saved)]
                process = subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.addCleanup(process.communicate)
                self.addCleanup(process.kill)
                while not (line := process.stdout.readline()).endswith("going\n"):
                    self.assertTrue(line, process.poll())
                process.send_signal(number)
                out, err = process.communicate(timeout=MANY_S)
                self.assertEqual(process.returncode, 0, out + err)
                self.assertEqual(out.count("the rest of the script"), workers)
                self.assertRegex(out, f"Stopped as asked after \\d+ steps; saved in {saved}\n")
                self.assertGreater(manifest_of(saved)[1]["step"], 2)

    def test_term_ends_without_saving(self):
        code, out, err, _ = self.stop((1, 2), signal.SIGTERM, self.folder / "saved")
        self.assertEqual(code, 128 + signal.SIGTERM, out + err)
        self.assertEqual(list((self.folder / "saved").glob("step-*")), [])


class Evaluation(TrainCase):
    """--eval-data prints a line after each epoch, and doesn't change the training."""

    def test_after_each_epoch(self):
        plain, evaluated = self.folder / "plain", self.folder / "evaluated"
        self.train((1, 2), "--steps", 6, "--checkpoint", plain)
        done = self.train((1, 2), "--steps", 6, "--checkpoint", evaluated, "--eval-data", self.data)
        self.assertRegex(done.out, r"\[0\] 0 EVAL  loss \d\.\d{4}  lm \d\.\d{4}e[+-]\d\d ns \d\.\d{4}e[+-]\d\d\n")
        self.assertEqual(checksums(plain), checksums(evaluated))
        written = b"".join(path.read_bytes() for path in (self.folder / "runs").glob("*/*"))
        self.assertIn(b"Validation/loss", written)


class Sample(TrainCase):
    """The Python sample of docs/training.md."""

    def test_trains_alone_and_in_a_pipeline(self):
        sample = ROOT / "docs" / "examples" / "train.py"
        parts = [part.split("```")[0] for part in (ROOT / "docs" / "training.md").read_text().split("```python\n")[1:]]
        # The page leaves out the check of the arguments.
        text = re.sub(r"if len\(sys\.argv\) != 2:\n    sys\.exit\(.*\)\n", "", sample.read_text())
        self.assertTrue(any("BertHdf5" in part and part in text for part in parts))
        losses = {}
        for workers in (1, 2):
            words = [*(HETURUN + ["-w", "2"] if workers > 1 else []), sys.executable, str(sample), str(self.data)]
            done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=MANY_S)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            losses[workers] = re.findall(r"^(?:\[0\] )?(\d+|validation) (\d+\.\d+)$", done.stdout, re.M)
        self.assertEqual([name for name, _ in losses[1]], [*map(str, range(10)), "validation", "validation"])
        self.assertEqual(losses[1], losses[2])


@unittest.skipUnless(shutil.which("hetu"), "the hetu tool was not built")
class Tool(TrainCase):
    """hetu checkpoint: diff reports differences, and exported weights can be imported."""

    def hetu(self, *words, code=0):
        done = subprocess.run(["hetu", "checkpoint", *map(str, words)], capture_output=True, text=True, timeout=MANY_S)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code < 2 else done.stderr

    def test_show_diff_export_import(self):
        first, second, third = (self.folder / name for name in ("first", "second", "third"))
        done = self.train((1, 2), "--steps", 2, "--checkpoint", first)
        self.assertRegex(self.hetu("show", first), r"step 2; \d+ parameters[^\n]*\n(.*\n)*  stage-1.safetensors +\d")
        self.hetu("diff", first, first)
        file = self.folder / "weights.safetensors"
        self.hetu("export", first, "-o", file)
        self.hetu("import", file, "-o", second)
        self.assertIn("only in the first", self.hetu("diff", first, second, code=1))
        self.assertIn("holds a checkpoint already", self.hetu("import", file, "-o", second, code=2))
        on = self.train((1, 1), "--steps", 1, "--checkpoint", second, "--resume", "--seed", 9)
        self.assertIn("at step 0, with imported weights and zeroed optimizer states", on.out)
        self.assertLess(on.losses[0], done.losses[0])
        self.train((1, 1), "--steps", 2, "--checkpoint", third, "--seed", 6)
        self.assertRegex(self.hetu("diff", first, third, code=1), r"0 of 234 tensors equal, bit for bit; largest difference")
        self.model.write_text(self.model.read_text().replace('"intermediate_size": 64', '"intermediate_size": 48'))
        self.refused((1, 2), "--steps", 3, "--checkpoint", first, "--resume", status=4,
                     says=r"'bert.encoder.layer.\d.intermediate.dense.weight' is \[64, 32\], but the model expects "
                          r"\[48, 32\]")
        self.hetu("diff", first, self.folder / "nowhere", code=2)


if __name__ == "__main__":
    print(f"random seed {SEED}; TRAIN_TEST_SEED sets it", file=sys.stderr)
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
