"""Rows of the table of models in docs/pytorch.md: how to make each model, its inputs, and the lines that cut it."""

import torch
from torch import nn

import torch_block_models as blocks
import torch_example_models as examples

ROWS = 8
ALWAYS = 3  # lines of any port: the Pipeline, its parameters() for the optimizer, its step() for forward and backward
BLOCKS = "pieces = hetu.torch.blocks.split(model)"
# Names on the page for classes of transformers, and ResNet.
NAMES = {"BertForMaskedLM": "BERT", "RobertaForMaskedLM": "RoBERTa", "DistilBertForMaskedLM": "DistilBERT",
         "GPT2LMHeadModel": "GPT-2", "LlamaForCausalLM": "Llama", "MistralForCausalLM": "Mistral",
         "MixtralForCausalLM": "Mixtral", "Qwen2ForCausalLM": "Qwen 2", "Qwen3ForCausalLM": "Qwen 3",
         "GemmaForCausalLM": "Gemma", "Gemma2ForCausalLM": "Gemma 2", "Gemma3ForCausalLM": "Gemma 3",
         "T5ForConditionalGeneration": "T5", "WhisperForConditionalGeneration": "Whisper",
         "ViTForImageClassification": "ViT", "ResNet": "ResNet-18 (torchvision)"}

BLOCK_COUNT = {"ResNet": 8, "T5ForConditionalGeneration": 1, "WhisperForConditionalGeneration": 1}  # of each half; others: 2


class Row:
    """A model of the table. port: the lines that make `pieces` of `model`, given an example `inputs`."""

    def __init__(self, make, inputs, port, output=lambda out: out):
        self.make, self.inputs, self.port, self.output = make, inputs, port, output

    @property
    def lines(self):
        """Returns the number of lines that a script of plain PyTorch changes."""
        return ALWAYS + len([line for line in self.port.splitlines() if line != "pieces = model"])


def _words(rows=ROWS):
    return blocks.ids(rows)


def _mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32), nn.LayerNorm(32),
                         nn.Linear(32, blocks.WORDS))


def _norms():
    layers = [nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(16, blocks.WORDS))


def _vision_transformer():
    from torchvision.models import VisionTransformer

    return VisionTransformer(image_size=16, patch_size=4, num_layers=4, num_heads=2, hidden_dim=16, mlp_dim=32,
                             num_classes=blocks.WORDS)


def _mobilenet():
    from torchvision.models import mobilenet_v2

    return mobilenet_v2(num_classes=blocks.WORDS, width_mult=0.25, dropout=0.0)


def _convnext():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(8, 16, 2), CNBlockConfig(16, None, 2)], num_classes=blocks.WORDS)


def _vectors(rows=ROWS):
    return torch.randn(rows, 16, generator=torch.Generator().manual_seed(1))


def _images(size):
    return lambda rows=ROWS: torch.randn(rows, 3, size, size, generator=torch.Generator().manual_seed(1))


def _example(at, keywords=""):
    return f"pieces = hetu.torch.split(model, at={at}, example=inputs{keywords})"


LAYERS = ["layers.1", "layers.2", "layers.3"]
ROWS_OF_TABLE = {
    "nn.Sequential": Row(_mlp, _vectors, "pieces = model"),
    "nn.Sequential with BatchNorm1d": Row(_norms, _vectors, "pieces = model"),
    "nanoGPT": Row(examples.NanoGpt, lambda rows=ROWS: {"idx": _words(rows), "targets": _words(rows)},
                   _example(["transformer.h.1", "transformer.h.2", "transformer.h.3"]), lambda out: out[0]),
    "nn.TransformerEncoder": Row(examples.Encoder, _words, _example([f"encoder.{name}" for name in LAYERS])),
    "mixture of experts": Row(examples.Mixture, _words, _example(LAYERS)),
    **{NAMES[name]: Row(lambda make=make, name=name: make(BLOCK_COUNT.get(name, 2)), inputs, BLOCKS,
                        (lambda out: out) if name == "ResNet" else (lambda out: out.logits))
       for name, (make, inputs) in blocks.MODELS.items() if name in NAMES},
    "VisionTransformer (torchvision)": Row(_vision_transformer, _images(16), _example(
        [f"encoder.layers.encoder_layer_{n}" for n in (1, 2, 3)])),
    "MobileNetV2 (torchvision)": Row(_mobilenet, _images(64), _example(["features.4", "features.9", "features.14"])),
    "ConvNeXt (torchvision)": Row(_convnext, _images(32), _example(["features.1.1", "features.2", "features.3.1"])),
    "program of torch.export": Row(examples.Encoder, _words,
                                   "program = torch.export.export(model, (inputs[:2],))\n"
                                   f"pieces = hetu.torch.split(program, at={[f'encoder.{name}' for name in LAYERS]})"),
    "Pipe of torch.distributed.pipelining": Row(
        examples.Encoder, _words,
        "begin = torch.distributed.pipelining.SplitPoint.BEGINNING\n"
        f"spec = dict.fromkeys({[f'encoder.{name}' for name in LAYERS]}, begin)\n"
        "pieces = hetu.torch.split(torch.distributed.pipelining.pipeline(model, (inputs[:2],), split_spec=spec))"),
}
