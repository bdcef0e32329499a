"""train_gpt.py on a small text: it learns, stages equal one process, a resumed run equals an uninterrupted one, it can start
from weights, and each error is one line."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import hetu as ht
import train_gpt
from example_cases import TEXT
from train_cases import HETURUN, MANY_S, ROOT

TRAIN = [sys.executable, str(ROOT / "python" / "train_gpt.py")]
SIZES = {"vocab_size": 256, "n_positions": 32, "n_embd": 32, "n_layer": 3, "n_head": 2}
LLAMA = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 32}


class TrainGpt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hetu-gpt-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text.txt").write_text(TEXT)
        (self.folder / "gpt.json").write_text(json.dumps({**SIZES, "n_inner": None, "model_type": "gpt2"}))
        (self.folder / "llama.json").write_text(json.dumps({**LLAMA, "rope_parameters": {"rope_theta": 100.0,
                                                                                         "rope_type": "default"}}))

    def run_it(self, *options, workers=1):
        words = [*(HETURUN + ["-w", str(workers)] if workers > 1 else []), *TRAIN, "--data", str(self.folder / "text.txt"),
                 "--model", str(self.folder / "gpt.json"), "--threads", "1", "--batch-size", "8", "--micro-batches", "4",
                 "--pipeline", "1f1b", "--learning-rate", "1e-2", "--warmup-steps", "5", "--seed", "3"]
        words += ["--devices", f"pipe_1_{workers}"] if workers > 1 else []
        return subprocess.run([*words, *map(str, options)], capture_output=True, text=True, timeout=MANY_S, cwd=self.folder,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive"})

    def losses(self, *options, workers=1):
        log = self.folder / "log.jsonl"
        log.unlink(missing_ok=True)
        done = self.run_it(*options, "--log", log, workers=workers)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [json.loads(line)["loss"] for line in log.read_text().splitlines()], done.stdout

    def test_it_learns_and_stages_train_alike(self):
        alone, said = self.losses("--steps", 96, "--eval-data", self.folder / "text.txt")
        found = re.search(r"loss, mean of the last 20 steps: ([\d.]+); unigram entropy of the text: ([\d.]+)", said)
        self.assertLess(float(found[1]), 0.7 * float(found[2]), said)
        self.assertRegex(said, r"EVAL  loss [\d.]+ perplexity [\d.]+")
        self.assertEqual(self.losses("--steps", 12, workers=2)[0], alone[:12])
        self.losses("--steps", 5, "--checkpoint", "ckpt")
        self.assertEqual(self.losses("--steps", 9, "--checkpoint", "ckpt", "--resume")[0], alone[5:9])
        hetu = str(pathlib.Path(os.environ["HETU_BUILD_DIR"]) / "bin" / "hetu")
        subprocess.run([hetu, "checkpoint", "export", "ckpt", "-o", "w.safetensors"], check=True, cwd=self.folder,
                       capture_output=True)
        again, said = self.losses("--steps", 2, "--weights", "w.safetensors", workers=2)
        self.assertIn("w.safetensors: 40 of the model's 40 tensors taken", said)
        self.assertLess(again[0], alone[5])

    def test_a_llama(self):
        losses, _ = self.losses("--family", "llama", "--model", self.folder / "llama.json", "--steps", 12)
        self.assertLess(losses[-1], losses[0])
        stages = self.losses("--family", "llama", "--model", self.folder / "llama.json", "--steps", 4, workers=2)[0]
        self.assertEqual(stages, losses[:4])

    def test_the_family_is_that_of_the_file(self):
        """A folder with a config.json of Gemma 3 works: windows, a norm of each head's queries, tied tables."""
        (self.folder / "config.json").write_text(json.dumps({
            **LLAMA, "model_type": "gemma3_text", "vocab_size": 256, "head_dim": 8, "sliding_window": 6,
            "sliding_window_pattern": 2}))
        losses, _ = self.losses("--model", self.folder, "--steps", 12)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(self.losses("--model", self.folder, "--steps", 4, workers=2)[0], losses[:4])
        done = self.run_it("--model", self.folder, "--family", "gpt", "--steps", 1)
        self.assertEqual(done.returncode, 2)
        self.assertIn("model_type is 'gemma3_text', which hetu.models.Llama reads; expected here: gpt2", done.stderr)

    def test_what_is_wrong_is_one_line(self):
        (self.folder / "short.txt").write_text("abc")
        (self.folder / "scaled.json").write_text(json.dumps({"rope_scaling": {"rope_type": "yarn", "factor": 8.0}}))
        for says, options in (
            ("text 'none': no such file or folder", ["--data", "none"]),
            ("text '.*': 3 tokens are fewer than one row of 33", ["--data", self.folder / "short.txt"]),
            ("Gpt: the data has 99 tokens per row, but the model only 32 positions", ["--length", 99]),
            ("model 'big' is neither one of gpt2, .* nor a JSON file", ["--model", "big"]),
            ("rope_scaling has rotary positions of the type 'yarn', which Hetu does not compute; expected one of default, ",
             ["--family", "llama", "--model", self.folder / "scaled.json"]),
            ("vocabulary 'v.json': ", ["--vocabulary", "v.json"]),
            ("no.safetensors", ["--weights", "no.safetensors"]),
            ("rows of 32 tokens are fewer than one global batch of 5000", ["--batch-size", 5000, "--micro-batches", 1]),
        ):
            ht.new_graph()
            words = ["--data", self.folder / "text.txt", "--model", self.folder / "gpt.json", "--pipeline", "1f1b",
                     "--batch-size", 8, *options]
            with self.subTest(says), self.assertRaisesRegex((ValueError, OSError), says) as got:
                train_gpt.build(train_gpt.parse([str(word) for word in words]))
            self.assertNotIn("\n", str(got.exception))
        done = self.run_it("--steps", 1, "--data", "none")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "train_gpt.py: text 'none': no such file or folder\n")


if __name__ == "__main__":
    unittest.main()
