#!/usr/bin/env python3
"""Compares Hetu with an installed PyTorch. The exit status is 1 if a bound is exceeded.

BERT is compared with Hugging Face's (loss, every gradient, 20 training steps), and ResNets with torchvision's (loss, running
statistics, logits, weight files, gradients). Also compares operators, layers, the models of docs/examples and of
transformers, optimizers and learning rates over 50 steps, and WordPiece."""

import subprocess
import sys
import tempfile
from pathlib import Path

import bert_cases
import bert_hetu
import operator_cases
import operator_hetu
import optimizer_cases
import optimizer_hetu


def optimizers() -> bool:
    """Returns true if all optimizers and rates stay within 1e-5 of PyTorch's."""
    import optimizer_torch

    print(f"{'optimizer':10} {'rate':17} {'largest difference over 50 steps':>32}")
    good = True
    for optimizer, rate in optimizer_cases.CASES.values():
        apart = optimizer_cases.distance(optimizer_hetu.run(optimizer, rate), optimizer_torch.run(optimizer, rate))
        good &= apart < 1e-5
        print(f"{optimizer:10} {rate:17} {apart:32.2e}")
    return good


def operators() -> bool:
    """Returns true if all operators are within 2e-6 of PyTorch's, in value and gradient."""
    import operator_torch

    apart = {f"{name}, {kernels}": operator_hetu.worst(name, operator_torch.run(case), kernels)
             for name, case in operator_cases.cases().items() for kernels in ("reference", "best")}
    where = max(apart, key=lambda name: apart[name])
    print(f"{len(apart)} comparisons of operators: largest difference {apart[where]:.2e}, {where}")
    return apart[where] < 2e-6


def words() -> bool:
    """Returns true if a million lines give Hugging Face's tokens, with a vocabulary made from them."""
    import word_piece_parity

    with tempfile.TemporaryDirectory() as folder:
        text, vocabulary = Path(folder) / "some.txt", Path(folder) / "vocab.txt"
        text.write_text("\n".join(word_piece_parity.lines_of_files(100_000)))
        make = [sys.executable, "-m", "hetu.sample.vocabulary", text, "-o", vocabulary, "--size", "10000"]
        subprocess.run(make, check=True)
        return word_piece_parity.check(str(vocabulary))


def main() -> int:
    try:
        import bert_torch
        import nn_parity
        import resnet_parity
        import resnet_torch
    except ImportError as error:
        print(f"parity: {error.name} is not installed here; install torch, torchvision and transformers to compare",
              file=sys.stderr)
        return 3
    print("against", ", ".join(f"{k} {v}" for k, v in (bert_torch.versions() | resnet_torch.versions()).items()))
    failed = False
    print(f"{'case':14} {'loss, Hetu':>12} {'PyTorch':>12} {'worst gradient':>15} {'20 steps':>10}  where")
    for name, case in bert_cases.CASES.items():
        ours, theirs = bert_hetu.run(case), bert_torch.run(case)
        error, where = bert_cases.worst(ours["gradients"], theirs["gradients"])
        apart = max(abs(a - b) for a, b in zip(ours["losses"], theirs["losses"], strict=True))
        failed |= error >= 1e-4 or apart >= 1e-3
        print(f"{name:14} {ours['loss']:12.7f} {theirs['loss']:12.7f} {error:15.2e} {apart:10.2e}  {where}")
    failed |= not optimizers()
    failed |= not operators()
    failed |= not nn_parity.check()
    failed |= not resnet_parity.check()
    failed |= not resnet_parity.check_gradients()
    failed |= not words()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
