"""The loops of loops_test.py, each with the whole model in one process, and in stages by the adapters of
docs/examples.

Workers are started as `torch_loops.py FOLDER CASE...`. The test itself runs the loops with the whole model."""

from __future__ import annotations

import contextlib
import copy
import importlib
import runpy
import sys
from pathlib import Path

import torch
from torch import nn

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
sys.path.insert(0, str(EXAMPLES))
MICROS = 4


class Collator:
    """A user's collator: rows with their labels, of which the first few count."""

    def __call__(self, rows):
        ids = torch.stack([row["input_ids"] for row in rows])
        counted = torch.tensor([row["counted"] for row in rows])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids),
                "labels": ids.masked_fill(torch.arange(ids.shape[1]) >= counted[:, None], -100)}


def gpt2(tied):
    """Returns a small model and a data set. The model has no dropout, because stages draw other random numbers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=4, n_head=2, resid_pdrop=0.0,
                                       embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
                                       tie_word_embeddings=tied))
    return model, [{"input_ids": torch.randint(0, 40, (12,)), "counted": 2 + n % 10} for n in range(48)]


def accuracy(prediction):
    """Returns a user's metric."""
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def trainer(folder, stages, name="trainer"):
    """Runs six updates of two batches each, then a second Trainer that continues after the third update."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Notes(TrainerCallback):
        def __init__(self):
            self.steps = []

        def on_step_end(self, args, state, control, **named):
            self.steps.append((state.global_step, named["lr_scheduler"].get_last_lr()[0]))

    def run(resume=None, **more):
        model, data = gpt2(tied=name == "tied")
        factor = MICROS if stages else 1
        with glue.single_process() if stages else contextlib.nullcontext():
            args = TrainingArguments(
                str(folder / f"{name}-{'stages' if stages else 'whole'}"), per_device_train_batch_size=2 * factor,
                gradient_accumulation_steps=2 * MICROS // factor, max_steps=6, eval_strategy="steps", eval_steps=3,
                logging_steps=1, save_steps=3, learning_rate=0.01, warmup_steps=2, lr_scheduler_type="cosine",
                max_grad_norm=0.5, weight_decay=0.1, report_to="none", use_cpu=True, disable_tqdm=True,
                remove_unused_columns=False, per_device_eval_batch_size=6, load_best_model_at_end=resume is None,
                metric_for_best_model="eval_loss", greater_is_better=True, seed=5, **more)
        notes = Notes()
        made = Trainer if not stages else importlib.import_module("torch_trainer").PipelineTrainer
        loop = made(model, args, data_collator=Collator(), train_dataset=data, eval_dataset=data[:10], callbacks=[notes],
                    compute_metrics=accuracy)
        loop.train(resume_from_checkpoint=resume and str(Path(args.output_dir, resume)))
        history = [{k: v for k, v in entry.items() if "runtime" not in k and "per_second" not in k and k != "total_flos"
                    and "preparation" not in k} for entry in loop.state.log_history]
        weights = loop.pipe.state_dict() if stages else model.state_dict()
        return {"weights": {k: v.clone() for k, v in weights.items()}, "history": history, "steps": notes.steps}, loop

    if stages:
        import hetu.torch as glue
    first, loop = run()
    resumed, _ = run("checkpoint-3", save_only_model=False)
    loop.save_model()
    return {"first": first, "resumed": resumed}


def accelerate(folder, stages):
    """Runs the loop of docs/examples/torch_accelerate.py, the same loop without stages, and one that continues from a saved
    state."""
    if stages:
        example = importlib.import_module("torch_accelerate")
        found = example.train(str(folder / "accelerate")).state_dict()
        again = example.train(str(folder / "accelerate"), resume=str(folder / "accelerate" / "4")).state_dict()
        return {"first": {"weights": found}, "resumed": {"weights": again}}
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration, set_seed
    from torch.utils.data import DataLoader, TensorDataset

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2,
                              dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    set_seed(1)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)], nn.Linear(16, 4))
    data = TensorDataset(torch.randn(256, 16), torch.randint(0, 4, (256,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    loader, model, optimizer, rates = accelerator.prepare(DataLoader(data, batch_size=16, shuffle=True), model, optimizer,
                                                          rates)
    for x, y in loader:
        with accelerator.accumulate(model):
            for a, b in zip(x.split(16 // MICROS), y.split(16 // MICROS), strict=True):
                accelerator.backward(nn.functional.cross_entropy(model(a), b) / MICROS)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rates.step()
            optimizer.zero_grad()
    return {"first": {"weights": model.state_dict()}}


def lightning_modules(data, stages):
    """Returns the common base class of the modules that lightning() trains, and the class without stages."""
    import lightning as library
    from torch.utils.data import DataLoader

    class Common:
        def configure_optimizers(self):
            optimizer = torch.optim.AdamW((self.pipe if stages else self).parameters(), lr=0.01)
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)}

        def train_dataloader(self):
            return DataLoader(data, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3))

        def val_dataloader(self):
            return DataLoader(data, batch_size=10)

    class Whole(Common, library.LightningModule):
        def __init__(self, model, loss):
            super().__init__()
            self.model, self.loss = model, loss

        def training_step(self, batch, number):
            x, y = (part.split(8 // MICROS) for part in batch)
            loss = 0.0
            for a, b in zip(x, y, strict=True):
                one = self.loss(self.model(a), b) / MICROS
                self.manual.append(one)
                loss = loss + one.detach()
            self.log("loss", loss)
            return sum(self.manual[-MICROS:])

        def backward(self, loss):
            for one in self.manual:
                (one / self.trainer.accumulate_grad_batches).backward()
            self.manual.clear()

        manual: list[torch.Tensor] = []

        def validation_step(self, batch, number):
            self.log("validated", self.loss(self.model(batch[0]), batch[1]), batch_size=len(batch[0]))

    return Common, Whole


def lightning(folder, stages):
    """Runs two epochs with accumulation, clipping, a schedule of rates, validation and checkpoints, then a loop that
    continues."""
    import lightning as library
    from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger
    from torch.utils.data import TensorDataset

    torch.manual_seed(1)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)], nn.Linear(16, 4))
    data = TensorDataset(torch.randn(48, 16), torch.randint(0, 4, (48,)))

    Common, Whole = lightning_modules(data, stages)

    def run(epochs, resume=None):
        mine = copy.deepcopy(model)
        place = folder / f"lightning-{'stages' if stages else 'whole'}"
        saves = ModelCheckpoint(place, filename="{epoch}", save_top_k=1, monitor="epoch", mode="max")
        options = {"accelerator": "cpu", "devices": 1, "max_epochs": epochs, "accumulate_grad_batches": 2,
                   "gradient_clip_val": 0.3, "logger": CSVLogger(place, version=f"{epochs}{bool(resume)}"),
                   "callbacks": [saves, LearningRateMonitor()], "enable_progress_bar": False, "log_every_n_steps": 1,
                   "num_sanity_val_steps": 0, "enable_model_summary": False}
        if stages:
            import hetu.torch

            example = importlib.import_module("torch_lightning")
            module = type("Staged", (Common, example.PipelineModule), {})(mine, nn.CrossEntropyLoss(), "1f1b", MICROS)
            with hetu.torch.single_process():
                loop = library.Trainer(strategy=example.PipelineStrategy(), **options)
        else:
            module = Whole(mine, nn.CrossEntropyLoss())
            loop = library.Trainer(**options)
        loop.fit(module, ckpt_path=resume, weights_only=False)
        weights = {k.removeprefix("model."): v.clone() for k, v in module.state_dict().items()}
        metrics = {name: float(value) for name, value in loop.callback_metrics.items()}
        return {"weights": weights, "metrics": metrics}, saves.best_model_path

    first, _ = run(2)
    _, path = run(1)
    resumed, _ = run(2, path)
    return {"first": first, "resumed": resumed}


def run(folder, kind, worker, cases):
    """Runs cases, each of which writes FOLDER/CASE-KIND-WORKER.pt. "page N" is a script FOLDER/page N.py."""
    torch.set_num_threads(1)
    stages = kind == "stages"
    for name in cases:
        if name.startswith("page "):
            sys.argv[1:] = [str(Path(folder, name))]
            runpy.run_path(str(Path(folder, f"{name}.py")), run_name="__main__")
        elif name in ("trainer", "tied"):
            torch.save(trainer(Path(folder), stages, name), Path(folder, f"{name}-{kind}-{worker}.pt"))
        else:
            loop = {"accelerate": accelerate, "lightning": lightning}[name]
            torch.save(loop(Path(folder), stages), Path(folder, f"{name}-{kind}-{worker}.pt"))
        print(f"RAN {name} {kind} {worker}", flush=True)


def main():
    """Runs the cases on the command line, in stages."""
    import hetu.torch

    with hetu.torch.single_process() as worker:
        pass
    run(sys.argv[1], "stages", worker, sys.argv[2:])


if __name__ == "__main__":
    main()
