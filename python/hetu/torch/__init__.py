"""Runs PyTorch modules under Hetu's plans: `hetu.torch.Pipeline`. This is the only package of Hetu that needs PyTorch.

    pipe = hetu.torch.Pipeline(model, loss, schedule="zb-h1", micro_batches=8)
    optimizer = torch.optim.AdamW(pipe.parameters())
    for x, y in loader:
        loss = pipe.step(x, y)
        optimizer.step()
"""

from hetu import _hetu

try:
    _hetu.ModuleJob  # noqa: B018  # before PyTorch, which would not help an installation without training
except AttributeError as error:
    raise ImportError(f"hetu.torch: {error}") from None
try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(f"hetu.torch needs PyTorch ({error}); install it with `pip install torch`, or with `./run torch` in "
                      f"Hetu's source tree") from None

from hetu.torch import versions as _versions  # noqa: F401  # refuses a PyTorch that lacks what the others import

# isort: split
from hetu.torch.averaged_model import AveragedModel
from hetu.torch.cuts import CutPoint
from hetu.torch.distributed_checkpoint import load_dcp, save_dcp
from hetu.torch.elastic import loop
from hetu.torch.empty import empty
from hetu.torch.functions import seed_of
from hetu.torch.generate import generate
from hetu.torch.losses import causal_lm_loss, masked_lm_loss, token_count
from hetu.torch.measured import cut_by_time
from hetu.torch.model_pieces import ModelPieces
from hetu.torch.pipeline import Pipeline
from hetu.torch.profile import profile
from hetu.torch.record import record
from hetu.torch.scaler import GradScaler
from hetu.torch.single_process import single_process
from hetu.torch.tracing import split

__all__ = ["AveragedModel", "CutPoint", "GradScaler", "ModelPieces", "Pipeline", "causal_lm_loss", "cut_by_time", "empty",
           "generate", "load_dcp", "loop", "masked_lm_loss", "profile", "record", "save_dcp", "seed_of", "single_process",
           "split", "token_count"]
