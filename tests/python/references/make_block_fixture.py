#!/usr/bin/env python3
"""Writes tests/fixtures/blocks.json: results of transformers for the cases of block_cases.py. The tests don't need
transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.opt.modeling_opt import OPTDecoderLayer
from transformers.models.t5.modeling_t5 import T5Block

import block_cases as cases
from bert_cases import digest, rounded


def made(name: str) -> torch.nn.Module:
    """Returns the block of transformers with the weights of the case."""
    family, config = cases.CASES[name]
    if family == "t5":
        t5 = transformers.T5Config(**config, feed_forward_proj="relu", use_cache=False)
        t5._attn_implementation = "eager"
        block: torch.nn.Module = T5Block(t5, has_relative_attention_bias=True, layer_idx=0)
    else:
        opt = transformers.OPTConfig(**config, attention_dropout=0.0, activation_function="relu", enable_bias=True)
        opt._attn_implementation = "eager"
        block = OPTDecoderLayer(opt, layer_idx=0)
    state = {n: torch.from_numpy(cases.drawn(n, tuple(p.shape))) for n, p in block.named_parameters()}
    block.load_state_dict(state)
    return block.eval()


def run(name: str) -> dict[str, Any]:
    """Returns the flat output, and a digest of each gradient of the sum of output times factor."""
    block = made(name)
    given = {n: torch.tensor(x, requires_grad=True) for n, x in cases.inputs(name).items()}
    causal = torch.full((cases.T, cases.T), torch.finfo(torch.float32).min).triu(1)[None, None]
    if cases.CASES[name][0] == "t5":
        decoder = cases.CASES[name][1]["is_decoder"]
        y = block(given["x"], attention_mask=causal if decoder else None, encoder_hidden_states=given.get("memory"),
                  cache_position=torch.arange(cases.T))[0]
    else:
        y = block(given["x"], attention_mask=causal)
        y = y[0] if isinstance(y, tuple) else y
    (y * given["factor"]).sum().backward()
    slopes = {n: p.grad for n, p in [*given.items(), *block.named_parameters()] if n != "factor"}
    return {"y": y.detach().numpy().ravel().tolist(),
            "slopes": {n: digest(n, g.numpy().ravel()) for n, g in slopes.items()}}


def main() -> None:
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(rounded(run(name)))}" for name in cases.CASES)
    path = Path(__file__).resolve().parents[2] / "fixtures" / "blocks.json"
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    path.write_text(f'{{"versions": {json.dumps(versions)}, "cases": {{\n{rows}\n}}}}\n')
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
