#!/usr/bin/env python3
"""The backward steps I and W of random graphs, compared with one backward of PyTorch: gradients of inputs and parameters of
any structure.

Between I and W, the test creates and frees nodes of other graphs, as other micro-batches do. W must still use its own nodes.
Skipped where PyTorch is not installed (`./run torch`). --seed N selects other graphs."""

import os
import subprocess
import sys
import unittest
from importlib.util import find_spec

SEED = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 11
GRAPHS, WIDTH = 80, 3


class Drawn:
    """A random graph of operations with one and two results. The same seed gives the same graph."""

    def __init__(self, seed):
        import torch

        self.draw = torch.Generator().manual_seed(seed)
        self.inputs = [self._leaf() for _ in range(self._number(1, 3))]
        self.parameters = [self._leaf() for _ in range(self._number(1, 4))]
        values = [*self.inputs, *self.parameters]
        for _ in range(self._number(2, 14)):
            values += self._operation(values)
        grown = values[len(self.inputs) + len(self.parameters):]
        self.roots = grown[-self._number(1, 3):]
        self.gradients = [torch.randn(root.shape, generator=self.draw, dtype=root.dtype) for root in self.roots]

    def _number(self, least, most):
        import torch

        return int(torch.randint(least, most + 1, (), generator=self.draw))

    def _leaf(self):
        import torch

        return torch.randn(WIDTH, WIDTH, generator=self.draw, dtype=torch.float64).requires_grad_()

    def _operation(self, values):
        import torch

        a, b = values[self._number(0, len(values) - 1)], values[self._number(0, len(values) - 1)]
        kind = self._number(0, 5)
        if kind == 0:
            return [a @ b / WIDTH]
        if kind == 1:
            return [torch.tanh(a)]
        if kind == 2:
            return [a * b]
        if kind == 3:
            return [torch.nn.functional.linear(a, b, b[0])]  # a broadcast bias
        if kind == 4:
            spread, middle = torch.var_mean(a, dim=0)  # one node, two results
            return [spread + b, middle - b]
        return list(torch.stack([a, b]).unbind())  # another node with two results


def other_graphs(count):
    """Returns nodes with the addresses of freed nodes, if there are any."""
    import torch

    leaf = torch.ones(2, requires_grad=True)
    kept = []
    for _ in range(count):
        node = torch.tanh(leaf * 2).grad_fn
        while node is not None:
            kept.append(node)
            node = node.next_functions[0][0] if node.next_functions else None
    return kept


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class SplitBackward(unittest.TestCase):
    """DeferredGradients alone, in this process."""

    def test_random_graphs(self):
        """I and W together give the gradients of one backward. Parameters that don't reach a root have no gradient."""
        import torch

        from hetu.torch.split_backward import DeferredGradients

        reached = 0
        for seed in range(SEED, SEED + GRAPHS):
            whole, halves = Drawn(seed), Drawn(seed)
            torch.autograd.backward(whole.roots, whole.gradients)
            deferred = DeferredGradients(halves.roots, halves.gradients, halves.inputs)
            for leaf in halves.parameters:
                self.assertIsNone(leaf.grad, f"seed {seed}: I has added to a parameter")
            others = other_graphs(40)
            deferred.run()
            found = [*deferred.of_inputs, *(leaf.grad for leaf in halves.parameters)]
            for number, (got, leaf) in enumerate(zip(found, [*whole.inputs, *whole.parameters], strict=True)):
                with self.subTest(seed=seed, leaf=number):
                    self.assertEqual(got is None, leaf.grad is None)
                    if got is not None:
                        torch.testing.assert_close(got, leaf.grad, rtol=1e-10, atol=1e-10)
                        reached += 1
            self.assertGreater(len(others), 40)
        self.assertGreater(reached, 2 * GRAPHS)

    def test_lets_go_of_the_graph(self):
        """After W, no node and no tensor is referenced, so that memory is freed with the micro-batch."""
        from hetu.torch.split_backward import DeferredGradients

        drawn = Drawn(SEED)
        deferred = DeferredGradients(drawn.roots, drawn.gradients, drawn.inputs)
        deferred.run()
        held = [name for name, value in vars(deferred).items()
                if name != "of_inputs" and value not in ([], {}, ([], []), ())]
        self.assertEqual(held, [])

    def test_memory_stays(self):
        """Once there is a Pipeline, malloc reuses a freed block without new pages from the kernel. The environment can
        override this."""
        script = (
            "import resource, torch, hetu.torch\n"
            "def faults():\n"
            "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
            "    torch.empty(2**24).fill_(1)\n"
            "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
            "first = faults(), faults()\n"
            "hetu.torch.Pipeline([torch.nn.Linear(2, 2)] + [torch.nn.Linear(2, 2)], torch.nn.MSELoss(), 'zb-v', 2)\n"
            "print(first[1], max([faults() for _ in range(30)][-5:]))\n")
        # The first allocations may be new. A freed block can lack the few bytes for the next block's alignment, while the
        # adjacent chunk with these bytes is in malloc's cache of small chunks, which holds seven of a size.
        for told, kept in (({}, True), ({"MALLOC_TRIM_THRESHOLD_": "131072"}, False)):
            environment = {name: value for name, value in os.environ.items()
                           if not name.startswith("MALLOC_") and name != "GLIBC_TUNABLES"}
            run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300,
                                 env={**environment, **told})
            self.assertEqual(run.returncode, 0, run.stderr)
            before, after = map(int, run.stdout.split())
            with self.subTest(told=told):
                # 64 MiB: 16384 pages of 4 KiB, or 32 large ones.
                self.assertGreater(before, 30)
                self.assertEqual(after < 0.1 * before, kept, run.stdout)


if __name__ == "__main__":
    if "--seed" in sys.argv:
        at = sys.argv.index("--seed")
        del sys.argv[at:at + 2]
    print(f"seed {SEED}", flush=True)
    unittest.main(verbosity=2)  # prints the reason for a skip
