"""Common mistakes of new users give one line that names the place in their script and the right use. This test covers data,
models and jobs. Values are in value_test.py, and the user's own rows in rows_test.py."""

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hetu as ht


class Setting:
    """A model of one layer, as in a user's script."""

    def __init__(self):
        self.told = {}
        ht.new_graph()
        self.data = ht.data.Arrays(x=np.ones((8, 2)), y=np.ones(8), batch_size=4)
        self.scores = ht.ops.linear(self.data.x, ht.parameter("w", [1, 2], ht.graph.constant(1.0)), name="scores")
        self.loss = ht.step_mean((self.scores[:, 0] - self.data.y) ** 2, name="loss")

    def minimized(self):
        return ht.optim.SGD(0.0).minimize(self.loss)

    def job(self, **lists):
        train = self.minimized()
        named = {name: [train if isinstance(one, str) and one == "train" else one for one in items]
                 for name, items in lists.items()}
        return ht.Executor(named or {"train": [self.loss, train]}, **{"threads": 1, **self.told})

    def with_options(self, **told):
        self.told = told
        return self

    def unfed(self):
        ht.new_graph()
        return ht.step_mean(ht.nn.Linear(2, 1)(ht.placeholder("x", "float32", [ht.BATCH, 2])))

    def labelled(self, label):
        """Runs a training whose second row has this label; there are two classes."""
        ht.new_graph()
        data = ht.data.Arrays(x=np.ones((4, 2)), y=np.array([0, label, 1, 1]), batch_size=4, shuffle=False)
        loss = ht.models.mean_cross_entropy(ht.nn.Linear(2, 2)(data.x), data.y, "entropy")
        return list(ht.Executor({"train": [loss, ht.optim.SGD(0.1).minimize(loss)]}, threads=1).run())

    def step(self):
        (step,) = self.job().run()
        return step

    def trained(self):
        job = self.job()
        list(job.run())
        return job


def other_graph():
    value = Setting().loss
    ht.new_graph()
    return value


