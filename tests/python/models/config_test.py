"""config.json of Hugging Face models: each field gives transformers' loss or is refused by name. The reference losses are in
tests/fixtures/configs.json, written by make_config_fixture.py. Also covers unknown model types, unknown fields and
encodings."""

import json
import pathlib
import tempfile
import unittest
from types import SimpleNamespace

import numpy as np

import config_cases as cases
import hetu as ht
import model_cases
import model_hetu
from hetu.models.config_file import READERS, values_of

FIXTURE = json.loads((pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "configs.json").read_text())["types"]
# A file may use another name for a field, and errors use either name.
ALSO = {"max_position_embeddings": "the model only 8 positions", "n_positions": "the model only 8 positions"}

# Fields as published files have them, with one layer.
PUBLISHED = [
    ("Bert", {"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": False,
              "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
              "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
              "num_attention_heads": 12, "num_hidden_layers": 1, "pad_token_id": 0, "position_embedding_type": "absolute",
              "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": True, "vocab_size": 30522,
              "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
              "pooler_size_per_head": 128, "pooler_type": "first_token_transform", "classifier_dropout": None}),
    ("Gpt", {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
             "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
             "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
             "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 1, "n_positions": 1024,
             "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
             "summary_type": "cls_index", "summary_use_proj": True, "vocab_size": 50257,
             "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}}),
    ("Llama", {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2,
               "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5632,
               "max_position_embeddings": 2048, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 1,
               "num_key_value_heads": 4, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None,
               "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
               "transformers_version": "4.35.0", "use_cache": True, "vocab_size": 32000}),
    ("Llama", {"architectures": ["MistralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
               "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
               "num_attention_heads": 32, "num_hidden_layers": 1, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
               "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
               "vocab_size": 32000}),
    ("Llama", {"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 896,
               "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2",
               "num_attention_heads": 14, "num_hidden_layers": 1, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
               "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": True, "use_mrope": False,
               "use_sliding_window": False, "vocab_size": 151936}),
    ("Llama", {"architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "head_dim": 128, "hidden_size": 1024,
               "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
               "num_attention_heads": 16, "num_hidden_layers": 1, "num_key_value_heads": 8, "rope_scaling": None,
               "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True, "use_sliding_window": False,
               "vocab_size": 151936}),
    ("Llama", {"architectures": ["GemmaForCausalLM"], "attention_bias": False, "head_dim": 256, "hidden_act": "gelu",
               "hidden_activation": None, "hidden_size": 2048, "intermediate_size": 16384, "max_position_embeddings": 8192,
               "model_type": "gemma", "num_attention_heads": 8, "num_hidden_layers": 1, "num_key_value_heads": 1,
               "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 10000.0, "vocab_size": 256000}),
    ("Llama", {"architectures": ["Gemma3ForCausalLM"], "attn_logit_softcapping": None, "cache_implementation": "hybrid",
               "final_logit_softcapping": None, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
               "hidden_size": 1152, "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
               "num_attention_heads": 4, "num_hidden_layers": 1, "num_key_value_heads": 1, "query_pre_attn_scalar": 256,
               "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512,
               "sliding_window_pattern": 6, "vocab_size": 262144}),
    ("Llama", {"architectures": ["GraniteForCausalLM"], "attention_bias": False, "attention_dropout": 0.1,
               "attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "hidden_act": "silu", "hidden_size": 2048,
               "intermediate_size": 8192, "logits_scaling": 8.0, "max_position_embeddings": 131072, "mlp_bias": False,
               "model_type": "granite", "num_attention_heads": 32, "num_hidden_layers": 1, "num_key_value_heads": 8,
               "residual_multiplier": 0.22, "rope_scaling": None, "rope_theta": 5000000.0, "tie_word_embeddings": True,
               "vocab_size": 49155}),
    ("ViT", {"architectures": ["ViTForImageClassification"], "attention_probs_dropout_prob": 0.0, "encoder_stride": 16,
             "hidden_act": "gelu", "hidden_size": 768, "id2label": {str(i): f"class {i}" for i in range(1000)},
             "image_size": 224, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "model_type": "vit", "num_channels": 3,
             "num_attention_heads": 12, "num_hidden_layers": 1, "patch_size": 16, "qkv_bias": True}),
]


SIZES = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "num_key_value_heads": 2,
         "intermediate_size": 8, "vocab_size": 10}


def read(kind, fields):
    """Returns the model of class `kind` from a config.json."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "config.json"
        file.write_text(json.dumps(fields))
        return getattr(ht.models, kind).from_config(str(file))


def loss_of(model_type, fields):
    """Returns the loss with weights drawn by name. Raises ValueError where the file is refused."""
    model = model_hetu.model_of(model_type, fields)
    given = cases.inputs(model_type)
    graph = ht.new_graph()
    batch = SimpleNamespace(**{n: ht.placeholder(n, str(x.dtype), [ht.BATCH, *x.shape[1:]]) for n, x in given.items()})
    loss = model.pretraining_loss(batch) if model_type == "bert" else model.loss(batch)
    weights = model_cases.weights({n: tuple(p.shape) for n, p in graph.parameters.items()})
    leaves = {n: np.asarray(x, np.float64).ravel() for n, x in {**given, **weights}.items()}
    graph.builder.differentiate(loss.number)
    rows = len(next(iter(given.values())))
    return ht._hetu.evaluate(graph.builder.finish(), rows, leaves, "float32", "best")["fetches"]["loss"]


class Fields(unittest.TestCase):
    def test_each_field_gives_transformers_loss_or_is_refused(self):
        self.assertEqual(set(FIXTURE), set(READERS) - {"opt", "t5"})  # opt and t5 have layers only
        for model_type, found in FIXTURE.items():
            computed, refused = 0, []
            for change, theirs in found["rows"]:
                with self.subTest(model_type, change=change):
                    try:
                        ours = loss_of(model_type, {**cases.BASES[model_type], **change})
                    except ValueError as error:
                        self.assertNotIn("\n", str(error))
                        self.assertTrue(any(ALSO.get(name, name) in str(error) or name in str(error) for name in change),
                                        error)
                        refused.append(next(iter(change)))
                        continue
                    self.assertLess(abs(ours - theirs), 1e-5)
                    computed += 1
            self.assertGreater(computed, 20)
            print(f"{model_type}: {computed} files with transformers' loss; refused: {', '.join(dict.fromkeys(refused))}",
                  flush=True)

    def test_what_transformers_saves_loads(self):
        for model_type, found in FIXTURE.items():
            with self.subTest(model_type):
                fields = {name: value for name, value in found["saved"].items() if name != "model_type"}
                self.assertLess(abs(loss_of(model_type, fields) - found["rows"][0][1]), 1e-5)

    def test_published_files_load(self):
        for kind, fields in PUBLISHED:
            with self.subTest(fields.get("model_type")):
                config = read(kind, fields).config
                for name, value in fields.items():
                    if value is not None and hasattr(config, name) and name not in ("hidden_act", "sliding_window"):
                        self.assertEqual(getattr(config, name), value, name)
                self.assertEqual(getattr(config, "num_labels", 1000), 1000)

    def test_encodings_and_folders(self):
        with tempfile.TemporaryDirectory() as folder:
            for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"):
                (pathlib.Path(folder) / "config.json").write_text(json.dumps({**SIZES, "rope_theta": 7}), encoding=encoding)
                self.assertEqual(ht.models.Llama.from_config(folder).config.rope_theta, 7.0, encoding)

    def test_published_files_of_layers_load(self):
        opt = {"activation_dropout": 0.0, "activation_function": "relu", "do_layer_norm_before": True, "dropout": 0.1,
               "ffn_dim": 3072, "hidden_size": 768, "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": 2048,
               "model_type": "opt", "num_attention_heads": 12, "num_hidden_layers": 12, "prefix": "</s>",
               "torch_dtype": "float16", "use_cache": True, "vocab_size": 50272, "word_embed_proj_dim": 768}
        t5 = {"architectures": ["T5ForConditionalGeneration"], "d_ff": 3072, "d_kv": 64, "d_model": 768,
              "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1, "initializer_factor": 1.0,
              "is_encoder_decoder": True, "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 512,
              "num_heads": 12, "num_layers": 12, "output_past": True, "pad_token_id": 0,
              "relative_attention_num_buckets": 32, "task_specific_params": {"summarization": {"num_beams": 4}},
              "vocab_size": 32128}
        self.assertEqual(values_of(ht.models.OptConfig, opt, "opt.json")["ffn_dim"], 3072)
        self.assertEqual(values_of(ht.models.T5Config, t5, "t5.json")["d_model"], 768)
        self.assertEqual(values_of(ht.models.T5Config, {"model_type": "t5"}, "t5.json")["d_model"], 512)

    def test_a_window_is_of_the_layers_that_slide(self):
        qwen = {"model_type": "qwen2", "num_hidden_layers": 3, "sliding_window": 5, "max_window_layers": 1}
        for fields, slides in (({"model_type": "mistral", "num_hidden_layers": 2}, [True, True]),
                               ({"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": None}, [False, False]),
                               (qwen, [False, False, False]),
                               ({**qwen, "use_sliding_window": True}, [False, True, True]),
                               ({"model_type": "gemma3_text", "num_hidden_layers": 7}, [True] * 5 + [False, True])):
            config = read("Llama", {**SIZES, **fields}).config
            self.assertEqual([config.slides(i) for i in range(config.num_hidden_layers)], slides, fields)


class Refused(unittest.TestCase):
    def refused(self, says, kind, fields):
        with self.subTest(says):
            with self.assertRaises(ValueError) as caught:
                read(kind, fields)
            text = str(caught.exception)
            self.assertRegex(text, r"^config_test\.py:\d+: \S+config\.json: ")
            self.assertIn(says, text)
            self.assertNotIn("\n", text)

    def test_model_types(self):
        self.refused("model_type 'gpt_neox' is not supported; Hetu reads bert, gemma, gemma3_text, gpt2,", "Gpt",
                     {"model_type": "gpt_neox"})
        self.refused("model_type is 'mistral', which hetu.models.Llama reads; expected here: gpt2", "Gpt",
                     {"model_type": "mistral"})
        self.refused("model_type ['llama'] is not supported", "Llama", {"model_type": ["llama"]})

    def test_what_is_no_configuration(self):
        for content, says in ((b"{\n1", r":2: not JSON: "), (b"[]", ": holds no JSON object with a model's configuration"),
                              (b"\x80\x81", ": not JSON: not text in UTF-8, UTF-16 or UTF-32: invalid start byte at byte 0"),
                              (b"[" * 100_000, ": not read: its brackets nest too deeply")):
            with self.subTest(says), tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "config.json").write_bytes(content)
                with self.assertRaisesRegex(ValueError, rf"^config_test\.py:\d+: \S+config\.json{says}"):
                    ht.models.Gpt.from_config(f"{folder}/config.json")
        with tempfile.TemporaryDirectory() as folder:
            with (pathlib.Path(folder) / "config.json").open("wb") as file:
                file.truncate(1 << 30)
            with self.assertRaisesRegex(ValueError, "has 1073741824 bytes, but at most"):
                ht.models.Gpt.from_config(folder)
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "nor a JSON file"):
            ht.models.Gpt.from_config(folder)

    def test_every_type_has_its_reader(self):
        for name, kind in READERS.items():
            config = {"OptLayer": ht.models.OptConfig, "T5Block": ht.models.T5Config}.get(
                kind, getattr(ht.models, f"{kind}Config", None))
            self.assertIn(name, config.MODEL_TYPES)

    def test_fields(self):
        for says, kind, fields in (
            ("fields of model_type 'gpt2' that Hetu does not know, and that could change what the model computes: "
             "new_gate = 0.5, other = [1, 2]. Remove them from the file if they do not", "Gpt",
             {"new_gate": 0.5, "other": [1, 2]}),
            ("sliding_window = 4", "Llama", {"model_type": "llama", "sliding_window": 4}),
            ("rope_scaling has rotary positions of the type 'yarn'", "Llama", {"rope_scaling": {"rope_type": "yarn"}}),
            ("rope_scaling has rotary positions of the type 'linear', but no factor", "Llama",
             {"rope_scaling": {"type": "linear"}}),
            ("rope_scaling has factor = 0, expected a number above 0", "Llama",
             {"rope_scaling": {"type": "linear", "factor": 0}}),
            ("rope_parameters of sliding_attention are scaled", "Llama", {"model_type": "gemma3_text", "rope_parameters": {
                "full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "linear", "factor": 2.0}}}),
            ("rope_scaling has factor = 8.0, which Hetu does not compute for rotary positions without a rope_type", "Llama",
             {"rope_scaling": {"factor": 8.0}}),
            ("rope_parameters has full_attention = ", "Llama",
             {"rope_parameters": {"full_attention": {"rope_theta": 2.0}}}),
            ("rope_scaling and rope_parameters are both given and differ", "Llama",
             {"rope_scaling": {"rope_theta": 2.0}, "rope_parameters": {"rope_theta": 3.0}}),
            ("partial_rotary_factor is 0.25, which Hetu does not compute for model_type 'llama'; expected null or 1",
             "Llama", {"partial_rotary_factor": 0.25}),
            ("quantization_config is {\"bits\": 4}, which Hetu does not compute for model_type 'llama'; expected null",
             "Llama", {"quantization_config": {"bits": 4}}),
            ("position_embedding_type is \"relative_key\"", "Bert", {"position_embedding_type": "relative_key"}),
            ("is_decoder is true", "Bert", {"is_decoder": True}),
            ("hidden_size is 24, but n_embd, another name of it, is 48", "Gpt", {"hidden_size": 24, "n_embd": 48}),
            ("layer_types names 1 layers, but num_hidden_layers is 2", "Llama",
             {"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["full_attention"]}),
            ("layer_types names 'chunked_attention'", "Llama",
             {"model_type": "qwen3", "layer_types": ["full_attention", "chunked_attention"]}),
            ("layer_types names a sliding_attention, but sliding_window is not set", "Llama",
             {"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]}),
            ("logits_scaling must be above 0, got 0.0", "Llama", {"model_type": "granite", "logits_scaling": 0}),
            ("attn_logit_softcapping is 50.0", "Llama", {"model_type": "gemma3_text", "attn_logit_softcapping": 50.0}),
            ("num_labels is 5, but id2label names 2 classes", "ViT", {"id2label": {"0": "a", "1": "b"}, "num_labels": 5}),
            ("problem_type is \"regression\"", "ViT", {"problem_type": "regression"}),
            ("hidden_size is '24', expected int", "Llama", {"hidden_size": "24"}),
            ("attention_bias is 1, expected bool", "Llama", {"attention_bias": 1}),
        ):
            self.refused(says, kind, {**(SIZES if kind == "Llama" else {}), **fields})


if __name__ == "__main__":
    unittest.main()
