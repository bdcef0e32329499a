"""Error messages for unknown names: similar names, and Hetu's names for features of other libraries."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import PathFinder
from types import ModuleType
from typing import NoReturn

from hetu.place import of_script, place, refuse

# Names in NumPy, PyTorch and Keras -> Hetu's names, by module or by class. A class's own names begin with a dot.
_CALLED = {
    "Value": {
        "view": ".reshape", "size": ".shape", "dim": ".ndim", "transpose": ".permute or .swapaxes", "T": ".permute()",
        "float": '.cast("float32")', "int": '.cast("int32")', "long": '.cast("int32")', "bool": '.cast("bool")',
        "to": ".cast", "astype": ".cast", "type": ".dtype", "dtypes": ".dtype", "clamp": ".clip", "amax": ".max",
        "amin": ".min", "chunk": ".split", "item": "step.scalars of a run that reports the value",
        "numpy": "job.predict, which returns arrays", "detach": "the value itself: no gradient without a parameter",
        "backward": "optim.….minimize(loss)", "grad": "job.gradients() after a step", "cat": "hetu.concat",
        "masked_fill": "hetu.where", "matmul": "@", "mm": "@", "bmm": "@", "dot": "@", "argmin": "(-x).argmax",
        "square": "x ** 2", "norm": "(x ** 2).sum(axis).sqrt()", "topk": "hetu.ops.top_k",
        "numel": "math.prod(x.shape)",
        "data": "init= or hetu.load_weights for the first values of a parameter",
    },
    "hetu": {
        "cat": "hetu.concat", "concatenate": "hetu.concat", "tensor": "hetu.constant", "Tensor": "hetu.Value",
        "array": "hetu.constant", "from_numpy": "hetu.constant", "zeros": "hetu.ops.fill", "full": "hetu.ops.fill",
        "Variable": "hetu.parameter", "no_grad": "a list of the Executor without minimize()", "matmul": "@",
        "manual_seed": "seed= of hetu.Executor", "device": "device= of hetu.Executor", "functional": "hetu.ops",
        "DataLoader": "hetu.data.Dataset", "Trainer": "hetu.Executor", "layers": "hetu.nn", "train": "hetu.Executor(…).run",
        "torch": "hetu.torch after import hetu.torch",
        # of SD-PIPE's library
        "context": "hetu.cut(value) where a stage ends, and devices=[[hetu.devices.rgpu('w0', 0)], …] of hetu.Executor, a "
                   "row of workers per stage",
        "gpu": "hetu.devices.gpu", "rgpu": "hetu.devices.rgpu", "cpu": "device='cpu' of hetu.Executor",
        "rcpu": "hetu.parameter(…, placement='server') for a table on servers",
    },
    "hetu.nn": {
        "CrossEntropyLoss": "hetu.models.mean_cross_entropy", "NLLLoss": "hetu.models.mean_cross_entropy on logits",
        "MSELoss": "hetu.models.mean_squared_error", "L1Loss": "hetu.models.mean_absolute_error",
        "HuberLoss": "hetu.models.mean_huber", "SmoothL1Loss": "hetu.models.mean_huber", "functional": "hetu.ops",
        "BCEWithLogitsLoss": "hetu.models.mean_binary_cross_entropy", "KLDivLoss": "hetu.models.mean_kl_divergence",
        "BCELoss": "hetu.models.mean_binary_cross_entropy on logits", "Dense": "hetu.nn.Linear",
        "DataParallel": "devices= of hetu.Executor", "DistributedDataParallel": "devices= of hetu.Executor",
    },
    "numpy": {
        "absolute": ".abs()", "negative": "-x", "square": "x ** 2", "concatenate": "hetu.concat", "dot": "@",
        "amax": ".max()", "amin": ".min()", "transpose": ".permute()", "expand_dims": ".unsqueeze()", "logical_and": "&",
        "logical_or": "|", "logical_not": "~",
    },
    "hetu.optim": {"lr_scheduler": "hetu.lr"},
    "hetu.data": {"DataLoader": "hetu.data.Dataset", "TensorDataset": "hetu.data.Arrays"},
    "hetu.models": {"GPT2": "hetu.models.Gpt", "GPT": "hetu.models.Gpt"},
    "hetu.lr": {"StepLR": "hetu.lr.step", "CosineAnnealingLR": "hetu.lr.cosine", "ExponentialLR": "hetu.lr.exponential"},
    "Module": {
        "train": "a list of the Executor with minimize()", "eval": "a list of the Executor without minimize()",
        "to": "device= of hetu.Executor", "cuda": "device= of hetu.Executor", "state_dict": "job.weights()",
        "load_state_dict": "hetu.load_weights", "modules": ".named_modules()", "buffers": ".named_buffers()",
        "named_children": ".children()", "add_module": "an attribute: self.name = module",
        "register_module": "an attribute: self.name = module", "register_buffer": "an attribute: self.name = nn.Buffer(…)",
        "register_parameter": "an attribute: self.name = nn.Parameter(…)", "predict": "job.predict", "fit": "job.run",
        "num_parameters": "hetu.summary(…).parameters", "count_params": "hetu.summary(…).parameters",
    },
    "Executor": {
        "fit": ".run", "train": ".run", "test": ".evaluate", "validate": ".evaluate", "forward": ".predict",
        "state_dict": ".weights()", "load_state_dict": ".set_weights", "loss": "step.loss",
    },
    "Optimizer": {"step": "job.run", "zero_grad": "job.run, whose steps start with zero gradients", "lr": ".learning_rate",
                  "param_groups": ".learning_rate"},
}
# By module or class: the modules that are searched for a public name.
_ALL = ("functions", "ops", "nn", "optim", "models", "data", "lr", "init", "metrics", "job.hooks")
_MEANT = {"Value": _ALL[:2], "numpy": _ALL[:2], "Module": (), "Executor": (), "Optimizer": ()}


def _close(name: str, known: list[str]) -> list[str]:
    import difflib  # imported late, to save the time at each start of a worker

    return difflib.get_close_matches(name, known, 3)


def near(name: object, known: Iterable[str]) -> str:
    """Returns the end of an error message: names similar to this one, or else some of the known names."""
    names = list(known)
    if close := _close(str(name), names):
        return f"did you mean {' or '.join(repr(one) for one in close)}?"
    left = len(names) - 8
    return f"there are: {', '.join(names[:8])}" + (f" and {left} more" if left > 0 else "") if names else "there are none"


def _public(module: ModuleType) -> list[str]:
    """Returns the public names of a module."""
    return list(getattr(module, "__all__", None) or [
        name for name, value in vars(module).items()
        if name[:1] != "_" and getattr(value, "__module__", "") == module.__name__])


def _meant(owner: str, name: str) -> str:
    """Returns the public name of Hetu that equals this name, ignoring case, or ""."""
    found = []
    for module in _MEANT.get(owner, _ALL):
        with contextlib.suppress(ImportError, AttributeError):  # a part that is not built
            before = {"functions": "hetu.", "job.hooks": "hetu.hooks."}.get(module, f"hetu.{module}.")
            found += [(public != name, before + public) for public in _public(importlib.import_module(f"hetu.{module}"))
                      if public.lower() == name.lower()]
    return min(found, key=lambda pair: pair[0])[1] if found else ""


def _where(owner: str, name: str, known: list[str], dot: str) -> str:
    """Returns a hint where to look for the name."""
    if name in _CALLED.get(owner, {}):
        return f"use {_CALLED[owner][name]}"
    close = [each for each in known if each.lower() == name.lower()]
    if not close and (meant := _meant(owner, name)):
        return f"{meant} is a function of values" if meant.startswith("hetu.ops.") else f"there is {meant}"
    if close := close or _close(name, known):
        return f"did you mean {' or '.join(dot + each for each in close)}?"
    at = {"Module": "hetu.nn.Module", "Optimizer": "hetu.optim.Optimizer"}.get(owner, f"hetu.{owner}")
    return f"help({owner if owner.startswith('hetu') else at}) lists what it has"


def refuse_numpy(name: str, methods: Iterable[str]) -> NoReturn:
    """Rejects a NumPy function that was called on a Value, and names Hetu's replacement."""
    ours = _CALLED["numpy"].get(name) or (f".{name}()" if name in methods else _meant("numpy", name))
    refuse(f"numpy.{name} takes arrays, but a Value is computed when the graph runs; "
           + (f"use {ours}" if ours else "use methods and operators of values, and functions of hetu and hetu.ops"))


def missing_of(owner: str, name: str, known: Iterable[str], called: str = "") -> NoReturn:
    """Implements __getattr__ of a class, which is a key of _CALLED: throws AttributeError with the line of the user's
    script and a hint.

    called: the name of the class in the message, if it is not `owner`.
    """
    called = called or owner
    what = "a Value" if called == "Value" else called
    if name[:1] == "_":  # requested by Python and its tools
        raise AttributeError(f"{what} has no attribute '{name}'")
    where = _where(owner, name, [each for each in known if each[:1] != "_"], ".")
    raise of_script(AttributeError(f"{place()}{what} has no '{name}'; {where}"))


def missing_from(module: str) -> Callable[[str], NoReturn]:
    """Returns the __getattr__ of a module of Hetu."""

    def missing(name: str) -> NoReturn:
        found = sys.modules[module]
        path = vars(found).get("__path__")  # of a package: Python requests its modules here before it imports them
        if name[:1] == "_" or (path is not None and PathFinder.find_spec(f"{module}.{name}", path)):
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        raise of_script(AttributeError(f"{place()}{module} has no '{name}'; {_where(module, name, _public(found), '')}"))

    return missing
