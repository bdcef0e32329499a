"""Loss, all gradients and 20 training steps of small BERTs equal those of Hugging Face's BERT on PyTorch. The reference
values are in tests/fixtures/bert.json, written by make_bert_fixture.py."""

import json
import unittest
from pathlib import Path
from typing import Any

import bert_cases
import bert_hetu

FIXTURE = json.loads((Path(__file__).resolve().parents[2] / "fixtures" / "bert.json").read_text())


class BertEqualsHuggingFace(unittest.TestCase):
    def check(self, name: str) -> None:
        every, alone = (bert_hetu.run(bert_cases.CASES[name], masked_alone) for masked_alone in (False, True))
        self.compare(name, FIXTURE["cases"][name], every)
        self.compare(f"{name}, masked positions alone", FIXTURE["cases"][name], alone)
        self.assertLess(abs(alone["loss"] - every["loss"]), 1e-6 * every["loss"])
        error, where = bert_cases.worst(alone["gradients"], every["gradients"])
        self.assertLess(error, 1e-6, where)

    def compare(self, name: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
        self.assertLess(abs(ours["loss"] - theirs["loss"]), 1e-5 * abs(theirs["loss"]))
        self.assertEqual(set(ours["gradients"]), set(theirs["gradients"]))
        error, where = bert_cases.worst(ours["gradients"], theirs["gradients"])
        print(f"{name}: loss {ours['loss']:.7f} ({theirs['loss']:.7f}), worst gradient error {error:.2e} at {where}")
        self.assertLess(error, 1e-4, where)
        for step, (a, b) in enumerate(zip(ours["losses"], theirs["losses"], strict=True)):
            self.assertLess(abs(a - b), 1e-3, f"step {step}")

    def test_gelu_tied(self) -> None:
        self.check("gelu_tied")

    def test_gelu_untied(self) -> None:
        self.check("gelu_untied")

    def test_relu_untied(self) -> None:
        self.check("relu_untied")


if __name__ == "__main__":
    unittest.main()
