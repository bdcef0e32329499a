"""docs/tables.md: its blocks run one after the other, and the saved model is the best one."""

import contextlib
import io
import os
import re
import tempfile
import unittest

import numpy as np

import hetu as ht
from train_cases import ROOT


class Page(unittest.TestCase):
    def test_its_blocks_run(self):
        page = ROOT / "docs" / "tables.md"
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        self.assertEqual(len(blocks), 5)
        self.addCleanup(os.chdir, os.getcwd())
        ht.new_graph()
        names = {}
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            with contextlib.redirect_stdout(io.StringIO()) as said:
                for block in blocks[:4]:
                    exec(compile(block, str(page), "exec"), names)
                other = {}  # the other program
                exec(compile(blocks[4], str(page), "exec"), other)
            held, early = names["held"], names["early"]
            found = other["model"](x=names["x"][held], district=names["district"][held])
            self.assertAlmostEqual(float(((found - names["price"][held]) ** 2).mean()) / early.best, 1, 4)
            self.assertEqual(repr(other["model"]), re.search(r"# (Predictor\(.*\))\n", blocks[4])[1])
        # The noise of a price has a standard deviation of 10, and a mean as the prediction would give 150.
        self.assertLess(early.best ** 0.5, 25)
        self.assertGreater(float(np.std(names["price"])), 100)
        self.assertLess(names["job"].step, 3000)
        self.assertIn("EarlyStopping: no improvement in 8 epochs", said.getvalue())
        self.assertEqual((other["new"].shape, other["new"].dtype), ((2,), np.float32))


if __name__ == "__main__":
    unittest.main()
