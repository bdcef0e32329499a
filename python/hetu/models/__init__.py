"""Model families."""

from hetu.models.bert import Bert, BertConfig

__all__ = ["Bert", "BertConfig"]