TRAPS = (
    # A number in place of a Value, or an array in place of a shape.
    (ValueError, "minimize: the loss must be a Value, got a float", lambda s: ht.optim.SGD(0.1).minimize(0.5)),
    (ValueError, "linear: input 1 must be a Value, got an array (numpy.ndarray), which hetu.constant converts to a Value",
     lambda s: ht.ops.linear(s.data.x, np.ones((1, 2)))),
    (ValueError, "parameter 'u': the shape must be a list of integers, such as [2, 3], got an array of shape [2]",
     lambda s: ht.parameter("u", np.array([2, 3]), ht.graph.constant(0.0))),
    (ValueError, "differentiate: the loss must be a float32 scalar, but 'scores' is float32[B, 1]",
     lambda s: ht.optim.SGD(0.1).minimize(s.scores)),
    (ValueError, "parameter 'u': init must be one of hetu.init, such as hetu.init.normal(0.02), got 0.1",
     lambda s: ht.parameter("u", [2, 3], 0.1)),
    (ValueError, "numpy.mean takes arrays, but a Value is computed when the graph runs", lambda s: np.mean(s.data.x)),
    (ValueError, "numpy.exp takes arrays, but a Value is computed when the graph runs; use .exp()",
     lambda s: np.exp(s.data.x)),
    (ValueError, "numpy.tanh takes arrays, but a Value is computed when the graph runs; use hetu.ops.tanh",
     lambda s: np.tanh(s.data.x)),
    (ValueError, "numpy.concatenate takes arrays, but a Value is computed when the graph runs; use hetu.concat",
     lambda s: np.concatenate([s.data.x, s.data.x])),
    (ValueError, "numpy.norm takes arrays", lambda s: np.linalg.norm(s.data.x)),
    (ValueError, "Value(float32[B, 2]) is computed when the graph runs; it has no array while the graph is built",
     lambda s: np.asarray(s.data.x)),
    (ValueError, "add: the operand beside Value(float32[B, 2]) must be a Value or a number, got an array",
     lambda s: np.ones(2) + s.data.x),
    (ValueError, "@: the operand beside Value(float32[B, 2]) must be a Value, got an array",
     lambda s: np.ones((2, 2)) @ s.data.x),
    (ValueError, "Value(float32[B, 2]): values support + - * / ** and @, but not % and //", lambda s: s.data.x % 2),
    (ValueError, "Value(float32[B, 2]) is the result of an operator and can't be changed",
     lambda s: s.data.x.__setitem__((slice(None), 0), 1.0)),
    (ValueError, "the step of slices of Value(float32[B, 2]) must be >= 1, got -1; .flip(1) reverses the axis",
     lambda s: s.data.x[:, ::-1]),
    (ValueError, "Value(float32[]) is computed when the graph runs; it is not a number", lambda s: f"{s.loss:.3f}"),
    (ValueError, "step_mean: x must be a Value, got a float", lambda s: ht.step_mean(0.5)),
    (ValueError, "softmax 'softmax': has no attribute 'dim'; it has none", lambda s: ht.ops.softmax(s.data.x, dim=1)),
    (ValueError, "argmax 'argmax': has no attribute 'dim'; it has: axis", lambda s: ht.ops.argmax(s.data.x, dim=1)),
    (ValueError, "argmax 'argmax': has no attribute 'axes'; did you mean 'axis'?",
     lambda s: ht.ops.argmax(s.data.x, axes=1)),
    (ValueError, "stack: values[1] must be a Value, got a float", lambda s: ht.stack([s.loss, 1.0])),
    (ValueError, "lstm: w_ih must be a Value, got an array", lambda s: ht.lstm(s.data.x, np.ones((8, 2)), np.ones((8, 2)))),
    (ValueError, "mean_cross_entropy: logits must be [N, ..., classes] and labels [N, ...], got Value(float32[B]) and "
     "Value(int32[B, 1])", lambda s: ht.models.mean_cross_entropy(s.data.y, s.scores.cast("int32"))),
    (ValueError, "mean_cross_entropy: labels must be int32, got Value(float32[B, 2]); for rows with a 1 at the class, use "
     "labels.argmax()", lambda s: ht.models.mean_cross_entropy(s.data.x, s.data.x)),
    (ValueError, "mean_squared_error: predictions float32[B, 1], targets float32[B]; give them one shape, as in p[:, 0]",
     lambda s: ht.models.mean_squared_error(s.scores, s.data.y)),
    (ValueError, "mean_absolute_error: predictions float32[B], targets float32[B, 1]; give them one shape, as in y[:, 0]",
     lambda s: ht.models.mean_absolute_error(s.data.y, s.scores)),
    (ValueError, "mean_huber: predictions float32[B, 1], targets float32[B]",
     lambda s: ht.models.mean_huber(s.scores, s.data.y)),
    (ValueError, "mean_binary_cross_entropy: predictions float32[B, 1], targets float32[B]",
     lambda s: ht.models.mean_binary_cross_entropy(s.scores, s.data.y)),
    (ValueError, "save: expected a list of values, got Value(float32[B, 1])", lambda s: ht.save("m", s.scores, "ckpt")),
    (ValueError, "relu: the name must be a string, got an int", lambda s: ht.ops.relu(s.data.x, name=3)),
    (ValueError, "constant: setting an array element with a sequence", lambda s: ht.constant([[1.0], [1.0, 2.0]])),
    (ValueError, "Arrays: field 'x': setting an array element with a sequence; all rows must have one shape",
     lambda s: ht.data.Arrays(x=[[1.0], [1.0, 2.0]], batch_size=1)),
    # Names that don't exist.
    (AttributeError, "a Value has no 'view'; use .reshape", lambda s: s.data.x.view(4)),
    (AttributeError, "a Value has no 'sigmoid'; hetu.ops.sigmoid is a function of values", lambda s: s.data.x.sigmoid()),
    (AttributeError, "a Value has no 'unsqeeze'; did you mean .unsqueeze or .squeeze?", lambda s: s.data.x.unsqeeze(1)),
    (AttributeError, "hetu.ops has no 'rellu'; did you mean relu", lambda s: ht.ops.rellu(s.data.x)),
    (AttributeError, "hetu has no 'Linear'; there is hetu.nn.Linear", lambda s: ht.Linear),
    (AttributeError, "hetu has no 'relu'; hetu.ops.relu is a function of values", lambda s: ht.relu),
    (AttributeError, "hetu has no 'cat'; use hetu.concat", lambda s: ht.cat),
    (AttributeError, "hetu has no 'placeholdr'; did you mean placeholder?", lambda s: ht.placeholdr),
    (AttributeError, "hetu.nn has no 'CrossEntropyLoss'; use hetu.models.mean_cross_entropy",
     lambda s: ht.nn.CrossEntropyLoss),
    (AttributeError, "hetu.optim has no 'adam'; did you mean Adam?", lambda s: ht.optim.adam),
    (AttributeError, "hetu.data has no 'DataLoader'; use hetu.data.Dataset", lambda s: ht.data.DataLoader),
    (AttributeError, "hetu.models has no 'GPT'; use hetu.models.Gpt", lambda s: ht.models.GPT),
    (AttributeError, "hetu.lr has no 'StepLR'; use hetu.lr.step", lambda s: ht.lr.StepLR),
    (AttributeError, "hetu.init has no 'xavier_uniform_'; did you mean xavier_uniform", lambda s: ht.init.xavier_uniform_),
    (AttributeError, "Linear has no 'eval'; use a list of the Executor without minimize()",
     lambda s: ht.nn.Linear(2, 1).eval()),
    (AttributeError, "Linear has no 'wieght'; did you mean .weight?", lambda s: ht.nn.Linear(2, 1).wieght),
    (AttributeError, "Parameter has no 'grad'; use job.gradients() after a step",
     lambda s: ht.nn.Linear(2, 1).weight.grad),
    (AttributeError, "Linear has no 'xyzzy'; help(hetu.nn.Module) lists what it has", lambda s: ht.nn.Linear(2, 1).xyzzy),
    (AttributeError, "hetu has no 'context'; use hetu.cut(value) where a stage ends, and devices=[[hetu.devices.rgpu(",
     lambda s: ht.context(ht.devices.gpu(0))),
    (AttributeError, "hetu has no 'rgpu'; use hetu.devices.rgpu", lambda s: ht.rgpu("w0", 0)),
    (AttributeError, "hetu has no 'xyzzy'; help(hetu) lists what it has", lambda s: ht.xyzzy),
    (AttributeError, "Executor has no 'fit'; use .run", lambda s: s.job().fit()),
    (AttributeError, "SGD has no 'zero_grad'; use job.run, whose steps start with zero gradients",
     lambda s: ht.optim.SGD(0.1).zero_grad()),
    (ValueError, "model 'gpt3' is neither one of gpt2, ", lambda s: ht.models.Gpt.from_config("gpt3")),
    (ValueError, "GptConfig has no layers; it has vocab_size, ", lambda s: ht.models.Gpt.from_config("tiny", layers=3)),
    (OSError, "none.safetensors: cannot be opened: No such file", lambda s: ht.load_weights("none.safetensors")),
    (OSError, "none: holds no checkpoint", lambda s: ht.load("none")),
    (ValueError, "Executor: expected a dict of lists of values, such as {'train': [loss, train]}, got [",
     lambda s: ht.Executor([s.loss])),
    # Options by their Python names.
    (ValueError, "unknown method '1f1'; did you mean '1f1b'?; the methods, with other names in brackets: gpipe",
     lambda s: s.with_options(pipeline="1f1").job()),
    (ValueError, "batch_size 4 is not a multiple of micro_batches 3; choose a multiple of 3",
     lambda s: s.with_options(micro_batches=3).job()),
    (ValueError, "unknown option microbatches; did you mean 'micro_batches'?; help(hetu.Executor) lists them",
     lambda s: s.with_options(microbatches=2).job()),
    (TypeError, "hetu.Executor takes no keyword 'batch_size'; give it to the data object",
     lambda s: s.with_options(batch_size=2).job()),
    (TypeError, "hetu.Executor takes no keyword 'use_preduce'; give averaging=hetu.averaging.Averaging(), with",
     lambda s: s.with_options(use_preduce=True).job()),
    (TypeError, "hetu.Executor takes no keyword 'use_adpsgd'; give averaging=hetu.averaging.Averaging(method='adpsgd')",
     lambda s: s.with_options(use_adpsgd=True).job()),
    (TypeError, "hetu.Executor takes no keyword 'dynamic_memory'; leave it out",
     lambda s: s.with_options(dynamic_memory=True).job()),
    (TypeError, "hetu.Executor takes no keyword 'bsp'; give sync_method='ps' and staleness=N, with the same numbers",
     lambda s: s.with_options(bsp=0).job()),
    (TypeError, "hetu.Executor.run takes no keyword 'batch_num'; give micro_batches=N to hetu.Executor",
     lambda s: s.job().run("train", batch_num=4)),
    (TypeError, "hetu.Executor takes no keyword 'epochs'; give steps to job.run", lambda s: s.with_options(epochs=2).job()),
    # Sizes and numbers that are too large.
    (ValueError, "placeholder 'x2': [B, 2305843009213693952] has more than 2^44 elements",
     lambda s: ht.placeholder("x2", "float32", [ht.BATCH, 2**61])),
    (ValueError, "parameter 'left.weight': [2305843009213693952, 2] has more than 2^44 elements",
     lambda s: ht.nn.Linear(2, 2**61).named("left")(s.data.x)),
    (ValueError, "conv2d: attribute 'padding' has the wrong type or is too large: 1180591620717411303424",
     lambda s: ht.nn.Conv2d(1, 1, 1, padding=2**70)(ht.placeholder("i", "float32", [ht.BATCH, 1, 2, 2]))),
    (ValueError, "batch_size must be a whole number >= 1 and <= 268435456, got 4611686018427387904",
     lambda s: ht.data.Arrays(x=np.ones(3), batch_size=2**62)),
    (ValueError, "parameter 'v': its initial value must be a finite float32 number, got inf",
     lambda s: ht.parameter("v", [2], ht.graph.normal(float("inf")))),
    (ValueError, "total: 9223372036854775808 is too large for a 64-bit integer",
     lambda s: ht.Executor({"train": [ht.optim.SGD(ht.lr.cosine(0.1, 2**63)).minimize(s.loss)]})),
    (ValueError, "forward must be <= 1000000000000000, got 1e+308",
     lambda s: ht.schedule.generate("auto", stages=2, micro_batches=2, forward=1e308)),
    # Keywords, also in the spelling of other libraries.
    (TypeError, "hetu.optim.Adam takes no keyword 'lr'; use learning_rate", lambda s: ht.optim.Adam(lr=0.1)),
    (TypeError, "hetu.optim.AdamW takes no keyword 'eps'; use epsilon", lambda s: ht.optim.AdamW(0.1, eps=1e-8)),
    (TypeError, "hetu.optim.Adam takes no keyword 'weight_decay'; use l2",
     lambda s: ht.optim.Adam(weight_decay=0.1)),
    (TypeError, "hetu.optim.SGD takes no keyword 'momentum'; use hetu.optim.Momentum",
     lambda s: ht.optim.SGD(momentum=0.9)),
    (TypeError, "hetu.lr.cosine takes no keyword 'T_max'; use total", lambda s: ht.lr.cosine(0.1, T_max=9)),
    (TypeError, "hetu.nn.Linear takes no keyword 'use_bias'; use bias", lambda s: ht.nn.Linear(2, 1, use_bias=False)),
    (TypeError, "hetu.nn.Linear takes no keyword 'units'; use out_features", lambda s: ht.nn.Linear(2, units=1)),
    (TypeError, "hetu.nn.Dropout takes no keyword 'rate'; use p", lambda s: ht.nn.Dropout(rate=0.1)),
    (TypeError, "hetu.nn.Linear takes no keyword 'biass'; did you mean 'bias'?", lambda s: ht.nn.Linear(2, 1, biass=False)),
    (TypeError, "hetu.data.Batches takes no keyword 'batch'; use batch_size", lambda s: ht.data.Batches([], batch=2)),
    (TypeError, "hetu.concat takes no keyword 'dim'; use axis", lambda s: ht.concat([s.scores], dim=1)),
    (TypeError, "Value.sum takes no keyword 'keepdim'; use keepdims", lambda s: s.scores.sum(1, keepdim=True)),
    (TypeError, "hetu.models.mean_cross_entropy takes no keyword 'ignore_index'; use ignore",
     lambda s: ht.models.mean_cross_entropy(s.scores, s.data.y, ignore_index=0)),
    (TypeError, "hetu.hooks.Log takes no keyword 'filename'; use path", lambda s: ht.hooks.Log(filename="log.csv")),
    (TypeError, "hetu.Executor.run takes no keyword 'epochs'; give steps; an epoch has job.data.steps_per_epoch",
     lambda s: s.job().run(epochs=3)),
    (TypeError, "hetu.Executor.run takes no keyword 'callbacks'; use hooks", lambda s: s.job().run(callbacks=[])),
    (TypeError, "hetu.Executor.predict takes no keyword 'x'; use data", lambda s: s.job().predict(x=np.ones((3, 2)))),
    (ValueError, "devices none: no such list; ", lambda s: s.with_options(devices="none").job()),
    (ValueError, "learning_rate must be >= 0, got -1", lambda s: ht.Executor([*map(lambda t: {"train": [t]}, [
        ht.optim.SGD(-1.0).minimize(s.loss)])][0])),
    (ValueError, "Arrays: batch_size must be a whole number >= 1 and <= 268435456, got 2.0",
     lambda s: ht.data.Arrays(2.0, x=np.ones(3))),
    (ValueError, "Arrays: name each array that the model reads: x=…, y=…; got 2 without a name",
     lambda s: ht.data.Arrays(np.ones((4, 2)), np.ones(4), batch_size=2)),
    (ValueError, "2 stages do not fit: the model's cut-points (hetu.cut) give 1 block, so one stage is possible",
     lambda s: s.with_options(devices="threads:1x2").job()),
    (ValueError, "batches: item 0 is a tuple; give a dict", lambda s: ht.data.Batches([(np.ones(3),)], 3)),
    (ValueError, "the graph must read from one data object, but it reads from 2",
     lambda s: ht.Executor({"train": [ht.optim.SGD(0.1).minimize(
         s.loss + ht.step_mean(ht.data.Arrays(z=np.ones(4), batch_size=4).z))]})),
    (AttributeError, "Arrays has no field or attribute 'z'; its fields: x, y", lambda s: s.data.z),
    (ValueError, "fetches 'train': 'loss' is neither a value nor the result of minimize()",
     lambda s: s.job(train=["loss", "train"])),
    (ValueError, "fetches 'train': expected a list of values, got 'train'", lambda s: ht.Executor({"train": "train"})),
    (ValueError, "exactly one minimize() handle is needed among the fetches, got 0",
     lambda s: ht.Executor({"train": [s.loss]})),
    (ValueError, "belongs to another graph than the trained one",
     lambda s: s.job(train=["train"], look=[other_graph()])),
    (ValueError, "no fetches called 'test'; there are: train", lambda s: s.job().run("test")),
    (KeyError, "this step reports no 'hits'; there are: loss", lambda s: s.step().scalars["hits"]),
    (KeyError, "this step reports no 'hits'; there are: loss", lambda s: s.step()["hits"]),
    (KeyError, "this step reports no 'hits'; there are none", lambda s: s.step().samples_of["hits"]),
    (KeyError, "job.gradients returned no 'ww'; did you mean 'w'?", lambda s: s.trained().gradients()["ww"]),
    (KeyError, "job.weights returned no 'bias'; there are: w", lambda s: s.job().weights()["bias"]),
    (KeyError, "this worker's stages hold no 'bias'; there are: w", lambda s: s.job().weights(own=True)["bias"]),
    (KeyError, "job.gradient_norms returned no 'bias'; there are: w", lambda s: s.trained().gradient_norms()["bias"]),
    (ValueError, "expected a dict of arrays by field, such as {'x': rows}, or a data object of hetu.data; got an array",
     lambda s: s.job(train=["train"], predict=[s.scores]).predict(np.ones((3, 2)))),
    (ValueError, "hooks: <lambda> is called with (job, step), but takes (step)",
     lambda s: s.job().run(hooks=[lambda step: None])),
    (ValueError, "hooks: Progress is a class; give an object of it, Progress(…)",
     lambda s: s.job().run(hooks=[ht.hooks.Progress])),
    (ValueError, "Arrays: augment is called with (batch, generator), but takes (batch)",
     lambda s: ht.data.Arrays(x=np.ones(3), batch_size=1, augment=lambda batch: batch)),
    (ValueError, "evaluate: metric 'm' must return a number, got an array (numpy.ndarray)",
     lambda s: s.job(train=["train"], evaluate=[s.loss]).evaluate(metrics={"m": lambda: np.ones(2)})),
    (ValueError, "pipeline: the function is called with (stages, micro_batches), but takes (stages)",
     lambda s: s.with_options(pipeline=lambda stages: []).job()),
    (ValueError, "pipeline: the function returned 3; expected a list of actions",
     lambda s: s.with_options(pipeline=lambda stages, micro_batches: 3).job()),
    (ValueError, "expected a plan, such as hetu.schedule.generate returns, got '1f1b'",
     lambda s: ht.schedule.verify("1f1b")),
    (ValueError, "set_weights: expected a dict of arrays by name, such as {'w': array}, got an array",
     lambda s: s.job().set_weights(np.ones(2))),
    (ValueError, "load_weights: expected a safetensors file or folder, or a dict of arrays, got an array",
     lambda s: ht.load_weights(np.ones(2))),
    (ValueError, "learning_rate must be a number or one of hetu.lr, got [0.1]",
     lambda s: ht.Executor({"train": [ht.optim.SGD([0.1]).minimize(s.loss)]})),
    (ValueError, "relu: minimize() was already called on this graph; add operators before it",
     lambda s: [s.minimized(), ht.ops.relu(s.scores)]),
    (OSError, "trace none/run.json: there is no folder none", lambda s: s.job().run(trace="none/run.json")),
    (OSError, "none: No such file", lambda s: ht.data.ImageFolder("none", 2)),
    (OSError, "Lines: none.txt: No such file", lambda s: ht.data.Lines("none.txt", 2, length=4)),
    (ValueError, "graph must read from one data object, but it reads from 0; use a field of a data object",
     lambda s: ht.Executor({"train": [ht.optim.SGD(0.1).minimize(s.unfed())]})),
    (ValueError, "every must be a whole number >= 0, got -1", lambda s: s.job().run(checkpoint="c", every=-1)),
    (ValueError, "arrays: field 'x': setting an array element with a sequence",
     lambda s: s.job(train=["train"], predict=[s.scores]).predict({"x": [[1.0, 2.0], [1.0]]})),
    (ValueError, "the arrays must have the same number of rows, at least one; they have {'x': 0}",
     lambda s: s.job(train=["train"], predict=[s.scores]).predict({"x": 3.0})),
    (ValueError, "evaluate: metrics must be a dict by name, such as {'accuracy': 'hits'}, got an int",
     lambda s: s.job(train=["train"], evaluate=[s.loss]).evaluate(metrics=3)),
    (AttributeError, "Step has no attribute 'accuracy'; read reported values as step['accuracy']; there are: loss",
     lambda s: s.step().accuracy),
    (AttributeError, "hetu.metrics has no 'AUC'; did you mean auc?", lambda s: ht.metrics.AUC),
    (AttributeError, "hetu.job.hooks has no 'log'; did you mean Log?", lambda s: ht.hooks.log),
    (ValueError, "plateau: factor must be between 0 and 1, got 2", lambda s: ht.lr.ReduceOnPlateau(0.1, factor=2)),
    (ValueError, "the name of a value can't be changed. Give name= to the operator that computes it. For an output of a "
                 "saved model, name it there: job.save(folder, fetches={'logits': value})",
     lambda s: setattr(s.scores, "name", "logits")),
    # Missing arguments, and arguments of a wrong type.
    (TypeError, "hetu.nn.Linear: missing a required argument: 'out_features'; it takes (in_features, out_features, "
                "bias=True)", lambda s: ht.nn.Linear(4)),
    (TypeError, "Arrays: batch_size is missing; use it instead of batchsize",
     lambda s: ht.data.Arrays(x=[1.0], batchsize=1)),
    (TypeError, "Arrays: batch_size is missing; give batch_size=32, for example", lambda s: ht.data.Arrays(x=[1.0])),
    (TypeError, "hetu.Executor takes no keyword 'method'; use pipeline", lambda s: s.with_options(method="1f1b").job()),
    (ValueError, "unknown option methd; did you mean 'pipeline'?", lambda s: s.with_options(methd="1f1b").job()),
    (ValueError, "devices cuda: this option lays out the workers; did you mean device=cuda?",
     lambda s: s.with_options(devices="cuda").job()),
    (ValueError, "Table /missing.csv: there is no such file", lambda s: ht.data.Table("/missing.csv", 4)),
    (ValueError, "learning_rate must be a number or one of hetu.lr, got '0.1'", lambda s: ht.optim.Adam("0.1")),
    (ValueError, "learning_rate must be", lambda s: ht.optim.Adam(-1)),
    (ValueError, "betas must be two numbers", lambda s: ht.optim.AdamW(0.1, betas=0.9)),
    (ValueError, "reduce_mean: Value(bool[B]) is not float32; use .cast('float32'). For the accuracy, put "
                 "hetu.ops.top_k_hits(logits, labels, k=1, name='hits') into a list",
     lambda s: (s.scores.argmax() == s.data.y.cast("int32")).mean()),
    (ValueError, 'labels must be int32, got Value(float32[B]); give the data object whole numbers, as in y.astype("int32")',
     lambda s: ht.models.mean_cross_entropy(s.scores, s.data.y)),
    (ValueError, "save: 'reduce_sum' is in no list of the Executor that predicts; add a list without minimize(), such as "
                 '"predict": [reduce_sum]', lambda s: [s.scores.sum(axis=1), s.job()][1].save("m", fetches=["reduce_sum"])),
    # Errors during a run.
    (ValueError, "'entropy.cross_entropy': label 2 of field 'y' is outside [0, 2): step 0, micro-batch 0, row 1 of the "
                 "micro-batch, row 1 of the global batch", lambda s: s.labelled(2)),
    (FileNotFoundError, "none/log.csv", lambda s: list(s.job().run(hooks=[ht.hooks.Log("none/log.csv")]))),
    (ValueError, "weights: the model has no 'v'; it has: w", lambda s: s.job().weights(["v"])),
    # A name that is used twice.
    (ValueError, "parameter 'w': the name is taken", lambda s: ht.parameter("w", [2], ht.graph.constant(0.0))),
    (ValueError, "fetch 'loss': the name is taken by 'loss'",
     lambda s: [ht.graph.current().fetch("loss", value) for value in (s.loss, s.scores.sum())]),
    (ValueError, "differentiate: ", lambda s: [s.minimized(), s.minimized()]),
    # A dataset of the wrong length.
    (ValueError, "Arrays: all fields must have the same length, got x of 3 rows, y of 2 rows",
     lambda s: ht.data.Arrays(x=np.ones(3), y=np.ones(2), batch_size=1)),
    (ValueError, "a global batch of 9 rows can't be divided equally among 2 pipelines",
     lambda s: __import__("dataclasses").replace(ht.job_info(), pipelines=2).batch_size(9)),
)


