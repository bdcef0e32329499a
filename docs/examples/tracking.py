"""Weights & Biases or MLflow in a training, each by a hook of a dozen lines. Hetu needs neither, and each is imported only
if its hook is used.

    heturun -w 2 python3 docs/examples/tracking.py wandb    # or mlflow"""
import importlib
import sys

import numpy as np

import hetu as ht


class Wandb:
    """Logs loss, rate and gradient norm of each step. https://docs.wandb.ai"""

    def __init__(self, **settings):
        self.settings = settings  # arguments of wandb.init: project, name, config, …

    def on_start(self, job):
        self.run = importlib.import_module("wandb").init(**self.settings) if job.is_chief else None

    def on_step(self, job, step):
        if self.run:
            self.run.log({"loss": step.loss, "rate": step.learning_rate, "norm": step.gradient_norm}, step=step.index)

    def on_end(self, job):
        if self.run:
            self.run.finish()


class Mlflow:
    """Logs the same to MLflow, every `every` steps. https://mlflow.org"""

    def __init__(self, every=10, **settings):
        self.every, self.settings = every, settings  # arguments of mlflow.start_run

    def on_start(self, job):
        self.mlflow = importlib.import_module("mlflow") if job.is_chief else None
        if self.mlflow:
            self.mlflow.start_run(**self.settings)

    def on_step(self, job, step):
        if self.mlflow and step.index % self.every == 0:
            self.mlflow.log_metrics({"loss": step.loss, "rate": step.learning_rate}, step=step.index)

    def on_end(self, job):
        if self.mlflow:
            self.mlflow.end_run()


def job_of(devices=None):
    """Returns a job that fits a linear function to generated points."""
    ht.new_graph()
    x = np.random.default_rng(0).standard_normal((64, 3))
    data = ht.data.Arrays(x=x, y=x @ [1.0, -2.0, 0.5], batch_size=16)
    hidden = ht.ops.linear(data.x, ht.parameter("w", [4, 3], ht.graph.normal(0.5)))
    ht.cut()
    guess = ht.ops.linear(hidden, ht.parameter("v", [1, 4], ht.graph.normal(0.5)))[:, 0]
    loss = ht.step_mean((guess - data.y) ** 2)
    return ht.Executor({"train": [loss, ht.optim.Adam(0.05).minimize(loss)]}, devices)


if __name__ == "__main__":
    if sys.argv[1:] not in (["wandb"], ["mlflow"]):
        sys.exit("usage: tracking.py wandb, or tracking.py mlflow")
    hook = {"wandb": Wandb, "mlflow": Mlflow}[sys.argv[1]]()
    list(job_of().run(steps=100, hooks=[hook]))
