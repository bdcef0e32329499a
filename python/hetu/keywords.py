"""Checks of keyword arguments. The error for an unknown keyword is one line with the right keyword, also for the spellings
of PyTorch and Keras."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from hetu.names import near
from hetu.place import of_script, place

# Spellings of other libraries -> Hetu's spellings. The first one that the function accepts is suggested.
SPELLINGS: dict[str, tuple[str, ...]] = {
    # optimizers and learning rates
    "lr": ("learning_rate", "rate"), "eta": ("learning_rate", "rate"), "alpha": ("learning_rate", "rate"),
    "learning_rate": ("rate",), "base_lr": ("rate",), "initial_learning_rate": ("rate",),
    "eps": ("epsilon",), "epsilon": ("eps",), "layer_norm_epsilon": ("eps",),
    "beta1": ("betas",), "beta2": ("betas",), "beta_1": ("betas",), "beta_2": ("betas",),
    "weight_decay": ("l2",), "decay": ("weight_decay", "l2"), "l2": ("weight_decay",), "wd": ("weight_decay", "l2"),
    "lambd": ("weight_decay", "l2"),
    "clipnorm": ("clip_norm",), "global_clipnorm": ("clip_norm",), "max_norm": ("clip_norm",),
    "max_grad_norm": ("clip_norm",), "grad_clip": ("clip_norm",), "gradient_clip_val": ("clip_norm",),
    "step_size": ("every",), "decay_steps": ("total", "every"), "T_max": ("total",), "total_steps": ("total",),
    "num_training_steps": ("total",), "total_iters": ("total",), "eta_min": ("floor",), "min_lr": ("min_rate",),
    "end_learning_rate": ("floor",), "decay_rate": ("gamma",), "num_warmup_steps": ("steps", "warmup"),
    "warmup_steps": ("steps", "warmup"), "warmup_proportion": ("share",), "boundaries": ("milestones",),
    # layers
    "use_bias": ("bias",), "units": ("out_features",), "filters": ("out_channels",), "strides": ("stride",),
    "dilation_rate": ("dilation",), "pool_size": ("kernel_size",), "rate": ("p",), "dropout_rate": ("dropout", "p"),
    "dropout": ("p",), "p": ("dropout",), "prob": ("p",), "input_dim": ("num_embeddings", "in_features"),
    "output_dim": ("embedding_dim", "out_features"), "in_dim": ("in_features",), "out_dim": ("out_features",),
    "input_size": ("in_features",), "output_size": ("out_features",), "in_features": ("input_size",),
    "num_layer": ("num_layers",), "heads": ("num_heads",), "n_heads": ("num_heads",),
    "affine": ("elementwise_affine",), "groups": ("num_groups",),
    "dim": ("axis", "axes"), "axis": ("dim", "axes"), "axes": ("axis", "dim"), "dims": ("axis", "axes"),
    "keepdim": ("keepdims",), "keep_dims": ("keepdims",), "size": ("scale_factor", "shape"), "shape": ("size",),
    "num_classes": ("classes",), "depth": ("classes",), "stddev": ("std",),
    "minval": ("low",), "maxval": ("high",), "label_smoothing": ("smoothing",), "ignore_index": ("ignore",),
    "class_weight": ("weight",), "y_true": ("labels", "target"), "y_pred": ("logits", "x"), "input": ("logits", "x"),
    "targets": ("labels", "target"),
    # data
    "batch": ("batch_size",), "bs": ("batch_size",), "batchsize": ("batch_size",), "num_workers": ("threads",),
    "root": ("path", "folder"), "dir": ("folder", "path"), "directory": ("folder", "path"), "file": ("path", "folder"),
    "filename": ("path", "source"), "path": ("folder", "source"), "folder": ("path",),
    "random_state": ("seed",), "random_seed": ("seed",),
    "transform": ("augment",), "max_length": ("length", "sequence_length"), "seq_len": ("length", "sequence_length"),
    "max_seq_length": ("length", "sequence_length"), "image_size": ("size",), "tokenizer": ("vocabulary", "encode"),
    # runs
    "num_steps": ("steps",), "max_steps": ("until", "steps"), "n_steps": ("steps",), "steps_per_epoch": ("epoch_steps",),
    "callbacks": ("hooks",), "checkpoint_dir": ("checkpoint",), "ckpt_path": ("checkpoint",), "ckpt": ("checkpoint",),
    "save_every": ("every",), "save_steps": ("every",), "dataset": ("data",), "x": ("data",), "dataloader": ("data",),
    "outputs": ("fetches",), "filepath": ("folder",), "log_dir": ("folder",), "logdir": ("folder",),
    "num_threads": ("threads",), "gradient_accumulation_steps": ("micro_batches",), "accumulation": ("micro_batches",),
    "schedule": ("pipeline",), "method": ("pipeline",),
}
# Hints for spellings that no function accepts, by (function, spelling) or by the spelling alone.
ADVICE: dict[tuple[str, str] | str, str] = {
    ("hetu.Executor.run", "epochs"): "give steps; an epoch has job.data.steps_per_epoch(job.layout.pipelines) of them",
    ("hetu.Executor.run", "num_epochs"): "give steps; an epoch has job.data.steps_per_epoch(job.layout.pipelines) of them",
    ("hetu.Executor.run", "max_epochs"): "give until; an epoch has job.data.steps_per_epoch(job.layout.pipelines) steps",
    ("hetu.Executor.run", "verbose"): "give hooks=[hetu.hooks.Progress()]",
    ("hetu.Executor.run", "log"): "give hooks=[hetu.hooks.Log(path)]",
    ("hetu.Executor.run", "validation_data"): "call job.evaluate(data) between two runs, or in a hook's on_epoch",
    ("hetu.Executor.run", "learning_rate"): "give it to the optimizer: hetu.optim.Adam(learning_rate)",
    ("hetu.Executor.run", "lr"): "give it to the optimizer: hetu.optim.Adam(learning_rate)",
    ("hetu.Executor", "learning_rate"): "give it to the optimizer: hetu.optim.Adam(learning_rate)",
    ("hetu.Executor", "lr"): "give it to the optimizer: hetu.optim.Adam(learning_rate)",
    ("hetu.Executor", "optimizer"): "put it into the list that trains: {'train': [loss, optimizer.minimize(loss)]}",
    ("hetu.Executor", "loss"): "put it into the list that trains: {'train': [loss, optimizer.minimize(loss)]}",
    ("hetu.Executor", "data"): "the model reads it: use a field of a data object, such as data.x, as a value",
    # of SD-PIPE's library
    ("hetu.Executor", "use_preduce"): "give averaging=hetu.averaging.Averaging(), with pipeline='pipedream'",
    ("hetu.Executor", "use_adpsgd"): "give averaging=hetu.averaging.Averaging(method='adpsgd'), with pipeline='pipedream'",
    ("hetu.Executor", "dynamic_memory"): "leave it out: memory is planned before the first step",
    ("hetu.Executor", "bsp"): "give sync_method='ps' and staleness=N, with the same numbers",
    ("hetu.Executor.run", "batch_num"): "give micro_batches=N to hetu.Executor, and steps=1 here: a step runs N "
                                        "micro-batches and reports their sums",
    ("hetu.optim.SGD", "momentum"): "use hetu.optim.Momentum",
    ("hetu.optim.SGD", "nesterov"): "use hetu.optim.Momentum",
    ("hetu.optim.SGD", "dampening"): "dampening is not supported",
    "epochs": "give steps to job.run",
    "batch_size": "give it to the data object: hetu.data.Arrays(x=x, batch_size=32)",
    "shuffle": "give it to the data object: hetu.data.Arrays(x=x, shuffle=False, batch_size=32)",
    "params": "minimize(loss) trains every parameter that the loss depends on",
    "parameters": "minimize(loss) trains every parameter that the loss depends on",
    "device": "give it to hetu.Executor: device='cpu'",
    "dtype": "give it to hetu.Executor: dtype='bf16'",
    "activation": "apply it to the result: hetu.ops.relu(layer(x))",
    "kernel_initializer": "set layer.weight.init to one of hetu.init",
    "bias_initializer": "set layer.bias.init to one of hetu.init",
    "kernel_regularizer": "give l2 or weight_decay to the optimizer",
    "inplace": "values never change, so leave it out",
    "requires_grad": "minimize(loss) trains every parameter that the loss depends on",
    "padding_idx": "mask the rows with hetu.where instead",
    "reduction": "losses of hetu.models are means over the whole step; hetu.ops has the sums",
    "track_running_stats": "running statistics are always kept",
    "pin_memory": "copies to a GPU are pinned already, so leave it out",
    "drop_last": "training takes whole batches, and job.evaluate takes all rows",
}

_SIMPLE = (bool, int, float, str, type(None))  # defaults that a message shows


def _refuse(called: str, name: str, taken: list[str]) -> NoReturn:
    ours = next((each for each in SPELLINGS.get(name, ()) if each in taken), None)
    if (called, name) in ADVICE:
        hint = ADVICE[called, name]
    elif ours is not None:
        hint = f"use {ours}"
    else:
        hint = ADVICE.get(name) or near(name, taken)
    raise of_script(TypeError(f"{place()}{called} takes no keyword '{name}'; {hint}"))


def check_options(called: str, named: dict[str, Any], taken: list[str]) -> None:
    """Throws TypeError for options that have other names in Hetu. Other unknown names are checked by the table of options.
    """
    for name in named:
        if name not in taken and (name in ADVICE or (called, name) in ADVICE or name in SPELLINGS):
            _refuse(called, name, taken)


def _check_arguments(called: str, function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Throws TypeError, with the line of the user's script, if these are not arguments of the function."""
    signature = inspect.signature(function)
    try:
        signature.bind(*given, **named)
    except TypeError as error:
        taken = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" if isinstance(p.default, _SIMPLE) else
                 f"{p.name}=…" for p in signature.parameters.values() if p.name != "self"]
        raise of_script(TypeError(f"{place()}{called}: {error}; it takes ({', '.join(taken)})")) from None


