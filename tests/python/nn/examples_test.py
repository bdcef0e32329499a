"""The models of docs/examples: an MLP, a CNN with skips and a GPT.

Scripts are as short as promised. Losses and gradients equal PyTorch's (tests/fixtures/examples.json, written by
make_example_fixture.py). Training in stages equals training in one process. --whole: each by every method."""

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import example_cases as cases
from train_cases import HETURUN, MANY_S

WHOLE = "--whole" in sys.argv
FIXTURE = json.loads((Path(__file__).resolve().parents[2] / "fixtures" / "examples.json").read_text())["cases"]
BITWISE, CLOSE, ASYNCHRONOUS = ("1f1b", "zb-v"), ("chimera",), ("pipedream",)
SAMPLE = {"gpt": (*BITWISE, *CLOSE, *ASYNCHRONOUS), "cnn": ("1f1b", "chimera"), "mlp": ("zb-v",)}


class Examples(unittest.TestCase):
    def losses(self, *words):
        done = subprocess.run([*words], capture_output=True, text=True, timeout=MANY_S,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [float(loss) for loss in re.findall(r"^(?:\[\d+\] )?\d+ (\S+)$", done.stdout, re.MULTILINE)]

    def test_they_are_short(self):
        for name, most in cases.LINES.items():
            lines = [line for line in (cases.FOLDER / f"{name}.py").read_text().splitlines() if line.strip()]
            self.assertLessEqual(len(lines), most, name)

    def test_loss_and_slopes_are_pytorchs(self):
        self.assertEqual(set(FIXTURE), set(cases.LINES))
        for name, theirs in FIXTURE.items():
            with self.subTest(name):
                print(f"{name}: slopes {cases.check(self, name, theirs):.1e} apart", flush=True)

    def test_stages_train_what_one_process_trains(self):
        for name, methods in SAMPLE.items():
            with cases.text() as file:
                alone = self.losses(sys.executable, *cases.arguments(name, file))
                self.assertEqual(len(alone), 5)
                for method in (*BITWISE, *CLOSE, *ASYNCHRONOUS) if WHOLE else methods:
                    with self.subTest(name, method=method):
                        found = self.losses(*HETURUN, "-w", "2", sys.executable, *cases.arguments(name, file, method))
                        if method in BITWISE:
                            self.assertEqual(found, alone)
                        elif method in CLOSE:
                            self.assertLess(max(abs(a - b) for a, b in zip(found, alone, strict=True)), 1e-6 * max(alone))
                        else:
                            self.assertLess(found[-1], found[0])


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main()
