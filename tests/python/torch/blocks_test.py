#!/usr/bin/env python3
"""hetu.torch.blocks compared with the unsplit models: every input that a forward takes counts, and no other is accepted.

A sample by default; --whole tries every input of every model. Skipped where PyTorch or transformers is not installed
(`./run torch`)."""

import sys
import tempfile
import unittest
import warnings
from importlib.util import find_spec
from pathlib import Path

WHOLE = "--whole" in sys.argv
HERE = all(find_spec(name) for name in ("torch", "transformers", "torchvision"))
# Without --whole, one model stands for the others that share its code.
LATER = ("BertForSequenceClassification", "RobertaForMaskedLM", "DistilBertForMaskedLM", "GemmaForCausalLM",
         "Gemma2ForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
SAMPLE = (("GPT2LMHeadModel", "positions and mask"), ("LlamaForCausalLM", "positions and mask"),
          ("BertForMaskedLM", "token types"), ("T5ForConditionalGeneration", "decoder mask"))


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
@unittest.skipUnless(HERE, "transformers or torchvision is not there: ./run torch installs it")
class Blocks(unittest.TestCase):
    """Blocks in one process, whose plan has two stages."""

    def same(self, name, make, inputs, rows=4):
        """Trains one step and compares loss and gradients with the unsplit model's."""
        import torch
        from torch import nn

        import hetu.torch
        import hetu.torch.blocks

        def loss_of(logits, labels):
            return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())

        def part(value, at):
            return {k: v[at] for k, v in value.items()} if isinstance(value, dict) else value[at]

        torch.manual_seed(1)
        model = make(1).train()
        torch.manual_seed(1)
        whole = make(1).train()
        shape = tuple((whole(**inputs).logits if isinstance(inputs, dict) else whole(inputs)).shape[:-1])
        whole.load_state_dict(model.state_dict())  # the forward has changed a ResNet's running statistics
        labels = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(2))
        total = 0.0
        for at in (slice(0, 2), slice(2, rows)):
            out = whole(**part(inputs, at)).logits if isinstance(inputs, dict) else whole(part(inputs, at))
            loss = loss_of(out, labels[at]) / 2
            loss.backward()
            total += loss.item()
        pipe = hetu.torch.Pipeline(hetu.torch.blocks.split(model), loss_of, "gpipe", 2)
        self.assertEqual(pipe.step(inputs, labels), total, name)
        grads = {n: p.grad for n, p in whole.named_parameters() if p.grad is not None}
        found = {n: p.grad for n, p in pipe.named_parameters()}
        self.assertLessEqual(set(grads), set(found), name)
        for one, grad in grads.items():
            self.assertTrue(torch.equal(found[one], grad), f"{name}: the gradient of {one}")
        self.assertEqual(set(pipe.state_dict()), set(whole.state_dict()), name)

    def test_equal_the_unsplit_models(self):
        """Each model of the table equals the unsplit one, with the fewest inputs that it takes."""
        import torch_block_models as small
        from hetu.torch.blocks import _TABLE

        self.assertLessEqual(set(small.MODELS), set(_TABLE))
        for name, (make, inputs) in small.MODELS.items():
            with self.subTest(model=name):
                if WHOLE or name not in LATER:
                    self.same(name, make, inputs(4))

    def test_every_input_counts(self):
        """Masks on either side, positions and token types count: dropped inputs would change the loss."""
        import torch_block_models as small

        for name, (make, inputs) in small.MODELS.items():
            for word, more in small.more_inputs(name).items():
                if not WHOLE and (name, word) not in SAMPLE:
                    continue
                with self.subTest(model=name, inputs=word):
                    self.same(f"{name} with {word}", make, {**inputs(4), **more})

    def test_tied_embeddings_share_a_piece(self):
        """T5's three uses of one table are in two pieces, so that four stages can have them. bfloat16 models are cut, too.
        """
        import torch

        import hetu.torch.blocks
        import torch_block_models as small

        model = small.MODELS["T5ForConditionalGeneration"][0](1)
        pieces = hetu.torch.blocks.split(model).pieces
        table = model.get_input_embeddings().weight
        self.assertEqual([n for n, piece in enumerate(pieces) if any(p is table for p in piece.parameters())],
                         [0, len(pieces) - 1])
        for name in ("WhisperForConditionalGeneration", "ViTForImageClassification", "ResNet"):
            pieces = hetu.torch.blocks.split(small.MODELS[name][0]().to(torch.bfloat16)).pieces
            self.assertGreater(len(pieces), 3, name)

    def test_names_surplus_tensors(self):
        """A warning names tensors of a folder that the model can't use, and no others."""
        import torch
        from safetensors.torch import load_file, save_file

        import hetu.torch.blocks
        import torch_block_models as small

        for name in ("GPT2LMHeadModel", "T5ForConditionalGeneration", "BertForMaskedLM"):
            with tempfile.TemporaryDirectory() as folder, self.subTest(model=name):
                small.MODELS[name][0](1).save_pretrained(folder)
                file = Path(folder, "model.safetensors")
                tensors = load_file(file)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    hetu.torch.blocks.from_pretrained(folder)
                extra = {f"score.{n}": torch.ones(1) for n in range(7)}
                ignored = {"transformer.h.0.attn.bias": torch.ones(1)} if name.startswith("GPT2") else {}
                save_file({**tensors, **extra, **ignored}, file, {"format": "pt"})
                with self.assertWarnsRegex(
                        UserWarning, f"tensors that {name} does not have: 'score.0', .*'score.4' and 2 more"):
                    hetu.torch.blocks.from_pretrained(folder)

    def test_refuses_unknown_inputs(self):
        """A misspelt key, a missing key, a cache of earlier tokens and an unknown class are refused."""
        import torch
        from torch import nn

        import hetu.torch
        import hetu.torch.blocks
        import torch_block_models as small

        def step(**inputs):
            make, _ = small.MODELS["GPT2LMHeadModel"]
            pipe = hetu.torch.Pipeline(hetu.torch.blocks.split(make()), lambda out, y: out.mean(), "gpipe", 2)
            pipe.step(inputs, torch.zeros(4))

        ids = small.ids()
        mask = torch.ones_like(ids)
        cases = [
            (lambda: step(input_ids=ids, atention_mask=mask),
             "'atention_mask': forward of GPT2LMHeadModel takes no such input; did you mean 'attention_mask'"),
            (lambda: step(input_ids=ids, doctor=mask),
             "'doctor': forward of GPT2LMHeadModel takes no such input; there are"),
            (lambda: step(attention_mask=mask), "You have to specify either input_ids or inputs_embeds"),
            (lambda: step(input_ids=ids, use_cache=True), "use_cache=True"),
            (lambda: hetu.torch.blocks.split(nn.Linear(1, 1)), "hetu.torch.blocks has no Linear"),
        ]
        for call, message in cases:
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message) as caught:
                call()
            self.assertNotIn("\n", str(caught.exception).strip())


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main(verbosity=2)  # prints the reason for a skip
