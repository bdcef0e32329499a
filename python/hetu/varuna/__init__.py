"""Varuna's names over `hetu.torch`: CutPoint, Varuna, and the two functions that read a stage_to_rank_map. Needs PyTorch.

    from hetu.varuna import CutPoint, Varuna
    model = Varuna(model, "0,2;1,3;", get_batch, batch_size=64, chunk_size=8)
    optimizer = torch.optim.AdamW(model.parameters())
    model.set_optimizer(optimizer)
    loss, overflow, norm = model.step(get_batch(32, "cpu"))
"""

from hetu.torch import CutPoint
from hetu.varuna.placement import get_this_rank_config_varuna, get_varuna_config
from hetu.varuna.wrapper import Varuna

__all__ = ["CutPoint", "Varuna", "get_this_rank_config_varuna", "get_varuna_config"]
