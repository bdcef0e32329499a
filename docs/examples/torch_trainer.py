"""The Trainer of transformers, with its model trained in stages. docs/pytorch.md shows a script that uses it."""
from pathlib import Path

import torch
from transformers import Trainer

import hetu.torch
from hetu.torch.blocks import split


class PipelineTrainer(Trainer):
    def __init__(self, model, args, *given, schedule="1f1b", micro_batches=4, device=None, **named):
        super().__init__(model, args, *given, **named)
        how = {"loss_reduction": "sum", "device": device}
        self.pipe = hetu.torch.Pipeline(split(model), self.loss_of, schedule, micro_batches, **how)
        self._wrap_model = lambda *_, **__: self.pipe  # the object that the loop calls as its model
        self._load_best_model = lambda: self.pipe.load(Path(self.state.best_model_checkpoint, "pipeline"))
        self._load_from_checkpoint = lambda *_: None  # _load_optimizer_and_scheduler() loads the weights, too
        self._save_rng_state = super()._save_rng_state if args.should_save else lambda _: None
        self.accelerator.clip_grad_norm_ = lambda parameters, most: self.pipe.clip_grad_norm_(most)
        self.get_decay_parameter_names = lambda _: Trainer.get_decay_parameter_names(self, model)

    def create_optimizer(self, model=None):
        return super().create_optimizer(self.pipe)  # for the parameters of this worker's stages

    def loss_of(self, logits, labels):  # the sum over a micro-batch's labels, divided by the number in the whole update
        def head(labels=None, **items):
            loss = self.model.loss_function if labels is not None else lambda *_, **__: None
            return {"logits": logits, "loss": loss(logits, labels, self.model.config.vocab_size, **items)}
        return self.compute_loss(head, {"labels": labels}, num_items_in_batch=self.items)

    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        self.items, labels = num_items_in_batch, inputs.pop("labels")
        with torch.autocast(model.device.type, torch.bfloat16, enabled=self.args.bf16):
            return torch.tensor(model.step(inputs, labels, self.accelerator.scaler, accumulate=True))

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        self.items, labels = self._get_num_items_in_batch([inputs], "cpu"), inputs.pop("labels")
        with torch.autocast(model.device.type, torch.bfloat16, enabled=self.args.bf16):
            loss, logits = model.evaluate(inputs, labels, return_outputs=True)
        return torch.tensor(loss), logits, labels

    def _save(self, output_dir=None, state_dict=None):
        super()._save(output_dir, state_dict or self.pipe.state_dict())

    def _save_optimizer_and_scheduler(self, output_dir):
        self.pipe.save(Path(output_dir, "pipeline"), self.optimizer.optimizer, rates=self.lr_scheduler)

    def _load_optimizer_and_scheduler(self, checkpoint):
        self.pipe.load(Path(checkpoint, "pipeline"), self.optimizer.optimizer, rates=self.lr_scheduler)
