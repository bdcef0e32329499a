#!/usr/bin/env python3
"""Elastic jobs survive random faults: each job ends with status 0 and the bits of an undisturbed one.

A sample by default. --whole [FAULTS] draws that many faults (1000), with hangs and stops. --seed N draws others, and
--front graph or torch draws jobs of one front end.
Jobs of hetu.torch are left out where PyTorch is not installed (`./run torch`)."""
import random
import sys
import tempfile
import time
import unittest
from importlib.util import find_spec

from drills import Draw, Place, Run, interval

WORDS = sys.argv[1:]
WHOLE = "--whole" in WORDS
SEED = int(WORDS[WORDS.index("--seed") + 1]) if "--seed" in WORDS else 1
FAULTS = next((int(word) for word in WORDS[WORDS.index("--whole") + 1:][:1] if word.isdigit()), 1000) if WHOLE else 10
FRONT = WORDS[WORDS.index("--front") + 1] if "--front" in WORDS else None
HAS_TORCH = find_spec("torch") is not None
MOST = 3  # faults in a job


class Reliability(unittest.TestCase):
    def test_jobs_survive(self):
        print(f"seed {SEED}" + ("" if HAS_TORCH else "; without jobs of hetu.torch: PyTorch is not there"), flush=True)
        draw = Draw(random.Random(SEED), slow=WHOLE)
        happened = survived = jobs = 0
        silence_s, lost, failed = 0.0, 0, []
        with tempfile.TemporaryDirectory(prefix="hetu-drills-", ignore_cleanup_errors=True) as folder:
            place = Place(folder)
            while happened < FAULTS and jobs < FAULTS:
                front = FRONT if WHOLE else ("graph", "graph", "torch", "graph")[jobs % 4]
                drill = draw.drill(MOST, front if HAS_TORCH else "graph")
                jobs += 1
                print(f"{time.strftime('%H:%M:%S')} job {jobs}: {drill}", flush=True)
                run = Run(place, drill).run()
                happened += run.happened
                survived += run.happened if not run.problems else 0
                silence_s, lost = max(silence_s, run.silence_s), max(lost, run.lost)
                print(f"    {run.happened} of {len(drill.faults)} faults, {run.seconds:.1f} s, silence {run.silence_s:.1f} s"
                      + (f": {'; '.join(run.problems)}" if run.problems else ""), flush=True)
                if run.problems:
                    failed.append(f"{drill}: {'; '.join(run.problems)}\n{run.text()}")
                    print(run.text(), flush=True)
        low, high = interval(survived, happened)
        print(f"{survived} of {happened} faults in {jobs} jobs survived: {100 * survived / max(1, happened):.1f} % (95 % "
              f"confidence: {100 * low:.1f} to {100 * high:.1f} %); most steps lost {lost}, longest silence "
              f"{silence_s:.1f} s; seed {SEED}", flush=True)
        self.assertEqual(failed, [])
        self.assertGreaterEqual(happened, FAULTS // 2, "too few of the drawn faults have happened")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
