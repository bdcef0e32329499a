"""ResNets equal torchvision's (tests/fixtures/resnet.json, written by make_resnet_fixture.py). Names and shapes are compared
for all five. For three, the loss of a training batch, the running statistics after it and logits in evaluation are compared.
"""

import json
import unittest
from pathlib import Path

import hetu as ht
import resnet_cases as cases
import resnet_hetu

FIXTURE = json.loads((Path(__file__).resolve().parents[2] / "fixtures" / "resnet.json").read_text())


class ResNetsEqualTorchvision(unittest.TestCase):
    def test_names_and_shapes(self) -> None:
        for name in cases.MODELS:
            self.assertEqual(cases.table(resnet_hetu.shapes(name)), FIXTURE[f"shapes {name}"], name)

    def check(self, name: str) -> None:
        ours, theirs = resnet_hetu.run(cases.CASES[name]), FIXTURE[name]
        apart, where = cases.furthest(ours["statistics"], theirs["statistics"])
        logit = max(abs(a - b) for a, b in zip(ours["logits"], theirs["logits"], strict=True))
        print(f"{name}: loss {ours['loss']:.6f} ({theirs['loss']:.6f}), "
              f"statistics {apart:.1e} at {where}, logits {logit:.1e}")
        self.assertLess(abs(ours["loss"] - theirs["loss"]), 1e-5 * theirs["loss"])
        self.assertLess(abs(ours["eval_loss"] - theirs["eval_loss"]), 1e-4 * theirs["eval_loss"])
        self.assertLess(apart, 1e-4, where)
        self.assertLess(logit, 1e-4)

    def test_resnet18_cifar(self) -> None:
        self.check("resnet18_cifar")

    def test_resnet18_imagenet(self) -> None:
        self.check("resnet18_imagenet")

    def test_resnet50_imagenet(self) -> None:
        self.check("resnet50_imagenet")


class Partition(unittest.TestCase):
    def test_rows_hold_what_sd_pipe_gives_them(self) -> None:
        for name, rows in (("resnet18", (2, 2, 2, 2)), ("resnet50", (4, 4, 4, 4)), ("resnet101", (8, 9, 8, 8)),
                           ("resnet152", (12, 13, 13, 12))):
            model = ht.models.ResNet(name)
            ends = [*(model.first_blocks(4) or []), 1 + sum(rows)]  # block 0 is the stem; the head isn't counted
            held = [b - a for a, b in zip(ends, ends[1:], strict=False)]
            self.assertEqual((held[0] - 1, *held[1:]), rows)
            self.assertEqual(model.first_blocks(2), (model.first_blocks(4) or [])[::2])
            self.assertIsNone(model.first_blocks(3))


if __name__ == "__main__":
    unittest.main()
