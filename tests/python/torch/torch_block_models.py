"""Small random models of transformers and torchvision, each with inputs that its forward takes: name -> (make, inputs)."""

import torch

WORDS, ROWS, LENGTH = 64, 4, 12
# use_cache: stages keep no earlier tokens. With a cache, the forward of transformers 5.24 copies keys and values. The
# copies have another memory layout, which changes the last bits of a matrix product.
SIZES = {"vocab_size": WORDS, "hidden_size": 32, "num_attention_heads": 2, "pad_token_id": 0}
ENCODER = {**SIZES, "intermediate_size": 48, "max_position_embeddings": 32, "hidden_dropout_prob": 0.0,
           "attention_probs_dropout_prob": 0.0}
DECODER = {**SIZES, "intermediate_size": 48, "max_position_embeddings": 32, "num_key_value_heads": 1,
           "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}


def ids(rows=ROWS, length=LENGTH):
    """Returns random tokens, the same for each call."""
    return torch.randint(3, WORDS, (rows, length), generator=torch.Generator().manual_seed(rows * length))


def masks(rows=ROWS):
    """Returns attention masks: padding on the right, padding on the left, and no padding."""
    right = (torch.arange(LENGTH) < torch.tensor([12, 7, 9, 5, 11, 3, 8, 10])[:rows, None]).long()
    return {"right": right, "left": right.flip(1), "all": torch.ones_like(right)}


def _of(kind, config, **options):
    """Returns a function that makes a model of a class of transformers with a number of blocks."""
    def make(layers=2):
        import transformers

        depth = {"num_hidden_layers": layers}
        if kind.startswith("GPT2"):
            depth = {"n_layer": layers}
        elif kind.startswith("DistilBert"):
            depth = {"n_layers": layers}
        elif kind.startswith("T5"):
            depth = {"num_layers": layers, "num_decoder_layers": layers}
        elif kind.startswith("Whisper"):
            depth = {"encoder_layers": layers, "decoder_layers": layers}
        return getattr(transformers, kind)(getattr(transformers, config)(**options, **depth))

    return make


def _resnet(layers=8):
    """Makes a ResNet, which has eight blocks."""
    from torchvision.models import resnet18

    return resnet18(num_classes=WORDS)


def _tokens(rows):
    return {"input_ids": ids(rows)}


def _both(rows):
    return {"input_ids": ids(rows), "decoder_input_ids": ids(rows, 9)}


def _sound(rows):
    draw = torch.Generator().manual_seed(1)
    return {"input_features": torch.randn(rows, 8, 40, generator=draw), "decoder_input_ids": ids(rows, 9)}


def _images(size):
    def inputs(rows):
        return torch.randn(rows, 3, size, size, generator=torch.Generator().manual_seed(1))

    return inputs


_DISTIL = {"vocab_size": WORDS, "dim": 32, "n_heads": 2, "hidden_dim": 48, "max_position_embeddings": 32, "dropout": 0.0,
           "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
MODELS = {
    "BertForMaskedLM": (_of("BertForMaskedLM", "BertConfig", **ENCODER), _tokens),
    "BertForSequenceClassification": (_of("BertForSequenceClassification", "BertConfig", **ENCODER), _tokens),
    "RobertaForMaskedLM": (_of("RobertaForMaskedLM", "RobertaConfig", **ENCODER), _tokens),
    "RobertaForSequenceClassification": (_of("RobertaForSequenceClassification", "RobertaConfig", **ENCODER), _tokens),
    "DistilBertForMaskedLM": (_of("DistilBertForMaskedLM", "DistilBertConfig", **_DISTIL), _tokens),
    "DistilBertForSequenceClassification": (_of("DistilBertForSequenceClassification", "DistilBertConfig", **_DISTIL),
                                            _tokens),
    "GPT2LMHeadModel": (_of("GPT2LMHeadModel", "GPT2Config", vocab_size=WORDS, n_embd=32, n_head=2, n_positions=32,
                            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2,
                            use_cache=False), _tokens),
    "LlamaForCausalLM": (_of("LlamaForCausalLM", "LlamaConfig", **DECODER), _tokens),
    "MistralForCausalLM": (_of("MistralForCausalLM", "MistralConfig", **DECODER, sliding_window=6), _tokens),
    "MixtralForCausalLM": (_of("MixtralForCausalLM", "MixtralConfig", **DECODER, num_local_experts=4,
                                  experts_implementation="eager"), _tokens),
    "Qwen2ForCausalLM": (_of("Qwen2ForCausalLM", "Qwen2Config", **DECODER), _tokens),
    "Qwen3ForCausalLM": (_of("Qwen3ForCausalLM", "Qwen3Config", **DECODER, head_dim=16), _tokens),
    "GemmaForCausalLM": (_of("GemmaForCausalLM", "GemmaConfig", **DECODER, head_dim=16), _tokens),
    "Gemma2ForCausalLM": (_of("Gemma2ForCausalLM", "Gemma2Config", **DECODER, head_dim=16), _tokens),
    "Gemma3ForCausalLM": (_of("Gemma3ForCausalLM", "Gemma3TextConfig", **DECODER, head_dim=16, sliding_window=6), _tokens),
    "T5ForConditionalGeneration": (_of("T5ForConditionalGeneration", "T5Config", vocab_size=WORDS, d_model=32, d_kv=16,
                                       d_ff=48, num_heads=2, dropout_rate=0.0, use_cache=False), _both),
    "WhisperForConditionalGeneration": (
        _of("WhisperForConditionalGeneration", "WhisperConfig", vocab_size=WORDS, d_model=32, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=20,
            max_target_positions=16, dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            decoder_start_token_id=1, use_cache=False), _sound),
    "ViTForImageClassification": (_of("ViTForImageClassification", "ViTConfig", hidden_size=32, num_attention_heads=2,
                                      intermediate_size=48, image_size=16, patch_size=4, num_labels=WORDS,
                                      hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
                                  lambda rows: {"pixel_values": _images(16)(rows)}),
    "ResNet": (_resnet, _images(48)),
}


def more_inputs(name, rows=ROWS):
    """Returns further inputs that a model's forward takes, by descriptive names."""
    if name in ("ViTForImageClassification", "ResNet", "WhisperForConditionalGeneration"):
        return {}
    found = {f"mask on the {side}": {"attention_mask": mask} for side, mask in masks(rows).items()}
    if name.endswith("CausalLM") or name.startswith(("GPT2", "Bert", "Roberta")):
        found["positions"] = {"position_ids": torch.arange(3, 3 + LENGTH).expand(rows, -1)}
        found["positions and mask"] = {**found["positions"], "attention_mask": masks(rows)["left"]}
    if name.startswith("Bert"):
        found["token types"] = {"token_type_ids": (torch.arange(LENGTH) > 5).long().expand(rows, -1)}
    if name.startswith("T5"):
        found["decoder mask"] = {"decoder_attention_mask": masks(rows)["right"][:, :9]}
    return found
