"""GPT-2. Source: Radford et al. 2019. Names, shapes, initial weights and arithmetic are those of Hugging Face's
GPT2LMHeadModel. B batch, T tokens, H width, V vocabulary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from hetu import nn, ops
from hetu.graph import Value
from hetu.init import normal, zeros
from hetu.models.config import ACTIVATIONS, check_activation, check_heads, check_sizes, read
from hetu.models.config_file import ModelType
from hetu.models.language import Cache, LanguageModel, attend, start_weights


@dataclass
class GptConfig:
    """The fields of a GPT-2 `config.json`.

    n_inner: 0 means 4 n_embd.
    scale_attn_weights: scores are divided by the root of a head's width.
    scale_attn_by_inverse_layer_idx: scores are also divided by the layer's number, counted from 1.
    """

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int = 0
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True

    # reorder_and_upcast_attn only changes the precision of float16 models: Hetu keeps scores in float32.
    MODEL_TYPES: ClassVar = {"gpt2": ModelType(
        renamed={"hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head",
                 "num_hidden_layers": "n_layer"},
        harmless=frozenset({"is_decoder", "n_ctx", "predict_special_tokens", "reorder_and_upcast_attn", "summary_activation",
                            "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"}))}

    def __post_init__(self) -> None:
        check_sizes(self, ("n_inner",))
        check_heads(self.n_embd, self.n_head, "n_embd")
        check_activation(self.activation_function, "activation_function")


CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt2-medium": {"n_embd": 1024, "n_layer": 24, "n_head": 16},
    "gpt2-large": {"n_embd": 1280, "n_layer": 36, "n_head": 20},
    "gpt2-xl": {"n_embd": 1600, "n_layer": 48, "n_head": 25},
    "tiny": {"vocab_size": 256, "n_positions": 128, "n_embd": 128, "n_layer": 4, "n_head": 4, "resid_pdrop": 0.0,
             "embd_pdrop": 0.0, "attn_pdrop": 0.0},
}


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out], as in GPT-2's files."""

    def __init__(self, out: int, width: int) -> None:
        self.weight = nn.Parameter([width, out], normal(0.02))
        self.bias = nn.Parameter([out], zeros(), decay=False)

    def forward(self, x: Value) -> Value:
        rows = ops.matmul(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), self.weight)
        return rows.reshape([*x.shape[:-1], self.weight.shape[1]]) + self.bias


class _Attention(nn.Module):
    def __init__(self, c: GptConfig, layer: int) -> None:
        self.heads, self.dropout = c.n_head, c.attn_pdrop
        # The operator divides scores by the root of a head's width. The query is multiplied by the remaining factor.
        self.factor = 1.0 if c.scale_attn_weights else math.sqrt(c.n_embd // c.n_head)
        if c.scale_attn_by_inverse_layer_idx:
            self.factor /= layer + 1
        self.c_attn, self.c_proj = Conv1D(3 * c.n_embd, c.n_embd), Conv1D(c.n_embd, c.n_embd)
        self.resid_dropout = nn.Dropout(c.resid_pdrop)

    def forward(self, x: Value, cache: Cache | None = None) -> Value:
        query, key, value = self.c_attn(x).split(3)
        if self.factor != 1.0:
            query = query * self.factor
        return self.resid_dropout(self.c_proj(attend(query, key, value, cache, heads=self.heads, dropout=self.dropout)))


class _Mlp(nn.Module):
    def __init__(self, c: GptConfig) -> None:
        inner = c.n_inner or 4 * c.n_embd
        self.c_fc, self.c_proj = Conv1D(inner, c.n_embd), Conv1D(c.n_embd, inner)
        self.act, self.dropout = getattr(ops, ACTIVATIONS[c.activation_function]), nn.Dropout(c.resid_pdrop)

    def forward(self, x: Value) -> Value:
        return self.dropout(self.c_proj(self.act(self.c_fc(x))))


class _Block(nn.Module):
    def __init__(self, c: GptConfig, layer: int) -> None:
        self.ln_1, self.attn = nn.LayerNorm(c.n_embd, c.layer_norm_epsilon), _Attention(c, layer)
        self.ln_2, self.mlp = nn.LayerNorm(c.n_embd, c.layer_norm_epsilon), _Mlp(c)

    def forward(self, x: Value, cache: Cache | None = None) -> Value:
        x = x + self.attn(self.ln_1(x), cache)
        return x + self.mlp(self.ln_2(x))


class Gpt(LanguageModel):
    """GPT-2. Its head multiplies by the word table unless the configuration unties them."""

    def __init__(self, config: GptConfig) -> None:
        c = self.config = config
        self.positions = c.n_positions
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(c.vocab_size, c.n_embd), "wpe": nn.Embedding(c.n_positions, c.n_embd),
            "drop": nn.Dropout(c.embd_pdrop), "h": nn.ModuleList(_Block(c, i) for i in range(c.n_layer)),
            "ln_f": nn.LayerNorm(c.n_embd, c.layer_norm_epsilon),
        })
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        if c.tie_word_embeddings:
            self.lm_head.weight = self.transformer.wte.weight
        # Weights that add to the residual start smaller, depending on their number.
        start_weights(self, normal(c.initializer_range),
                      {"c_proj.weight": normal(c.initializer_range / math.sqrt(2 * c.n_layer))})

    @classmethod
    def from_config(cls, name: str, **changes: Any) -> Gpt:
        """Creates a model from `gpt2`, `gpt2-medium`, `gpt2-large`, `gpt2-xl`, `tiny`, or the path of a GPT-2's
        `config.json`. `changes` replace single fields."""
        return cls(read(GptConfig, name, CONFIGS, changes))

    def embed(self, ids: Value, places: Value | None = None) -> Value:
        t = self.transformer
        return t.drop(t.wte(ids) + t.wpe(ops.positions(ids) if places is None else places))

    def cached(self) -> int:
        return self.config.n_embd

    def layers(self) -> nn.ModuleList:
        return self.transformer.h

    def head(self, x: Value) -> Value:
        return self.lm_head(self.transformer.ln_f(x))


__all__ = ["CONFIGS", "Gpt", "GptConfig"]
