"""hetu.torch between two hosts, started by torchrun on each. Results equal one process. Covers models without memory, and
errors of one line on both hosts (another PyTorch, other weights, a part of the checkpoint that one host lacks).

Skipped, with the reason, without the right to make namespaces and without PyTorch."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec

import two_hosts

ROOT = pathlib.Path(__file__).resolve().parents[2]
PORT = 29531
SEED = 7
CASES = {"zb-h1": "bits True", "bad": "BAD ", "empty": "EMPTY "}
MOST_S = 300


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Torchrun(unittest.TestCase):
    """One worker on each host."""

    @classmethod
    def setUpClass(cls):
        if reason := two_hosts.problem():
            raise unittest.SkipTest(reason)

    def test_trains_and_refuses(self):
        """torchrun's agent on w0 holds MASTER_PORT, so its workers meet at another port."""
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        hosts = stack.enter_context(two_hosts.TwoHosts(pathlib.Path(folder, "hosts")))
        env = {**os.environ, "HETU_JOB_SECRET": "a secret that nobody guesses", "OMP_NUM_THREADS": "1"}
        agents = []
        for number, host in enumerate(two_hosts.ADDRESS):
            words = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", number,
                     "--nproc-per-node", "1", "--master-addr", two_hosts.ADDRESS["w0"], "--master-port", PORT,
                     ROOT / "tests" / "python" / "torch" / "torch_worker.py", folder, SEED, *CASES]
            agents.append(subprocess.Popen(hosts.inside(host, *words, cwd=folder), env=env, text=True,
                                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            self.addCleanup(lambda process=agents[-1]: process.poll() is None and process.kill())
        said = [agent.communicate(timeout=MOST_S) for agent in agents]
        self.assertEqual([agent.returncode for agent in agents], [0, 0], said)
        for out, err in said:
            for text, count in zip(CASES.values(), (1, 14, 3), strict=True):  # the counts of torch_bad.py
                self.assertEqual(out.count(text), count, out + err)


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason for a skip
