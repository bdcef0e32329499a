"""docs/examples/finetune.py, from a BERT that is pre-trained for some seconds on the sample texts, beats the largest class
by MARGIN on held-out sentences."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from train_cases import MANY_S, ROOT, TRAIN
from weight_files import HETU

MARGIN = 0.12
MODEL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128,
         "max_position_embeddings": 64, "hidden_act": "gelu", "tie_word_embeddings": True}


class FineTuning(unittest.TestCase):
    def run_it(self, *words):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=MANY_S, cwd=self.folder,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_it_beats_the_largest_class(self):
        with tempfile.TemporaryDirectory(prefix="hetu-finetune-") as folder:
            self.folder = folder
            pathlib.Path(folder, "small.json").write_text(json.dumps(MODEL))
            self.run_it(HETU, "data", "sample", "bert", "--rows", 1500, "--vocab-size", 1000, "--sequence-length", 64,
                        "--shards", 1)
            self.run_it(*TRAIN, "--data", "bert", "--model", "small.json", "--pipeline", "1f1b", "--batch-size", 32,
                        "--micro-batches", 2, "--learning-rate", 2e-3, "--warmup-steps", 10, "--steps", 80, "--checkpoint",
                        "ckpt")
            self.run_it(HETU, "checkpoint", "export", "ckpt", "-o", "bert.safetensors")
            said = self.run_it(sys.executable, ROOT / "docs" / "examples" / "finetune.py", "bert.safetensors", "small.json",
                               "bert/vocab.txt", 120)
        self.assertIn("39 of the model's 41 tensors taken; not in the file, so initialized: classifier.weight, "
                      "classifier.bias; not used from the file: cls.predictions.bias", said)
        print(said.splitlines()[-1], flush=True)
        accuracy, rows, largest = map(float, re.search(r"accuracy (\S+) on (\d+) held-out .* class is (\S+)$",
                                                       said.strip()).groups())
        self.assertGreater(rows, 400)
        self.assertGreater(accuracy, largest + MARGIN)


if __name__ == "__main__":
    unittest.main()
