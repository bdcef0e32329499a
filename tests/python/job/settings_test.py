"""Settings that a script passes to a training are parsed by one rule, and unknown names are refused: averaging methods,
stragglers and devices."""
import re
import subprocess
import unittest
from unittest import mock

import numpy

import hetu as ht
from hetu import _hetu, averaging, training
from hetu.averaging import Averaging, Stragglers

SLOW = ["pipeline=0,factor=2", "worker=0,least=0.5", "pipeline=0,factor=2,least=1e-3", "least=1", "worker=0,least=-1",
        "worker=1,factor=1.5,from=100,to=300", " worker = 1 , factor = 2 ", "worker=0,factor=1e1",
        "", "factor=2", "worker=1", "pipeline=0,worker=1,factor=2", "worker=1,factor=2,factor=3", "worker=-1,factor=2",
        "worker=1.5,factor=2", "worker=1,factor=0", "worker=1,factor=-2", "worker=1,factor=nan", "worker=1,factor=inf",
        "worker=1,factor=1_0", "worker=1,factor=2,form=3", "worker=1;factor=2", "worker,factor=2"]


def job(**options):
    """Returns an Executor of one process. It parses settings before it does anything else."""
    ht.new_graph()
    batch = {"x": numpy.zeros((4, 3), numpy.float32), "label": numpy.zeros(4, numpy.int32)}
    data = ht.data.Batches([batch], batch_size=4)
    weight = ht.graph.parameter("w", [2, 3], ht.graph.normal(0.1))
    loss = ht.models.mean_cross_entropy(ht.ops.linear(data.x, weight), data.label, "label")
    return ht.Executor({"train": [loss, ht.optim.SGD(0.1).minimize(loss)]}, **options)


class Words(unittest.TestCase):
    def test_ways_to_average(self):
        for how, says in ((Averaging(method="gossip"), "unknown averaging method 'gossip'; known: preduce, adpsgd"),
                          (Averaging(weights="stale"), "unknown weighting 'stale'; known: uniform, staleness"),
                          (Averaging(), "needs at least 2 pipelines, but the job has 1")):
            with self.assertRaisesRegex(ValueError, says):
                job(pipeline="pipedream", averaging=how)

    def test_devices(self):
        self.assertEqual(job(device="cpu").device, "cpu")
        with self.assertRaisesRegex(ValueError, "device tpu: it must be one of auto, cuda, cpu, far"):
            job(device="tpu")

    @unittest.skipUnless(_hetu.cuda_problem(), "a GPU is here")
    def test_a_gpu_that_is_not_there(self):
        says = f"device cuda: {re.escape(_hetu.cuda_problem())}; .*use device cpu"
        with mock.patch("hetu.job.setup.resolve_device", lambda name, **_: name):  # pretends that CUDA is found
            with self.assertRaisesRegex(NotImplementedError, says):
                job(device="cuda")

    def test_what_is_no_device(self):
        """Only None selects the default device. An error explains values that PyTorch takes for the number of a GPU."""
        for wrong in (0, "", "gpu"):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "device"):
                job(device=wrong)

    def test_stragglers_are_read_by_one_rule(self):
        """The tool, the scripts and hetu.averaging accept and refuse the same stragglers."""
        taken = 0
        for text in SLOW:
            with self.subTest(text):
                tool = subprocess.run(["hetu", "simulate", "gpipe", "--stages", "2", "--micro-batches", "2", "--slow", text,
                                       "--format", "json"], capture_output=True, text=True, check=False)
                args = training.Parser()
                averaging.add_options(args)
                args.set_defaults(seed=0)
                given = args.parse_args(["--slow", text])
                if tool.returncode == 0:
                    (slow,) = averaging.stragglers_of(given).slow
                    again = ",".join(f"{key}={value}" for key, value in slow.items())
                    self.assertEqual(_hetu.slow_of(again), slow)
                    taken += 1
                    continue
                with self.assertRaises(ValueError) as refused:
                    averaging.stragglers_of(given)
                self.assertEqual(tool.stderr, f"hetu simulate: {refused.exception}\n")
        self.assertEqual(taken, 6)
        self.assertIsNotNone(job(stragglers=Stragglers(slow=[{"worker": 0, "factor": 1}])))
        for slow, says in (({"wroker": 0, "factor": 2}, "slow 'wroker=0,factor=2': unknown 'wroker'"),
                           ({"worker": 0, "factor": "x"}, "factor: expected a finite number"),
                           ({"worker": 0}, "needs a pipeline or a worker")):
            with self.assertRaisesRegex(ValueError, says):
                job(stragglers=Stragglers(slow=[slow]))
        for slow in ("worker=1,factor=3", ["worker=1,factor=3"], {"worker": 1, "factor": 3}, 3):
            wanted = r'slow: expected a list of dicts, such as \[\{"pipeline": 1, "factor": 2\}\], got '
            with self.assertRaisesRegex(ValueError, wanted):
                job(stragglers=Stragglers(slow=slow))

    def test_constants_of_groups(self):
        defaults = _hetu.group_constants("")
        self.assertEqual(defaults, {name: getattr(Averaging(), name) for name in defaults})
        self.assertEqual(_hetu.group_constants("wait=0.5,late_us=7"), {**defaults, "wait": 0.5, "late_us": 7})
        for text, says in (("wiat=1", "--group-options: unknown 'wiat'"), ("late_us=1.5", "late_us: expected a whole"),
                           ("wait=-1", "wait: expected a finite number"), ("wait", "expected KEY=VALUE, got 'wait'"),
                           ("wait=1,wait=2", "'wait' is given twice")):
            with self.assertRaisesRegex(ValueError, says):
                _hetu.group_constants(text)

    def test_options_without_what_they_belong_to(self):
        for words, says in ((["--no-overlap"], "--no-overlap belongs to --preduce, --adpsgd and --adpsgd lockstep"),
                            (["--pair-above", "4"], "--pair-above belongs to --preduce, --adpsgd and --adpsgd lockstep"),
                            (["--adpsgd", "--sync-period", "5"], "--sync-period belongs to --preduce: AD-PSGD")):
            parser = training.Parser()
            averaging.add_options(parser)
            with self.assertRaisesRegex(ValueError, says):
                averaging.averaging_of(parser.parse_args(words))


if __name__ == "__main__":
    unittest.main(verbosity=2)
