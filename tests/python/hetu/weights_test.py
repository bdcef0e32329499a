"""Weights from files: loaded, missing and extra tensors, and refused files with one-line errors. Includes a BertModel's file
under new heads, running statistics, and a file exported from a checkpoint."""

import contextlib
import io
import json
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np

import hetu as ht
from hetu import nn
from weight_files import HETU, write

SEED = 9


def drawn(shapes):
    random = np.random.default_rng(SEED)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


class Net(nn.Module):
    """A body and a head, whose table may be tied."""

    def __init__(self, classes=3, tied=False):
        self.body = nn.ModuleDict({"emb": nn.Embedding(3, 4), "fc": nn.Linear(4, 4)})
        self.head = nn.Linear(4, classes)
        if tied:
            self.head.weight = self.body.emb.weight

    def forward(self, ids):
        return self.head(self.body.fc(self.body.emb(ids)))


BODY = {"emb.weight": (3, 4), "fc.weight": (4, 4), "fc.bias": (4,)}
HEAD = {"head.weight": (3, 4), "head.bias": (3,)}
WHOLE = {**{f"body.{name}": shape for name, shape in BODY.items()}, **HEAD}


class Weights(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hetu-weights-")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "w.safetensors"

    def loss(self, make=Net, **more):
        """Returns the loss in a new graph."""
        ht.new_graph()
        self.data = ht.data.Batches([{"ids": np.array([0, 2], np.int32)}], 2)
        return make(**more)(self.data.ids).sum()

    def load(self, *given, **more):
        """Returns the result of load_weights. Checks that the call prints it."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            loaded = ht.load_weights(*given, **more)
        self.assertEqual(said.getvalue(), f"{loaded}\n")
        return loaded

    def started(self, loss):
        job = ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)]})
        return {name: np.array(array) for name, state, array, _ in job.job.state() if not state}

    def check(self, loss, weights):
        found = self.started(loss)
        for name, array in weights.items():
            np.testing.assert_array_equal(found[name].ravel(), array.ravel(), name)

    def test_a_whole_file(self):
        weights = drawn(WHOLE)
        write(self.file, weights)
        loss = self.loss()
        loaded = self.load(str(self.file))
        self.assertEqual(str(loaded), f"{self.file}: 5 of the model's 5 tensors taken")
        self.check(loss, weights)

    def test_arrays_by_name(self):
        weights = drawn(WHOLE)
        loss = self.loss()
        self.assertEqual(self.load({n: w.astype(np.float64) for n, w in weights.items()}).taken, list(weights))
        self.check(loss, weights)

    def test_a_body_under_a_new_head(self):
        weights = drawn({**BODY, "pooler.weight": (4, 4)})
        write(self.file, weights)
        loss = self.loss()
        loaded = self.load(str(self.file), missing=["head.*"], extra="pooler.*")
        self.assertEqual((loaded.missing, loaded.extra), (["head.weight", "head.bias"], ["pooler.weight"]))
        self.assertIn("3 of the model's 5 tensors taken; not in the file, so initialized: head.weight, head.bias; not used "
                      "from the file: pooler.weight", str(loaded))
        self.check(loss, {f"body.{name}": weights[name] for name in BODY})

    def test_a_file_with_a_first_part_more(self):
        weights = drawn({f"model.{name}": shape for name, shape in WHOLE.items()})
        loss = self.loss()
        self.load(weights)
        self.check(loss, {name.removeprefix("model."): w for name, w in weights.items()})

    def test_a_head_of_other_classes_starts_anew(self):
        weights = drawn(WHOLE)
        loss = self.loss(classes=5)
        loaded = self.load(weights, missing="head.*")
        self.assertEqual((loaded.missing, loaded.extra), (["head.weight", "head.bias"], ["head.weight", "head.bias"]))
        self.assertEqual(self.started(loss)["head.weight"].shape, (5, 4))

    def test_a_tied_weight_may_be_written_out(self):
        weights = drawn(WHOLE)
        weights["head.weight"] = weights["body.emb.weight"]
        loss = self.loss(tied=True)
        self.assertEqual(self.load(weights).tied, ["head.weight"])
        self.check(loss, {name: w for name, w in weights.items() if name != "head.weight"})

    def test_a_tied_weight_may_stand_under_its_further_name_alone(self):
        weights = drawn(WHOLE)
        table = weights.pop("body.emb.weight")
        weights["head.weight"] = table
        loss = self.loss(tied=True)
        self.load(weights)
        self.check(loss, {"body.emb.weight": table})

    def test_only_names_that_the_model_knows_are_tied(self):
        """An extra tensor stays extra, whatever its values. A tied tensor with other values is refused."""
        weights = drawn(WHOLE)
        self.loss()
        self.refused("has tensors beyond the model's: adapter.weight",
                     {**weights, "adapter.weight": weights["body.fc.weight"]})
        self.loss(tied=True)
        self.refused("are both the model's 'body.emb.weight', but differ", weights)
        weights["head.weight"] = weights["body.emb.weight"]
        self.refused("has tensors beyond the model's: other.weight", {**weights, "other.weight": weights["body.emb.weight"]})

    def test_known_models_know_their_ties(self):
        """The heads of GPT-2 and Llama, and BERT's decoder, are tied under their names in Hugging Face's files."""
        def gpt():
            ids = ht.data.Batches([{"ids": np.ones((2, 9), np.int32)}], 2)
            return ht.models.Gpt.from_config("tiny", n_layer=1).loss(ids)

        def llama():
            ids = ht.data.Batches([{"ids": np.ones((2, 9), np.int32)}], 2)
            return ht.models.Llama.from_config("tiny", num_hidden_layers=1, tie_word_embeddings=True).loss(ids)

        def bert():
            config = ht.models.BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                                          intermediate_size=12, max_position_embeddings=6)
            fields = {"input_ids": (2, 5), "input_mask": (2, 5), "segment_ids": (2, 5), "masked_lm_labels": (2, 5),
                      "next_sentence_labels": (2,)}
            rows = {name: np.ones(shape, np.int32) for name, shape in fields.items()}
            return ht.models.Bert(config).pretraining_loss(ht.data.Batches([rows], 2))

        for make, name, table in ((gpt, "lm_head.weight", "transformer.wte.weight"),
                                  (llama, "lm_head.weight", "model.embed_tokens.weight"),
                                  (bert, "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight")):
            with self.subTest(name):
                ht.new_graph()
                make()
                weights = drawn({n: tuple(v.shape) for n, v in ht.graph.current().parameters.items()})
                self.assertEqual(self.load({**weights, name: weights[table]}).tied, [name])

    def test_running_statistics_start_too(self):
        ht.new_graph()
        data = ht.data.Batches([{"x": np.ones((2, 3, 2, 2), np.float32)}], 2)
        loss = nn.BatchNorm2d(3)(data.x).sum()
        weights = {**drawn({"weight": (3,), "bias": (3,), "running_mean": (3,)}), "running_var": np.full(3, 2, np.float32),
                   "num_batches_tracked": np.array(7)}
        self.assertEqual(len(self.load(weights).taken), 5)
        self.check(loss, {name: np.asarray(w, np.float32) for name, w in weights.items()})

    def test_a_bert_under_another_vocabulary_of_heads(self):
        """The file of a BertModel has neither prefix nor heads, and may use old names of LayerNorm."""
        config = ht.models.BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                                      intermediate_size=12, max_position_embeddings=6)
        ht.new_graph()
        fields = {"input_ids": (2, 5), "input_mask": (2, 5), "segment_ids": (2, 5), "masked_lm_labels": (2, 5),
                  "next_sentence_labels": (2,)}
        data = ht.data.Batches([{name: np.ones(shape, np.int32) for name, shape in fields.items()}], 2)
        loss = ht.models.Bert(config).pretraining_loss(data)
        shapes = {name: tuple(value.shape) for name, value in ht.graph.current().parameters.items()}
        body = drawn({n.removeprefix("bert."): s for n, s in shapes.items() if n.startswith("bert.")})
        old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): w
               for n, w in body.items()}
        write(self.file, {**old, "embeddings.position_ids": np.arange(6)})
        loaded = self.load(str(self.file), missing="cls.*")
        self.assertEqual(len(loaded.taken), len(body))
        self.assertTrue(all(name.startswith("cls.") for name in loaded.missing))
        self.check(loss, {f"bert.{name}": w for name, w in body.items()})

    def test_a_class_per_row_is_learnt_under_a_bert(self):
        """A model with a body from a file and a new head learns whether most tokens of a row are below 10. It is checked on
        held-out rows."""
        random = np.random.default_rng(SEED)

        def rows(count):
            ids = random.integers(2, 18, (count, 12), np.int32)
            return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids),
                    "label": ((ids < 10).sum(1) > 6).astype(np.int32)}

        config = ht.models.BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                      intermediate_size=32, max_position_embeddings=12)
        ht.new_graph()
        data = ht.data.Batches([rows(32) for _ in range(150)], 32)
        held_out = ht.data.Batches([rows(32) for _ in range(8)], 32)
        loss = ht.models.Bert(config).classification_loss(data, classes=2)
        shapes = {name: tuple(value.shape) for name, value in ht.graph.current().parameters.items()}
        body = {n.removeprefix("bert."): w / 20 if w.ndim > 1 else (w * 0 + n.endswith("weight"))
                for n, w in drawn(shapes).items() if n.startswith("bert.")}
        write(self.file, body)
        self.assertEqual(self.load(str(self.file), missing="classifier.*").missing, ["classifier.weight", "classifier.bias"])
        job = ht.Executor({"train": [loss, ht.optim.AdamW(0.005).minimize(loss)], "validate": [loss]})
        list(job.run("train", steps=150))
        right = sum(step.scalars["hits1"] for step in job.run("validate", steps=8, data=held_out)) / (8 * 32)
        labels = np.concatenate([item["label"] for item in held_out.items])
        majority = max(labels.mean(), 1 - labels.mean())
        print(f"accuracy {right:.3f}, the larger class {majority:.3f}", flush=True)
        self.assertGreater(right, majority + 0.15)

    def test_sharded_files(self):
        """Sharded files are read through an index or its folder, as transformers writes them."""
        weights = drawn(WHOLE)
        folder, names = self.file.parent, list(weights)
        parts = {"model-00001-of-00002.safetensors": names[:2], "model-00002-of-00002.safetensors": names[2:]}
        for file, part in parts.items():
            write(folder / file, {name: weights[name] for name in part})
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {"total_size": 4 * sum(w.size for w in weights.values())},
                                     "weight_map": {name: file for file, part in parts.items() for name in part}}))
        for source in (index, str(folder)):
            loss = self.loss()
            self.assertEqual(str(self.load(source)), f"{source}: 5 of the model's 5 tensors taken")
            self.check(loss, weights)
        (folder / "model-00002-of-00002.safetensors").unlink()
        self.loss()
        with self.assertRaisesRegex(OSError, r"weights_test\.py:\d+: .*model-00002-of-00002\.safetensors: cannot be opened"):
            ht.load_weights(str(folder))

    def test_unused_tensors_may_have_any_dtype(self):
        """Unused tensors are ignored, such as masks of GPT-2 in bools and bytes. A needed tensor of another dtype is refused
        by name."""
        weights = drawn(WHOLE)
        write(self.file, {**weights, "h.0.attn.bias": (np.ones((1, 1, 3, 4), np.uint8), "U8"),
                          "h.0.attn.masked_bias": (np.ones((3, 4), np.bool_), "BOOL"),
                          "layers.0.self_attn.rotary_emb.inv_freq": np.ones(4)})
        loss = self.loss()
        self.assertEqual(len(self.load(str(self.file)).extra), 3)
        self.check(loss, weights)
        write(self.file, {**weights, "h.0.attn.bias": np.ones(4)})  # a layer's bias
        self.loss()
        self.refused("has tensors beyond the model's: h.0.attn.bias", str(self.file))
        write(self.file, {**weights, "more": (np.ones((3, 4), np.uint8), "U8")})
        self.loss()
        self.assertEqual(self.load(str(self.file), extra="more").extra, ["more"])
        write(self.file, {**weights, "head.bias": (np.ones(3, np.uint8), "U8")})
        self.loss()
        with self.assertRaisesRegex(OSError, "tensor 'head.bias' is U8; weights must be float32, float16 or bfloat16"):
            ht.load_weights(str(self.file))

    def test_an_exported_checkpoint_comes_back(self):
        folder = self.file.parent
        ht.new_graph()
        data = ht.data.Batches([{"ids": np.ones((2, 9), np.int32)}], 2)
        tiny = {"vocab_size": 11, "n_positions": 8, "n_embd": 8, "n_layer": 2, "n_head": 2}
        loss = ht.models.Gpt.from_config("tiny", **tiny).loss(data)
        job = ht.Executor({"train": [loss, ht.optim.AdamW(0.01).minimize(loss)]})
        list(job.run("train", steps=2, checkpoint=str(folder / "ckpt")))
        trained = {name: np.array(array) for name, state, array, _ in job.job.state() if not state}
        subprocess.run([HETU, "checkpoint", "export", folder / "ckpt", "-o", self.file], check=True, capture_output=True)
        ht.new_graph()
        data = ht.data.Batches([{"ids": np.ones((2, 9), np.int32)}], 2)
        loss = ht.models.Gpt.from_config("tiny", **tiny).loss(data)
        self.assertEqual(self.load(str(self.file)).missing, [])
        self.check(loss, trained)

    # Refused files.

    def refused(self, says, source, **more):
        with self.subTest(says), self.assertRaises(ValueError) as caught:
            ht.load_weights(source, **more)
        text = str(caught.exception)
        self.assertRegex(text, r"^weights_test\.py:\d+: ")
        self.assertIn(says, text)
        self.assertNotIn("\n", text)

    def test_what_does_not_fit_is_one_line(self):
        weights = drawn(WHOLE)
        body = {name: w for name, w in weights.items() if name.startswith("body")}
        wide = {**weights, "head.bias": np.ones(4, np.float32)}
        both = {**drawn({"LayerNorm.gamma": (4,), "LayerNorm.weight": (4,)}), **weights}
        self.loss()
        self.refused("load_weights: has no tensor for the model's head.weight, head.bias; missing=['head.weight'], a list "
                     "of names and patterns, allows that", body)
        self.refused("has tensors beyond the model's: cls.bias; extra=['cls.bias']", {**weights, "cls.bias": np.ones(3)})
        self.refused("'head.bias' is [4], but the model's 'head.bias' is [3]; missing=['head.bias'] initializes it instead",
                     wide)
        self.refused("'head.bias' is <U1; expected floats", {**weights, "head.bias": np.array("a")})
        self.refused("tensors 'head.weight' and 'x.head.weight' are both the model's 'head.weight', but differ",
                     {**weights, "x.head.weight": weights["head.weight"] + 1})
        ht.new_graph()
        ht.placeholder("x", "float32", [ht.BATCH, 4])
        self.refused("the graph has no parameters yet; call the model first", weights)
        loss = self.loss()
        self.started(loss)
        self.refused("an Executor already uses the graph", weights)
        ht.new_graph()
        nn.ModuleDict({"LayerNorm": nn.LayerNorm(4)}).LayerNorm(ht.placeholder("x", "float32", [ht.BATCH, 4]))
        write(self.file, {n: w for n, w in both.items() if n.startswith("LayerNorm")})
        self.refused("tensors 'LayerNorm.weight' and 'LayerNorm.weight' are both", str(self.file))

    def test_no_such_file(self):
        self.loss()
        with self.assertRaisesRegex(OSError, "no.safetensors"):
            ht.load_weights("no.safetensors")


if __name__ == "__main__":
    unittest.main()
