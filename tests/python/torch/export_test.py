#!/usr/bin/env python3
"""Loads the files of `hetu plan --export`: PyTorch's runtime loads the schedules, bash the arguments, and Python the stages.

The tests with PyTorch are skipped where it is not installed (`./run torch`)."""

import json
import runpy
import subprocess
import sys
import tempfile
import types
import unittest
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import hetu
from torch_plans import dry_run, load

METHODS = ("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "hanayo", "zb-h1", "zb-h2", "zb-v", "v-half", "interleaved-zb",
           "dualpipev")
BLOCKS = 10


def costs() -> dict[str, Any]:
    blocks = [{"forward": 1 + 0.1 * b, "input_grad": 1.0, "weight_grad": 1.0, "bytes_out": 100, "weight_bytes": 100}
              for b in range(BLOCKS)]
    return {"stages": [{}], "blocks": blocks, "link": {"latency": 0.05, "bandwidth": 1e5}}


class Files(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="hetu-export-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "costs.json").write_text(json.dumps(costs()))

    def plan(self, method: str, export: str, chunks: int = 2) -> dict[str, Any]:
        """Writes the files of a plan on two workers, and returns the plan. chunks: of methods that take chunks."""
        answer = hetu.schedule.plan(costs=str(self.folder / "costs.json"), workers=2, stages=[2], global_batch=8,
                                    micro_batch_sizes=[1], methods=[method], export=[export], chunks=[chunks],
                                    blocks_are="embedding,layers,head")
        for name, text in answer["exports"].items():
            (self.folder / name).write_text(text)
        return dict(answer["plan"])

    @unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
    def test_pytorch_loads_the_schedules(self) -> None:
        for method in METHODS:
            with self.subTest(method):
                plan = self.plan(method, "torch")
                table = json.loads((self.folder / "torch_stages.json").read_text())
                stages = table["stages"]
                loaded: Any = load(self.folder / table["schedule"], 2, len(stages), table["micro_batches"], "compute_comms")
                dry_run(loaded)
                self.assertEqual({s["stage"]: s["rank"] for s in stages}, loaded.stage_index_to_group_rank)
                self.assertEqual([s["first_block"] for s in stages], plan["first_block"])
                self.assertEqual(sum(s["blocks"] for s in stages), BLOCKS)

    @unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
    def test_pytorch_has_the_classes_or_loads_the_file_that_torchtitan_gets(self) -> None:
        from torch.distributed.pipelining.schedules import get_schedule_class
        for method in METHODS:
            with self.subTest(method):
                self.plan(method, "torchtitan")
                words = self.array("torchtitan.sh", SEQ_LEN="128")
                given = dict(pairwise(words))
                get_schedule_class(given["--parallelism.pipeline_parallel_schedule"])
                parts = runpy.run_path(str(self.folder / "torchtitan_stages.py"))["MODULE_FQNS_PER_MODEL_PART"]
                names = [name for part in parts for name in part]
                self.assertEqual(names, ["tok_embeddings", *(f"layers.{i}" for i in range(BLOCKS - 2)), "norm", "lm_head"])
                self.assertEqual(given["--training.num_tokens_per_microbatch_per_dp_rank"], "128")
                file = given.get("--parallelism.pipeline_parallel_schedule_csv")
                if file:
                    dry_run(load(self.folder / file, 2, len(parts), 8))

    def test_placements_that_torchtitan_lacks_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "hanayo with 4 chunks does neither; try .*chunks"):
            self.plan("hanayo", "torchtitan", chunks=4)

    def array(self, script: str, **environment: str) -> list[str]:
        """Returns the words that bash reads from a script's array."""
        command = f"source {script} && printf '%s\\n' \"${{PIPELINE_ARGS[@]}}\""
        return subprocess.run(["bash", "-c", command], cwd=self.folder, capture_output=True, text=True, check=True,
                              env=environment).stdout.splitlines()

    def test_bash_reads_the_arguments_of_megatron(self) -> None:
        plan = self.plan("interleaved-1f1b", "megatron")
        words = self.array("megatron.sh")
        self.assertEqual(words[:3], ["--pipeline-model-parallel-size", "2", "--pipeline-model-parallel-layout"])
        self.assertEqual(words[3].count("|") + 1, len(plan["first_block"]))
        self.assertEqual(words[4:], ["--micro-batch-size", "1", "--global-batch-size", "8"])

    def test_deepspeed_gets_one_layer_per_stage(self) -> None:
        """The file runs with a stand-in for DeepSpeed, which is not installed here."""
        plan = self.plan("1f1b", "deepspeed")
        deepspeed, pipe = types.ModuleType("deepspeed"), types.ModuleType("deepspeed.pipe")
        pipe.__dict__.update(LayerSpec=lambda *given: given, PipelineModule=lambda **given: given)
        torch = types.ModuleType("torch")
        torch.__dict__["nn"] = types.SimpleNamespace(Sequential=object)
        stand_ins = {"deepspeed": deepspeed, "deepspeed.pipe": pipe, "torch": torch}
        kept = {name: sys.modules.get(name) for name in stand_ins}
        sys.modules.update(stand_ins)
        try:
            made = runpy.run_path(str(self.folder / "deepspeed_stages.py"))
        finally:
            for name, module in kept.items():
                if module is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module
        module = made["pipeline_module"]([*range(BLOCKS)], loss_fn=None)
        first = [*plan["first_block"], BLOCKS]
        self.assertEqual([blocks for _, blocks in module["layers"]],
                         [[*range(a, b)] for a, b in pairwise(first)])
        self.assertEqual((module["num_stages"], module["partition_method"]), (2, "uniform"))
        with self.assertRaisesRegex(ValueError, "expected 10 blocks, got 9"):
            made["pipeline_module"]([*range(9)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
