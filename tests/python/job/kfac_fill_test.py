"""K-FAC in the bubbles: updates of filled plans compared with a dense reference that replays them.

Covers several pipelines and methods, cycles, resumed runs, traces, and unsupported combinations.

`--train FOLDER RULE PIPELINES STAGES METHOD MICRO_BATCHES STEPS FIRST` is a worker of the jobs that the test starts."""
import json
import pathlib
import sys
import tempfile
import unittest

import numpy as np

import kfac_test
from kfac_test import kfac
from train_cases import HETURUN

STEPS = 12
COSTS = {"unit": "ms", "stages": [{"forward": 1, "input_grad": 1, "weight_grad": 1,
                                   "curvature": {"factors": 0.5, "inversion": 0.8, "precondition": 0.1}}]}
# Costs for two layers on each of two stages. Wrapping the inversions saves one of four steps.
WRAPS = {"unit": "ms", "stages": [{"forward": 1, "input_grad": 1, "weight_grad": 1,
                                   "curvature": {"factors": factors, "inversion": inversion, "precondition": 0.1}}
                                  for factors, inversion in ((1.67, 0.41), (1.43, 1.34))]}
# Costs for one layer on each of four stages of chimera. One copy inverts each layer. Wrapping saves one of three steps.
WRAPS_OWNED = {"unit": "ms", "stages": [{"forward": 1, "input_grad": 1, "weight_grad": 1,
                                         "curvature": {"factors": factors, "inversion": inversion, "precondition": 0.1}}
                                        for factors, inversion in ((1.79, 0.39), (1.14, 0.63), (1.64, 0.62), (0.26, 1.72))]}
GRIDS = [(1, 4, "1f1b", 4), (1, 2, "zb-h1", 4), (1, 2, "zb-v", 4), (2, 2, "1f1b", 2), (1, 2, "chimera", 4)]
# This grid has fewer layers than copies of a stage, so some copies invert no layer.
IDLE = (2, 2, "chimera", 2)


def plan_of(trace):
    found = json.loads(pathlib.Path(trace).read_text())
    return found["metadata"]["plan"] if "metadata" in found else found["otherData"]["plan"]


def rows_of(plan):
    for worker in plan["workers"]:
        yield [*worker.get("prologue", []), *worker.get("body", []) * worker.get("repeat", 0), *worker.get("drain", [])]


def switches(plan):
    """Returns a dictionary and the length of a cycle in steps. The dictionary gives, for each model stage and layer, the
    step of the cycle from which its new inverses multiply. Where copies of a stage share its layers, the inverses of a round
    become new when they are gathered."""
    steps, length = {}, 0
    lowering = plan["lowering"]
    stages = [place["model_stage"] for place in plan["placements"]]
    owners = lowering.get("owners", False)
    kind = "GATHER" if owners else "INVERT_A"
    for row in rows_of(plan):
        step, updates = 0, 0
        here = sum(1 for cell in row if cell.endswith("UPDATE")) // plan["steps"]
        for cell in row:
            if kind in cell:
                stage, _, rest = cell.partition(kind)
                model_stage, number = stages[int(stage)], int(rest[1:] or 0)
                each = stages.count(model_stage) * lowering["pipelines"] if owners else 1
                for layer in range(each * number, min(each * (number + 1), lowering["factor_layers"][model_stage])):
                    assert steps.setdefault((model_stage, layer), step) == step, "copies of a stage disagree"
            if cell.endswith("UPDATE"):
                updates += 1
                step = updates // here
        length = max(length, step)
    return steps, length


def wrapped(plan):
    """Returns the model stages and layers whose inversions belong to the previous cycle: none of their factor work comes
    earlier in the cycle. For one pipeline."""
    found, stages = set(), [place["model_stage"] for place in plan["placements"]]
    owners = plan["lowering"].get("owners", False)
    for row in rows_of(plan):
        begun = set()
        for cell in row:
            kind = next((kind for kind in ("CURVATURE_A", "CURVATURE_B", "INVERT_A") if kind in cell), None)
            if kind is None:
                continue
            stage, _, rest = cell.partition(kind)
            number, model_stage = int(rest.partition(":")[2] or 0), stages[int(stage)]
            if kind != "INVERT_A":
                begun.add((model_stage, number))
                continue
            if owners:  # in round k, copy c inverts layer k R + c
                number = number * stages.count(model_stage) + stages[:int(stage)].count(model_stage)
            if (model_stage, number) not in begun and number < plan["lowering"]["factor_layers"][model_stage]:
                found.add((model_stage, number))
    return found


