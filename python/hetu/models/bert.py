"""BERT for pre-training: masked language model and next-sentence prediction.

Source: Devlin et al. 2019. Parameter names, shapes and arithmetic are those of Hugging Face's BertForPreTraining. B batch,
S sequence, H hidden, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hetu import ops
from hetu.graph import BATCH, Init, Value, constant, current, cut, normal, parameter, xavier_normal
from hetu.models.config import ACTIVATIONS, check_activation, check_heads, check_sizes, read
from hetu.models.config_file import ModelType
from hetu.models.losses import mean_cross_entropy


@dataclass
class BertConfig:
    """The fields of a BERT `config.json`, and `initializer`. classifier_dropout None means hidden_dropout_prob."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    initializer: str = "normal"  # or xavier_normal

    MODEL_TYPES: ClassVar = {"bert": ModelType(harmless=frozenset({
        "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
        "pooler_type"}))}

    def __post_init__(self) -> None:
        check_sizes(self)
        check_activation(self.hidden_act, "hidden_act")
        check_heads(self.hidden_size, self.num_attention_heads, "hidden_size")
        if self.initializer not in ("normal", "xavier_normal"):
            raise ValueError(f"initializer '{self.initializer}' is not known; known: normal, xavier_normal")


# base is SD-PIPE's model: 128 positions, ReLU, untied decoder, 133.25 M parameters.
_SD_PIPE: dict[str, Any] = {
    "hidden_act": "relu", "max_position_embeddings": 128, "tie_word_embeddings": False, "initializer": "xavier_normal",
}
# tiny starts like Hugging Face's models. With Xavier's wider spread, it stays on the plateau of the sample's
# first steps.
CONFIGS: dict[str, dict[str, Any]] = {
    "base": _SD_PIPE,
    "tiny": {
        **_SD_PIPE, "num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512,
        "initializer": "normal",
    },
    # Deep and narrow: enough stages for 8 and 16 workers, and small enough for a laptop.
    "deep": {
        "num_hidden_layers": 16, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128,
        "max_position_embeddings": 128,
    },
}


def _positions(batch: Any) -> Value | None:
    """Returns the positions of masked tokens, [B, P], if the data contain them, else None."""
    return getattr(batch, "masked_lm_positions", None)