def checked(function: Callable[..., Any], called: str) -> Callable[..., Any]:
    """Returns a wrapper of the function that rejects unknown keywords, and suggests the right one. `called` is the
    function's name in messages."""
    parameters = inspect.signature(function).parameters.values()
    if getattr(function, "hetu_checked", False) or any(p.kind is p.VAR_KEYWORD for p in parameters):
        return function
    taken = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self"]
    known = frozenset(taken)

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        for name in named:
            if name not in known:
                # The user's subclasses inherit the constructor of a private class, but have their own names.
                own = f"{called.rpartition('.')[0]}.{type(given[0]).__name__}" if "._" in called and given else called
                _refuse(own, name, taken)
        try:
            return function(*given, **named)
        except TypeError:
            _check_arguments(called, function, given, named)
            raise

    call.hetu_checked = True  # type: ignore[attr-defined]
    return call


def check_methods(kind: type, called: str) -> None:
    """Wraps the public methods of a class and of its base classes with checked(). `called` is the class's name in messages.
    """
    for each in kind.__mro__[:-1]:
        for name, value in list(vars(each).items()):
            if name[:1] != "_" and inspect.isfunction(value):
                setattr(each, name, checked(value, f"{called}.{name}"))


def check_module(module: str, called: str = "") -> None:
    """Wraps all public functions and classes of a module with checked(). `called` is the module that users import them
    from."""
    names, called = vars(sys.modules[module]), called or module
    for name, value in list(names.items()):
        if getattr(value, "__module__", "") != module:
            continue
        if inspect.isfunction(value) and name[:1] != "_":
            names[name] = checked(value, f"{called}.{name}")
        elif inspect.isclass(value) and inspect.isfunction(vars(value).get("__init__")):
            value.__init__ = checked(vars(value)["__init__"], f"{called}.{name}")  # type: ignore[method-assign]
