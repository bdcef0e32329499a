"""Layers and models as Python objects, with PyTorch's names. A Module holds parameters and, called on values, adds
operators to their graph."""

from hetu import keywords
from hetu.names import missing_from
from hetu.nn.activations import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from hetu.nn.attention import (
    MultiheadAttention,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from hetu.nn.images import (
    AdaptiveAvgPool2d,
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    Conv1d,
    Conv2d,
    ConvTranspose2d,
    InstanceNorm2d,
    MaxPool2d,
    Upsample,
)
from hetu.nn.layers import Dropout, Embedding, Flatten, GroupNorm, Identity, LayerNorm, Linear, RMSNorm
from hetu.nn.module import Buffer, Module, ModuleDict, ModuleList, Parameter, Sequential
from hetu.nn.recurrent import GRU, LSTM

__all__ = ["GELU", "GRU", "LSTM", "AdaptiveAvgPool2d", "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "Buffer", "Conv1d",
           "Conv2d", "ConvTranspose2d", "Dropout", "Embedding", "Flatten", "GroupNorm", "Identity", "InstanceNorm2d",
           "LayerNorm", "LeakyReLU", "Linear", "MaxPool2d", "Module", "ModuleDict", "ModuleList", "MultiheadAttention",
           "Parameter", "RMSNorm", "ReLU", "Sequential", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh",
           "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer", "Upsample"]

for _module in ("activations", "attention", "images", "layers", "module", "recurrent"):
    keywords.check_module(f"hetu.nn.{_module}", "hetu.nn")
globals()["__getattr__"] = missing_from(__name__)  # assigned, not defined: otherwise mypy would accept any name
