"""--fuse off in a script gives the same bits as fusion, in one process and on two stages. Also prints the savings.

usage: fuse_test.py"""
import re
import unittest

from train_cases import TrainCase, checksums


class Fuse(TrainCase):
    def run_of(self, grid, fuse):
        folder = self.folder / f"{grid[0]}x{grid[1]}-{fuse}"
        done = self.train(grid, "--fuse", fuse, "--batch-size", 64, "--steps", 4, "--checkpoint", folder)
        text = done.out + done.err
        found = re.findall(r"activations ([0-9.]+) x", text)
        self.assertTrue(found, text)
        return done.losses, checksums(folder), max(float(size) for size in found)

    def test_on_gives_the_bits_of_off_with_fewer_activations(self):
        losses, sums, unfused = self.run_of((1, 1), "off")
        for grid, fuse in (((1, 1), "on"), ((1, 2), "off"), ((1, 2), "on")):
            other = self.run_of(grid, fuse)
            self.assertEqual(other[0], losses, (grid, fuse))
            self.assertEqual(other[1], sums, (grid, fuse))
            if grid == (1, 1):
                self.assertLess(other[2], unfused)

    def test_another_word_is_refused(self):
        done = self.run_job((1, 1), "--fuse", "some", "--steps", 1)
        self.assertNotEqual(done.code, 0, str(done))
        self.assertEqual(len(done.words()), 1, str(done))
        self.assertIn("some", done.words()[0])


if __name__ == "__main__":
    unittest.main()
