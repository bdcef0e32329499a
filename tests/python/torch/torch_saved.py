"""Shared parts of the tests of hetu.torch's checkpoints: a folder, small trainings in one process, and the state that a load
changes."""

import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

HAS_TORCH = find_spec("torch") is not None
if HAS_TORCH:
    import torch
    from torch import nn

    import hetu.torch


def values(pipe, optimizer):
    """Returns all values that a load changes."""
    out = {name: tensor.clone() for name, tensor in pipe.state_dict().items()}
    for name, parameter in pipe.named_parameters():
        out |= {f"{name}/{key}": value.clone() for key, value in optimizer.state.get(parameter, {}).items()}
    return out | {"steps": torch.tensor(pipe.steps), "lr": torch.tensor(optimizer.param_groups[0]["lr"])}


def equal(one, other):
    """Returns True if two such values have the same bits."""
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


@unittest.skipUnless(HAS_TORCH, "PyTorch is not there: ./run torch installs it")
class CheckpointCase(unittest.TestCase):
    """A test with a folder and small trainings in one process."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name, "kept")

    def made(self, seed=1, rule=None, layers=4, width=8, norms=True):
        torch.manual_seed(seed)
        pieces = [nn.Linear(width, width) for _ in range(layers)]
        if norms:
            pieces[1] = nn.Sequential(pieces[1], nn.BatchNorm1d(width))
        pipe = hetu.torch.Pipeline(pieces, nn.MSELoss(), "zb-v", 2)
        optimizer = (rule or (lambda p: torch.optim.AdamW(p, lr=0.01 * seed)))(pipe.parameters())
        for _ in range(seed):
            x = torch.randn(4, width)
            pipe.step(x, -x)
            optimizer.step()
        return pipe, optimizer

    def step_folder(self):
        (found,) = self.folder.glob("step-*")
        return found

    def refused(self, pattern, call, kind=OSError):
        with self.assertRaisesRegex(kind, pattern) as caught:
            call()
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)
