#!/usr/bin/env python3
"""The simulated accelerator of tests/torch_device notices the mistakes for which the tests of hetu.torch use it.

A mistake is a host access to device memory, or a result that is read too early. Skipped where PyTorch isn't installed."""

import signal
import subprocess
import sys
import unittest
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "torch_device"


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Device(unittest.TestCase):
    """The device "far" by itself."""

    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(FOLDER))
        import far

        far.load()

    def test_is_an_accelerator(self):
        import torch

        self.assertEqual(torch.accelerator.current_accelerator(), torch.device("far"))
        self.assertEqual(torch.accelerator.device_count(), 2)
        torch.accelerator.set_device_index(1)
        self.assertEqual(torch.ones(2, device="far").device, torch.device("far", 1))
        torch.accelerator.set_device_index(0)
        self.assertEqual(torch.ones(2, device="far:1").to("far:0").sum().item(), 2)

    def test_host_access_is_a_segmentation_fault(self):
        """Access by an address or through a NumPy array of the tensor fails."""
        script = f"""
import ctypes, sys
sys.path.insert(0, {str(FOLDER)!r})
import far
far.load()
import torch
value = torch.ones(3, device="far")
torch.accelerator.synchronize()
print("before", value.cpu().tolist(), flush=True)
print(ctypes.c_float.from_address(value.data_ptr()).value)
"""
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        self.assertEqual(run.returncode, -signal.SIGSEGV, run.stdout + run.stderr)
        self.assertEqual(run.stdout, "before [1.0, 1.0, 1.0]\n")
        import torch

        with self.assertRaisesRegex(TypeError, "far"):
            torch.ones(3, device="far").numpy()

    def test_result_that_is_read_too_early_is_old(self):
        """Without a wait, the pinned copy still holds old data. Waiting for an event makes it complete."""
        import torch

        host = torch.zeros(1000, pin_memory=True)
        self.assertTrue(host.is_pinned())
        value = torch.ones(1000, device="far") + 1
        host.copy_(value, non_blocking=True)
        self.assertEqual(host.sum().item(), 0)
        event = torch.Event("far")
        event.record()
        event.synchronize()
        self.assertEqual(host.sum().item(), 2000)

    def test_source_that_is_overwritten_too_early_is_lost(self):
        """An asynchronous upload reads pinned memory when it runs."""
        import torch

        host = torch.ones(1000, pin_memory=True)
        value = host.to("far", non_blocking=True)
        host.zero_()
        self.assertEqual(value.sum().item(), 0)

    def test_streams_wait_only_where_asked(self):
        import torch

        value = torch.zeros(10, device="far")
        torch.accelerator.synchronize()
        side = torch.Stream("far")
        self.assertNotEqual(side, torch.accelerator.current_stream())
        value.add_(1)
        with side:
            early = value.cpu()
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            late = value.cpu()
        self.assertEqual((early.sum().item(), late.sum().item()), (0, 10))

    def test_freed_memory_is_not_a_number(self):
        """A tensor that another stream still reads needs record_stream."""
        import torch

        def read(recorded):
            value = torch.ones(1000, device="far")
            out = torch.empty(1000, pin_memory=True)
            side = torch.Stream("far")
            side.wait_stream(torch.accelerator.current_stream())
            with side:
                out.copy_(value, non_blocking=True)
            if recorded:
                value.record_stream(side)
            del value
            torch.accelerator.current_stream().synchronize()  # before the side stream starts
            side.synchronize()
            return out

        self.assertTrue(read(recorded=False).isnan().all())
        self.assertEqual(read(recorded=True).sum().item(), 1000)

    def test_random_numbers_come_from_its_own_generators(self):
        import torch

        torch.manual_seed(1)
        expected = torch.randn(5)
        torch.far.manual_seed_all(1)
        before = torch.get_rng_state()
        self.assertTrue(torch.equal(torch.randn(5, device="far").cpu(), expected))
        self.assertTrue(torch.equal(torch.get_rng_state(), before))
        own = torch.Generator("far").manual_seed(1)
        self.assertTrue(torch.equal(torch.randn(5, device="far", generator=own).cpu(), expected))
        state = torch.far.get_rng_state()
        first = torch.nn.functional.dropout(torch.ones(100, device="far"))
        torch.far.set_rng_state(state)
        self.assertTrue(torch.equal(torch.nn.functional.dropout(torch.ones(100, device="far")), first))

    def test_is_saved_and_loaded(self):
        """torch.save works, and torch.load can use another device."""
        import io

        import torch

        file = io.BytesIO()
        torch.save({"value": torch.arange(5.0, device="far:1")}, file)
        for place, expected in ((None, "far:1"), ("cpu", "cpu")):
            file.seek(0)
            value = torch.load(file, map_location=place, weights_only=True)["value"]
            self.assertEqual((value.device, value.tolist()), (torch.device(expected), [0, 1, 2, 3, 4]))

    def test_trains_as_the_cpu(self):
        """Training equals the CPU's: forward, backward on the engine's own thread, and an optimizer."""
        import copy

        import torch
        from torch import nn

        torch.manual_seed(1)
        plain = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.BatchNorm1d(16), nn.Linear(16, 8))
        on_device = copy.deepcopy(plain)
        known = [id(p) for p in on_device.parameters()]
        on_device.to("far")
        self.assertEqual([id(p) for p in on_device.parameters()], known)
        losses = []
        for model, device in ((plain, "cpu"), (on_device, "far")):
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            draw = torch.Generator().manual_seed(2)
            for _ in range(3):
                x = torch.randn(6, 8, generator=draw).to(device)
                loss = ((model(x) - x) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        self.assertEqual(losses[:3], losses[3:])
        for name, value in plain.state_dict().items():  # including the statistics of BatchNorm
            self.assertTrue(torch.equal(value, on_device.state_dict()[name].cpu()), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
