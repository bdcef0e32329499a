"""Model families."""

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
from hetu.names import missing_from

__all__ = ["Bert", "BertConfig", "Dlrm", "Generator", "Gpt", "GptConfig", "Llama", "LlamaConfig", "OptConfig", "OptLayer",
           "ResNet", "T5Block", "T5Config", "ViT", "ViTConfig", "WideDeep", "mean_absolute_error",
           "mean_binary_cross_entropy", "mean_cross_entropy", "mean_huber", "mean_kl_divergence", "mean_squared_error",
           "save_generator"]

globals()["__getattr__"] = missing_from(__name__)  # not a def: mypy knows what there is
