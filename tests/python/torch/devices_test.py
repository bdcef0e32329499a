#!/usr/bin/env python3
"""hetu.torch.Pipeline on an accelerator, the simulated one of tests/torch_device.

Results equal the CPU's, and all tensors of a stage are in the device's memory. A host access to them would end a worker with
a segmentation fault.

Skipped where PyTorch isn't installed. --whole tries the longer jobs instead."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINE = re.compile(r"CASE (.+): worker (\d+) on (far:\d) numbers (\S+) weights (\S+)")
SIX = ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "chimera")
WHOLE = "--whole" in sys.argv
SUMMED = ("chimera", " 2", "tied")  # sums over copies are in another order


def job(workers, cases, launcher=None, **environment):
    """Runs torch_device_worker.py and returns its output."""
    launcher = launcher or ["heturun", "-w", str(workers), sys.executable]
    run = subprocess.run([*launcher, HERE / "torch_device_worker.py", tempfile.gettempdir(), *cases], capture_output=True,
                         text=True, timeout=280, env={**os.environ, **environment})
    if run.returncode or "leaked" in run.stderr:
        raise AssertionError(f"{run.stdout}\n{run.stderr}")
    return run.stdout + run.stderr


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Devices(unittest.TestCase):
    """Devices in processes. Most cases are in one job, because starting workers takes longer than a case."""

    def expect(self, printed, cases, devices):
        """Checks each case on each worker: bit for bit, and 1e-6 where copies are summed."""
        found = [one for one in LINE.findall(printed) if one[0] in cases]
        for case, worker, _, numbers, weights in found:
            with self.subTest(case=case, worker=worker):
                limit = 1e-6 if any(word in case for word in SUMMED) else 0
                self.assertLessEqual(float(numbers), limit)
                self.assertLessEqual(float(weights), limit)
        self.assertEqual({(case, device) for case, _, device, *_ in found}, {(c, d) for c in cases for d in devices},
                         printed)

    @unittest.skipIf(WHOLE, "a sample of --whole")
    def test_sample(self):
        """Covers six schedules, recomputation, buffers, several tensors in a message, a tie, two pipelines, generators,
        autocast with a scaler, checkpoints to and from the CPU, cuts, traces, Varuna's names, sharded optimizer states,
        refused settings, and a forgotten wait."""
        cases = [*(f"residual {schedule} 1" for schedule in SIX), "residual varuna 1", "norms 1f1b 1", "forked zb-h1 1",
                 "tied zb-v 1", "residual 1f1b 2"]
        with tempfile.TemporaryDirectory() as folder:
            for name in ("saved", "varuna"):
                Path(folder, name).mkdir()
            printed = job(2, [*cases, "keeps: residual 1f1b 1", f"mixed: 1f1b bfloat16 {folder}/saved",
                              f"mixed: zb-h1 float16 {folder}/saved", f"traced: residual {folder}",
                              f"varuna: {folder}/varuna", "shards: 1f1b", "shards: chimera", "refused",
                              "forgets: forked 1f1b 1"])
            events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
        self.expect(printed, cases, ("far:0", "far:1"))
        for line, count in (("KEPT", 2), ("LOADED", 4), ("TRACED", 2), ("VARUNA", 2), ("SHARDS", 4), ("REFUSED", 4)):
            self.assertEqual(printed.count(f"{line}: "), count, printed)
        self.assertEqual(len(re.findall(r"MIXED .*: worker \d \[(\(True, True\), ){3}True\]", printed)), 4, printed)
        self.assertIn("worker 0 on far:0, worker 1 on far:1; activations and sums of gradients go through pinned host "
                      "memory", printed)
        seen = [event for event in events if event["ph"] == "X" and event["pid"] in (0, 1) and event["cat"] in "FIW"]
        self.assertEqual(len([e for e in seen if e["cat"] == "F"]), 2 * 8, seen)  # measured events and predicted ones
        self.assertTrue(all(event["dur"] > 0 for event in seen), seen)
        self.assertRegex(printed, r"CASE forked 1f1b 1: worker \d on far:\d numbers nan|FORGOT: .*\bnan\b")

    @unittest.skipUnless(WHOLE, "--whole")
    def test_workers_share_a_device(self):
        """Four workers use a machine with one accelerator, by six schedules."""
        cases = [*(f"residual {schedule} 1" for schedule in SIX), "residual zb-h1 2"]
        printed = job(4, cases, FAR_DEVICES="1")
        self.expect(printed, cases, ("far:0",))
        self.assertIn("worker 0 on far:0, worker 1 on far:0,", printed)

    @unittest.skipUnless(WHOLE, "--whole")
    def test_local_rank_of_torchrun(self):
        """A device without a number gets the number LOCAL_RANK."""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        self.expect(job(2, ["residual 1f1b 1"], launcher), ["residual 1f1b 1"], ("far:0", "far:1"))

    @unittest.skipUnless(WHOLE, "--whole")
    def test_averages_weights(self):
        """Pipelines that average their weights equal plain PyTorch on the CPU, bit for bit."""
        cases = ["preduce/2", "blocking/2", "adpsgd-lockstep/2"]
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run(["heturun", "-w", "2", sys.executable, HERE / "torch_averages.py", folder, "7", *cases],
                                 capture_output=True, text=True, timeout=280,
                                 env={**os.environ, "HETU_TEST_DEVICE": "far"})
        found = re.findall(r"CASE (\S+): worker \d bits (\w+)", run.stdout)
        self.assertEqual(sorted(found), sorted(2 * [(case, "True") for case in cases]), run.stdout + run.stderr)
        self.assertIn("worker 1 on far:1", run.stderr + run.stdout)

    @unittest.skipUnless(WHOLE, "--whole")
    @unittest.skipUnless(find_spec("transformers"), "transformers is not there: ./run torch installs it")
    def test_known_models(self):
        """Models of transformers and torchvision with dropout. PyTorch has other kernels for dropout and norms on the
        device."""
        names = ("gpt2", "llama masked", "bert masked", "t5 masked", "vit", "resnet18")
        found = re.findall(r"MODEL (.+): worker \d apart (\S+)", job(2, [f"model: {name}" for name in names]))
        self.assertEqual(sorted(name for name, _ in found), sorted(2 * names), found)
        for name, apart in found:
            self.assertLess(float(apart), 1e-5 if name == "resnet18" else 1e-6, name)

    @unittest.skipUnless(WHOLE, "--whole")
    def test_checkpoints_of_torch(self):
        """A torch.distributed.checkpoint of a device can be resumed on the CPU, and the reverse."""
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(job(2, [f"dcp: {folder}"]).count("DCP: worker"), 2)

    @unittest.skipUnless(WHOLE, "--whole")
    def test_table_of_a_gpu(self):
        """tests/cuda/torch_table.py, which is for a real GPU, runs on the simulated one."""
        run = subprocess.run([sys.executable, HERE.parents[1] / "cuda" / "torch_table.py", "--size", "tiny",
                              "--device", "far", "--steps", "2", "--workers", "2", "--models", "gpt,llama",
                              "--schedules", "zb-v"], capture_output=True, text=True, timeout=280)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertRegex(run.stdout, r"plain PyTorch, one process \| bit for bit")
        self.assertEqual(len(re.findall(r"hetu.torch, 2 workers, zb-v \| bit for bit", run.stdout)), 2, run.stdout)


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Choice(unittest.TestCase):
    """The device that a Pipeline uses."""

    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(HERE.parents[1] / "torch_device"))
        import far

        far.load()

    def tearDown(self):
        import torch

        torch.accelerator.set_device_index(0)

    def made(self, model, **options):
        from torch import nn

        import hetu.torch

        return hetu.torch.Pipeline(model, nn.MSELoss(), "zb-v", 2, **options)

    def test_device_of_the_model(self):
        import torch
        from torch import nn

        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.assertEqual(self.made(model).device, torch.device("cpu"))
        pipe = self.made(model.to("far:1"))
        self.assertEqual(pipe.device, torch.device("far:1"))
        self.assertGreater(pipe.step(torch.ones(4, 4), torch.zeros(4, 4, device="far:1")), 0)
        self.assertEqual(self.made(model, device="cpu").device, torch.device("cpu"))
        self.assertEqual(next(model.parameters()).device, torch.device("cpu"))
        self.assertEqual(self.made(model, device=1).device, torch.device("far:1"))
        self.assertEqual(self.made(model, device=torch.device("far")).device, torch.device("far:0"))

    def test_workers_in_threads(self):
        """Threads take the devices in turn, or share one. The generators stay unchanged."""
        import torch
        from torch import nn

        import hetu.torch

        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
        found = {}
        for device in ("cpu", "far:0", "far"):
            torch.manual_seed(2)
            model = [nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)]
            pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "1f1b", 2, devices="threads:2", device=device)
            optimizer = torch.optim.SGD(pipe.parameters(), lr=0.1)
            before = [torch.far.get_rng_state(n) for n in (0, 1)]
            losses = []
            for _ in range(2):
                losses.append(pipe.step(x, x))
                optimizer.step()
            self.assertTrue(all(torch.equal(torch.far.get_rng_state(n), before[n]) for n in (0, 1)), device)
            found[device] = losses, {str(p.device) for p in pipe.parameters()}
        self.assertEqual([losses for losses, _ in found.values()], 3 * [found["cpu"][0]])
        self.assertEqual([places for _, places in found.values()], [{"cpu"}, {"far:0"}, {"far:0", "far:1"}])

    def test_random_numbers_of_the_device(self):
        """A loss that draws random numbers on the device is noticed. Shape inference doesn't change the generator, even
        where a module runs on generated values."""
        import torch
        from torch import nn

        import hetu.torch

        class Branches(nn.Module):
            """A module whose branch depends on values."""

            def forward(self, x):
                return x if x.detach().sum().item() > 1e9 else x + 0 * torch.rand((), device=x.device)

        def loss(output, target):
            return nn.functional.mse_loss(output, target) + 0 * torch.rand((), device=output.device)

        for device in ("cpu", "far:1"):
            for pieces, by, draws in (([nn.Linear(4, 4), Branches(), nn.Linear(4, 4)], nn.MSELoss(), False),
                                      ([nn.Linear(4, 4), nn.Linear(4, 4)], loss, True)):
                pipe = hetu.torch.Pipeline(pieces, by, "zb-v", 2, device=device)
                before = [torch.far.get_rng_state(n) for n in (0, 1)]
                pipe.step(torch.ones(4, 4), torch.zeros(4, 4))
                with self.subTest(device=device, draws=draws):
                    self.assertTrue(all(torch.equal(torch.far.get_rng_state(n), before[n]) for n in (0, 1)))
                    self.assertEqual(pipe.loss.check.drawing, draws)

    def test_recorded_instructions_are_waited_for(self):
        """Recorded instructions wait for the device. Otherwise a trace would show the times at which the host submits work.
        """
        import torch

        from hetu.torch.device import StageDevice

        device = StageDevice(torch.device("far:0"))
        stream = torch.accelerator.current_stream()
        for records in (False, True):
            torch.ones(3, device="far")
            device.records = records
            device.end("F", 0)
            self.assertEqual(stream.query(), records)

    def test_parameters_of_the_loss_are_moved(self):
        import torch
        from torch import nn

        import hetu.torch

        loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 1.0, 1.0]))
        pipe = hetu.torch.Pipeline([nn.Linear(4, 4), nn.Linear(4, 4)], loss, "zb-v", 1, device="far")
        self.assertGreater(pipe.evaluate(torch.ones(4, 4), torch.tensor([0, 1, 2, 3])), 0)

    def test_threads_share_a_loss_with_tensors(self):
        """Tensors of a loss are moved to the device of the last stage, wherever that stage is."""
        import torch
        from torch import nn

        import hetu.torch

        def made(schedule, device, loss=None):
            torch.manual_seed(1)
            loss = loss or nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 1.0, 1.0]))
            return hetu.torch.Pipeline([nn.Linear(4, 4) for _ in range(4)], loss, schedule, 2, devices="threads:2",
                                       device=device)

        batch = torch.ones(4, 4), torch.tensor([0, 1, 2, 3])
        expected = made("1f1b", "cpu").step(*batch)
        for schedule, device in (("1f1b", "far"), ("zb-v", "far"), ("chimera", "far:1")):
            with self.subTest(schedule=schedule):
                self.assertAlmostEqual(made(schedule, device).step(*batch), expected, delta=1e-6)
        self.assertGreater(made("chimera", "far", nn.CrossEntropyLoss()).step(*batch), 0)
        with self.assertRaisesRegex(ValueError, "has tensors, and copies of the last stage are on far:0 and far:1"):
            made("chimera", "far")

    def test_refuses_in_one_line(self):
        import torch
        from torch import nn

        def model():
            return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

        mixed = model()
        mixed[1].to("far")
        x = torch.ones(4, 4)
        cases = [
            (lambda: self.made(model(), device="gpu"),
             r"device='gpu' is not a device of PyTorch; this machine has 2 device"),
            (lambda: self.made(model(), device="cuda"),
             r"device='cuda': this machine has 2 devices of type 'far', and 'cpu'"),
            (lambda: self.made(model(), device="meta"), r"device='meta': this machine has"),
            (lambda: self.made(model(), device="far:7"), r"device='far:7': this machine has 2 .*leave the number out"),
            (lambda: self.made(model(), device=3), r"device=3: this machine has 2 devices of type 'far'"),
            (lambda: self.made(model(), device=[1]), r"device=\[1\] is not a device"),
            (lambda: self.made(mixed), r"the model's '0.weight' is on cpu and '1.weight' on far:0: move the model"),
            (lambda: self.made(model()).step(x.to("far"), x), r"inputs: a tensor is on far:0, .* or choose a device"),
            (lambda: self.made(model(), device="far").step(x, x.to("far:1")), r"target: a tensor is on far:1"),
        ]
        for call, message in cases:
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message) as caught:
                call()
            self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main(verbosity=2)
