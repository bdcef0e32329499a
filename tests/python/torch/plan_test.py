#!/usr/bin/env python3
"""The path of a user with a PyTorch model: profile, plan, run by the plan, compare with the prediction.

Skipped where PyTorch is not installed (`./run torch`)."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPEEDS = (0.5, 1, 1, 0.5)  # of the machines that wait; see torch_planned.py
WIDTH = 16


def model():
    """Returns a model of 6 pieces with all that measuring must leave alone: buffers, random numbers, writes in place."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(inplace=True), nn.BatchNorm1d(32), nn.Dropout(0.5), nn.Tanh(),
                         nn.Linear(32, WIDTH))


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Profile(unittest.TestCase):
    """hetu.torch.profile() in one process."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name, "model.json")

    def profile(self, sizes, made=None, **named):
        import torch
        from torch import nn

        import hetu.torch

        x = torch.ones(8, WIDTH)
        return hetu.torch.profile(model() if made is None else made, nn.MSELoss(), x, x, sizes, self.file, turns=2, **named)

    def test_bytes(self):
        """Bytes are those of the tensors, counted by hand."""
        import torch

        blocks = self.profile((2, 4))["micro_batch_sizes"]["4"]["blocks"]
        weights = [4 * n for n in (WIDTH * 32 + 32, 0, 64, 0, 0, 32 * WIDTH + WIDTH)]
        self.assertEqual([b["gradient_bytes"] for b in blocks], weights)
        buffers = [0, 0, 4 * 64 + 8, 0, 0, 0]
        self.assertEqual([b["weight_bytes"] for b in blocks], [4 * w + b for w, b in zip(weights, buffers, strict=True)])
        row, out = 4 * 4 * 32, 4 * 4 * WIDTH
        self.assertEqual([b["bytes_out"] for b in blocks], [row] * 5 + [0])
        self.assertEqual([b["feed_bytes"] for b in blocks], [out, 0, 0, 0, 0, out])
        kept = [b["activation_bytes"] for b in blocks]
        self.assertEqual(kept[0], 0)  # its input is the batch, and its output is overwritten by the ReLU
        self.assertEqual(kept[1], row)  # its result; the norm reads it, too
        self.assertEqual(kept[4], row)  # its result, which the last piece keeps, too
        self.assertEqual(kept[5], out)  # its result, for the loss
        self.assertGreaterEqual(blocks[0]["working_bytes"], weights[0])  # a gradient before it is added
        half = self.profile((4,), optimizer=torch.optim.SGD)["micro_batch_sizes"]["4"]["blocks"]
        self.assertEqual([b["weight_bytes"] for b in half], [2 * w + b for w, b in zip(weights, buffers, strict=True)])

    def test_times_and_sizes(self):
        """A piece that waits has its times, in its own part of the backward. A later call adds sizes."""
        import torch
        from torch import nn

        import torch_planned

        made = nn.Sequential(nn.Linear(WIDTH, WIDTH), torch_planned.Block(20, WIDTH), nn.Linear(WIDTH, WIDTH))
        profile = self.profile((2,), made)
        (first, waits, _), spread = profile["micro_batch_sizes"]["2"]["blocks"], profile["spread"]["2"]
        self.assertGreater(waits["forward"], 20)
        self.assertGreater(waits["recompute"], 20)
        self.assertGreater(waits["input_grad"], 30)  # the wait is on the way to the input
        self.assertLess(waits["weight_grad"], waits["input_grad"])
        self.assertGreater(first["update"], 0)
        self.assertEqual(set(spread[0]), {"forward", "backward", "recompute", "input_grad", "weight_grad", "update"})
        self.profile((4, 1), made)
        profile = json.loads(self.file.read_text())
        self.assertEqual(list(profile["micro_batch_sizes"]), ["1", "2", "4"])
        self.assertEqual(set(profile["spread"]), {"1", "2", "4"})
        self.assertEqual(profile["threads"], torch.get_num_threads())

    def equal_pieces(self, is_slow):
        """Returns the profile of four equal pieces, and what was printed. is_slow(n): the machine is busy in the n-th call
        of a piece. A round has 8 calls, after a first pass of 16."""
        import torch
        from torch import nn

        import hetu.torch

        calls = []

        class Piece(nn.Linear):
            def forward(self, x):
                calls.append(1)
                time.sleep(0.16 if is_slow(len(calls)) else 0.04)
                return super().forward(x)

        x, made = torch.ones(2, WIDTH), nn.Sequential(*[Piece(WIDTH, WIDTH) for _ in range(4)])
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            hetu.torch.profile(made, nn.MSELoss(), x, x, (2,), self.file, turns=6)
        return json.loads(self.file.read_text()), printed.getvalue()

    def test_a_busy_phase_slows_all_pieces_alike(self):
        """Equal pieces have equal times on a machine that is busy at first."""
        profile, _ = self.equal_pieces(lambda call: call < 40)
        forwards = [block["forward"] for block in profile["micro_batch_sizes"]["2"]["blocks"]]
        self.assertLess(max(forwards), 2 * min(forwards), forwards)  # the phases differ by a factor of 4

    def test_varying_times_are_reported(self):
        profile, printed = self.equal_pieces(lambda call: call // 8 % 2)
        found = profile["variation"]["2"]
        self.assertGreater(found["share"], 0.15)
        self.assertRegex(found["says"], r"varied by up to \d+ % while they were measured \(block \d, micro-batches of 2")
        self.assertEqual(printed, f"hetu.torch.profile: {found['says']}\n")

    def test_the_model_is_left_as_it_was(self):
        import torch

        made = model()
        for p in made.parameters():
            p.grad = torch.full_like(p, 3)
        grads = [p.grad for p in made.parameters()]
        before = {name: tensor.clone() for name, tensor in made.state_dict().items()}
        drawn = torch.get_rng_state()
        self.profile((2,), made)
        self.assertTrue(torch.equal(torch.get_rng_state(), drawn))
        for name, tensor in made.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), name)
        for p, grad in zip(made.parameters(), grads, strict=True):
            self.assertIs(p.grad, grad)
            self.assertTrue(bool((p.grad == 3).all()))

    def test_bad_input(self):
        from torch import nn

        import hetu.torch

        for sizes, says in (((), "expected numbers of samples"), ((0,), "at least 1 each"), ((True,), "at least 1 each"),
                            ((2, 9), "has 9, but the batch has 8")):
            with self.assertRaisesRegex(ValueError, says):
                self.profile(sizes)
        with hetu.torch.empty():
            made = nn.Sequential(nn.Linear(WIDTH, WIDTH))
        with self.assertRaisesRegex(ValueError, r"made in empty\(\)"):
            self.profile((2,), made)
        self.assertFalse(self.file.exists())
        self.profile((2,))
        text = self.file.read_text()
        with self.assertRaisesRegex(ValueError, "a model of 6 blocks, and this model has 1; choose another file"):
            self.profile((4,), nn.Sequential(nn.Linear(WIDTH, WIDTH)))
        self.assertEqual(self.file.read_text(), text)


def block(**costs):
    return {"forward": 1, "input_grad": 1, "weight_grad": 1, "bytes_out": 100, "gradient_bytes": 50, "weight_bytes": 200,
            "activation_bytes": 10, **costs}


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Plans(unittest.TestCase):
    """Plans of `hetu plan` for made-up costs of the model's pieces."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.costs, self.machines = self.folder / "model.json", self.folder / "machines.json"
        blocks = [block(forward=2, update=0.5), block(), block(recompute=1), block(forward=3), block(bytes_out=300), block()]
        one = {"stages": [block()], "blocks": blocks, "reduce_scalars": 0.1, "link": {"latency": 0.2, "bandwidth": 1000}}
        two = {**one, "blocks": [{key: 1.6 * value for key, value in b.items()} for b in blocks]}
        self.costs.write_text(json.dumps({"micro_batch_sizes": {"1": one, "2": two}}))
        self.machines.write_text(json.dumps({
            "unit": "us", "workers": [{"speed": 0.5, "host": "a"}, {"speed": 1, "host": "a"}, {"speed": 2, "host": "b"},
                                      {"speed": 1, "host": "b"}],
            "link": {"latency": 300, "bandwidth": 2, "pairs": [{"from": 2, "to": 1, "latency": 900, "bandwidth": 1}]},
            "link_in_host": {"latency": 10}}))

    def plan(self, machines=False, **named):
        import hetu.schedule

        workers = {"machines": str(self.machines)} if machines else {"workers": 4}
        return hetu.schedule.plan(costs=str(self.costs), global_batch=16, **workers, **named)

    def test_predictions(self):
        """The prediction that goes into a trace takes exactly the time that the planner says."""
        from hetu.torch import predicted
        from hetu.torch.planned import FoundPlan

        cases = 0
        for methods in ("1f1b", "zb-h1", "chimera", "interleaved-1f1b", "zb-v", "gpipe"):
            for machines in (False, True):
                for more in ({"pipelines": [1]}, {"pipelines": [2]}, {"micro_batch_sizes": [2], "stages": [4]}):
                    answer = self.plan(machines, methods=[methods], **more)
                    if answer["plan"] is None or answer["plan"].get("concat") == "halving":
                        continue
                    found = FoundPlan(answer)
                    costs = predicted.costs_of(found, json.loads(self.costs.read_text()),
                                               json.loads(self.machines.read_text()) if machines else {}, "model.json")
                    self.assertAlmostEqual(predicted._simulated(found, costs)["step_time"], found.step_time, 9,
                                           f"{methods} {machines} {more}")
                    cases += 1
        self.assertGreater(cases, 15)

    def test_a_run_has_the_bits_of_one_process(self):
        """Workers as threads run the plan. Losses and gradients are those of one worker."""
        import torch
        from torch import nn

        import hetu.torch

        def made():
            torch.manual_seed(1)
            return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(6)])

        x = torch.randn(16, WIDTH)
        for method, workers in (("1f1b", 4), ("zb-v", 2)):  # zb-v has two stages on each worker
            answer = self.plan(methods=[method], stages=[workers], pipelines=[1])
            plan = self.folder / "plan.json"
            plan.write_text(json.dumps(answer))
            pipe = hetu.torch.Pipeline(made(), nn.MSELoss(), plan=plan, devices=f"threads:{workers}")
            alone = hetu.torch.Pipeline(made(), nn.MSELoss(), "1f1b", answer["plan"]["micro_batches"])
            self.assertEqual(pipe.chief.micro_batches, answer["plan"]["micro_batches"])
            self.assertEqual([stage.first_piece for stage in pipe.chief.stages], answer["plan"]["first_block"])
            for _ in range(2):
                self.assertEqual(pipe.step(x, x), alone.step(x, x))
            found = {name: p.grad for name, p in pipe.named_parameters()}
            for name, p in alone.named_parameters():
                self.assertTrue(torch.equal(found[name], p.grad), name)

    def test_numbers_of_workers(self):
        """A run says which process each worker is, if the plan has another order than the machines."""
        from hetu.torch.planned import FoundPlan

        answer, hosts = self.plan(methods=["1f1b"], stages=[4]), [("a", 2), ("b", 2)]
        answer["plan"]["workers"] = [0, 2, 1, 5]
        self.assertEqual(FoundPlan(answer).numbering(hosts),
                         "by plan=, worker 1 is process 2 on b, worker 2 is process 1 on a")
        answer["plan"]["workers"] = [0, 2, 3, 5]
        self.assertEqual(FoundPlan(answer).numbering(hosts), "")

    def test_bad_plans(self):
        """A plan for other workers, pieces or batches is refused in one line."""
        import torch
        from torch import nn

        import hetu.torch

        def pipe(plan, pieces=6, devices="threads:4", **named):
            return hetu.torch.Pipeline([nn.Linear(WIDTH, WIDTH) for _ in range(pieces)], nn.MSELoss(), plan=plan,
                                       devices=devices, **named)

        answer = self.plan(methods=["1f1b"], stages=[4])
        with self.assertRaisesRegex(ValueError, r"the plan is for 16 samples per pipeline .* and step\(\) received 24; pass "
                                                "16, or plan again with --global-batch 24"):
            pipe(answer).step(torch.ones(24, WIDTH), torch.ones(24, WIDTH))
        with self.assertRaisesRegex(ValueError, r"received 8"):
            pipe(answer).step(torch.ones(8, WIDTH), torch.ones(8, WIDTH))
        made = pipe(answer)
        made.step(torch.ones(16, WIDTH), torch.ones(16, WIDTH))
        made.step(torch.ones(8, WIDTH), torch.ones(8, WIDTH))  # the last batch of an epoch
        no_plan = {**answer, "plan": None}
        halved = {**answer, "plan": {**answer["plan"], "method": "chimera", "concat": "halving"}}
        old = {**answer, "plan": {key: value for key, value in answer["plan"].items() if key != "workers"}}
        cases = [(answer, {"devices": "threads:2"}, r"for 4 workers, and this job has 2; start it with `heturun -w 4`"),
                 (answer, {"devices": None}, r"for 4 workers, and this job has 1"),
                 (answer, {"pieces": 5}, "is for a model of 6 pieces, and this one has 5; profile this model, and plan"),
                 (answer, {"pieces": 7}, "and this one has 7; profile this model, and plan again"),
                 (answer, {"micro_batches": 4, "with_recompute": True}, "leave micro_batches=, with_recompute= out"),
                 (answer, {"pipelines": 2}, "leave pipelines= out"), (no_plan, {}, "has found no plan"),
                 ({}, {}, "not a result of `hetu plan`"), (halved, {}, "half micro-batches, which hetu.torch can't run"),
                 (old, {}, "the plan has no 'workers'")]
        for plan, named, says in cases:
            with self.assertRaisesRegex(ValueError, says):
                pipe(plan, **named)

    def test_any_schedule_takes_a_forecast(self):
        """costs= of write_trace is for every schedule. A trace isn't lost if they don't fit. It has the schedule's name."""
        import torch
        from torch import nn

        import hetu.torch

        def mine(stages, micro_batches):
            micros = range(micro_batches)
            return [[f"{s}F{m}" for m in micros] + [f"{s}B{m}" for m in micros] for s in range(stages)]

        def recorded(pieces, **named):
            pipe = hetu.torch.Pipeline([nn.Linear(WIDTH, WIDTH) for _ in range(pieces)], nn.MSELoss(), mine, 8,
                                       devices="threads:4", **named)
            x = torch.ones(16, WIDTH)
            pipe.step(x, x)
            pipe.record()
            pipe.step(x, x)
            return pipe

        path = self.folder / "trace.json"
        pipe = recorded(6, first_pieces=[0, 3, 4, 5])
        plain = self.folder / "plain.json"
        pipe.write_trace(plain)
        pipe.write_trace(path, costs=self.costs)  # again, with a forecast: no step in between
        measured = [[event for event in json.loads(file.read_text())["traceEvents"]
                     if event["ph"] == "X" and event["pid"] == 1] for file in (plain, path)]
        self.assertEqual(*measured)
        self.assertGreater(len(measured[0]), 0)
        self.assertIn("samples_per_micro_batch", json.loads(path.read_text())["metadata"]["costs"])
        blocks = json.loads(self.costs.read_text())["micro_batch_sizes"]["2"]["blocks"]
        forwards = {event["args"]["stage"]: event["dur"] for event in json.loads(path.read_text())["traceEvents"]
                    if event["ph"] == "X" and event["pid"] == 0 and event["cat"] == "F"}
        for stage, (first, end) in enumerate([(0, 3), (3, 4), (4, 5), (5, 6)]):
            self.assertAlmostEqual(forwards[stage], 1e3 * sum(b["forward"] for b in blocks[first:end]), 3)
        compared = json.loads(subprocess.run(["hetu", "compare", path, "--format", "json"], check=True, capture_output=True,
                                             text=True).stdout)
        self.assertIn("model.json, a forecast", compared["prediction"])
        self.assertRegex(compared["method"], r"plan_test:.*mine$")
        earlier = self.folder / "earlier.json"
        for file, costs in ((earlier, None), (path, earlier)):
            pipe.step(torch.ones(16, WIDTH), torch.ones(16, WIDTH))  # a trace has the steps since the one before
            pipe.write_trace(file, costs=costs)
        self.assertEqual(json.loads(path.read_text())["metadata"]["forecast"], str(earlier))
        path.unlink()
        with self.assertRaisesRegex(ValueError, r"6 blocks, and the model 7 pieces.*trace.json is written"):
            recorded(7).write_trace(path, costs=self.costs)
        self.assertTrue(path.exists())


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Path4(unittest.TestCase):
    """The whole path, in four processes whose pieces wait as machines of different speed would compute."""

    def run_in(self, folder, *command):
        done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, timeout=240,
                              env={**os.environ, "WAIT_SPEEDS": ",".join(map(str, SPEEDS))}, check=False)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def test_profile_plan_run_compare(self):
        with tempfile.TemporaryDirectory() as folder:
            machines = {"workers": [{"speed": speed} for speed in SPEEDS], "link": {"latency": 1}}
            Path(folder, "machines.json").write_text(json.dumps(machines))
            worker = HERE / "torch_planned.py"
            self.run_in(folder, sys.executable, worker, "profile")
            self.run_in(folder, "hetu", "plan", "--costs", "model.json", "--machines", "machines.json", "--global-batch", 16,
                        "--stages", 4, "--methods", "1f1b", "-o", "plan.json")
            plan = json.loads(Path(folder, "plan.json").read_text())["plan"]
            self.assertNotEqual(plan["first_block"], [0, 2, 4, 6])  # slower workers have less
            printed = self.run_in(folder, "heturun", "-w", "4", sys.executable, worker, "run")
            self.assertEqual(printed.count("the bits of one process"), 4, printed)
            compared = json.loads(self.run_in(folder, "hetu", "compare", "trace.json", "--format", "json"))
            trace = json.loads(Path(folder, "trace.json").read_text())
            self.assertEqual(trace["metadata"]["costs"]["samples_per_micro_batch"], plan["micro_batch_size"])
            rows = {}  # the instructions of each worker and step, by source
            for event in trace["traceEvents"]:
                # The planner's plans have no sum of the loss (REDUCE_SCALARS).
                if event["ph"] == "X" and not event["cat"].startswith(("RECV", "REDUCE_SCALARS")):
                    rows.setdefault(event["pid"], set()).add((event["tid"], event["args"]["step"], event["name"]))
            self.assertEqual(rows[0], rows[1])
            self.assertEqual(compared["unplanned_events"], 0)
            steps = [run["step_time"] for run in compared["runs"]]
            for step in steps:
                self.assertAlmostEqual(step["predicted"], plan["step_time"], 3)
            print(f"predicted {plan['step_time']:.1f} ms per step, workers {plan['workers']}, cut {plan['first_block']}; "
                  f"measured / predicted: {[round(step['measured'] / step['predicted'], 3) for step in steps]}", flush=True)
            print("\n".join(line for line in printed.splitlines() if "kept" in line), flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