def replayed(plan, first=0):
    """Returns the result of training in float64, in which each step uses the inverses that the plan provides there. They are
    made of the first step of a cycle, and multiply from the step on in which they are computed. The first cycle follows a
    step with all of the work. Inverses that wrap multiply one cycle later, from the step on that computes the next ones."""
    switch, length = switches(plan)
    keys = sorted(switch)  # model order: ascending stages, and the layers of a stage in order
    late = {keys.index(key) for key in wrapped(plan)}

    def whole(step):
        return step in (0, first)

    def number(step):
        return (step - (first if step > first else 0) - 1) % length

    return kfac_test.reference(steps=STEPS, makes=lambda step: whole(step) or number(step) == 0,
                               uses=lambda step, layer: whole(step) or number(step) == switch[keys[layer]],
                               late=late, whole=whole)


def trained(folder, grid, steps=STEPS, first=0, rule="best"):
    pipelines, stages, method, count = grid
    wraps = WRAPS_OWNED if method == "chimera" else WRAPS
    costs = wraps if rule == "wrap" else COSTS
    (pathlib.Path(folder) / "costs.json").write_text(json.dumps(costs))
    words = [*HETURUN, "-w", pipelines * stages, sys.executable, __file__, "--train", folder, rule, pipelines, stages,
             method, count, steps, first]
    return kfac_test.weights_of(words, folder)


class Filled(unittest.TestCase):
    def test_plans_train_as_a_replay_of_them(self):
        for grid in [*GRIDS, IDLE]:
            with self.subTest(grid), tempfile.TemporaryDirectory() as folder:
                found = trained(folder, grid)
                plan = plan_of(f"{folder}/run.json")
                _, length = switches(plan)
                self.assertEqual(length, plan["steps"])
                self.assertEqual(any("GATHER" in cell for row in rows_of(plan) for cell in row),
                                 grid[0] > 1 or grid[2] == "chimera", "each layer has an owner where there are copies")
                self.assertGreater(length, 1, "everything fits one step, so that nothing waits")
                expected = replayed(plan)
                self.assertEqual(set(found), set(expected))
                for name, value in expected.items():
                    np.testing.assert_allclose(found[name], value, rtol=0, atol=3e-6, err_msg=name)

    def test_a_run_that_goes_on_at_the_end_of_a_cycle_is_the_same(self):
        grid = GRIDS[0]
        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as parts:
            expected = trained(whole, grid)
            length = switches(plan_of(f"{whole}/run.json"))[1]
            trained(parts, grid, steps=1 + length)
            found = trained(parts, grid, first=1 + length)
            for name, value in expected.items():
                np.testing.assert_array_equal(found[name], value, err_msg=name)

    def test_what_wraps_trains_as_a_replay_of_it(self):
        """Plans that wrap train as their replay does. This includes resumed runs, which begin with a step that has all of
        the work wherever a cycle ended, and layers that have owners among the copies of their stage."""
        for grid, first in (((1, 2, "1f1b", 4), 0), ((1, 2, "1f1b", 4), 4), ((1, 4, "chimera", 4), 0)):
            with self.subTest(grid, first=first), tempfile.TemporaryDirectory() as folder:
                if first:
                    trained(folder, grid, steps=first, rule="wrap")
                found = trained(folder, grid, first=first, rule="wrap")
                plan = plan_of(f"{folder}/run.json")
                self.assertTrue(plan["lowering"].get("wraps"))
                self.assertEqual(plan["lowering"].get("owners", False), grid[2] == "chimera")
                self.assertTrue(wrapped(plan))
                for name, value in replayed(plan, first).items():
                    np.testing.assert_allclose(found[name], value, rtol=0, atol=3e-6, err_msg=name)

    def test_what_does_not_fit_is_refused(self):
        for more, said in [({"fill": "most"}, "fill: unknown 'most'; known: after, best, wrap"),
                           ({"costs": "x.json"}, "costs of K-FAC apply only to fill best and wrap"),
                           ({"fill": "best", "costs": "none.json"}, "none.json")]:
            with self.subTest(more), self.assertRaisesRegex(Exception, said):
                kfac_test.job_of(kfac(**more))


def train(arguments):
    folder, rule, pipelines, stages, method, count, steps, first = arguments
    costs = pathlib.Path(folder) / "costs.json"
    job = kfac_test.job_of(kfac(fill=rule, costs=str(costs)), int(pipelines), int(stages), method, int(count))
    for _ in job.run("train", until=int(steps), trace=f"{folder}/run.json", checkpoint=f"{folder}/ckpt",
                     resume=int(first) > 0):
        pass
    kfac_test.save_weights(job, folder)


if __name__ == "__main__":
    if "--train" in sys.argv:
        train(sys.argv[2:])
    else:
        unittest.main()
