#!/usr/bin/env python3
"""Compares Hetu's BERT live with Hugging Face's on PyTorch: loss, every gradient, 20 training steps. Exit status 1 if a
bound is passed."""

import sys

import bert_cases
import bert_hetu


def main() -> int:
    try:
        import bert_torch
    except ImportError as error:
        print(f"parity: {error.name} is not installed here; install torch and transformers to compare", file=sys.stderr)
        return 3
    print("against", ", ".join(f"{k} {v}" for k, v in bert_torch.versions().items()))
    failed = False
    print(f"{'case':14} {'loss, Hetu':>12} {'PyTorch':>12} {'worst gradient':>15} {'20 steps':>10}  where")
    for name, case in bert_cases.CASES.items():
        ours, theirs = bert_hetu.run(case), bert_torch.run(case)
        error, where = bert_cases.worst(ours["gradients"], theirs["gradients"])
        apart = max(abs(a - b) for a, b in zip(ours["losses"], theirs["losses"], strict=True))
        failed |= error >= 1e-4 or apart >= 1e-3
        print(f"{name:14} {ours['loss']:12.7f} {theirs['loss']:12.7f} {error:15.2e} {apart:10.2e}  {where}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
