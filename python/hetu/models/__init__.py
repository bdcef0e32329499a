"""Model families."""

from hetu.models.bert import Bert, BertConfig
from hetu.models.ctr import Dlrm, WideDeep
from hetu.models.losses import mean_cross_entropy
from hetu.models.resnet import ResNet

__all__ = ["Bert", "BertConfig", "Dlrm", "ResNet", "WideDeep", "mean_cross_entropy"]
