"""Lightning's Trainer, with a model that is trained in stages. docs/pytorch.md shows a script that uses it."""
import pickle
import shutil

import lightning.pytorch
import torch
from lightning.pytorch.utilities import rank_zero_only

import hetu.torch


class PipelineModule(lightning.LightningModule):
    def __init__(self, model, loss, schedule="1f1b", micro_batches=4, **named):
        super().__init__()
        self.pipe = hetu.torch.Pipeline(model, loss, schedule, micro_batches, **named)
        self.state_dict, self.load_state_dict = lambda *_, **__: self.pipe.state_dict(), self.pipe.load_state_dict

    def training_step(self, batch, number):
        k, scaler = self.trainer.accumulate_grad_batches, getattr(self.trainer.precision_plugin, "scaler", None)
        loss = self.pipe.step(*batch, scaler, accumulate=number % k > 0, factor=1 / k)
        self.log("loss", loss, prog_bar=True)
        return torch.tensor(loss)

    def validation_step(self, batch, number):
        self.log("validated", self.pipe.evaluate(*batch), batch_size=len(batch[0]))

    def backward(self, *_):
        """Does nothing, because step() has computed the gradients. They replace those of the previous update."""

    optimizer_zero_grad = backward

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        if gradient_clip_val:  # over all workers
            pipe = self.pipe
            (pipe.clip_grad_value_ if gradient_clip_algorithm == "value" else pipe.clip_grad_norm_)(gradient_clip_val)


class PipelineStrategy(lightning.pytorch.strategies.SingleDeviceStrategy):
    is_global_zero = property(lambda _: rank_zero_only.rank == 0)  # single_process() has set the worker's number

    def broadcast(self, obj, src=0):
        return pickle.loads(self.lightning_module.pipe.exchange(pickle.dumps(obj))[src])

    def reduce_boolean_decision(self, decision, all=True):  # do all workers, or does any worker, say True?
        return bool(self.lightning_module.pipe.sum([decision != all])[0]) != all

    def save_checkpoint(self, checkpoint, filepath, storage_options=None):
        super().save_checkpoint({**checkpoint, "optimizer_states": []}, filepath, storage_options)  # on worker 0
        self.lightning_module.pipe.save(f"{filepath}.pipeline", self.optimizers)

    def load_optimizer_state_dict(self, checkpoint):
        self.lightning_module.pipe.load(f"{self.lightning_module.trainer.ckpt_path}.pipeline", self.optimizers)

    def remove_checkpoint(self, filepath):
        super().remove_checkpoint(filepath)
        shutil.rmtree(f"{filepath}.pipeline", ignore_errors=True)