class Bert:
    """A BERT with cut-points after the embeddings and after each layer: layers + 2 blocks."""

    def __init__(self, config: BertConfig) -> None:
        self.config = config

    @classmethod
    def from_config(cls, name: str, **changes: Any) -> Bert:
        """Creates a model from `base`, `tiny`, `deep`, or the path of a BERT's `config.json`. `changes` replace single
        fields."""
        return cls(read(BertConfig, name, CONFIGS, changes))

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _weight_init(self) -> Init:
        return xavier_normal() if self.config.initializer == "xavier_normal" else normal(self.config.initializer_range)

    def _linear(self, x: Value, out: int, name: str, init: Init | None = None) -> Value:
        weight = parameter(f"{name}.weight", [out, x.shape[-1]], init or self._weight_init())
        bias = parameter(f"{name}.bias", [out], constant(0.0), decay=False)
        return ops.linear(x, weight, bias, name=name)

    def _norm(self, x: Value, name: str) -> Value:
        gamma = parameter(f"{name}.weight", [x.shape[-1]], constant(1.0), decay=False)
        beta = parameter(f"{name}.bias", [x.shape[-1]], constant(0.0), decay=False)
        return ops.layer_norm(x, gamma, beta, eps=self.config.layer_norm_eps, name=name)[0]

    def _activation(self, x: Value, name: str) -> Value:
        return getattr(ops, ACTIVATIONS[self.config.hidden_act])(x, name=name)

    def _dropout(self, x: Value, name: str, p: float | None = None) -> Value:
        p = self.config.hidden_dropout_prob if p is None else p
        return ops.dropout(x, p=p, name=f"{name}.dropout") if p > 0 else x

    def _embedding(self, rows: int, ids: Value, name: str) -> tuple[Value, Value]:
        table = parameter(f"{name}.weight", [rows, self.config.hidden_size], self._weight_init())
        return table, ops.embedding(table, ids, name=name)

    def _embeddings(self, input_ids: Value, segment_ids: Value) -> tuple[Value, Value]:
        c, at = self.config, "bert.embeddings"
        table, words = self._embedding(c.vocab_size, input_ids, f"{at}.word_embeddings")
        _, positions = self._embedding(
            c.max_position_embeddings, ops.positions(input_ids, name=f"{at}.position_ids"), f"{at}.position_embeddings"
        )
        _, types = self._embedding(c.type_vocab_size, segment_ids, f"{at}.token_type_embeddings")
        x = self._norm(words + types + positions, f"{at}.LayerNorm")
        return table, self._dropout(x, at)

    def _needed(self, x: Value, positions: Value | None, name: str) -> Value:
        """Returns the rows of x [B, S, H] that the heads read: the first row, then the rows at `positions` [B, P]. Returns
        x without positions."""
        if positions is None:
            return x
        first = ops.slice(x, first=0, size=1, axis=1, name=f"{name}.first")
        masked = ops.gather(x, positions, axis=1, name=f"{name}.masked")
        return ops.concat(first, masked, axis=1, name=f"{name}.needed")

    def _layer(self, x: Value, mask: Value, i: int, positions: Value | None = None) -> Value:
        """Computes a layer. Given `positions`, computes only the needed rows, because a row depends on other rows only
        through their keys and values."""
        c, at = self.config, f"bert.encoder.layer.{i}"
        asking = self._needed(x, positions, f"{at}.attention")
        query = self._linear(asking, c.hidden_size, f"{at}.attention.self.query")
        key = self._linear(x, c.hidden_size, f"{at}.attention.self.key")
        value = self._linear(x, c.hidden_size, f"{at}.attention.self.value")
        context, _ = ops.attention(
            query, key, value, mask, heads=c.num_attention_heads, dropout=c.attention_probs_dropout_prob,
            name=f"{at}.attention.self",
        )
        attended = self._dropout(
            self._linear(context, c.hidden_size, f"{at}.attention.output.dense"), f"{at}.attention.output"
        )
        x = self._norm(attended + asking, f"{at}.attention.output.LayerNorm")
        wide = self._linear(x, c.intermediate_size, f"{at}.intermediate.dense")
        wide = self._activation(wide, f"{at}.intermediate.act")
        narrow = self._dropout(self._linear(wide, c.hidden_size, f"{at}.output.dense"), f"{at}.output")
        return self._norm(narrow + x, f"{at}.output.LayerNorm")

    # -- heads -------------------------------------------------------------------------------------------------------

    def _token_loss(self, x: Value, table: Value, batch: Any) -> Value:
        c, at = self.config, "cls.predictions"
        positions = _positions(batch)
        if positions is None:
            labels = batch.masked_lm_labels
        else:  # skips all unmasked rows, six of seven, and above all their V logits
            masked = {"first": 1, "size": positions.shape[1]}
            x, labels = ops.slice(x, axis=1, **masked, name=f"{at}.masked"), batch.masked_lm_ids
        rows = ops.reshape(x, shape=[-x.shape[1], c.hidden_size], name=f"{at}.rows")
        h = self._linear(rows, c.hidden_size, f"{at}.transform.dense")
        h = self._norm(self._activation(h, f"{at}.transform.act"), f"{at}.transform.LayerNorm")
        if c.tie_word_embeddings:
            current().tied[f"{at}.decoder.weight"] = "bert.embeddings.word_embeddings.weight"
        else:
            table = parameter(f"{at}.decoder.weight", [c.vocab_size, c.hidden_size], self._weight_init())
        bias = parameter(f"{at}.bias", [c.vocab_size], constant(0.0), decay=False)
        logits = ops.linear(h, table, bias, name=f"{at}.decoder")
        labels = ops.reshape(labels, shape=[-x.shape[1]], name=f"{at}.labels")
        return mean_cross_entropy(logits, labels, "mlm", ignore=-1)  # -1: a position without a masked token

    def _pooled(self, x: Value) -> Value:
        first = ops.select(x, axis=1, index=0, name="bert.pooler.first")
        pooled = self._linear(first, self.config.hidden_size, "bert.pooler.dense")
        return ops.tanh(pooled, name="bert.pooler.activation")

    def _sentence_loss(self, x: Value, labels: Value) -> Value:
        pooled = self._pooled(x)
        # Xavier's spread for two outputs would start the sentence loss far above log 2, where SD-PIPE's loss starts.
        flat = constant(0.0) if self.config.initializer == "xavier_normal" else None
        order = self._linear(pooled, 2, "cls.seq_relationship", flat)
        return mean_cross_entropy(order, labels, "nsp")

    def _encoded(self, batch: Any, positions: Value | None = None) -> tuple[Value, Value]:
        """Returns the word table, and the output of the last layer: [B, S, H], or given positions [B, P] only the needed
        rows, [B, 1 + P, H]. The heads follow in their own block."""
        length = batch.input_ids.shape[1]
        if length > self.config.max_position_embeddings:
            raise ValueError(
                f"the data has {length} tokens per row, but the model only {self.config.max_position_embeddings} positions"
            )
        table, x = self._embeddings(batch.input_ids, batch.segment_ids)
        last = self.config.num_hidden_layers - 1
        for i in range(last + 1):
            cut()
            x = self._layer(x, batch.input_mask, i, positions if i == last else None)
        cut()
        return table, x

    def classification_loss(self, batch: Any, classes: int) -> Value:
        """Returns the mean cross-entropy of a class per row over the samples of the step, a scalar. The head is that of
        Hugging Face's BertForSequenceClassification.

        batch: provides the values input_ids, input_mask, segment_ids [B, S] and label [B], all int32.
        Also reports `hits1`: the number of rows whose class has the highest logit.
        """
        if classes < 2:
            raise ValueError(f"classes must be >= 2, got {classes}")
        pooled = self._dropout(self._pooled(self._encoded(batch)[1]), "classifier", self.config.classifier_dropout)
        logits = self._linear(pooled, classes, "classifier")
        loss = mean_cross_entropy(logits, batch.label, "label")
        current().fetch("loss", loss)
        current().fetch("hits1", ops.top_k_hits(logits, batch.label, k=1, name="hits1"))
        return loss

    def pretraining_loss(self, batch: Any) -> Value:
        """Returns the MLM loss (mean over masked tokens of the step) plus the NSP loss (mean over samples), a scalar.

        batch: a data object of `hetu.data`, or any object with these int32 attributes: input_ids, input_mask, segment_ids
        [B, S]; next_sentence_labels [B]; and either masked_lm_positions and masked_lm_ids [B, P], with ids -1 if a row has
        fewer than P, or masked_lm_labels [B, S], -1 at unmasked positions.
        Also reports the two parts as mlm_loss and nsp_loss.
        """
        table, x = self._encoded(batch, _positions(batch))
        mlm = self._token_loss(x, table, batch)
        nsp = self._sentence_loss(x, batch.next_sentence_labels)
        loss = ops.add(mlm, nsp, name="loss")
        for name, value in (("loss", loss), ("mlm_loss", mlm), ("nsp_loss", nsp)):
            current().fetch(name, value)
        return loss


__all__ = ["BATCH", "CONFIGS", "Bert", "BertConfig"]
