"""Blocks of T5 and OPT equal those of transformers in names, outputs and gradients. The reference values are in
tests/fixtures/blocks.json, written by make_block_fixture.py."""

import json
import unittest
from pathlib import Path

import numpy as np

import block_cases as cases
import hetu as ht
from bert_cases import digest, worst
from hetu import _hetu
from hetu.models.t5 import bucket_of

FIXTURE = json.loads((Path(__file__).resolve().parents[2] / "fixtures" / "blocks.json").read_text())["cases"]


def block_of(name):
    """Returns the module of a case."""
    family, config = cases.CASES[name]
    if family == "opt":
        return ht.models.OptLayer(ht.models.OptConfig(**config))
    more = {n: v for n, v in config.items() if n != "is_decoder"}
    return ht.models.T5Block(ht.models.T5Config(**more), is_decoder=config["is_decoder"])


def run(name, floats="float32", kernels="best"):
    """Returns the results like make_block_fixture.run. Inputs are parameters here, so that they have gradients."""
    graph, block, given = ht.new_graph(), block_of(name), cases.inputs(name)
    values = {n: ht.parameter(n, list(x.shape), ht.init.zeros()) for n, x in given.items()}
    more = [values["memory"]] if "memory" in values else []
    total = (block(values["x"], *more) * values["factor"]).sum()
    graph.builder.differentiate(total.number)
    weights = {n: cases.drawn(n, tuple(p.shape)) for n, p in block.named_parameters()}
    leaves = {n: np.asarray(x, np.float64).ravel() for n, x in {**given, **weights}.items()}
    found = _hetu.evaluate(graph.builder.finish(), 1, leaves, floats, kernels)["gradients"]
    return {"y": found.pop("factor"), "slopes": {n: digest(n, g) for n, g in found.items()}}


class BlocksEqualTransformers(unittest.TestCase):
    def test_every_case(self):
        self.assertEqual(set(FIXTURE), set(cases.CASES))
        for name, theirs in FIXTURE.items():
            with self.subTest(name):
                ours = run(name)
                apart = float(np.abs(ours["y"] - np.array(theirs["y"])).max())
                self.assertLess(apart, 1e-5)
                self.assertEqual(set(ours["slopes"]), set(theirs["slopes"]))
                error, where = worst(ours["slopes"], theirs["slopes"])
                self.assertLess(error, 3e-5, where)
                print(f"{name}: outputs {apart:.1e} apart, slopes {error:.1e}", flush=True)


class Parts(unittest.TestCase):
    def test_buckets_of_t5(self):
        """Source: Raffel et al. 2020, section 2.1: 32 buckets; the last holds all distances above 128, and half of them are
        exact."""
        self.assertEqual([bucket_of(d, True, 32, 128) for d in (0, -1, 1, -7, 7, -8, 8, -127, 127, -5000, 5000)],
                         [0, 1, 17, 7, 23, 8, 24, 15, 31, 15, 31])
        self.assertEqual([bucket_of(d, False, 32, 128) for d in (5, 0, -1, -15, -16, -127, -5000)],
                         [0, 0, 1, 15, 16, 31, 31])

    def test_what_is_wrong_is_said(self):
        for says, make in [("100 is not divisible by 12", lambda: ht.models.OptConfig(hidden_size=100)),
                           ("d_model", lambda: ht.models.T5Config(d_model=0))]:
            with self.assertRaisesRegex(ValueError, says):
                make()


if __name__ == "__main__":
    unittest.main()
