"""Model families. Each module loads on first use, so that a worker imports only the model that it trains."""

from __future__ import annotations

import importlib

from hetu import keywords
from hetu.names import missing_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hetu.models.bert import Bert, BertConfig
    from hetu.models.ctr import Dlrm, WideDeep
    from hetu.models.generate import Generator, save_generator
    from hetu.models.gpt import Gpt, GptConfig
    from hetu.models.llama import Llama, LlamaConfig
    from hetu.models.losses import (
        mean_absolute_error,
        mean_binary_cross_entropy,
        mean_cross_entropy,
        mean_huber,
        mean_kl_divergence,
        mean_squared_error,
    )
    from hetu.models.opt import OptConfig, OptLayer
    from hetu.models.resnet import ResNet
    from hetu.models.t5 import T5Block, T5Config
    from hetu.models.vit import ViT, ViTConfig

_FROM = {
    "bert": ("Bert", "BertConfig"), "ctr": ("Dlrm", "WideDeep"), "generate": ("Generator", "save_generator"),
    "gpt": ("Gpt", "GptConfig"), "llama": ("Llama", "LlamaConfig"), "opt": ("OptConfig", "OptLayer"), "resnet": ("ResNet",),
    "losses": ("mean_absolute_error", "mean_binary_cross_entropy", "mean_cross_entropy", "mean_huber", "mean_kl_divergence",
               "mean_squared_error"),
    "t5": ("T5Block", "T5Config"), "vit": ("ViT", "ViTConfig"),
}

__all__ = ["Bert", "BertConfig", "Dlrm", "Generator", "Gpt", "GptConfig", "Llama", "LlamaConfig", "OptConfig", "OptLayer",
           "ResNet", "T5Block", "T5Config", "ViT", "ViTConfig", "WideDeep", "mean_absolute_error",
           "mean_binary_cross_entropy", "mean_cross_entropy", "mean_huber", "mean_kl_divergence", "mean_squared_error",
           "save_generator"]


def _find(name: str) -> object:
    for module, names in _FROM.items():
        if name in names or name == module:
            found = importlib.import_module(f"hetu.models.{module}")
            keywords.check_module(f"hetu.models.{module}", "hetu.models")
            return found if name == module else getattr(found, name)
    return missing_from(__name__)(name)


globals()["__getattr__"] = _find  # not defined under that name: otherwise mypy would accept any name
