#!/usr/bin/env python3
"""Handwritten pieces, peft's LoRA, and generate() of models of transformers, compared with the unsplit model.

Skipped where PyTorch, transformers or peft is not installed (`./run torch`)."""

import subprocess
import sys
import unittest
from importlib.util import find_spec


def loss_of(out, labels):
    """Returns the cross entropy of words."""
    from torch.nn import functional

    return functional.cross_entropy(out.flatten(0, 1), labels.flatten())


def generates():
    """Trains a Llama for two steps on the workers of a job, and compares generated tokens with the unsplit model's."""
    import torch

    import hetu.torch
    import hetu.torch.blocks
    import torch_block_models as small

    torch.set_num_threads(1)
    for name in ("LlamaForCausalLM", "GPT2LMHeadModel"):
        make, _ = small.MODELS[name]
        torch.manual_seed(1)
        model = make(2)
        torch.manual_seed(1)
        whole = make(2)
        pipe = hetu.torch.Pipeline(hetu.torch.blocks.split(model), loss_of, "1f1b", 2)
        rule, plain = torch.optim.SGD(pipe.parameters(), lr=0.5), torch.optim.SGD(whole.parameters(), lr=0.5)
        ids = small.ids(4)
        for _ in range(2):
            pipe.step({"input_ids": ids}, ids)
            rule.step()
            plain.zero_grad()
            for part in ids.split(2):
                (loss_of(whole(input_ids=part).logits, part) / 2).backward()
            plain.step()
        prompt = ids[:2, :4]
        for options in ({}, {"do_sample": True, "top_k": 8}, {"num_beams": 2}):
            torch.manual_seed(3)
            found = hetu.torch.generate(pipe, prompt, max_new_tokens=6, pad_token_id=0, **options)
            torch.manual_seed(3)
            want = whole.eval().generate(prompt, max_new_tokens=6, pad_token_id=0, **options)
            assert torch.equal(found, want), (name, options, found, want)
        whole.train()
        loss = pipe.step({"input_ids": ids}, ids)  # training continues
        assert abs(loss - loss_of(whole(input_ids=ids).logits, ids).item()) < 1e-5
        try:
            hetu.torch.generate(pipe, prompt, max_new_tokens=-1)
        except ValueError as error:
            assert "generate: ValueError" in str(error) and "\n" not in str(error)
        else:
            raise AssertionError("nothing was refused")
        print("GENERATED", name, flush=True)


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Adapters(unittest.TestCase):
    """Adapters in one process, whose plan has two stages, except where a test differs."""

    def test_pieces_by_hand(self):
        """Parameters keep the model's names. Foreign, missing and copied modules are refused."""
        import copy

        import torch
        from torch import nn

        import hetu.torch

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.ModuleDict({"in": nn.Linear(4, 4), "out": nn.Linear(4, 4)}), nn.Linear(4, 4)

            def forward(self, x):
                return self.head(self.body["out"](self.body["in"](x).relu())) + x

        class First(nn.Module):
            def __init__(self, model):
                super().__init__()
                self.layer = model.body["in"]

            def forward(self, x):
                return {"x": x, "h": self.layer(x).relu()}

        class Last(nn.Module):
            def __init__(self, model):
                super().__init__()
                self.out, self.head = model.body["out"], model.head

            def forward(self, v):
                return self.head(self.out(v["h"])) + v["x"]

        torch.manual_seed(1)
        model, x, y = Model(), torch.randn(8, 4), torch.randn(8, 4)
        loss = nn.functional.mse_loss(model(x), y).item()
        pieces = hetu.torch.ModelPieces(model, [First(model), Last(model)])
        pipe = hetu.torch.Pipeline(pieces, nn.MSELoss(), "zb-v", 1)
        self.assertEqual(pipe.step(x, y), loss)
        self.assertEqual(list(pipe.state_dict()), list(Model().state_dict()))
        model = Model()
        for made, text in (([First(model)], "'body.out.weight' of Model is in no piece"),
                           ([First(model), Last(copy.deepcopy(model))], r"piece 1 \(Last\) of Model has 'out.weight'"),
                           ([First(model), lambda v: v], "piece 1 of Model is not an nn.Module but function")):
            with self.assertRaisesRegex(ValueError, text) as caught:
                hetu.torch.ModelPieces(model, made)
            self.assertNotIn("\n", str(caught.exception))

    @unittest.skipUnless(find_spec("peft") and find_spec("transformers"), "peft or transformers is not there")
    def test_lora(self):
        """Only adapters are trained, to the same bits. peft can read them."""
        import peft
        import torch

        import hetu.torch
        import hetu.torch.blocks
        import torch_block_models as small

        make, _ = small.MODELS["LlamaForCausalLM"]
        options = {"r": 4, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.0, "init_lora_weights": False}

        def made():
            torch.manual_seed(1)
            return peft.get_peft_model(make(2), peft.LoraConfig(**options))

        model, whole, ids = made(), made(), small.ids(4)
        pipe = hetu.torch.Pipeline(hetu.torch.blocks.split(model.get_base_model()), loss_of, "gpipe", 2)
        rule = torch.optim.AdamW([p for p in pipe.parameters() if p.requires_grad], lr=0.01, weight_decay=0.1)
        plain = torch.optim.AdamW([p for p in whole.parameters() if p.requires_grad], lr=0.01, weight_decay=0.1)
        for _ in range(3):
            plain.zero_grad()
            total = 0.0
            for part in ids.split(2):
                loss = loss_of(whole(input_ids=part).logits, part) / 2
                loss.backward()
                total += loss.item()
            self.assertEqual(pipe.step({"input_ids": ids}, ids), total)
            plain.step()
            rule.step()
        state = {f"base_model.model.{name}": tensor for name, tensor in pipe.state_dict().items()}
        self.assertEqual(set(state), set(whole.state_dict()))
        for name, tensor in whole.state_dict().items():
            self.assertTrue(torch.equal(state[name], tensor), name)
        adapters = peft.get_peft_model_state_dict(model, state_dict=state)
        want = peft.get_peft_model_state_dict(whole)
        self.assertEqual({n: t.sum().item() for n, t in adapters.items()}, {n: t.sum().item() for n, t in want.items()})
        self.assertTrue(adapters and all("lora" in name for name in adapters))

    @unittest.skipUnless(find_spec("transformers"), "transformers is not there")
    def test_generate(self):
        """On two workers, greedy decoding, sampling and beam search give the tokens of the unsplit model."""
        run = subprocess.run(["heturun", "-w", "2", sys.executable, __file__, "--generate"], capture_output=True, text=True,
                             timeout=600)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertEqual(run.stdout.count("GENERATED"), 4, run.stdout + run.stderr)


if __name__ == "__main__":
    if "--generate" in sys.argv:
        generates()
    else:
        unittest.main(verbosity=2)  # prints the reason for a skip
