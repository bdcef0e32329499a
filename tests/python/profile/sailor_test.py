"""hetu.profile.sailor reads Sailor's files and predicts the plans in them. A small example of the format is always read. The
published files are predicted if they are beside the source tree."""

import dataclasses
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from hetu import schedule
from hetu.profile import sailor
from hetu.profile.sailor_files import Bandwidth, Gpus, Published, read_plan

DATA = pathlib.Path(__file__).resolve().parents[4] / "shared" / "data" / "measured" / "sailor"
HIDDEN, LENGTH, HEADS = 8, 16, 2
SLOW, FAST = [2e-5, 5e-4], [4e-5, 2e-3]  # coefficients of the bandwidth between machines and inside them
TIMES = {"old": {"2": [0.002, 0.001, 0.5], "4": [0.003, 0.002, 0.5]},
         "new": {"2": [0.001, 0.0005, 0.4], "4": [0.002, 0.001, 0.4]}}
ZONE = "here"


def speed(coefficients, message):
    """Returns the bandwidth in bytes per millisecond."""
    return Bandwidth(coefficients, 1e12, "").at(message) / 1e3


def put(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


def plan_values(copies, layers, size=2, batch=24):
    """Returns a plan's JSON. `copies` holds the kinds of GPUs by stage and pipeline."""
    return {"pipeline_list": [{"num_stages": len(layers), "layers_per_stage": layers, "dp": [len(c) for c in copies],
                               "tmp_per_stage": [[[[[kind, 2, ZONE]], 2] for kind in stage] for stage in copies]}],
            "mbs": size, "gbs": batch, "N": 2, "real": 1.0, "max_mem": 300000, "red_grads": 0, "zone": ZONE}


def example(folder):
    """Writes two kinds of GPUs, a model of an embedding, two blocks and a head, and three plans on pairs of GPUs."""
    put(folder / "training_config_tiny.json", {"model": "tiny", "hidden_size": HIDDEN, "sequence_length": LENGTH,
                                               "heads": HEADS, "num_all_layers": 4})
    for kind, by_size in TIMES.items():
        times = {size: {"2": {str(n): [values[0] * (n + 1), values[1] * (n + 1), values[2]] for n in range(4)}}
                 for size, values in by_size.items()}
        put(folder / "profiles" / "tiny" / kind / "profile.json", times)
    weights = {"0": 3000, "1": 1000, "2": 1000, "3": 2000 + 2 * 4 * HIDDEN}
    put(folder / "varuna-format" / "tiny" / "new" / "profile_2.json",
        {layer: {"1": {}, "2": {"params_bytes": size}} for layer, size in weights.items()})
    link = {kind: {"2": [SLOW, 1e12]} for kind in TIMES}
    put(folder / "multizone_bandwidths_het.json", {ZONE: {kind: {"2": {ZONE: link}} for kind in TIMES}})
    put(folder / "intra_node_bandwidths.json", {kind: {"2": [FAST, 1e12]} for kind in TIMES})
    plans = folder / "validation" / "lab" / "N2"
    put(plans / "plan_config_pipe.json", plan_values([["old"], ["new"]], [[0, 1], [2, 3]]))
    put(plans / "plan_config_data.json", plan_values([["old", "new"]], [[0, 1, 2, 3]]))
    put(plans / "plan_config_both.json", plan_values([["old", "new"], ["new", "old"]], [[0, 1], [2, 3]]))
    return folder


def deepspeed_ends(forward, backward, message, micros):
    """Returns when each stage has computed its last backward. Stage s runs forward i in step 2i + s and backward i in step
    2i + 2P - 1 - s. Before a backward it receives the gradient and then sends the activation of the step before. Before a
    forward it sends the gradient of the step before and then receives the activation."""
    stages = len(forward)
    free = [0.0] * stages
    for step in range(2 * (micros + stages - 1)):
        arrived = list(free)
        for s in range(stages - 1):
            if (step - s) % 2 == 0:
                continue  # stage s runs a forward in this step
            if 0 <= step - (2 * stages - 1 - s) < 2 * micros:
                arrived[s] = max(free[s], free[s + 1] + message)
            if 0 <= step - 1 - s < 2 * micros:
                arrived[s + 1] = max(free[s + 1], arrived[s] + message)
        for s in range(stages):
            is_forward = (step - s) % 2 == 0
            first = s if is_forward else 2 * stages - 1 - s
            free[s] = arrived[s] + ((forward if is_forward else backward)[s] if 0 <= step - first < 2 * micros else 0)
    return free


class Example(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = example(pathlib.Path(folder.name))
        self.files = Published(self.folder, "tiny")
        self.plans = {plan.name: plan for plan in self.files.plans()}

    def test_plans(self):
        pipe, both = self.plans["pipe"], self.plans["both"]
        self.assertEqual((pipe.stages, pipe.pipelines, pipe.micro_batches), (2, 1, 12))
        self.assertEqual((both.stages, both.pipelines, both.micro_batches, both.group), (2, 2, 6, ("lab", 2, 24)))
        self.assertEqual(both.copies[1], [Gpus("new", 2, ZONE), Gpus("old", 2, ZONE)])

    def test_a_small_micro_batch_takes_no_longer_than_a_large_one(self):
        path = self.folder / "profiles" / "tiny" / "old" / "profile.json"
        times = json.loads(path.read_text())
        times["2"]["2"]["1"] = [0.009, 0.001, 0.5]
        put(path, times)
        fresh, gpus = Published(self.folder, "tiny"), Gpus("old", 2, ZONE)
        self.assertEqual(fresh.times(gpus, 2, 1), (0.006, 0.001, 0.5))
        self.assertEqual(fresh.times(gpus, 2, 1, smooth=False), (0.009, 0.001, 0.5))
        self.assertEqual(fresh.times(gpus, 4, 1), (0.006, 0.004, 0.5))

    def test_bandwidth_is_a_polynomial_up_to_the_largest_measured_value(self):
        link = Bandwidth([1, 2, 3], 1e10, "file")
        self.assertAlmostEqual(link.at(2e6), (1 + 2 + 3) * 1e9)
        self.assertEqual(link.at(64e6), 1e10)
        with self.assertRaisesRegex(ValueError, "file: the polynomial gives -1 GB/s for messages of 2000000 bytes"):
            Bandwidth([-1, 0], 1e10, "file").at(2e6)

    def test_costs(self):
        costs = sailor.costs_of(self.files, self.plans["both"])
        message = 4 * 2 * LENGTH * HIDDEN
        gather = message / 2 / speed(FAST, message / 2)  # two GPUs exchange their halves
        self.assertEqual(costs["cuts"], [[0, 2], [0, 2]])
        self.assertEqual([row["bytes_out"] for row in costs["stages"]], [message] * 4)
        forward = [2 * (1 + 2), 1 * (3 + 4) + gather, 1 * (1 + 2), 2 * (3 + 4) + gather]
        backward = [1 * (1 + 2) + gather, 0.5 * (3 + 4), 0.5 * (1 + 2) + gather, 1 * (3 + 4)]
        for row, f, b in zip(costs["stages"], forward, backward, strict=True):
            self.assertAlmostEqual(row["forward"], f)
            self.assertAlmostEqual(row["input_grad"] + row["weight_grad"], b)
        # Two copies sum 4000 bytes on each of two GPUs; the first and the last stage also sum the word embedding.
        for row, weights in zip(costs["stages"], [4000, 3000 + 64] * 2, strict=True):
            self.assertAlmostEqual(row["reduce_grad"], 2 * weights / speed(SLOW, weights / 2) + 2 * 2000 / speed(SLOW, 1000))
            self.assertEqual(row["weight_bytes"], 4 * weights)
        self.assertEqual({(row["from"], row["to"]) for row in costs["link"]["pairs"]}, {(0, 1), (1, 0), (2, 3), (3, 2)})
        self.assertTrue(all(row["bandwidth"] == speed(SLOW, message / 2) for row in costs["link"]["pairs"]))
        whole = sailor.costs_of(self.files, self.plans["data"])["stages"][0]
        self.assertEqual(whole["weight_bytes"], 4 * (3000 + 1000 + 1000 + 64))  # the word embedding once

    def test_memory(self):
        hidden, scores, logits = 4 * 2 * LENGTH * HIDDEN, 4 * 2 * (HEADS // 2) * LENGTH**2, 2 * LENGTH * 2000 / HIDDEN
        block = hidden * (3 + 8 / 2) + scores
        kept, working = sailor.stage_bytes(self.files, self.plans["pipe"], 0)
        self.assertAlmostEqual(kept, hidden + block)
        self.assertAlmostEqual(working, 3 * scores)
        kept, working = sailor.stage_bytes(self.files, self.plans["pipe"], 1)
        self.assertAlmostEqual(kept, block + 2 * logits + 1.25 * hidden)
        self.assertAlmostEqual(working, max(2 * logits, 3 * scores - 2 * logits - 1.25 * hidden))
        first = 4 * 4000 + 2 * (hidden + block) + 3 * scores  # two micro-batches are in flight
        second = 4 * 3064 + kept + working
        self.assertAlmostEqual(sailor.predict(self.files, self.plans["pipe"]).state_bytes, max(first, second))

    def test_memory_of_the_libraries_is_that_of_other_plans(self):
        found = [sailor.predict(self.files, plan) for plan in self.plans.values()]
        rest = [one.plan.measured_bytes - one.state_bytes for one in found]
        self.assertAlmostEqual(sailor.library_bytes(found, found[1]), (rest[0] + rest[2]) / 2)
        impossible = dataclasses.replace(found[0], state_bytes=1e9)
        self.assertAlmostEqual(sailor.library_bytes([impossible, *found[1:]], found[1]), rest[2])

    def test_gather_of_four_gpus(self):
        """Each GPU sends three quarters of the message at half the bandwidth that two pairs have together."""
        put(self.folder / "intra_node_bandwidths.json", {"new": {"4": [FAST, 1e12]}})
        time = sailor.gather_s(Published(self.folder, "tiny"), Gpus("new", 4, ZONE), 4000)
        self.assertAlmostEqual(time, 3000 / (speed(FAST, 1000) * 1e3 / 2))

    def test_order_of_messages(self):
        rows = [" ".join(row) for row in sailor.rows_of(3, 2)]
        self.assertEqual(rows[0], "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD 0UPDATE")
        self.assertEqual(rows[1], "1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1RECV_B0 1SEND_F1 1B0 1SEND_B0 1RECV_B1 1B1 1SEND_B1 "
                         "1REDUCE_GRAD 1UPDATE")
        self.assertEqual(rows[2], "2RECV_F0 2F0 2B0 2SEND_B0 2RECV_F1 2F1 2B1 2SEND_B1 2REDUCE_GRAD 2UPDATE")
        usual = schedule.lower(schedule.generate("1f1b", stages=4, micro_batches=6), pipelines=2).csv()
        self.assertEqual("".join(",".join(row) + "\n" for row in sailor.rows_of(4, 6, late_sends=False)), usual)

    def test_the_order_takes_the_time_of_a_slow_reference(self):
        draw = random.Random(5)
        for case in range(30):
            stages, micros, message = draw.randint(1, 5), draw.randint(1, 9), draw.choice([0, 1, 3])
            forward, backward = ([draw.randint(1, 6) for _ in range(stages)] for _ in range(2))
            costs = {"stages": [{"forward": f, "input_grad": b / 2, "weight_grad": b / 2}
                                for f, b in zip(forward, backward, strict=True)], "link": {"latency": message}}
            put(self.folder / "costs.json", costs)
            plan = schedule.from_rows(sailor.rows_of(stages, micros))
            found = schedule.simulate(plan, costs=str(self.folder / "costs.json"))
            ends = [worker["end"] for worker in found["workers"]]
            for end, expected in zip(ends, deepspeed_ends(forward, backward, message, micros), strict=True):
                self.assertAlmostEqual(end, expected, msg=f"case {case}: {costs}, {micros} micro-batches")

    def test_data_parallel_step(self):
        """The slower copy computes all its micro-batches, then both sum, then it updates."""
        weights = 3000 + 1000 + 1000 + 64
        step = 6 * (2e-3 + 1e-3) * (1 + 2 + 3 + 4) + 2 * weights / speed(SLOW, weights / 2) / 1e3 + 0.5
        self.assertAlmostEqual(sailor.predict(self.files, self.plans["data"]).step_s, step)

    def test_written_files_give_the_predicted_step(self):
        sailor.write(self.files, list(self.plans.values()), self.folder / "out")
        for name, plan in self.plans.items():
            stem = self.folder / "out" / f"lab_{name}"
            figures = schedule.simulate(schedule.read(f"{stem}.plan.json"), costs=f"{stem}.costs.json")
            self.assertAlmostEqual(figures["step_time"] / 1e3, sailor.predict(self.files, plan).step_s)

    def test_what_is_missing_is_one_line(self):
        def predicts(**changes):
            put(self.folder / "p.json", {**plan_values([["old"], ["new"]], [[0, 1], [2, 3]]), **changes})
            sailor.predict(self.files, read_plan(self.folder / "p.json"))

        other = plan_values([["mars"], ["new"]], [[0, 1], [2, 3]])["pipeline_list"]
        layer = plan_values([["old"], ["new"]], [[0, 1], [2, 7]])["pipeline_list"]
        uneven = plan_values([["old", "new"], ["new"]], [[0, 1], [2, 3]])["pipeline_list"]
        degree = json.loads(json.dumps(other).replace('"mars", 2', '"new", 8').replace("]], 2]", "]], 8]"))
        for changes, message in [({"pipeline_list": other}, "profiles/tiny: has no profile of GPU mars; known: new, old"),
                                 ({"mbs": 3}, "has no micro-batch size 3; known: 2, 4"),
                                 ({"pipeline_list": layer}, "tensor-parallel degree 2: has no layer 7; known: 0, 1, 2, 3"),
                                 ({"pipeline_list": degree}, "size 2: has no tensor-parallel degree 8; known: 2"),
                                 ({"pipeline_list": uneven}, "stage 1 has 1 copies but stage 0 has 2"),
                                 ({"gbs": 25}, "a global batch of 25 rows is not a multiple of 1 pipelines"),
                                 ({"pipeline_list": []}, "pipeline_list has 0 entries; expected 1")]:
            with self.assertRaises(ValueError) as caught:
                predicts(**changes)
            self.assertIn(message, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))

    def test_command(self):
        def run(*words, status=0):
            done = subprocess.run([sys.executable, "-m", "hetu.profile.sailor", *words], capture_output=True, text=True,
                                  timeout=120)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return done.stdout if status == 0 else done.stderr

        text = run(str(self.folder), "--model", "tiny")
        for name, plan in self.plans.items():
            row = next(line for line in text.splitlines() if line.startswith(f"lab {name} "))
            self.assertEqual(row.split()[3], f"{sailor.predict(self.files, plan).step_s:.4f}")
        self.assertIn("note: lab pipe and lab both and lab data have the same measured time and memory", text)
        self.assertEqual(len(run(str(self.folder), "--model", "tiny", "--explain").splitlines()), 6)
        for words, message in [(["/nowhere"], "/nowhere: has no folder profiles"),
                               ([str(self.folder)], "no training_config_*.json is of model OPT-350; known: tiny")]:
            lines = run(*words, status=2).splitlines()
            self.assertEqual(len(lines), 1)
            self.assertIn(message, lines[0])


class PublishedPlans(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not DATA.is_dir():
            print(f"skipped: {DATA} is not there")
            raise unittest.SkipTest(f"{DATA} is not there")
        cls.files = Published(DATA)
        cls.found = [sailor.predict(cls.files, plan) for plan in cls.files.plans()]

    def errors(self, site=""):
        """Returns the errors of the step time by site and name."""
        return {(one.plan.site, one.plan.name): one.step_s / one.plan.measured_s - 1
                for one in self.found if one.plan.site == site or not site}

    def test_step_times(self):
        self.assertEqual(len(self.found), 24)
        for site, count, most_mean, most in [("clariden", 15, 0.09, 0.15), ("mit", 9, 0.065, 0.18)]:
            errors = [abs(error) for error in self.errors(site).values()]
            self.assertEqual(len(errors), count)
            self.assertLess(sum(errors) / count, most_mean, errors)
            self.assertLess(max(errors), most, errors)

    def test_the_best_plan_is_first_except_in_one_group(self):
        """On six machines of mit, a plan is 1 % too fast whose measured figures are also those of another plan."""
        groups, missed = sailor.groups_of(self.found)
        self.assertEqual(len(groups), 8)
        self.assertLessEqual(missed, {("mit", 6, 288)})

    def test_memory(self):
        sound = [one for one in self.found if one.plan.measured_bytes > one.state_bytes]
        self.assertEqual({one.plan.name for one in self.found if one not in sound}, {"N2_D1", "N2_D2"})
        errors = [abs((one.state_bytes + sailor.library_bytes(self.found, one)) / one.plan.measured_bytes - 1)
                  for one in sound]
        self.assertLess(sum(errors) / len(errors), 0.06)
        self.assertLess(max(errors), 0.17)

    def test_oddities_are_named(self):
        notes = sailor.oddities(self.found)
        self.assertEqual(len(notes), 3)
        self.assertIn("mit N3_D1 and mit N6_D2 have the same measured time and memory", notes[-1])

    def test_every_mechanism_counts(self):
        """Without messages, sums, DeepSpeed's order or smoothed times, the mean error is larger."""
        plans = self.files.plans()
        whole = sum(abs(error) for error in self.errors().values())
        for name in ("messages", "sums", "late_sends", "gathers", "smooth"):
            without = sailor.Terms(**{name: False})
            errors = [sailor.predict(self.files, plan, without).step_s / plan.measured_s - 1 for plan in plans]
            self.assertGreater(sum(map(abs, errors)), whole, name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
