"""Vision Transformer for images.

Source: Dosovitskiy et al. 2020. Names, shapes, initial weights and arithmetic are those of Hugging Face's
ViTForImageClassification. B batch, P patches, H width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hetu import nn, ops
from hetu.arithmetic import kind_of
from hetu.functions import concat
from hetu.graph import Value, current, cut
from hetu.init import truncated_normal
from hetu.models.config import ACTIVATIONS, check_activation, check_heads, check_sizes, read
from hetu.models.config_file import ModelType
from hetu.models.language import start_weights
from hetu.models.losses import mean_cross_entropy


def _translate(given: dict[str, Any]) -> dict[str, Any]:
    """Derives num_labels from id2label, and converts a square given by two sides to its side."""
    labels = given.get("id2label")
    if labels is not None and not isinstance(labels, dict | list):
        raise ValueError(f"id2label is {labels!r}, expected an object with a name for each class")
    count = given.pop("num_labels", None)
    if labels is not None and count not in (None, len(labels)):
        raise ValueError(f"num_labels is {count!r}, but id2label names {len(labels)} classes")
    for name in ("image_size", "patch_size"):
        value = given.get(name)
        if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
            given[name] = value[0]
    return {"num_labels": 2 if labels is None and count is None else count if labels is None else len(labels)}


@dataclass
class ViTConfig:
    """The fields of a ViT `config.json`. num_labels is the length of a file's id2label, or 2 for a file without it, as in
    transformers."""

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    image_size: int = 224
    patch_size: int = 16
    num_channels: int = 3
    qkv_bias: bool = True
    num_labels: int = 1000

    MODEL_TYPES: ClassVar = {"vit": ModelType(
        translate=_translate, restricted={"problem_type": ("single_label_classification",)},
        harmless=frozenset({"encoder_stride", "pooler_act", "pooler_output_size", "tie_word_embeddings"}))}

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self.hidden_size, self.num_attention_heads, "hidden_size")
        check_activation(self.hidden_act, "hidden_act")
        if self.image_size % self.patch_size:
            raise ValueError(f"image_size {self.image_size} is not divisible by patch_size {self.patch_size}")


CONFIGS: dict[str, dict[str, Any]] = {
    "vit-base": {},
    "vit-small": {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
    "vit-tiny": {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768},
}


class _Embeddings(nn.Module):
    def __init__(self, c: ViTConfig) -> None:
        start, patches = truncated_normal(c.initializer_range), (c.image_size // c.patch_size) ** 2
        self.cls_token = nn.Parameter([1, 1, c.hidden_size], start)
        self.position_embeddings = nn.Parameter([1, patches + 1, c.hidden_size], start)
        self.patch_embeddings = nn.ModuleDict({
            "projection": nn.Conv2d(c.num_channels, c.hidden_size, c.patch_size, c.patch_size)})
        self.dropout = nn.Dropout(c.hidden_dropout_prob)

    def forward(self, image: Value) -> Value:
        patches = self.patch_embeddings.projection(image).flatten(2).permute(0, 2, 1)
        first = self.cls_token.expand([patches.shape[0], 1, patches.shape[2]])
        return self.dropout(concat([first, patches], 1) + self.position_embeddings)


class _Layer(nn.Module):
    def __init__(self, c: ViTConfig) -> None:
        self.heads, self.dropped = c.num_attention_heads, c.attention_probs_dropout_prob
        self.attention = nn.ModuleDict({
            "attention": nn.ModuleDict({name: nn.Linear(c.hidden_size, c.hidden_size, c.qkv_bias)
                                        for name in ("query", "key", "value")}),
            "output": nn.ModuleDict({"dense": nn.Linear(c.hidden_size, c.hidden_size)}),
        })
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(c.hidden_size, c.intermediate_size)})
        self.output = nn.ModuleDict({"dense": nn.Linear(c.intermediate_size, c.hidden_size)})
        self.layernorm_before, self.layernorm_after = (nn.LayerNorm(c.hidden_size, c.layer_norm_eps) for _ in range(2))
        self.dropout, self.act = nn.Dropout(c.hidden_dropout_prob), getattr(ops, ACTIVATIONS[c.hidden_act])

    def forward(self, x: Value) -> Value:
        y, of = self.layernorm_before(x), self.attention.attention
        context, _ = ops.attention(of.query(y), of.key(y), of.value(y), heads=self.heads, dropout=self.dropped)
        x = x + self.dropout(self.attention.output.dense(context))
        wide = self.act(self.intermediate.dense(self.layernorm_after(x)))
        return x + self.dropout(self.output.dense(wide))


class ViT(nn.Module):
    """A ViT with cut-points after the embeddings and after each layer: layers + 2 blocks."""

    def __init__(self, config: ViTConfig) -> None:
        c = self.config = config
        self.vit = nn.ModuleDict({
            "embeddings": _Embeddings(c),
            "encoder": nn.ModuleDict({"layer": nn.ModuleList(_Layer(c) for _ in range(c.num_hidden_layers))}),
            "layernorm": nn.LayerNorm(c.hidden_size, c.layer_norm_eps),
        })
        self.classifier = nn.Linear(c.hidden_size, c.num_labels)
        start_weights(self, truncated_normal(c.initializer_range))

    @classmethod
    def from_config(cls, name: str, **changes: Any) -> ViT:
        """Creates a model from `vit-base`, `vit-small`, `vit-tiny`, or the path of a ViT's `config.json`. `changes` replace
        single fields."""
        return cls(read(ViTConfig, name, CONFIGS, changes))

    def forward(self, image: Value) -> Value:
        """Returns logits [B, num_labels] of images [B, num_channels, image_size, image_size]."""
        c = self.config
        if image.shape[1:] != [c.num_channels, c.image_size, c.image_size]:
            current().refuse(f"ViT: images must be [B, {c.num_channels}, {c.image_size}, {c.image_size}], got "
                             f"{kind_of(image)}")
        x = self.vit.embeddings(image)
        for layer in self.vit.encoder.layer:
            cut()
            x = layer(x)
        cut()
        return self.classifier(self.vit.layernorm(x)[:, 0])

    def loss(self, batch: Any) -> Value:
        """Returns the mean softmax cross-entropy over the samples of the step, a scalar. `batch` provides image and label
        as for ResNet. Also reports `hits1` and `hits5`."""
        logits = self(batch.image)
        loss = mean_cross_entropy(logits, batch.label, "label")
        current().fetch("loss", loss)
        for k in (1, 5):
            if k <= self.config.num_labels:
                current().fetch(f"hits{k}", ops.top_k_hits(logits, batch.label, k=k, name=f"hits{k}"))
        return loss


__all__ = ["CONFIGS", "ViT", "ViTConfig"]
