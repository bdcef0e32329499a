"""Varuna's AutoConfig reads its profile folder, follows its rules, and refuses missing data."""

import json
import os
import pathlib
import tempfile
import unittest

from hetu.varuna import AutoConfig

PIECES = 4


def compute(size, fwd=100.0):
    return {"fwd": fwd * size, "bwd": 2 * fwd * size, "copy": 1, "max_memory": 1000 + 100 * size, "acts_size": 40 * size}


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.place)
        self.profiles = self.place / "profiles"
        self.profiles.mkdir()
        for piece in range(PIECES):
            self.write(f"compute-profile-{piece}", {str(size): compute(size) for size in (1, 2, 4)})
        self.write("comm-profile", {str(10 * size): {"send": 5.0, "long_send": 50.0} for size in (1, 2, 4)})
        self.write("allred-profile", {str(stages): [0, 30.0, 40.0, 60.0] for stages in (1, 2, 4)})

    def write(self, name, value):
        (self.profiles / name).write_text(json.dumps(value))

    def choose(self, gpus=4, batch=16, memory=None, per_machine=4):
        return AutoConfig(gpus, per_machine, batch, "profiles", memory, verbose=False)


class Rules(Folder):
    def test_the_largest_size_that_fits(self):
        sizes = {choice.stages: choice.micro_batch_size for choice in self.choose().choices}
        self.assertEqual(sizes, {1: 4, 2: 4, 4: 4})
        # A stage of one piece needs 1000 + 100 m bytes; one of two needs (1000 + 60 m) + (1000 + 60 m) + 40 m.
        sizes = {choice.stages: choice.micro_batch_size for choice in self.choose(memory=1250).choices}
        self.assertEqual(sizes, {4: 2})
        sizes = {choice.stages: choice.micro_batch_size for choice in self.choose(memory=2160).choices}
        self.assertEqual(sizes, {2: 1, 4: 4})

    def test_one_stage_is_all_computation_and_the_sum(self):
        one = next(choice for choice in self.choose().choices if choice.stages == 1)
        # 4 samples on each of 4 replicas, as one micro-batch of 4 through 4 pieces: F + B = 300 us a sample and piece
        self.assertAlmostEqual(one.seconds, (4 * 4 * 300 + 60) * 1e-6)
        self.assertEqual((self.place / "compute.txt").read_text().split(), ["400", "800"] * 4)  # of the last choice

    def test_get_min(self):
        found = self.choose()
        self.assertEqual(found.get_min().seconds, min(choice.seconds for choice in found.choices))
        stages, size, seconds = found.get_min()
        self.assertEqual(stages, 1)  # without memory limits, nothing beats replicas alone here

    def test_machines_have_slow_links(self):
        near, far = (next(c for c in self.choose(per_machine=n).choices if c.stages == 4) for n in (4, 1))
        self.assertGreater(far.seconds, near.seconds)

    def test_replicas_beyond_the_measured_ones(self):
        times = {}
        for gpus in (4, 5, 8, 16):
            one = next(c for c in self.choose(gpus=gpus, batch=4 * gpus).choices if c.stages == 1)
            times[gpus] = one.seconds * 1e6 - 4 * 4 * 300
        self.assertAlmostEqual(times[4], 60)
        self.assertAlmostEqual(times[5], 60)  # as 4, the nearest lower power of two
        self.assertAlmostEqual(times[8], 30 * 3)
        self.assertAlmostEqual(times[16], 30 * 4)


class Missing(Folder):
    def refused(self, says, **how):
        with self.assertRaisesRegex(ValueError, says):
            self.choose(**how)

    def test_missing_data_is_an_error(self):
        self.refused("num_gpus must be >= 1", gpus=0)
        self.refused(r"no number of stages fits: .*, for micro-batches of \d+(, \d+)*$", memory=10)
        (self.profiles / "allred-profile").unlink()
        self.refused("allred-profile is missing")
        self.write("allred-profile", {"1": [0]})
        self.refused("no times for 1 stages")
        self.write("allred-profile", {str(stages): [0, 30.0] for stages in (1, 2, 4)})
        self.write("comm-profile", {"7": {"send": 5, "long_send": -1}})
        self.refused("no entry for 40 elements, the boundary of micro-batches of 4; it has 7")
        (self.profiles / "comm-profile").unlink()
        self.refused("comm-profile is missing")
        self.write("compute-profile-2", {"1": {"fwd": -1}})
        self.refused("compute-profile-2: size 1: 'fwd' must be a number >= 0, got -1")
        (self.profiles / "compute-profile-2").unlink()
        self.refused("compute-profile-2 is missing")
        for file in self.profiles.iterdir():
            file.unlink()
        self.refused("no files compute-profile-PIECE")

    def test_autofill(self):
        self.write("compute-profile-3", {"1": compute(1)})
        self.assertEqual({c.micro_batch_size for c in self.choose().choices}, {1})
        filled = AutoConfig(4, 4, 16, "profiles", verbose=False, autofill_missing_compute=True)
        self.assertEqual({c.micro_batch_size for c in filled.choices}, {4})


if __name__ == "__main__":
    unittest.main()
