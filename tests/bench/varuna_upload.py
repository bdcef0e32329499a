"""Measures the delay of steps by Varuna's background checkpoint. Two workers, with one stage each.

    heturun -w 2 python3 tests/bench/varuna_upload.py [MIB] [TURNS]   # 60 MiB per worker with Adam's states, 12 turns

A turn has some steps during an upload, and as many without one, in alternating order. Prints the medians of both, the median
of the ratios of adjacent measurements, and the number of steps that an upload lasted. Goal (spec of Varuna, 12.8): at most 5
%."""

import statistics
import sys
import tempfile
import time

import torch
from torch import nn

from hetu.varuna import CutPoint, Varuna

WIDTH, ROWS, CHUNK, STEPS = 512, 256, 32, 2


class Model(nn.Module):
    """Products with a CutPoint in the middle."""

    def __init__(self, products):
        super().__init__()
        self.first = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(products)])
        self.cut = CutPoint()
        self.last = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(products)])

    def forward(self, x, y):
        """Returns the loss."""
        return nn.functional.mse_loss(self.last(self.cut(self.first(x))), y)


def batch_of(rows, device):
    """Returns a batch of ones."""
    return {"x": torch.ones(rows, WIDTH, device=device), "y": torch.zeros(rows, WIDTH, device=device)}


def main():
    """Prints the figures."""
    mib, turns = (int(word) for word in (*sys.argv[1:], *("60", "12")[len(sys.argv) - 1:]))
    torch.manual_seed(1)
    model = Varuna(Model(max(1, mib // 3)), "0;1;", batch_of, ROWS, CHUNK)  # a product and its two states: 3 MiB
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model.set_optimizer(optimizer)
    batch = batch_of(ROWS, "cpu")

    def steps():
        start = time.perf_counter()
        for _ in range(STEPS):
            model.step(batch)
            optimizer.step()
            model.zero_grad()
        return (time.perf_counter() - start) / STEPS

    steps()
    quiet, busy, lasted, saved = [], [], [], []
    with tempfile.TemporaryDirectory() as store, tempfile.TemporaryDirectory() as here:
        for turn in range(turns):
            for upload in (turn % 2 == 0, turn % 2 == 1):
                if not upload:
                    quiet.append(steps())
                    continue
                start = time.perf_counter()
                done = model.checkpoint(store, step=turn, tempdir=here)
                saved.append(time.perf_counter() - start)
                start = time.perf_counter()
                ended = []
                done.add_done_callback(lambda _, at=start, ended=ended: ended.append(time.perf_counter() - at))
                busy.append(steps())
                done.result()
                lasted.append(ended[0])
        if model.pipe.transport.worker == 0:
            ratio = statistics.median(b / q for b, q in zip(busy, quiet, strict=True))
            print(f"a step {statistics.median(quiet):.3f} s, while an upload goes on {statistics.median(busy):.3f} s; "
                  f"ratio {ratio:.3f}; an upload took {statistics.median(lasted):.3f} s, what comes before it "
                  f"{statistics.median(saved):.3f} s", flush=True)
        model.pipe.state.agreed("done")


main()