class Traps(unittest.TestCase):
    def test_one_line_that_names_the_place(self):
        for kind, says, make in TRAPS:
            setting = Setting()
            with self.subTest(says), self.assertRaises(kind) as caught:
                make(setting)
            text = str(caught.exception) if kind is not KeyError else caught.exception.args[0]
            with self.subTest(says):
                self.assertIn(says, text)
                self.assertNotIn("\n", text)
                if kind is not FileNotFoundError:  # an error of Python, which names the file
                    self.assertRegex(text, r"^traps_test\.py:\d+: ")

    def test_rows_that_are_too_few_for_a_batch(self):
        ht.new_graph()
        data = ht.data.Arrays(x=np.ones((3, 2)), batch_size=4)
        loss = ht.step_mean(ht.ops.linear(data.x, ht.parameter("w", [1, 2], ht.graph.constant(1.0))))
        says = r"^traps_test\.py:\d+: Arrays: 3 rows are fewer than one global batch of 4;"
        with self.assertRaisesRegex(ValueError, says):
            ht.Executor({"train": [ht.optim.SGD(0.1).minimize(loss)]}, threads=1)

    def test_a_generator_of_another_model(self):
        ht.new_graph()
        ids = ht.data.Arrays(ids=np.ones((2, 5), int), batch_size=2)
        loss = ht.models.Gpt.from_config("tiny", n_layer=1).loss(ids)
        job = ht.Executor({"train": [loss, ht.optim.SGD(0.1).minimize(loss)]}, threads=1)
        with tempfile.TemporaryDirectory() as folder:
            list(job.run(checkpoint=pathlib.Path(folder) / "ckpt"))
            two = ht.models.Gpt.from_config("tiny", n_layer=2)
            for model, says in ((two, r"has no 'transformer\.h\.1\..*belongs to another model"),
                                (job, r"save_generator: expected a model of the next token, such as Gpt, got a hetu\.")):
                with self.assertRaisesRegex((OSError, ValueError), rf"^traps_test\.py:\d+: .*{says}"):
                    ht.models.save_generator(f"{folder}/generator", model, f"{folder}/ckpt", length=8)
            with self.assertRaisesRegex(OSError, r"^traps_test\.py:\d+: Generator: .*this checkpoint has no graph"):
                ht.models.Generator(f"{folder}/ckpt")
            with self.assertRaisesRegex(ValueError, r"^traps_test\.py:\d+: .*holds a checkpoint already"):
                list(job.run(checkpoint=f"{folder}/ckpt"))

    def test_a_run_that_was_not_asked_for_steps_says_so(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            job = Setting().job()
            job.run(steps=3)
            list(job.run(steps=1))
            next(job.run(steps=2))
        self.assertRegex(said.getvalue(),
                         r"^traps_test\.py:\d+: job\.run\('train', steps=3\) made no step, as none was requested[^\n]*\n$")

    def script(self, *lines):
        """Runs a script. Returns its exit status and its error output."""
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/mine.py"
            with open(path, "w") as file:
                file.write("\n".join(["import numpy as np", "import hetu as ht", *lines]) + "\n")
            done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr.replace(path, "mine.py")

    def test_a_script_ends_in_its_line(self):
        found = self.script("with ht.one_line_errors('mine.py'):",
                            "    data = ht.data.Arrays(x=np.ones(3), y=np.ones(2), batch_size=1)")
        self.assertEqual(found, (2, "mine.py:4: Arrays: all fields must have the same length, got x of 3 rows, "
                                    "y of 2 rows\n"))

    def test_a_traceback_ends_in_the_script(self):
        """The traceback ends in the script for refused calls, unknown names and errors of C++, but not for the script's own
        errors."""
        for lines, says in (
            (["ht.step_mean(1.0)"], "ValueError: mine.py:3: step_mean: x must be a Value, got a float"),
            (["ht.nn.Linear(2, 1).eval()"], "AttributeError: mine.py:3: Linear has no 'eval'"),
            (["ht.schedule.generate('1f1b')"], "ValueError: mine.py:3: 1f1b needs stages P"),
            (["ht.load('none')"], "OSError: mine.py:3: none: holds no checkpoint"),
            (["ht.data.Arrays(x=np.ones(3), batch_size=1).z"], "AttributeError: mine.py:3: Arrays has no field or"),
            (["class Mine(ht.nn.Module):", "    def forward(self, x):", "        return ht.ops.relu(x)", "Mine()(1.0)"],
             "ValueError: mine.py:5: relu: input 0 must be a Value, got a float"),
        ):
            with self.subTest(says):
                status, told = self.script(*lines)
                files = [line.split('"')[1] for line in told.splitlines() if line.startswith("  File ")]
                self.assertEqual((status, files[0], files[-1]), (1, "mine.py", "mine.py"), told)
                self.assertIn(f"\n{says}", told)
        for line in ("ht.nn.Linear(2, 1)(data.x).mean()", "data.x.reshape([3, 5])", "data.x == 'a'", "ht.nn.Conv3d",
                     "ht.nn.Linear(4)", "ht.optim.Adam(-1)"):
            _, told = self.script("data = ht.data.Arrays(x=np.ones((3, 2)), batch_size=1)", line)
            self.assertEqual((told.count("Traceback"), told.count("Did you mean"), "hetu/" in told), (1, 0, False), told)
        _, told = self.script("try:", "    {}['mine']", "except KeyError:", "    ht.step_mean(1.0)")
        self.assertIn("KeyError: 'mine'", told, "the script's own errors stay")
        _, told = self.script("def augment(batch, draw):", "    return batch['y']",
                              "ht.data.Arrays(x=np.ones(3), batch_size=1, augment=augment)")
        self.assertRegex(told, r'rows\.py", line(.|\n)*mine\.py", line 4, in augment(.|\n)*KeyError: .y.')


if __name__ == "__main__":
    unittest.main()
