#!/usr/bin/env python3
"""hetu.torch where pipelines average weights in groups: same bits as plain PyTorch with the same averages, stragglers, and
refused settings.

Skipped where PyTorch is not installed (`./run torch`). --seed N selects other weights, samples and pairs."""

import re
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEED = sys.argv[sys.argv.index("--seed") + 1] if "--seed" in sys.argv else "7"


def job(workers, cases):
    """Returns the output of torch_averages.py. Raises an error with it if the job fails."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(["heturun", "-w", str(workers), sys.executable, HERE / "torch_averages.py", folder, SEED,
                              *cases], capture_output=True, text=True, timeout=300)
    if run.returncode or "leaked" in run.stderr:
        raise AssertionError(f"seed {SEED}: {run.stdout}\n{run.stderr}")
    return run.stdout


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Averages(unittest.TestCase):
    """Averages in processes, except for refused settings."""

    def test_in_groups(self):
        """Covers two pipelines of two stages, four pipelines of one stage, waiting while one pipeline is slow, and refused
        settings with several pipelines."""
        cases = ["preduce/2", "blocking/2", "all/2", "adpsgd-lockstep/2", "preduce/4", "adpsgd-lockstep/4"]
        printed = job(4, [*cases, "straggler/preduce", "straggler/adpsgd", "bad/2"])
        found = re.findall(r"CASE (\S+): worker \d bits (\w+) far (\S+) groups (\d+)", printed)
        self.assertEqual(sorted(name for name, *_ in found), sorted(4 * cases), printed)
        for name, bits, far, groups in found:
            self.assertEqual((bits, far), ("True", "0.0e+00"), f"{name}, seed {SEED}: {printed}")
            self.assertGreater(int(groups), 0, f"{name} averaged nothing: {printed}")
        found = re.findall(r"STRAGGLER (\w+): worker \d fast (\d+) slow (\d+) far (\S+)", printed)
        self.assertEqual(len(found), 2 * 4, printed)
        for _, fast, slow, far in found:
            self.assertGreater(int(fast), 1.5 * int(slow), printed)
            self.assertTrue(60 <= int(fast) + int(slow) <= 61, printed)
            self.assertLess(float(far), 1e-6, printed)
        self.assertEqual(printed.count("BAD: "), 4, printed)

    def test_replays_what_crosses(self):
        """One stage of a pipeline may be an update ahead of another stage that waits. Each stage's row of workers advances
        independently, so groups close that couldn't if pipelines advanced as a whole."""
        import torch

        import torch_averages

        groups = [[0, (0, 1), (1, 2)], [0, (1, 1)], [0, (0, 2)], [1, (1, 1), (0, 2)], [1, (0, 1)], [1, (1, 2)]]
        log = [{"run": 0, "stage": stage, "members": [d for d, _ in group], "updates": [u for _, u in group]}
               for stage, *group in groups]
        plain = [torch_averages.Plain(int(SEED), d, lambda parameters: torch.optim.AdamW(parameters, lr=0.1), 2)
                 for d in (0, 1)]
        self.assertEqual(torch_averages.replay(log, plain, 0, True), [2, 2])
        with self.assertRaisesRegex(AssertionError, "wait for each other"):
            # without overlap, the mean comes before the next step, and no stage is ahead
            torch_averages.replay(log, plain, 0, False)

    def test_refuses_in_one_line(self):
        import torch
        from torch import nn

        import hetu.torch

        def made(averaging, **more):
            return lambda: hetu.torch.Pipeline([nn.Linear(4, 4), nn.Linear(4, 4)], nn.MSELoss(), "zb-v", 2,
                                               averaging=averaging, **more)

        cases = [
            (made("preduce"), "preduce averages the weights of several pipelines, but there is only 1; use pipelines=2"),
            (made("gossip"), "unknown averaging method 'gossip'; known: preduce, adpsgd, adpsgd-lockstep"),
            (made(3), "averaging=3: expected a hetu.averaging.Averaging"),
            (lambda: made(None)().run(3, torch.optim.SGD([torch.ones(1)], lr=1)),
             "pass averaging= to average weights instead"),
        ]
        for make, message in cases:
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message) as caught:
                make()
            self.assertNotIn("\n", str(caught.exception).strip())


if __name__ == "__main__":
    if "--seed" in sys.argv:
        at = sys.argv.index("--seed")
        del sys.argv[at:at + 2]
    print(f"seed {SEED}", flush=True)
    unittest.main(verbosity=2)  # prints the reason for a skip
