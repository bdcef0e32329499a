"""--log of a resumed run contains every step once, for any file that the previous run left."""
import csv
import json
import math
import os
import pathlib
import random
import tempfile
import unittest

from hetu.job.hooks import Epoch
from hetu.job.records import Records
from hetu.job.step import Step


def step_of(index):
    return Step(index, {"loss": 1.0}, 0.0, 0.1, 0.1, 8)


class Log(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "log.jsonl"

    def write(self, steps, append):
        records = Records(str(self.path), append)
        for index in steps:
            records.write(step_of(index))
        records.close()

    def steps(self):
        return [json.loads(line)["step"] for line in self.path.read_text().splitlines()]

    def test_every_step_once_over_kills_and_resumes(self):
        """Runs save every few steps and are killed repeatedly at any point, also in the middle of a line."""
        for seed in range(200):
            draw = random.Random(seed)
            every, saved, append = draw.randint(1, 7), 0, False
            self.path.unlink(missing_ok=True)
            for _ in range(draw.randint(1, 5)):
                end = saved + draw.randint(1, 20)
                self.write(range(saved, end), append)
                append, saved = True, end - end % every
                if saved < end and draw.random() < 0.5:  # the last line is incomplete
                    data = self.path.read_bytes()
                    os.truncate(self.path, len(data) - draw.randint(1, 20))
            self.write(range(saved, saved + 3), append)
            self.assertEqual(self.steps(), list(range(saved + 3)), f"seed {seed}")

    def test_steps_of_an_earlier_epoch_that_ran_on_are_kept(self):
        """Where pipelines average weights, an epoch's step numbers may exceed the next epoch's first number."""
        self.write([*range(0, 14), *range(10, 18)], append=False)
        self.write(range(10, 13), append=True)
        self.assertEqual(self.steps(), [*range(0, 14), *range(10, 13)])

    def test_what_is_no_log_is_refused_and_left(self):
        for text in ("hello\n", '{"loss": 1}\n', "[1]\n", "3\n"):
            self.path.write_text(text)
            with self.assertRaisesRegex(ValueError, "--log .*log.jsonl: .* is not the record of a step; give the file"):
                self.write([3], append=True)
            self.assertEqual(self.path.read_text(), text)

    def test_a_run_that_begins_begins_its_log(self):
        self.write(range(5), append=False)
        self.write(range(2), append=False)
        self.assertEqual(self.steps(), [0, 1])

    def test_numbers_that_json_lacks(self):
        """A diverged loss is null in JSON lines and an empty field in CSV. JSON has no NaN and no infinity."""
        diverged = Step(0, {"loss": math.nan, "lm": math.inf, "ns": 2.0}, -math.inf, 0.1, 0.1, 8)
        records = Records(str(self.path), False)
        records.write(diverged)
        records.close()
        found = json.loads(self.path.read_text(), parse_constant=self.fail)
        self.assertEqual((found["loss"], found["lm"], found["ns"], found["gradient_norm"]), (None, None, 2.0, None))
        table = self.path.with_suffix(".csv")
        records = Records(str(table), False)
        records.write(diverged)
        records.close()
        row = next(csv.DictReader(table.read_text().splitlines()))
        self.assertEqual((row["loss"], row["lm"], row["ns"], row["gradient_norm"]), ("", "", "2.0", ""))

    def test_an_epoch_without_steps_has_means_of_nan(self):
        """This includes a pass over an evaluation set that has no whole batch."""
        epoch = Epoch(0)
        for value in (epoch.mean("loss"), epoch.share("hits"), epoch.learning_rate):
            self.assertTrue(math.isnan(value))
        self.assertEqual(epoch.samples, 0)
        self.assertEqual(Epoch(0, [step_of(0), step_of(1)]).mean("loss"), 1.0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
