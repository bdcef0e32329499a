#!/usr/bin/env python3
"""hetu.torch.Pipeline(sums="tree"): the same bits for every schedule, number of stages and number of pipelines, compared
with one worker.

Skipped where PyTorch is not installed (`./run torch`)."""

import subprocess
import sys
import unittest
from importlib.util import find_spec
from pathlib import Path

FAR = "--far"  # trains on the pretend accelerator, and prints one line per layout that agrees with one worker
WIDTH, WORDS, ROWS, STEPS = 6, 11, 24, 5  # ROWS: of all pipelines


def make_model(tied):
    """Returns layers with an embedding, dropout, and a parameter that no step uses. With `tied`, the last layer uses the
    table of the first."""
    import torch
    from torch import nn

    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return self.layer(x)

    class Head(nn.Module):
        def __init__(self, table):
            super().__init__()
            self.weight = table

        def forward(self, x):
            return x @ self.weight.t()

    torch.manual_seed(3)
    table = nn.Embedding(WORDS, WIDTH)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH), nn.Dropout(0.1)) for _ in range(7)]
    head = Head(table.weight if tied else nn.Parameter(table.weight.detach().clone()))
    return nn.Sequential(table, *layers[:3], Unused(), *layers[3:], head)


def train(schedule, workers, pipelines, micros, tied=False, rows=ROWS, **options):
    """Trains STEPS steps, and returns everything that must be equal. The third step adds to the gradients of the second, and
    one layer is frozen in the fourth. The last loss is that of an evaluation."""
    import torch
    from torch import nn

    import hetu.torch

    model = make_model(tied)
    pipe = hetu.torch.Pipeline(model, nn.CrossEntropyLoss(), schedule, micros, pipelines=pipelines,
                               devices=f"threads:{workers}", sums=options.pop("sums", "tree"), **options)
    optimizer = torch.optim.AdamW(pipe.parameters(), lr=0.02)
    draw = torch.Generator().manual_seed(4)
    seen = []
    for step in range(STEPS):
        model[2][0].requires_grad_(step != 3)
        ids = torch.randint(WORDS, (rows, 3), generator=draw)
        target = torch.randint(WORDS, (rows, 3), generator=draw)
        loss = pipe.step(ids.flatten(), target.flatten(), accumulate=step == 2)
        if step == 1:
            continue
        seen.append((loss, float(pipe.clip_grad_norm_(0.5)), model[4].other.weight.grad))
        optimizer.step()
    seen.append(pipe.evaluate(ids.flatten(), target.flatten()))
    return seen, {name: tensor.clone() for name, tensor in pipe.state_dict().items()}


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Sums(unittest.TestCase):
    """Trainings by threads of this process."""

    def check(self, one, other, **case):
        """Compares two trainings, bit by bit."""
        import torch

        with self.subTest(**case):
            self.assertEqual(one[0], other[0])
            self.assertEqual(one[1].keys(), other[1].keys())
            different = [name for name, tensor in one[1].items() if not torch.equal(tensor, other[1][name])]
            self.assertEqual(different, [])

    def test_every_layout_has_the_bits_of_one_worker(self):
        alone = {total: train("gpipe", 1, 1, total) for total in (8, 12)}
        cases = [("1f1b", 2, 1, 8), ("zb-h1", 4, 1, 12), ("zb-v", 2, 1, 8), ("looped-bfs", 2, 1, 8), ("1f1b", 2, 2, 4),
                 ("gpipe", 3, 3, 4), ("1f1b", 4, 4, 3), ("chimera", 4, 1, 8), ("chimera", 4, 2, 4), ("zb-v", 4, 2, 6),
                 ("gems", 2, 1, 12), ("gems", 1, 1, 12), ("gems", 3, 1, 12), ("dualpipe", 4, 1, 12),
                 ("interleaved-1f1b", 4, 2, 4)]
        for schedule, workers, pipelines, micros in cases:
            found = train(schedule, workers, pipelines, micros)
            self.check(alone[pipelines * micros], found, schedule=schedule, workers=workers, pipelines=pipelines)

    def test_whole_batches_of_any_number_of_samples(self):
        """With whole_batches=True, the micro-batches don't depend on the pipelines, even where they differ in size."""
        alone = train("gpipe", 1, 1, 8, rows=23)
        for schedule, workers, pipelines, micros in (("1f1b", 2, 2, 4), ("1f1b", 8, 4, 2), ("zb-v", 2, 1, 8),
                                                     ("gpipe", 8, 8, 1)):
            found = train(schedule, workers, pipelines, micros, rows=23, whole_batches=True)
            self.check(alone, found, schedule=schedule, workers=workers, pipelines=pipelines)

    def test_a_tied_parameter_on_two_stages(self):
        """Autograd adds two uses on one stage before the gradient is seen. So the reference has them on two stages."""
        two = train("gpipe", 2, 1, 8, tied=True)
        for schedule, workers, pipelines, micros in (("1f1b", 4, 1, 8), ("zb-v", 2, 1, 8), ("1f1b", 4, 2, 4),
                                                     ("chimera", 4, 2, 4), ("zb-h1", 8, 2, 4), ("1f1b", 8, 4, 2)):
            self.check(two, train(schedule, workers, pipelines, micros, tied=True), schedule=schedule, workers=workers)

    def test_sharded_optimizers(self):
        alone = train("gpipe", 1, 1, 8)
        for schedule, workers, pipelines, micros in (("1f1b", 4, 2, 4), ("chimera", 4, 1, 8)):
            self.check(alone, train(schedule, workers, pipelines, micros, shard_optimizer=True), schedule=schedule)

    def test_the_order_matters_and_agrees_with_the_running_sum(self):
        import torch

        tree, running = train("gpipe", 1, 1, 8), train("gpipe", 1, 1, 8, sums="running")
        self.assertTrue(any(not torch.equal(tensor, running[1][name]) for name, tensor in tree[1].items()))
        for (loss, norm, unused), (other_loss, other_norm, _) in zip(tree[0][:-1], running[0][:-1], strict=True):
            self.assertAlmostEqual(loss, other_loss, delta=1e-5)
            self.assertAlmostEqual(norm, other_norm, delta=1e-3)
            self.assertIsNone(unused)

    def test_an_accelerator(self):
        """Partial sums stay on the device, and are added with those of other workers in host memory."""
        run = subprocess.run([sys.executable, __file__, FAR], capture_output=True, text=True, check=False)
        self.assertEqual(run.stdout, "1f1b agrees\nchimera agrees\nzb-v agrees\n", run.stderr)

    def test_what_it_refuses(self):
        import torch
        from torch import nn

        import hetu.torch

        def pipe(**options):
            return hetu.torch.Pipeline(make_model(True), nn.CrossEntropyLoss(), "1f1b", 2, devices="threads:2", **options)

        with self.assertRaisesRegex(ValueError, "sums='exact' is not known; choose 'running' or 'tree'"):
            pipe(sums="exact")
        with self.assertRaisesRegex(ValueError, "leave averaging= or sums= out"):
            hetu.torch.Pipeline(make_model(True), nn.CrossEntropyLoss(), "1f1b", 2, sums="tree", averaging="preduce")
        with self.assertRaisesRegex(ValueError, "leave averaging= or whole_batches= out"):
            hetu.torch.Pipeline(make_model(True), nn.CrossEntropyLoss(), "1f1b", 2, whole_batches=True, averaging="preduce")
        with self.assertRaisesRegex(ValueError, "a batch of 3 samples for 4 micro-batches of all pipelines"):
            pipe(pipelines=2, whole_batches=True).step(torch.zeros(3, dtype=torch.long), torch.zeros(3, dtype=torch.long))
        hooked = pipe(sums="tree")
        next(hooked.parameters()).register_post_accumulate_grad_hook(lambda parameter: None)
        with self.assertRaisesRegex(ValueError, "'0.weight' has a hook of register_post_accumulate_grad_hook"):
            hooked.step(torch.zeros(4, dtype=torch.long), torch.zeros(4, dtype=torch.long))


def train_far():
    """Implements FAR."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "torch_device"))
    import far

    far.load()
    import torch

    alone = train("gpipe", 1, 1, 8, device="far")
    for schedule, workers, pipelines, micros in (("1f1b", 4, 2, 4), ("chimera", 4, 1, 8), ("zb-v", 4, 2, 4)):
        found = train(schedule, workers, pipelines, micros, device="far")
        agrees = found[0] == alone[0] and all(torch.equal(t.cpu(), alone[1][name].cpu()) for name, t in found[1].items())
        print(schedule, "agrees" if agrees else "differs")


if __name__ == "__main__":
    if FAR in sys.argv:
        train_far()
    else:
        unittest.main(verbosity=2)
