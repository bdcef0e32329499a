"""hetu profile-blocks writes a table that simulate and choose can read. Its bytes follow the published formulas, and each
error is one line."""

import csv
import io
import json
import pathlib
import subprocess
import tempfile
import unittest

from hetu.profile import blocks as profile_blocks
from train_cases import ROOT

COSTS = ROOT / "config" / "costs"
# Weights of a block: BERT's as published (chimera.md, section 7), and the others counted by their layers.
PARAMETERS = {"bert-base": 7087872, "bert-large": 12596224, "opt-125m": 7087872, "opt-350m": 12596224,
              "t5-base": 4 * 768 * 768 + 2 * 768 * 3072 + 2 * 768 + 32 * 12,
              "t5-large": 4 * 1024 * 1024 + 2 * 1024 * 4096 + 2 * 1024 + 32 * 16}


class Bytes(unittest.TestCase):
    def test_curvature_as_in_every_published_table(self):
        """mem_kron = 4 (10 h^2 + 2 i^2) / 2^20, mem_save_err = 4 bs T (5 h + i) / 2^20, exactly."""
        tables = sorted(COSTS.glob("*.csv"))
        self.assertEqual(len(tables), 18)
        for path in tables:
            shape = profile_blocks.shape_of(path.stem.rsplit("_", 1)[0], None)
            h, i = shape.hidden, shape.wide
            self.assertEqual(profile_blocks.factor_bytes(shape), 4 * (10 * h**2 + 2 * i**2))
            for row in csv.DictReader(path.read_text().splitlines()):
                size = int(row["bs"])
                self.assertEqual(profile_blocks.saved_bytes(shape, size), 4 * size * shape.length * (5 * h + i))
                factors = float(f"{profile_blocks.factor_bytes(shape) / 2**20:.5g}")
                self.assertEqual(factors, float(row["mem_kron"]), path.name)
                saved = float(f"{profile_blocks.saved_bytes(shape, size) / 2**20:.5g}")
                self.assertEqual(saved, float(row["mem_save_err"]), f"{path.name}, {size}")

    def test_weights_and_what_is_kept(self):
        for name, count in PARAMETERS.items():
            shape = profile_blocks.shape_of(name, 32)
            weights, kept, working = profile_blocks.block_bytes(shape, 1)
            # Each weight is aligned to 64 bytes.
            self.assertTrue(0 <= weights - 4 * count <= 64 * 20, f"{name}: {weights} bytes of {count} weights")
            twice = profile_blocks.block_bytes(shape, 2)
            self.assertTrue(abs(twice[1] / kept - 2) < 0.01 and 1 < twice[2] / working < 2.01, name)
            self.assertGreater(kept, 4 * 32 * (shape.hidden * 4 + shape.wide), name)


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.models = {
            "bert": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 16},
            "opt": {"model_type": "opt", "hidden_size": 32, "num_attention_heads": 2, "ffn_dim": 64},
            "t5": {"model_type": "t5", "d_model": 32, "d_kv": 16, "num_heads": 2, "d_ff": 64},
        }
        for name, values in self.models.items():
            (self.folder / f"{name}.json").write_text(json.dumps(values))

    def run_words(self, *words, status=0):
        done = subprocess.run(["hetu", *map(str, words)], capture_output=True, text=True, timeout=300, cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_a_table_that_simulate_and_choose_read(self):
        for name in self.models:
            few = ["--sequence-length", 16, "--warm-up", 1, "--runs", 2, "--threads", 1]
            self.run_words("profile-blocks", f"{name}.json", "--largest", 4, *few, "-o", "t.csv")
            rows = list(csv.DictReader((self.folder / "t.csv").read_text().splitlines()))
            self.assertEqual(tuple(rows[0]), profile_blocks.COLUMNS)
            self.assertEqual([row["bs"] for row in rows], ["1", "2", "4"])
            for row in rows:
                self.assertTrue(all(float(value) > 0 for value in row.values()), row)
                self.assertEqual(float(row["mem_kron"]), float(f"{4 * (10 * 32**2 + 2 * 64**2) / 2**20:.5g}"))
            of_table = ["--costs", "t.csv", "--micro-batch-size", 2, "--blocks-per-stage", 3]
            found = json.loads(self.run_words("simulate", "gpipe", "--stages", 2, "--micro-batches", 2, *of_table,
                                              "--format", "json").stdout)
            f, b = float(rows[1]["time_f"]), float(rows[1]["time_b"])
            self.assertAlmostEqual(found["makespan"], 3 * 3 * (f + b), delta=1e-6 * found["makespan"])
            self.run_words("choose", "--workers", 4, "--global-batch", 8, "--blocks", 4, "--costs", "t.csv")

    def test_without_a_file_the_table_goes_to_standard_output(self):
        said = self.run_words("profile-blocks", "opt.json", "--largest", 1, "--sequence-length", 8, "--warm-up", 0,
                              "--runs", 1)
        self.assertEqual(len(list(csv.DictReader(io.StringIO(said.stdout)))), 1)

    def test_what_is_wrong_is_one_line(self):
        (self.folder / "odd.json").write_text('{"model_type": "mamba"}')
        (self.folder / "bad.json").write_text("{")
        (self.folder / "gated.json").write_text('{"model_type": "t5", "feed_forward_proj": "gated-gelu"}')
        (self.folder / "gelu.json").write_text('{"model_type": "opt", "activation_function": "gelu"}')
        for words, message in [(["gpt5"], "model 'gpt5' is neither one of bert-base"), (["odd.json"], "model_type 'mamba'"),
                               (["bad.json"], "bad.json:1: not JSON"),
                               (["gated.json"], 'feed_forward_proj is "gated-gelu", which Hetu does not compute'),
                               (["gelu.json"], 'activation_function is "gelu", which Hetu does not compute'),
                               (["bert.json", "--runs", 0], "--runs must be >= 1"),
                               (["bert.json", "--largest", 0], "--largest must be >= 1"),
                               (["bert.json", "-o", "t.svg"], "-o t.svg: unknown suffix '.svg'; known: .csv")]:
            done = self.run_words("profile-blocks", *words, status=2)
            self.assertIn(message, done.stderr.splitlines()[-1])
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
