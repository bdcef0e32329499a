"""GPT-2, Llama and its relatives, and ViT equal those of transformers in names and shapes, logits, loss and gradients. The
reference values are in tests/fixtures/models.json, written by make_model_fixture.py."""

import json
import unittest
from pathlib import Path

import numpy as np

import hetu as ht
import model_cases as cases
import model_hetu

FIXTURE = json.loads((Path(__file__).resolve().parents[2] / "fixtures" / "models.json").read_text())["cases"]


class ModelsEqualTransformers(unittest.TestCase):
    def test_every_case(self):
        self.assertEqual(set(FIXTURE), set(cases.CASES))
        for name in cases.CASES:
            with self.subTest(name, seed=cases.SEED):
                apart, error = model_hetu.check(self, name, FIXTURE[name])
                print(f"{name}: logits {apart:.1e} apart, slopes {error:.1e}", flush=True)


class Configurations(unittest.TestCase):
    def refused(self, says, make):
        with self.subTest(says), self.assertRaises(ValueError) as caught:
            make()
        self.assertIn(says, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_sizes_by_name(self):
        """Parameter counts equal the published ones: 124, 355, 774 and 1558 M for GPT-2, 6738 M for Llama 7B, 86.6 M for
        ViT-B/16."""
        for make, name, count in ((ht.models.Gpt, "gpt2", 124439808), (ht.models.Gpt, "gpt2-medium", 354823168),
                                  (ht.models.Gpt, "gpt2-large", 774030080), (ht.models.Gpt, "gpt2-xl", 1557611200),
                                  (ht.models.Llama, "7b", 6738415616), (ht.models.ViT, "vit-base", 86567656),
                                  (ht.models.ViT, "vit-tiny", 5717416)):
            parameters = make.from_config(name).parameters()
            self.assertEqual(sum(int(np.prod(p.shape)) for p in parameters), count, name)

    def test_chimeras_gpt(self):
        """64 layers of width 1280 with an untied head have 1.39 B parameters (Li and Hoefler 2021). Also checks its first
        stages."""
        gpt = ht.models.Gpt.from_config("gpt2", n_embd=1280, n_layer=64, n_head=20, tie_word_embeddings=False)
        counts = {name: int(np.prod(p.shape)) for name, p in gpt.named_parameters()}
        self.assertEqual(sum(counts.values()), 1389327360)
        for stages, count in ((8, 223059200), (16, 144349440), (32, 104994560), (64, 85317120)):
            starts = ("transformer.wte.", "transformer.wpe.", *(f"transformer.h.{i}." for i in range(64 // stages)))
            self.assertEqual(sum(n for name, n in counts.items() if name.startswith(starts)), count, stages)

    def test_what_is_wrong_is_said(self):
        gpt, llama, vit = ht.models.Gpt.from_config, ht.models.Llama.from_config, ht.models.ViT.from_config
        for says, make in (
            ("model 'gpt3' is neither one of gpt2, gpt2-medium", lambda: gpt("gpt3")),
            ("GptConfig has no layers; it has vocab_size,", lambda: gpt("tiny", layers=3)),
            ("n_embd 100 is not divisible by 12 attention heads", lambda: gpt("gpt2", n_embd=100)),
            ("activation_function 'mish' is not known; known: gelu, gelu_python",
             lambda: gpt("tiny", activation_function="mish")),
            ("num_key_value_heads 3 does not divide 4 heads", lambda: llama("tiny", num_key_value_heads=3)),
            ("image_size 224 is not divisible by patch_size 15", lambda: vit("vit-tiny", patch_size=15)),
            ("Gpt: the data has 129 tokens per row, but the model only 128 positions",
             lambda: gpt("tiny")(ht.placeholder("ids", "int32", [ht.BATCH, 129]))),
            ("Gpt: ids must be int32 [B, T], got Value(float32[B, 4])",
             lambda: gpt("tiny")(ht.placeholder("x", "float32", [ht.BATCH, 4]))),
            ("ViT: images must be [B, 3, 224, 224], got Value(float32[B, 3, 8, 8])",
             lambda: vit("vit-tiny")(ht.placeholder("image", "float32", [ht.BATCH, 3, 8, 8]))),
        ):
            ht.new_graph()
            self.refused(says, make)


if __name__ == "__main__":
    unittest.main()
