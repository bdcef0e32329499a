"""Replanning of K-FAC's work while a job runs (--replan).

A plan from wrong costs is replaced once by a plan from measured costs, and the weights are those of a replay. A plan from
right costs stays.

`--train FOLDER REPLAN PIPELINES STAGES METHOD` is a worker of the jobs that the test starts."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import kfac_test
from hetu.averaging import Stragglers
from kfac_fill_test import switches
from kfac_test import kfac
from train_cases import HETURUN

STEPS, MICRO_BATCHES, BOUND = 12, 4, 0.4
# minimum duration of forwards and backwards: simulates a device whose speed doesn't depend on the machine's load
EACH_S = 0.02
# Real K-FAC kernels take little time here, compared with those waits. The wrong costs claim that the second stage is four
# times as slow and has work for the bubbles of several steps.
RIGHT = [{"forward": 20, "input_grad": 10, "weight_grad": 10,
          "curvature": {"factors": 0.5, "inversion": 1, "precondition": 0.1}}]
WRONG = [RIGHT[0], {"forward": 80, "input_grad": 40, "weight_grad": 40,
                    "curvature": {"factors": 20, "inversion": 40, "precondition": 0.1}}]
LINE = re.compile(r"step (\d+): the shares of the workers' time differ by (\d+) % from those that K-FAC's work was placed "
                  r"by, more than --replan \(40 %\); by the measured times, a cycle of the current placement has (\d+) "
                  r"step\(s\) of [\d.]+ ms, one of a new placement (\d+) step\(s\) of [\d.]+ ms: the new placement is used")


def job(folder, grid, stages, replan):
    """Returns the output of the workers, and their final weights."""
    pathlib.Path(folder, "costs.json").write_text(json.dumps({"unit": "ms", "stages": stages}))
    words = [*HETURUN, "-w", grid[0] * grid[1], sys.executable, __file__, "--train", folder, replan, *grid]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout + done.stderr, kfac_test.weights_in(folder)


def replayed(plan, trace, since):
    """Returns the result of training in float64: a step with all of the work, the cycle before step `since`, whose
    inversions are in the trace, and cycles of the plan."""
    switch, length = switches(plan)
    keys = sorted(switch)  # model order
    used = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        args = event.get("args", {})
        if event.get("ph") == "X" and event["pid"] == 1 and args["kind"] == "INVERT_A":
            used.setdefault(args["step"], set()).add(keys.index((args["stage"], args["part"])))

    def number(step):
        return (step - since) % length

    return kfac_test.reference(steps=STEPS, makes=lambda step: step < 2 or (step >= since and number(step) == 0),
                               uses=lambda step, layer: number(step) == switch[keys[layer]] if step >= since
                               else layer in used.get(step, ()))


class Replanned(unittest.TestCase):
    def test_by_wrong_costs_it_is_placed_anew_once_and_trains_as_a_replay(self):
        for method in ("1f1b", "zb-h1"):
            with self.subTest(method), tempfile.TemporaryDirectory() as folder:
                said, found = job(folder, (1, 2, method), WRONG, BOUND)
                lines = LINE.findall(said)
                self.assertEqual(len(lines), 1, said)
                step, _, before, now = map(int, lines[0])
                self.assertGreater(before, now, "of the work of several steps")
                self.assertEqual(step, before, "after the step with all work, and one cycle")
                trace = pathlib.Path(folder, "run.json")
                plan = json.loads(trace.read_text())["metadata"]["plan"]
                self.assertEqual(plan["steps"], now, "the trace names the plan that it ended with")
                for name, value in replayed(plan, trace, step + 1).items():
                    np.testing.assert_allclose(found[name], value, rtol=0, atol=3e-6, err_msg=name)

    def test_by_right_costs_or_unless_asked_for_it_stays(self):
        steps = []
        for stages, replan in [(RIGHT, BOUND), (WRONG, 0)]:
            with self.subTest(replan), tempfile.TemporaryDirectory() as folder:
                said, _ = job(folder, (1, 2, "1f1b"), stages, replan)
                self.assertNotIn("--replan", said)
                steps.append(json.loads(pathlib.Path(folder, "run.json").read_text())["metadata"]["plan"]["steps"])
        self.assertLess(*steps)

    def test_of_two_copies_of_each_stage_they_agree(self):
        """Both copies of each stage change to the same plan. Otherwise workers would wait for each other forever, or end
        with different weights."""
        with tempfile.TemporaryDirectory() as folder:
            said, _ = job(folder, (1, 2, "chimera"), WRONG, 0.05)
            self.assertIn("more than --replan (5 %)", said)

    def test_what_has_no_bubbles_to_place_in_is_refused(self):
        for more, said in [({"replan": 0.2}, "replan applies only to fill best and wrap, .*, got fill after"),
                           ({"fill": "best", "replan": -0.1}, "replan must be >= 0 and <= 2, got -0.1")]:
            with self.subTest(more), self.assertRaisesRegex(Exception, said):
                kfac_test.job_of(kfac(**more))


def train(folder, replan, pipelines, stages, method):
    optimizer = kfac(fill="best", costs=f"{folder}/costs.json", replan=float(replan))
    one = kfac_test.job_of(optimizer, int(pipelines), int(stages), method, MICRO_BATCHES, threads=1,
                           stragglers=Stragglers(slow=[{"pipeline": 0, "least": EACH_S}]))
    for _ in one.run("train", steps=STEPS, trace=f"{folder}/run.json"):
        pass
    kfac_test.save_weights(one, folder)


if __name__ == "__main__":
    if "--train" in sys.argv:
        train(*sys.argv[2:])
    else:
        unittest.main()
