"""hetu.nn, the models of docs/examples and hetu.models compared with an installed PyTorch and transformers. Weights are
exchanged through files in both directions. Includes GPT-2 small at its full size."""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import example_cases
import example_torch
import hetu as ht
import model_cases
import model_hetu
import model_torch
import nn_cases
import nn_hetu
import nn_torch
from hetu.models.config_file import READERS

HETU = Path(os.environ.get("HETU_BUILD_DIR", Path(__file__).resolve().parents[3] / "build")) / "bin" / "hetu"


class _Live(unittest.TestCase):
    """The checks of the fixture tests, with reference values that are computed in this run."""

    def test_layers(self) -> None:
        for name in nn_cases.CASES:
            nn_hetu.check(self, name, nn_torch.run(name))

    def test_examples(self) -> None:
        for name in example_cases.LINES:
            apart = example_cases.check(self, name, example_torch.run(name, example_cases.run(name)["batch"]))
            print(f"{name}.py: slopes {apart:.1e} apart")

    def test_models(self) -> None:
        for name in model_cases.CASES:
            apart, error = model_hetu.check(self, name, model_torch.run(name))
            print(f"{name}: logits {apart:.1e} apart, slopes {error:.1e}")

    def test_files(self) -> None:
        """Hetu reads transformers' files, whole and sharded, and transformers reads Hetu's: the bits are equal."""
        for name, (family, config) in model_cases.CASES.items():
            with tempfile.TemporaryDirectory() as folder, self.subTest(name):
                model_torch.save(name, folder)
                model_torch.save(name, f"{folder}/sharded", "10KB")
                self.assertGreater(len(list(Path(folder, "sharded").glob("*.safetensors"))), 1)
                ht.new_graph()
                data = ht.data.Batches([model_cases.inputs(family, config)], model_cases.ROWS)
                model = getattr(ht.models, READERS[family]).from_config(folder)
                loss = model.loss(data)
                for source in (f"{folder}/model.safetensors", f"{folder}/sharded"):
                    loaded = ht.load_weights(source)
                    self.assertEqual((loaded.missing, loaded.extra), ([], []))
                job = ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)]})
                state = {n: np.array(array) for n, kind, array, _ in job.job.state() if kind == ""}
                drawn = model_cases.weights({n: tuple(p.shape) for n, p in model.named_parameters()})
                for n, array in drawn.items():
                    np.testing.assert_array_equal(state[n].ravel(), array.ravel(), n)
                list(job.run("train", steps=1, checkpoint=f"{folder}/ckpt"))
                subprocess.run([HETU, "checkpoint", "export", f"{folder}/ckpt", "-o", f"{folder}/model.safetensors"],
                               check=True, capture_output=True)
                again = type(model_torch.model_of(family, config)).from_pretrained(folder)
                for n, array in model_torch.state(again).items():
                    np.testing.assert_array_equal(array, drawn[n], n)

    def test_vocabulary(self) -> None:
        """A tokenizer.json of Hugging Face's tokenizers gives the same ids, and a model trains on them."""
        import tokenizers

        with tempfile.TemporaryDirectory() as folder:
            file, text = f"{folder}/tokenizer.json", example_cases.TEXT
            made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="?"))
            made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
            made.decoder = tokenizers.decoders.ByteLevel()
            made.train_from_iterator([text], tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["?"]))
            made.save(file)
            vocabulary = ht.text.Vocabulary(file)
            ids = vocabulary.encode(text.encode())
            self.assertEqual((ids.tolist(), vocabulary.size), (made.encode(text).ids, made.get_vocab_size()))
            self.assertEqual(vocabulary.decode(ids).strip(), text.strip())
            Path(folder, "text.txt").write_text(text)
            ht.new_graph()
            data = ht.text.Text(folder, 8, 16, vocabulary)
            loss = ht.models.Gpt.from_config("tiny", vocab_size=vocabulary.size, n_layer=1).loss(data)
            job = ht.Executor({"train": [loss, ht.optim.AdamW(0.003).minimize(loss)]})
            losses = [step.loss for step in job.run("train", steps=20)]
            self.assertLess(losses[-1], losses[0])

    def test_gpt2_small(self) -> None:
        """All 124 M parameters, with the initial weights of transformers."""
        torch.manual_seed(0)
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
        ids = np.random.default_rng(0).integers(0, 50257, (1, 65), np.int32)
        with torch.no_grad():
            logits = theirs(torch.from_numpy(ids[:, :-1]).long()).logits.numpy().ravel()
        weights = {n: p.detach().numpy() for n, p in theirs.named_parameters()}
        model: Any = ht.models.Gpt.from_config("gpt2", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        apart = float(np.abs(model_hetu.logits(model, {"ids": ids}, weights) - logits).max())
        print(f"gpt2, {sum(w.size for w in weights.values())} parameters: logits {apart:.1e} apart")
        self.assertLess(apart, 1e-4)


def check() -> bool:
    """Returns true if all results are as close as the fixture tests require."""
    return unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(_Live)).wasSuccessful()


if __name__ == "__main__":
    raise SystemExit(0 if check() else 1)
